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
from typing import TYPE_CHECKING, NamedTuple

from lmexposure._style import in_words
from lmexposure.cli.console import Bars, progress_bars

if TYPE_CHECKING:
    from lmexposure.audit import Phase

# Seconds per token, of phases that were never timed against those that were: a training step reads
# a token forwards and backwards; a search reads one forwards, and sorts and copies; scored texts
# share their beginnings. Seen on the LSTM and on small GPT-2s.
_SECONDS_PER_TOKEN = {"training": 1.0, "stepping": 1.0, "scoring": 0.25}
_TIMED = 0.5  # seconds of a phase after which its own pace counts


class Left(NamedTuple):
    """Seconds that are left: as expected, and at most, where budgets are used up."""

    expected: float
    most: float


class Forecast:
    """The time that is left of some phases, from how far they are."""

    def __init__(self, phases: Sequence["Phase"], now: float) -> None:
        self._phases = list(phases)
        self._at = -1
        self._begun = self._last = now
        self._share = 0.0
        self._paces: dict[str, float] = {}

    def update(self, what: str, done: int, total: int, now: float) -> None:
        """Take note of how far a phase is; one that was not planned is passed over."""
        names = [phase.what for phase in self._phases]
        if what in names:
            at = names.index(what)
            if at != self._at:
                self._at, self._begun, self._share = at, self._last, 0.0
            self._share = done / max(1, total)
            self._learn(now)
        self._last = now

    def left(self, now: float) -> Left | None:
        """What is still to come; None where a pace is not known yet."""
        if not self._phases:
            return None
        expected = most = 0.0
        for number, phase in enumerate(self._phases):
            if number < self._at:
                continue
            span = self._of_current(now) if number == self._at else self._of_later(phase)
            if span is None:
                return None
            expected, most = expected + span.expected, most + span.most
        return Left(expected, most)

    def _learn(self, now: float) -> None:
        """The pace of the phase under way; of one whose work is not known nothing is learned."""
        phase, elapsed = self._phases[self._at], now - self._begun
        read = phase.work * (self._share - phase.before) / (1 - phase.before)
        timed = elapsed >= _TIMED or self._share >= 1
        if timed and read > 0 and not phase.most and phase.kind in _SECONDS_PER_TOKEN:
            self._paces[phase.kind] = elapsed / read

    def _of_current(self, now: float) -> Left | None:
        phase, elapsed = self._phases[self._at], now - self._begun
        if self._share >= 1 and not phase.most:
            return Left(0.0, 0.0)
        whole = self._of_later(phase)
        if whole is None:
            return None
        if phase.most:
            spent = elapsed
        else:
            spent = whole.expected * (self._share - phase.before) / (1 - phase.before)
        within = max(0.0, phase.seconds - elapsed)
        return Left(*(min(within, max(0.0, seconds - spent)) for seconds in whole))

    def _of_later(self, phase: "Phase") -> Left | None:
        pace = self._pace(phase)
        if pace is None:
            return None
        return Left(pace * phase.work, pace * max(phase.work, phase.most))

    def _pace(self, phase: "Phase") -> float | None:
        if phase.kind in self._paces:
            return self._paces[phase.kind]
        if phase.pace is not None:
            return phase.pace
        if phase.kind in _SECONDS_PER_TOKEN and self._paces:
            known, pace = next(iter(self._paces.items()))
            return pace * _SECONDS_PER_TOKEN[phase.kind] / _SECONDS_PER_TOKEN[known]
        return None


_BEFORE_WORDS = 1.0  # seconds in which paces are found out
_A_LINE = 60.0
_WIDE = 1.5  # what is at most is said where it is so much above what is expected

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

    def say(self, line: str) -> None:
        """Say a line, above the bars."""
        self._bars.say(line)

    def end_asked(self) -> bool:
        """Whether Ctrl-C asked for an early end."""
        return self._asked

    def pressed(self) -> None:
        """Ctrl-C."""
        if self._asked or not self._keeps:
            went_on = _IN_TRAINING if self._training else _KEPT
            raise Stopped(went_on if self._kept else _NOT_KEPT)
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
