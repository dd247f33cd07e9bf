"""How long work tells how far it is and what is still to come, without knowing who watches."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


class Progress(Protocol):
    """Called with what is being done, how much of it is done, of how much, and a short note."""

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None: ...


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of long work, announced before it begins.

    Attributes:
        what: the name under which its progress is told.
        kind: "training", "scoring", "stepping" or "statistics": phases of one kind take about the
            same time for the same work.
        work: how much it is about: tokens that the model reads; seconds, of statistics.
        most: how much it can be at most, where that is more than `work`.
        pace: seconds per unit of work, where a trial said so; None: timed while it runs.
        before: which share was done beforehand, in [0, 1): `work` leaves it out.
        seconds: it ends after so many seconds whatever is left.
    """

    what: str
    kind: str
    work: float
    most: float = 0.0
    pace: float | None = None
    before: float = 0.0
    seconds: float = math.inf


@runtime_checkable
class Watcher(Progress, Protocol):
    """Progress that wants to know what is to come, and may ask for an early end."""

    def plan(self, title: str, phases: Sequence[Phase], *, keeps: bool) -> None:
        """Take what is to be done from now on.

        Args:
            title: all of it in one line.
            phases: its parts, in order.
            keeps: an early end that is asked for keeps what was found until then, in a result that
                says so.
        """
        ...

    def end_asked(self) -> bool:
        """Whether a person wants the work to end with what it has."""
        ...


def silent(what: str, done: int, total: int, note: str = "") -> None:
    """Watch nothing."""


def tell_phases(
    progress: Progress, title: str, phases: Callable[[], Sequence[Phase]], *, keeps: bool
) -> None:
    """Tell a watcher what is to come; for a plain function the phases are not worked out."""
    if isinstance(progress, Watcher):
        progress.plan(title, phases(), keeps=keeps)


def end_asked(progress: Progress) -> Callable[[], bool]:
    """What says whether to end early; of a plain function it never does."""
    return progress.end_asked if isinstance(progress, Watcher) else lambda: False
