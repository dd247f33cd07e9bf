"""How long work tells how far it is, without knowing who watches."""

from typing import Protocol

__all__ = ["Progress", "silent"]


class Progress(Protocol):
    """Called with what is being done, how much of it is done, of how much, and a short note."""

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None: ...


def silent(what: str, done: int, total: int, note: str = "") -> None:
    """Watch nothing."""
