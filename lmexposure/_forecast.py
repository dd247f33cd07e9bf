"""How long the work ahead takes: its units, times the seconds of one, timed before or meanwhile.

What a search will take is known only while it goes on: what is said is what is expected, and its
own expectation where its progress tells one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lmexposure._style import in_words

# Seconds per token, of phases that were never timed against those that were: a training step reads
# a token forwards and backwards; a search reads one forwards, and sorts and copies.
_SECONDS_PER_TOKEN = {"training": 1.0, "stepping": 1.0, "scoring": 0.25}
_SEEN = 5.0  # seconds of counted work after which its pace is that of what is left
_TIMED = 0.5  # seconds of a phase after which its own pace counts
_TOLD = 1.0  # seconds of a part that is worth naming


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of long work, announced before it begins."""

    what: str  # the name under which its progress is reported
    # phases of one kind take about the same time for the same work: "training", "scoring" and
    # "stepping" say something of each other, "statistics" take what was said, others are their own
    kind: str
    work: float  # its units: tokens that the model reads, models to train, seconds of statistics
    # its budget in the same units, where it ends when something is proven; 0.0: it does all of
    # `work`
    most: float = 0.0
    # seconds per unit of work, where a trial said so; None: timed while it runs
    pace: float | None = None
    before: float = 0.0  # which share was done beforehand, in [0, 1): `work` leaves it out
    seconds: float = math.inf  # after which it ends, whatever is left
    part: str = ""  # what a person calls this and phases like it

    @property
    def expected(self) -> float:
        """Seconds, as a trial said; 0.0 where none did."""
        return min(self.seconds, self.work * (self.pace or 0.0))


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What lies ahead, before it begins; the pace of every phase is known."""

    what: str  # is to be done, for a person
    phases: tuple[Phase, ...]
    note: str = ""  # what else it takes

    @property
    def seconds(self) -> float:
        """As expected.

        >>> models = Phase(what="models", kind="training", work=32, pace=90)
        >>> ahead = Forecast(what="64 models, 2 side by side", phases=(models,), note="; 6.4 MB")
        >>> ahead.seconds, ahead.sentence
        (2880.0, '64 models, 2 side by side; about 48 min; 6.4 MB')
        """
        return math.fsum(phase.expected for phase in self.phases)

    @property
    def sentence(self) -> str:
        """For a person."""
        if not self.phases:
            return self.what
        return f"{self.what}; about {in_words(self.seconds)}{self.note}"

    @property
    def by_part(self) -> str:
        """The parts in their order, with the seconds of each.

        >>> phases = [("a", "references"), ("b", "references"), ("c", "draws")]
        >>> made = [Phase(what=w, kind="scoring", work=9, pace=4, part=p) for w, p in phases]
        >>> Forecast(what="measuring", phases=tuple(made)).by_part
        'references 70 s, draws 35 s'
        """
        parts: dict[str, float] = {}
        for phase in self.phases:
            parts[phase.part] = parts.get(phase.part, 0.0) + phase.expected
        told = {part: seconds for part, seconds in parts.items() if seconds >= _TOLD}
        return ", ".join(f"{part} {in_words(seconds)}" for part, seconds in told.items())


class Pace:
    """What is left of counted work, by what was seen of it."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None  # when it was seen first, and how far it was

    def left(self, done: int, total: int, now: float) -> float | None:
        """Seconds until all is done; None where too little was seen."""
        begun, first = self._first = self._first or (now, done)
        if now - begun < _SEEN or done <= first:
            return None
        return (now - begun) / (done - first) * (total - done)


class Remaining:
    """The time that is left of some phases, from how far they are."""

    def __init__(self, phases: Sequence[Phase], now: float) -> None:
        self._phases = list(phases)
        self._at = -1
        self._begun = self._last = now
        self._done = 0.0  # which share of the phase under way, without what was done beforehand
        self._kept = 0.0  # of that, what was told at once, and took no time
        self._paces: dict[str, float] = {}
        self._expected: dict[str, tuple[float, float]] = {}  # seconds, and when they were told

    def expect(self, what: str, seconds: float, now: float) -> None:
        """Take what a phase takes from now on, or from its beginning, by those who do it."""
        self._expected[what] = seconds, now

    def update(self, what: str, done: int, total: int, now: float) -> None:
        """Take note of how far a phase is; one that was not planned is passed over."""
        names = [phase.what for phase in self._phases]
        if what in names:
            begins = self._at != names.index(what)
            if begins:
                self._at, self._begun = names.index(what), self._last
            phase, share = self._phases[self._at], done / max(1, total)
            if phase.most and total < phase.most:  # the search says itself what it expects
                self._phases[self._at] = phase = replace(phase, work=float(total))
            self._done = (share - phase.before) / (1 - phase.before)
            if begins:
                at_once = now - self._begun < _TIMED
                self._kept, self._begun = (self._done, now) if at_once else (0.0, self._begun)
            elapsed, read = now - self._begun, phase.work * (self._done - self._kept)
            timed = (elapsed >= _TIMED or share >= 1) and read > 0
            if timed and not phase.most and phase.kind != "statistics":
                self._paces[phase.kind] = elapsed / read
        self._last = now

    def left(self, now: float) -> float | None:
        """Seconds that are still to come, as expected; None where a pace is not known yet."""
        left = 0.0
        for number in range(max(0, self._at), len(self._phases)):
            phase = self._phases[number]
            if phase.what in self._expected:
                seconds, told = self._expected[phase.what]
                spent = now - max(told, self._begun) if number == self._at else 0.0
                left += max(0.0, seconds - spent)
                continue
            pace = self._pace(phase)
            if pace is None:
                return None
            seconds, limit = pace * phase.work, phase.seconds
            if number == self._at:
                elapsed = now - self._begun
                seconds -= elapsed if phase.most else seconds * self._done
                limit -= elapsed
            left += max(0.0, min(limit, seconds))
        return left if self._phases else None

    def _pace(self, phase: Phase) -> float | None:
        """As this kind was seen, else as a trial said, else by another kind that was seen."""
        if phase.kind in self._paces:
            return self._paces[phase.kind]
        if phase.pace is None and phase.kind in _SECONDS_PER_TOKEN:
            known = (each for each in self._paces.items() if each[0] in _SECONDS_PER_TOKEN)
            for kind, pace in known:
                return pace * _SECONDS_PER_TOKEN[phase.kind] / _SECONDS_PER_TOKEN[kind]
        return phase.pace
