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
KINDS: dict[str, type[Distance]] = {"levenshtein": Levenshtein, "hamming": Hamming}
METRICS = tuple(KINDS)


@dataclass(frozen=True, kw_only=True)
class NearVerbatim:
    """P(distance of a sample to the suffix <= d)."""

    between: Between  # both ends. Where nothing was open they are the probability itself.
    open_mass: float  # of which the beam does not know
    hits: int  # draws from the open part that are within d
    draws: int  # all of them


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
    distance = KINDS[search.metric](suffix, search.distance)
    found = _Search(distance, list(suffix), rule or DecodingRule(), search, seed)
    found.run(steps, prefix)
    hits, draws = len(found.held.places), search.draws if found.sampled_mass else 0
    between = known_and_sampled(
        found.known,
        found.sampled_mass,
        hits=hits,
        draws=draws,
        unsampled=found.unsampled,
        level=search.level,
    )
    return NearVerbatim(
        between=between,
        open_mass=found.sampled_mass + found.unsampled,
        hits=hits,
        draws=draws,
    )


class _Search:
    """One window; its draws are a reservoir of mass that comes in portions, see the module."""

    def __init__(
        self,
        distance: Distance,
        suffix: list[int],
        rule: DecodingRule,
        search: NearSearch,
        seed: int,
    ) -> None:
        self._distance, self._suffix, self._rule = distance, suffix, rule
        self._beam, self._size = search.beam, search.draws
        self._generator = np.random.default_rng(seed)
        self.known = self.sampled_mass = self.unsampled = 0.0
        nothing = np.empty(0, dtype=np.int64)
        # Those of the n draws that may still end within d; at last, that are.
        self.held = _Draws(nothing, nothing, nothing, distance.begin()[:0])

    def run(self, steps: WholeSteps, prefix: Sequence[int]) -> None:
        """To the end."""
        state, logits = steps.start_all(list(prefix))
        masses, kept = np.ones(1), self._distance.begin()  # of the beam
        on_path = 0  # which of the beam is the suffix itself; -1: it cannot come
        for place in range(len(self._suffix)):
            shares = np.exp(self._rule.log_shares(logits).double().cpu().numpy())  # (B + A, V)
            if np.isnan(shares).any():
                raise NumericalError(
                    f"the model gave NaN behind token {place} of a suffix; its weights or dtype "
                    "are broken: check the checkpoint, or score in float32"
                )
            B = len(masses)
            beam = _Children.of(self._distance, kept, place, shares[:B] * masses[:, None])
            self._draw(place, shares[B:], B)
            if place == len(self._suffix) - 1:
                self.known = float(beam.alive.sum())
                return
            parents, tokens, on_path = self._chosen(beam, on_path, self._suffix[place])
            left = beam.alive
            masses = left[parents, tokens]
            left[parents, tokens] = 0.0
            self._open(left, beam)
            kept = beam.rows(parents, tokens)
            every = np.concatenate([parents, self.held.parents])
            if not len(every):
                return
            state, logits = steps.advance_all(
                state, every, np.concatenate([tokens, self.held.tokens]).astype(np.int64)
            )

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

    def _draw(self, place: int, shares: Floats, first: int) -> None:
        """One more token for each draw, of which those that may still end within d stay."""
        every = np.arange(len(shares))
        totals = shares.cumsum(1)
        points = self._generator.random(len(shares))[:, None] * totals[:, -1:]
        tokens = np.minimum((totals <= points).sum(1), shares.shape[1] - 1)
        some, behind, alive = self._distance.children(self.held.distances, place)
        column = _columns(some, tokens)
        stays = alive[every, column]
        self.held = _Draws(
            places=self.held.places[stays],
            parents=(first + every)[stays],
            tokens=tokens[stays],
            distances=behind[every, column][stays],
        )

    def _open(self, left: Floats, beam: "_Children") -> None:
        """Take in what this step leaves open."""
        mass = float(left.sum())
        if mass <= 0:
            return
        if self.sampled_mass == 0 and self.unsampled + mass <= _NOT_WORTH_A_DRAW:
            self.unsampled += mass
            return
        self.sampled_mass += mass
        # Which of the n places take a new draw.
        new = np.flatnonzero(self._generator.random(self._size) < mass / self.sampled_mass)
        totals = left.ravel().cumsum()
        points = self._generator.random(len(new)) * totals[-1]
        flat = np.searchsorted(totals, points, side="right")
        parents, tokens = np.divmod(np.minimum(flat, len(totals) - 1), left.shape[1])
        held, stay = self.held, ~np.isin(self.held.places, new)
        self.held = _Draws(
            places=np.concatenate([held.places[stay], new]),
            parents=np.concatenate([held.parents[stay], parents]),
            tokens=np.concatenate([held.tokens[stay], tokens]),
            distances=np.concatenate([held.distances[stay], beam.rows(parents, tokens)]),
        )


@dataclass(frozen=True, eq=False)
class _Draws:
    """A draws that may still end within d: their places in the reservoir, rows and last tokens."""

    places: Ints
    parents: Ints
    tokens: Ints
    distances: Rows


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

    def rows(self, parents: Ints, tokens: Ints) -> Rows:
        """Rows of the distance table behind some of them."""
        return self.behind[parents, _columns(self.tokens, tokens)]


def _columns(known: Ints, tokens: Ints) -> Ints:
    """The place of each token among the M that are known, M for another; `known` ascends."""
    at = np.searchsorted(known, tokens)
    found = known[np.minimum(at, len(known) - 1)] == tokens
    return np.where(found, at, len(known))
