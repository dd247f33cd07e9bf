"""How much longer long work takes: its phases, and the paces that were seen so far."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lmexposure.audit import (
        Phase,
    )

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
    """The time that is left of some phases, told how far they are.

    Args:
        phases: in order.
        now: seconds, of any clock that goes forward.
    """

    def __init__(self, phases: Sequence["Phase"], now: float) -> None:
        self._phases = list(phases)
        self._at = -1
        self._begun = self._last = now
        self._share = 0.0
        self._paces: dict[str, float] = {}

    def update(self, what: str, done: int, total: int, now: float) -> None:
        """Take note of how far a phase is; one that was not planned is passed over."""
        names = [one.what for one in self._phases]
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


def in_words(seconds: float) -> str:
    """A duration as a person says it.

    >>> in_words(3), in_words(47), in_words(140), in_words(8000)
    ('3 s', '45 s', '2 min', '2.2 h')
    """
    if seconds < 90:
        return f"{max(1, round(seconds)) if seconds < 10 else 5 * round(seconds / 5)} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
