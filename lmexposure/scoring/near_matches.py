"""The chance that a sample is within d edits of a suffix, with two ends that mean something.

A beam carries each kept beginning's probability and its row of the distance table. What ends within
d is known mass; what can no longer come within d is gone; what the beam has no room for is open. A
beam alone leaves nearly everything open at real vocabularies: its upper end is then 1. So the open
part itself is sampled. Draws are continued beginnings of it, one for each of n places, held by a
reservoir: when a step opens mass m and M was open with it, each place takes a new draw from the m
with chance m / M. At the end the n draws are independent and distributed as the open part, and
Clopper and Pearson's interval of the share of them that is within d, times the open mass, closes
what the beam left. The beam does not look at the draws, so the interval holds as it is.

A row of the distance table is what has to be known of a beginning to go on: of Hamming's distance
the number of differences, of Levenshtein's the distances to the beginnings of the target that can
still be reached within d edits, 2 d + 1 of them. What can no longer come within d is seen at once.

Lower end by beam: Cooper et al. 2026 (arXiv 2603.24917). The upper end is ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lmexposure._validate import coverage, integer, one_of
from lmexposure.errors import InputError, NumericalError
from lmexposure.scoring.runtime import Bools, Floats, Ints
from lmexposure.scoring.steps import WholeSteps
from lmexposure.scoring.windows import DecodingRule
from lmexposure.statistics import Between, known_and_sampled

Rows = NDArray[np.int16]
# Open mass that no draw is spent on; it is added to the upper end alone.
_NOT_WORTH_A_DRAW = 0.002


class Hamming:
    """Differences place by place."""

    def __init__(self, target: Sequence[int], most: int) -> None:
        self._target, self._most = list(target), most

    def begin(self) -> Rows:
        """The row of the empty text, shape (1, W)."""
        return np.zeros((1, 1), dtype=np.int16)

    def children(self, rows: Rows, place: int) -> tuple[Ints, Rows, Bools]:
        """What one more token makes of some texts of `place` tokens."""
        behind = np.stack([rows, rows + 1], axis=1).astype(np.int16)
        return np.array([self._target[place]]), behind, behind[:, :, 0] <= self._most


class Levenshtein:
    """Fewest insertions, deletions and exchanges; the rows of Wagner and Fischer 1974, banded."""

    def __init__(self, target: Sequence[int], most: int) -> None:
        self._target, self._most = np.array(target, dtype=np.int64), most
        self._shift = np.arange(-most, most + 1)  # of the target's beginning against the text's

    def begin(self) -> Rows:
        """See `Hamming`."""
        return self._capped(np.abs(self._shift)[None], self._shift)

    def children(self, rows: Rows, place: int) -> tuple[Ints, Rows, Bools]:
        """See `Hamming`."""
        ends = place + 1 + self._shift  # of the beginnings, in tokens
        inside = (ends >= 1) & (ends <= len(self._target))
        spelled = np.where(inside, self._target[np.clip(ends - 1, 0, len(self._target) - 1)], -1)
        tokens = np.unique(spelled[inside])
        differs = np.ones((len(tokens) + 1, len(ends)), dtype=np.int16)
        differs[:-1] = spelled[None] != tokens[:, None]
        behind = rows[:, None, :] + differs[None]  # exchanged, or the same
        skipped = np.full_like(rows, self._most + 1)
        skipped[:, :-1] = rows[:, 1:] + 1  # the new token is one too many
        behind = np.minimum(behind, skipped[:, None, :])
        behind[..., ends < 0] = self._most + 1
        behind[..., ends == 0] = np.minimum(behind[..., ends == 0], place + 1)
        for k in range(1, len(ends)):  # a token of the target is left out
            behind[..., k] = np.minimum(behind[..., k], behind[..., k - 1] + 1)
        behind = self._capped(behind, ends)
        alive = (behind + np.abs(self._shift)).min(-1) <= self._most
        return tokens, behind, alive

    def _capped(self, rows: NDArray[np.integer], ends: Ints) -> Rows:
        """Beginnings that the target does not have, and what is beyond d, are as good as lost."""
        out = (ends < 0) | (ends > len(self._target))
        return np.where(out, self._most + 1, np.minimum(rows, self._most + 1)).astype(np.int16)


Distance = Hamming | Levenshtein
_KINDS: dict[str, type[Distance]] = {"levenshtein": Levenshtein, "hamming": Hamming}
METRICS = tuple(_KINDS)


def distance_to(target: Sequence[int], most: int, metric: str) -> Distance:
    """The distance that goes by this name."""
    return _KINDS[metric](target, most)


@dataclass(frozen=True, kw_only=True)
class NearVerbatim:
    """P(distance of a sample to the suffix <= d)."""

    between: Between  # both ends. Where nothing was open they are the probability itself.
    known: float  # mass that is known to be within d
    open_mass: float  # of which the beam does not know
    hits: int  # draws from the open part that are within d
    draws: int  # all of them
    rows: int  # beginnings that the model read: the cost


@dataclass(frozen=True, kw_only=True)
class NearSearch:
    """How near a sample has to be, and how it is searched."""

    distance: int = 5  # d, in tokens, from 0
    metric: str = "levenshtein"  # "levenshtein" or "hamming"
    beam: int = 20  # beginnings that are kept at each step; the suffix itself is always among them
    draws: int = 200  # from the open part; 0: none, which leaves the beam's ends
    level: float = 0.95  # two-sided coverage of the sampled part

    def __post_init__(self) -> None:
        integer("distance", self.distance, low=0, high=1_000)
        one_of("metric", self.metric, METRICS)
        integer("beam", self.beam, low=1)
        integer("draws", self.draws, low=0)
        coverage("level", self.level)


def near_verbatim(
    steps: WholeSteps,
    prefix: Sequence[int],
    suffix: Sequence[int],
    search: NearSearch | None = None,
    *,
    rule: DecodingRule | None = None,
    seed: int = 0,
) -> NearVerbatim:
    """Both ends of the chance that as many tokens as the suffix has are within d edits of it."""
    search = search or NearSearch()
    if not len(prefix) or len(suffix) <= search.distance:
        raise InputError(
            f"a passage of {len(prefix)} and {len(suffix)} tokens: one has to be in front, and "
            f"more than distance={search.distance} in the suffix; give longer ones"
        )
    found = _Search(
        distance_to(suffix, search.distance, search.metric),
        list(suffix),
        rule or DecodingRule(),
        search.beam,
        _Reservoir(search.draws, np.random.default_rng(seed)),
    )
    rows = found.run(steps, prefix)
    between = known_and_sampled(
        found.known,
        found.sampled_mass,
        hits=found.reservoir.hits,
        draws=found.reservoir.draws,
        unsampled=found.unsampled,
        level=search.level,
    )
    return NearVerbatim(
        between=between,
        known=found.known,
        open_mass=found.sampled_mass + found.unsampled,
        hits=found.reservoir.hits,
        draws=found.reservoir.draws,
        rows=rows,
    )


class _Reservoir:
    """n draws from mass that comes in portions; see the module."""

    def __init__(self, size: int, generator: np.random.Generator) -> None:
        self._size, self._generator = size, generator
        self._taken = False
        # which of the n places hold a beginning that may still end within d, shape (A,)
        self.places: Ints = np.empty(0, dtype=np.int64)
        self.distances: Rows = np.empty((0, 1), dtype=np.int16)  # its rows, shape (A, W)

    @property
    def draws(self) -> int:
        """n, or 0 where nothing was ever open."""
        return self._size if self._taken else 0

    @property
    def hits(self) -> int:
        """Draws that are within d, when all are as long as the suffix."""
        return len(self.places)

    def uniform(self, size: int) -> Floats:
        """In [0, 1)."""
        return self._generator.random(size)

    def replaced(self, share: float) -> Bools:
        """Which of the n places take a new draw, shape (n,)."""
        self._taken = self._taken or self._size > 0
        return self._generator.random(self._size) < share


class _Search:
    """One window."""

    def __init__(
        self,
        distance: Distance,
        suffix: list[int],
        rule: DecodingRule,
        beam: int,
        reservoir: _Reservoir,
    ) -> None:
        self._distance, self._suffix, self._rule, self._beam = distance, suffix, rule, beam
        self.reservoir = reservoir
        self.known = self.sampled_mass = self.unsampled = 0.0

    def run(self, steps: WholeSteps, prefix: Sequence[int]) -> int:
        """To the end; the number of beginnings that the model read."""
        state, logits = steps.start_all(list(prefix))
        masses, kept = np.ones(1), self._distance.begin()  # of the beam
        on_path = 0  # which of the beam is the suffix itself; -1: it cannot come
        read = 1
        for place in range(len(self._suffix)):
            shares = np.exp(self._rule.log_shares(logits).double().cpu().numpy())  # (B + A, V)
            if np.isnan(shares).any():
                raise NumericalError(
                    f"the model gave NaN behind token {place} of a suffix; its weights or dtype "
                    "are broken: check the checkpoint, or score in float32"
                )
            B = len(masses)
            beam = _Children.of(self._distance, kept, place, shares[:B] * masses[:, None])
            draws = self._drawn(place, shares[B:], B)
            if place == len(self._suffix) - 1:
                self.known = float(beam.alive.sum())
                self._keep(draws)
                return read
            parents, tokens, on_path = self._chosen(beam, on_path, self._suffix[place])
            left = beam.alive
            masses = left[parents, tokens]
            left[parents, tokens] = 0.0
            draws = self._opened(left, beam, draws)
            kept = beam.rows(parents, tokens)
            self._keep(draws)
            every = np.concatenate([parents, draws.parents])
            if not len(every):
                return read
            read += len(every)
            state, logits = steps.advance_all(
                state, every, np.concatenate([tokens, draws.tokens]).astype(np.int64)
            )
        return read

    def _chosen(self, beam: "_Children", path: int, token: int) -> tuple[Ints, Ints, int]:
        """The likeliest children that may still end within d, the suffix's own beginning first."""
        flat = beam.alive.ravel()
        V = beam.alive.shape[1]
        most = min(self._beam, int((flat > 0).sum()))
        best = np.argpartition(-flat, most - 1)[:most] if most else np.empty(0, dtype=np.int64)
        best = best[np.argsort(-flat[best], kind="stable")]
        own = path * V + token
        if path < 0 or flat[own] == 0:
            return best // V, best % V, -1
        best = np.concatenate([[own], best[best != own]])[: self._beam]
        return best // V, best % V, 0

    def _drawn(self, place: int, shares: Floats, first: int) -> "_Draws":
        """One more token for each draw, of which those that may still end within d stay."""
        held = self.reservoir
        A = len(shares)
        if not A:
            return _Draws.none(held.distances.shape[1])
        totals = shares.cumsum(1)
        points = held.uniform(A)[:, None] * totals[:, -1:]
        tokens = np.minimum((totals <= points).sum(1), shares.shape[1] - 1)
        some, behind, alive = self._distance.children(held.distances, place)
        column = _columns(some, tokens)
        stays = alive[np.arange(A), column]
        return _Draws(
            places=held.places[stays],
            parents=(first + np.arange(A))[stays],
            tokens=tokens[stays],
            distances=behind[np.arange(A), column][stays],
        )

    def _opened(self, left: Floats, beam: "_Children", draws: "_Draws") -> "_Draws":
        """Take in what this step leaves open."""
        mass = float(left.sum())
        if mass <= 0:
            return draws
        if self.sampled_mass == 0 and self.unsampled + mass <= _NOT_WORTH_A_DRAW:
            self.unsampled += mass
            return draws
        self.sampled_mass += mass
        new = np.flatnonzero(self.reservoir.replaced(mass / self.sampled_mass))
        totals = left.ravel().cumsum()
        points = self.reservoir.uniform(len(new)) * totals[-1]
        flat = np.searchsorted(totals, points, side="right")
        parents, tokens = np.divmod(np.minimum(flat, len(totals) - 1), left.shape[1])
        stay = ~np.isin(draws.places, new)
        return _Draws(
            places=np.concatenate([draws.places[stay], new]),
            parents=np.concatenate([draws.parents[stay], parents]),
            tokens=np.concatenate([draws.tokens[stay], tokens]),
            distances=np.concatenate(
                [draws.distances[stay].reshape(-1, beam.width), beam.rows(parents, tokens)]
            ),
        )

    def _keep(self, draws: "_Draws") -> None:
        self.reservoir.places, self.reservoir.distances = draws.places, draws.distances


@dataclass(frozen=True, eq=False)
class _Draws:
    """A draws that may still end within d: their places in the reservoir, rows and last tokens."""

    places: Ints
    parents: Ints
    tokens: Ints
    distances: Rows

    @classmethod
    def none(cls, width: int) -> "_Draws":
        empty = np.empty(0, dtype=np.int64)
        return cls(empty, empty, empty, np.empty((0, width), dtype=np.int16))


@dataclass(frozen=True, eq=False)
class _Children:
    """All continuations of a beam."""

    alive: Floats  # probability of each that may still end within d, else 0, shape (B, V)
    # tokens, behind: see `Hamming.children`
    tokens: Ints
    behind: Rows

    @classmethod
    def of(cls, distance: Distance, kept: Rows, place: int, masses: Floats) -> "_Children":
        """Args: as of `Hamming.children`; `masses`, shape (B, V), is overwritten."""
        tokens, behind, alive = distance.children(kept, place)
        special = masses[:, tokens] * alive[:, :-1]
        masses *= alive[:, -1:]
        masses[:, tokens] = special
        return cls(masses, tokens, behind)

    @property
    def width(self) -> int:
        """Of a row."""
        return int(self.behind.shape[2])

    def rows(self, parents: Ints, tokens: Ints) -> Rows:
        """Rows of the distance table behind some of them."""
        return self.behind[parents, _columns(self.tokens, tokens)]


def _columns(known: Ints, tokens: Ints) -> Ints:
    """The place of each token among the M that are known, M for another; `known` ascends."""
    at = np.searchsorted(known, tokens)
    found = known[np.minimum(at, len(known) - 1)] == tokens
    return np.where(found, at, len(known))
