"""What a person sees of long work, and how it is ended: announcement, bars or lines, Ctrl-C.

Where there is no terminal, a line a minute says how far it is. The first Ctrl-C ends a search and
keeps what it has proven, as the end of its budget would; the second, or the first where nothing
would be kept, stops the command at once.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lmexposure.cli.console import Bars, progress_bars
from lmexposure.cli.forecast import Forecast, in_words

if TYPE_CHECKING:
    from lmexposure.audit import (
        Phase,
    )

_BEFORE_WORDS = 1.0  # seconds in which paces are found out
_A_LINE = 60.0
_WIDE = 1.5  # what is at most is said where it is so much above what is expected

_ENDING = (
    "ending: the search stops here and what it has proven is kept; what every result needs is "
    "still finished. Ctrl-C again stops at once, without a result"
)
_IN_TRAINING = "stopped; the same command goes on from the last checkpoint"
STOPPED = "stopped; finished steps are kept, and the same command goes on from there"


class Stopped(BaseException):
    """Ctrl-C, where nothing more is to be kept; no search takes it for its own end."""


class LongWork:
    """One piece of long work under way: a `Watcher` for those who do it.

    Args:
        bars: draws, or does not.
        clock: seconds.
    """

    def __init__(self, bars: Bars, clock: Callable[[], float] = time.monotonic) -> None:
        self._bars, self._clock = bars, clock
        self._first = self._begun = self._said = clock()
        self._title, self._announced = "", False
        self._forecast = Forecast([], clock())
        self._keeps = self._asked = self._training = False

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        """Take how far a phase is."""
        now = self._clock()
        self._forecast.update(what, done, total, now)
        self._training = what == "training" and done < total
        self._announce(now)
        left = self._left(now)
        self._bars.show(what, done, total, f"{note}{left}".removeprefix("; "))
        if not self._bars.drawn and now - self._said >= _A_LINE:
            self._said = now
            more = f" ({note})" if note else ""
            self._bars.say(f"{what}: {done:,} of {total:,}{more}{left}")

    def plan(self, title: str, phases: "Sequence[Phase]", *, keeps: bool) -> None:
        """Take what is to be done from now on; it is announced when its pace is known."""
        now = self._clock()
        self._begun = self._said = now
        self._title, self._announced, self._keeps = title, False, keeps
        self._forecast = Forecast(phases, now)

    def end_asked(self) -> bool:
        """Whether Ctrl-C asked for an early end."""
        return self._asked

    def pressed(self) -> None:
        """Ctrl-C.

        Raises:
            Stopped: nothing would be kept by an early end, or it was asked for already.
        """
        if self._asked or not self._keeps:
            raise Stopped(_IN_TRAINING if self._training else STOPPED)
        self._asked = True
        self._bars.say(_ENDING)

    def finish(self) -> None:
        """Say how long it took, where it was long enough to be announced."""
        if self._announced:
            self._bars.say(f"done in {in_words(self._clock() - self._first)}")

    def _announce(self, now: float) -> None:
        """What will be done and how long it takes, once that is known."""
        left, elapsed = self._forecast.left(now), now - self._begun
        if self._announced or left is None or elapsed < _BEFORE_WORDS:
            return
        self._announced = True
        whole, most = left.expected + elapsed, left.most + elapsed
        about = f"about {in_words(whole)}"
        if most > _WIDE * whole and in_words(most) != in_words(whole):
            about += f", at most {in_words(most)}"
        self._bars.say(f"{self._title}; {about}")

    def _left(self, now: float) -> str:
        left = self._forecast.left(now) if self._announced else None
        return "" if left is None else f"; about {in_words(left.expected)} left"


@contextmanager
def long_work() -> Iterator[LongWork]:
    """Watch long work until the block ends; Ctrl-C is its own as long."""
    with progress_bars() as bars:
        work = LongWork(bars)
        with _interrupts(work):
            yield work
    work.finish()


@contextmanager
def _interrupts(work: LongWork) -> Iterator[None]:
    """Ctrl-C goes to the work; not where it is ignored, nor from a thread, which may not say so."""
    before = signal.getsignal(signal.SIGINT)
    first = threading.current_thread() is threading.main_thread()
    if before in (None, signal.SIG_IGN) or not first:
        yield
        return

    def pressed(*_: object) -> None:
        work.pressed()

    signal.signal(signal.SIGINT, pressed)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
