"""How many seconds a measurement may take while somebody else's training waits for it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil, floor, log10

from lmexposure._validate import fraction, positive


class TimeBudget:
    """Seconds by the clock: a share of the training so far, or so many at a time.

    What one measurement leaves of a share the next may use, and what it took too much is held
    against the next: over a whole training the share holds but for the last overshoot.

    Args:
        share: of the time since training began that all measurements may take, in (0, 1).
        seconds: what each measurement may take instead, above 0; None: the share decides.
        clock: gives seconds that only grow.

    Raises:
        SettingsError: a value out of range.

    >>> now = iter([0.0, 100.0])
    >>> budget = TimeBudget(share=0.04, clock=lambda: next(now))
    >>> budget.left()
    4.0
    """

    def __init__(
        self,
        *,
        share: float,
        seconds: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._share = fraction("budget_share", share)
        self._seconds = None if seconds is None else positive("budget_seconds", seconds)
        self.clock = clock
        self.begin()

    def begin(self) -> None:
        """Training begins now, and nothing has been spent."""
        self.spent = self._aside = 0.0
        self._began = self.clock()
        self._entered: float | None = None

    @contextmanager
    def spending(self) -> Iterator[None]:
        """What happens inside is paid for."""
        self._entered = self.clock()
        try:
            yield
        finally:
            self.spent += self.clock() - self._entered
            self._entered = None

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Within what is spent: what happens inside is counted, and not held against the share."""
        entered = self.clock()
        try:
            yield
        finally:
            self._aside += self.clock() - entered

    def running(self) -> float:
        """Seconds since spending began; 0 outside."""
        return 0.0 if self._entered is None else self.clock() - self._entered

    def left(self) -> float:
        """Seconds that may still be spent now; negative where too many were."""
        if self._seconds is not None:
            return self._seconds - self.running()
        training, spent = self._so_far()
        return self._share * training - spent

    def wanted(self, seconds: float, *, before: float = 0.0) -> str:
        """The settings under which more could be spent now, rounded up.

        Args:
            seconds: more than was spent so far on this measurement.
            before: more than was spent on those before it, which would have the same settings.

        >>> now = iter([0.0, 100.0])
        >>> TimeBudget(share=0.04, clock=lambda: next(now)).wanted(7.0)
        'budget_share=0.07 or budget_seconds=7'
        """
        each = f"budget_seconds={_rounded_up(self.running() + seconds)}"
        if self._seconds is not None:
            return each
        training, spent = self._so_far()
        share = _rounded_up((spent + seconds + before) / max(training, 1e-9))
        return f"budget_share={share} or {each}" if float(share) < 1 else each

    def _so_far(self) -> tuple[float, float]:
        """Seconds of training and of the share spent; what is measured within is no training."""
        now = self.clock()
        spent = self.spent + (0.0 if self._entered is None else now - self._entered)
        return now - self._began - spent, spent - self._aside


def _rounded_up(value: float) -> str:
    """To two digits, so that what is said suffices."""
    if value <= 0:
        return "0"
    unit = 10.0 ** (floor(log10(value)) - 1)
    return f"{float(f'{ceil(value / unit - 1e-9) * unit:.2g}'):g}"
