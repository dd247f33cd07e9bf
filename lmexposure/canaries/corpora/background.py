"""Work beside the reading, on another core: hashes, and the next piece while this one is used."""

import hashlib
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TypeVar

_Item = TypeVar("_Item")
_PIECE_BYTES = 1 << 18
_FEW = 3  # even out who is faster at the moment, in constant memory


def ahead(items: Iterator[_Item]) -> Generator[_Item, None, None]:
    """The same items; the next few are made while their user works on this one."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        waiting = deque(pool.submit(_next, items) for _ in range(_FEW))
        while (found := waiting.popleft().result()) is not None:
            waiting.append(pool.submit(_next, items))
            yield found[0]


def _next(items: Iterator[_Item]) -> tuple[_Item] | None:
    for item in items:
        return (item,)
    return None


class Behind:
    """Calls that are made one after another beside their caller, who is a few ahead at most."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._waiting: deque[Future[object]] = deque()

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Make this call, too; what an earlier one raised may be raised here."""
        self._waiting.append(self._pool.submit(function, *arguments))
        if len(self._waiting) > _FEW:
            self._waiting.popleft().result()

    def finish(self) -> None:
        """Wait for all calls; what one of them raised is raised here."""
        while self._waiting:
            self._waiting.popleft().result()


@contextmanager
def behind() -> Iterator[Behind]:
    """A thread for such calls."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        yield Behind(pool)


class BackgroundHash:
    """SHA-256 of bytes that come in order; some are hashed while the next ones are made."""

    def __init__(self, calls: Behind) -> None:
        self._digest, self._calls = hashlib.sha256(), calls
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
        self._calls.finish()
        return self._digest.hexdigest()

    def _hand_over(self) -> None:
        gathered, self._gathered, self._size = self._gathered, [], 0
        self._calls.call(self._add, gathered)

    def _add(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self._digest.update(piece)


@contextmanager
def background_hash() -> Iterator[BackgroundHash]:
    """A hash with a thread of its own."""
    with behind() as calls:
        yield BackgroundHash(calls)


class CorpusHashes:
    """SHA-256 of each file of a corpus and of all of them together, or of nothing.

    A file is hashed where it is read, while it is at hand; all of them together on another core.

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
        self._one = hashlib.sha256()
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
