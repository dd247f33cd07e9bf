"""How many seconds a measurement may take while somebody else's training waits for it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lmexposure._validate import fraction, positive

__all__ = ["TimeBudget"]


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
        self.spent = 0.0
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

    def running(self) -> float:
        """Seconds since spending began; 0 outside."""
        return 0.0 if self._entered is None else self.clock() - self._entered

    def left(self) -> float:
        """Seconds that may still be spent now; negative where too many were."""
        running = self.running()
        if self._seconds is not None:
            return self._seconds - running
        spent = self.spent + running
        # What is measured within does not count as training.
        return self._share * (self.clock() - self._began - spent) - spent
