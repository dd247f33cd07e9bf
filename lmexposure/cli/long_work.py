"""What a person sees of long work, and how it is ended: announcement, bars or lines, Ctrl-C.

Where there is no terminal, a line a minute says how far it is. The first Ctrl-C ends a search and
keeps what it has proven, as the end of its budget would; the second, or the first where nothing
would be kept, stops the command at once, as SIGTERM does.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from lmexposure._forecast import Phase, Remaining, Span
from lmexposure._style import in_words
from lmexposure.cli.console import Bars, progress_bars

_BEFORE_WORDS = 1.0  # seconds in which paces are found out
_A_LINE = 60.0

_ENDING = (
    "ending: the search stops here and keeps what it has proven; the rest of the result is still "
    "completed. Press Ctrl-C again to stop at once, without a result"
)
_IN_TRAINING = "stopped; the same command goes on from the last checkpoint, where there is one"
_KEPT = "stopped; finished steps are kept, and the same command goes on from there"
_NOT_KEPT = "stopped; nothing is kept, and the same command begins anew"
STOPPED = "stopped"  # where it is not known what is kept


class Stopped(BaseException):
    """Ctrl-C, where nothing more is to be kept; no search takes it for its own end."""


class LongWork:
    """One piece of long work under way: a `Watcher` for those who do it."""

    def __init__(
        self, bars: Bars, clock: Callable[[], float] = time.monotonic, *, kept: bool = True
    ) -> None:
        self._bars, self._clock, self._kept = bars, clock, kept
        self._first = self._begun = self._said = clock()
        self._title, self._announced, self._told = "", False, False
        self._remaining = Remaining([], clock())
        self._keeps = self._asked = self._training = False

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        """Take how far a phase is."""
        now = self._clock()
        self._remaining.update(what, done, total, now)
        self._training = what == "training" and done < total
        self._announce(now)
        left = self._left(now)
        self._bars.show(what, done, total, f"{note}{left}".removeprefix("; "))
        if not self._bars.drawn and now - self._said >= _A_LINE:
            self._said = now
            more = f" ({note})" if note else ""
            self._bars.say(f"{what}: {done:,} of {total:,}{more}{left}")

    def plan(self, title: str, phases: Sequence[Phase], *, keeps: bool) -> None:
        """Take what is to be done from now on; it is announced when its pace is known."""
        now = self._clock()
        self._begun = self._said = now
        self._title, self._announced, self._keeps = title, False, keeps
        self._remaining = Remaining(phases, now)

    def say(self, line: str) -> None:
        """Say a line, above the bars."""
        self._bars.say(line)

    def end_asked(self) -> bool:
        """Whether Ctrl-C asked for an early end."""
        return self._asked

    def pressed(self) -> None:
        """Ctrl-C."""
        if self._asked or not self._keeps:
            self.stop()
        self._asked = True
        self._bars.say(_ENDING)

    def stop(self) -> NoReturn:
        """SIGTERM, or Ctrl-C where nothing more is to be kept: whoever sent it may not wait."""
        went_on = _IN_TRAINING if self._training else _KEPT
        raise Stopped(went_on if self._kept else _NOT_KEPT)

    def finish(self) -> None:
        """Say how long it took, where it was long enough to be announced."""
        if self._told:
            self._bars.say(f"done in {in_words(self._clock() - self._first)}")

    def _announce(self, now: float) -> None:
        """What will be done and how long it takes, once that is known."""
        left, elapsed = self._remaining.left(now), now - self._begun
        if self._announced or left is None or elapsed < _BEFORE_WORDS:
            return
        self._announced = self._told = True
        self._bars.say(f"{self._title}; {Span(left.expected + elapsed, left.most + elapsed)}")

    def _left(self, now: float) -> str:
        left = self._remaining.left(now) if self._announced else None
        return "" if left is None else f"; about {in_words(left.expected)} left"


@contextmanager
def long_work(*, kept: bool = True) -> Iterator[LongWork]:
    """Watch long work until the block ends; Ctrl-C is its own as long.

    Args:
        kept: whether finished steps are on the disk, for the same command to go on.
    """
    with progress_bars() as bars:
        work = LongWork(bars, kept=kept)
        with _interrupts(work):
            yield work
    work.finish()


@contextmanager
def _interrupts(work: LongWork) -> Iterator[None]:
    """Ctrl-C goes to the work; not where it is ignored, nor from a thread, which may not say so."""
    before, by_others = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    first = threading.current_thread() is threading.main_thread()
    if before in (None, signal.SIG_IGN) or not first:
        yield
        return

    def pressed(*_: object) -> None:
        work.pressed()

    def ended(*_: object) -> None:
        work.stop()

    signal.signal(signal.SIGINT, pressed)
    if callable(by_others):  # the command line's own
        signal.signal(signal.SIGTERM, ended)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if callable(by_others):
            signal.signal(signal.SIGTERM, by_others)
