"""Work beside the reading, on another core: hashes, and the next piece while this one is used."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TypeVar

__all__ = ["BackgroundHash", "CorpusHashes", "ahead", "background_hash", "corpus_hashes"]

_Item = TypeVar("_Item")
_PIECE_BYTES = 1 << 18


def ahead(items: Iterator[_Item]) -> Iterator[_Item]:
    """The same items; the next one is made while its user works on this one."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        waiting = pool.submit(_next, items)
        while (found := waiting.result()) is not None:
            waiting = pool.submit(_next, items)
            yield found[0]


def _next(items: Iterator[_Item]) -> tuple[_Item] | None:
    for item in items:
        return (item,)
    return None


class BackgroundHash:
    """SHA-256 of bytes that come in order; some are hashed while the next ones are made."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._digest, self._pool = hashlib.sha256(), pool
        self._waiting: Future[None] | None = None
        self._gathered: list[bytes] = []
        self._size = 0

    def update(self, data: bytes) -> None:
        """Hash this too, after what came before it."""
        self._gathered.append(data)
        self._size += len(data)
        if self._size >= _PIECE_BYTES:
            self._hand_over()

    def hexdigest(self) -> str:
        """The hash of all of it, in hexadecimal."""
        self._hand_over()
        self._finish()
        return self._digest.hexdigest()

    def _hand_over(self) -> None:
        # One part under way at most, so that memory stays constant.
        self._finish()
        gathered, self._gathered, self._size = self._gathered, [], 0
        self._waiting = self._pool.submit(self._add, gathered)

    def _add(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self._digest.update(piece)

    def _finish(self) -> None:
        if self._waiting is not None:
            self._waiting.result()


@contextmanager
def background_hash() -> Iterator[BackgroundHash]:
    """A hash with a thread of its own."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        yield BackgroundHash(pool)


class CorpusHashes:
    """SHA-256 of each file of a corpus and of all of them together, or of nothing.

    Args:
        on: whether to hash at all.
        total: takes all files; None where there is only one.

    Attributes:
        files: of the content of each file that has ended, in hexadecimal; "" where hashing is off.
    """

    def __init__(self, *, on: bool, total: BackgroundHash | None) -> None:
        self.files: list[str] = []
        self._on, self._all = on, total

    @contextmanager
    def file(self) -> Iterator[None]:
        """What is given meanwhile is the content of the next file."""
        with background_hash() as self._one:
            yield
            self.files.append(self._one.hexdigest() if self._on else "")

    def update(self, data: bytes) -> None:
        """Hash some more of this file."""
        if self._on:
            self._one.update(data)
        if self._all is not None:
            self._all.update(data)

    @property
    def total(self) -> str:
        """Of all files one after another; "" where hashing is off."""
        return self._all.hexdigest() if self._all is not None else self.files[0]


@contextmanager
def corpus_hashes(*, on: bool, several: bool) -> Iterator[CorpusHashes]:
    """Hashes of one or several files, with threads of their own."""
    with ExitStack() as stack:
        total = stack.enter_context(background_hash()) if on and several else None
        yield CorpusHashes(on=on, total=total)
