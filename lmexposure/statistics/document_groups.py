"""Two groups of documents: does a model know the one better, and would they differ without it?

Documents that were split at random before a training are exchangeable if the model learned nothing
of either, so that shuffling them is an exact test. Documents from two sources are not: a text that
is plainer, longer or older scores otherwise in every model. A blind baseline, which never asks the
model, may show it: what tells the groups apart without the model is no memorisation. That it fails
to proves nothing (Duan et al. 2024; Meeus et al. 2024; Das et al. 2024).

`longer_runs` asks whether documents come out longer than held-out ones, and `conformal_p` which of
them. A random split gives each document its side by a coin that the model never saw, so that
without memory the sides can be shuffled. That holds where a document's number does not depend on
its side.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from lmexposure._validate import bits_array, fraction, integer
from lmexposure.errors import InputError
from lmexposure.statistics.arrays import Counts, Flags, Floats

_BUCKETS = 512  # of hashed character trigrams
_MOST = 1_000  # documents of a group that a blind baseline reads
_SHUFFLES = 199
_RIDGE = 1.0
_FOLDS = 5
_FEWEST = 30  # documents on each side, below which failing to tell apart says nothing
_FEWEST_OF_STRATUM = 10  # documents of a stratum
_WIDTH = 1.25  # of a stratum: longest by shortest
_AT_ONCE = 1 << 21  # labels that are shuffled at once
_MOST_SEEN = 40  # numbers of documents whose power is told
_WEIGHTS = np.array([[0.1], [0.5], [1.0]])  # of the logarithms of three p: ranks, tail, mean
_SURELY = 1.96  # standard deviations that 39 of 40 looks are above


@dataclass(frozen=True, kw_only=True)
class Blind:
    """How well two groups are told apart without the model."""

    auc: float  # of a classifier on documents that it was not fitted on, .5 = not at all
    p: float  # how often shuffling the documents between the groups gives as high an AUC
    apart: bool  # p is at most `significance`
    significance: float  # how often groups of one source are called apart
    enough: bool  # whether there are documents enough for `apart` to say something
    fewest: int  # documents in each group from which on there are enough


def shuffled_groups_p(
    first: ArrayLike,
    second: ArrayLike,
    *,
    strata: tuple[ArrayLike, ArrayLike] | None = None,
    permutations: int = 9_999,
    seed: int = 0,
) -> float:
    """How often shuffling documents between two groups makes the first as much lower, or more so.

    Source: Phipson and Smyth 2010, "Permutation p-values should never be zero".
    """
    integer("permutations", permutations, low=99)
    own, others = bits_array("first", first), bits_array("second", second)
    every = np.concatenate([own, others])
    every = every - every.mean()
    sides = np.arange(every.size) < own.size
    groups = np.zeros(every.size, dtype=np.int64)
    if strata is not None:
        groups = np.concatenate([np.asarray(part, dtype=np.int64) for part in strata])
    slack = 1e-12 * np.abs(every).sum()
    observed = every[: own.size].sum() + slack
    as_low = sum(
        int((shuffled @ every <= observed).sum())
        for shuffled in shuffled_sides(sides, groups, permutations, seed)
    )
    return (1 + as_low) / (1 + permutations)


def blind_baseline(
    first: Sequence[str],
    second: Sequence[str],
    *,
    more: tuple[ArrayLike, ArrayLike] | None = None,
    significance: float = 0.05,
    seed: int = 0,
) -> Blind:
    """Whether documents of two groups are told apart by their text alone.

    Source: Meeus et al. 2024 (arXiv 2406.17975) and Das et al. 2024 (arXiv 2406.16201), classifiers
        on the words of a text that never ask the model; Phipson and Smyth 2010 for the p.
    """
    fraction("significance", significance)
    if min(len(first), len(second)) < _FOLDS:
        raise InputError(
            f"a blind baseline needs {_FOLDS} documents in each group, and there are {len(first)} "
            f"and {len(second)}; give more documents"
        )
    table = _features([*first[:_MOST], *second[:_MOST]])
    if more is not None:
        columns = [bits_array(f"more[{i}]", more[i]) for i in (0, 1)]
        for group, column in zip((first, second), columns, strict=True):
            if column.size != len(group):
                raise InputError(
                    f"more holds {column.size} numbers of {len(group)} documents; give one of each"
                )
        # As much weight as all trigrams together: it is the one number that knows the language.
        known = np.concatenate([column[:_MOST] for column in columns])
        table = np.column_stack([table, *[known] * 8])
    labels = np.zeros(len(table))
    labels[: min(len(first), _MOST)] = 1.0
    draws = np.random.default_rng(seed)
    shuffled = np.stack([labels, *(draws.permutation(labels) for _ in range(_SHUFFLES))])
    areas = _areas(_cross_fitted(table, shuffled, draws), shuffled)
    p = float(np.mean(areas >= areas[0] - 1e-12))
    return Blind(
        auc=float(areas[0]),
        p=p,
        apart=p <= significance,
        significance=significance,
        enough=min(len(first), len(second)) >= _FEWEST,
        fewest=_FEWEST,
    )


def _features(texts: Sequence[str]) -> Floats:
    """Shape (N, D)."""
    rows = np.zeros((len(texts), _BUCKETS + 5))
    for row, text in zip(rows, texts, strict=True):
        data = text.encode("utf-8", "surrogatepass")
        for first in range(max(0, len(data) - 2)):
            row[zlib.crc32(data[first : first + 3]) % _BUCKETS] += 1
        row[:_BUCKETS] = np.log1p(row[:_BUCKETS])
        size = max(1, len(text))
        kinds = (str.isdigit, str.isupper, str.isspace, str.isalpha)
        row[_BUCKETS:-1] = [sum(map(kind, text)) / size for kind in kinds]
        row[-1] = np.log1p(len(text))
    return rows


def _cross_fitted(table: Floats, labels: Floats, draws: np.random.Generator) -> Floats:
    """What ridge regressions say of rows they were not fitted on, shape of `labels`, (L, N)."""
    scale = table.std(0)
    scale[scale == 0] = 1.0
    centred = (table - table.mean(0)) / scale
    gram = centred @ centred.T
    folds = draws.permutation(len(table)) % _FOLDS  # alike for all labels
    found = np.empty_like(labels)
    for fold in range(_FOLDS):
        fitted, read = folds != fold, folds == fold
        own = gram[np.ix_(fitted, fitted)] + _RIDGE * table.shape[1] * np.eye(int(fitted.sum()))
        wanted = labels[:, fitted] - labels[:, fitted].mean(1, keepdims=True)
        # Linear in the labels, so that one factorisation serves all L of them.
        found[:, read] = (gram[np.ix_(read, fitted)] @ np.linalg.solve(own, wanted.T)).T
    return found


def _areas(scores: Floats, labels: Floats) -> Floats:
    """The AUC of each row, ties as half."""
    ranks = stats.rankdata(scores, axis=1)
    first = labels.sum(1)
    second = labels.shape[1] - first
    return np.asarray(((ranks * labels).sum(1) - first * (first + 1) / 2) / (first * second))


@dataclass(frozen=True, kw_only=True)
class LongerRuns:
    """Three tests in one: many documents a little longer, some of them, or a few far longer."""

    p: float  # of the three together, paid for all; one-sided, small = the first group is longer
    p_rank_sum: float  # of the sum of ranks
    p_tail: float  # of the higher criticism of two samples
    p_mean: float  # of the sum of scores
    # first, second: documents of each group in a stratum that holds both
    first: int
    second: int
    # (k, p): the p that k documents of the first group, just longer than all others, would stay
    # below in 19 of 20 looks, ascending to the last that matters
    seen: tuple[tuple[int, float], ...]


def length_strata(lengths: ArrayLike) -> Counts:
    """Documents of about one length together, whatever their group, shape (N,); 0 = the longest.

    Source: strata that no side decides keep the sides exchangeable within them.
    """
    sizes = bits_array("lengths", lengths)
    if sizes.min() <= 0:
        raise InputError(f"lengths hold {sizes.min():g}; leave documents without text out")
    order = np.argsort(-sizes, kind="stable")
    found = np.zeros(sizes.size, dtype=np.int64)
    stratum, first, members = 0, sizes[order[0]], 0
    for place in order:
        if members >= _FEWEST_OF_STRATUM and sizes[place] * _WIDTH < first:
            stratum, first, members = stratum + 1, sizes[place], 0
        found[place] = stratum
        members += 1
    return found


def centred(scores: ArrayLike, strata: ArrayLike) -> Floats:
    """Scores less the median of their stratum: longer texts have longer runs by chance alone.

    Source: Hodges and Lehmann 1962, aligned ranks.
    """
    values, groups = bits_array("scores", scores).copy(), np.asarray(strata)
    for group in np.unique(groups):
        values[groups == group] -= np.median(values[groups == group])
    return values


def longer_runs(
    scores: ArrayLike,
    first: ArrayLike,
    strata: ArrayLike,
    *,
    permutations: int = 9_999,
    seed: int = 0,
) -> LongerRuns | None:
    """Whether documents of the first group have larger scores, by shuffling within strata.

    Proof of the level: without memory a document's score does not depend on its side, and a random
    split makes all arrangements of sides within a stratum equally likely. So each of the three
    statistics of the true sides is as likely as any shuffled one to be the k-th largest, and so is
    the weighted sum of the logarithms of their p; its own place among the shuffled ones is a p
    again. The weights do not depend on the scores. Few documents that are far longer show in the
    mean most, and in the ranks hardly.

    Source: van Elteren 1960 for ranks within strata; Donoho and Jin 2004 for higher criticism, here
        of counts above each score with their variance given the strata; Fisher 1932 and Good 1955
        for the weighted logarithms of p, here shuffled; Phipson and Smyth 2010.
    """
    integer("permutations", permutations, low=99)
    values, sides = bits_array("scores", scores), np.asarray(first, dtype=bool)
    groups = np.asarray(strata)
    if not values.shape == sides.shape == groups.shape:
        raise InputError(
            f"scores, first and strata have shapes {values.shape}, {sides.shape} and "
            f"{groups.shape}; give one of each document"
        )
    both = np.isin(groups, np.intersect1d(groups[sides], groups[~sides]))
    if not both.any():
        return None
    test = _Test.of(values[both], sides[both], groups[both])
    found = [test.statistics(sides[both][None, :])]
    found += [
        test.statistics(shuffled)
        for shuffled in shuffled_sides(sides[both], groups[both], permutations, seed)
    ]
    every = np.concatenate(found, axis=1)  # (3, 1 + permutations)
    own = np.stack([_as_large(row, row) for row in every])
    together = _together(own)
    return LongerRuns(
        p=float(_as_large(together[:1], together)[0]),
        p_rank_sum=float(own[0, 0]),
        p_tail=float(own[1, 0]),
        p_mean=float(own[2, 0]),
        first=int(sides[both].sum()),
        second=int((~sides[both]).sum()),
        seen=tuple(test.seen(every, together)),
    )


def shuffled_sides(sides: Flags, groups: Counts, permutations: int, seed: int) -> Iterator[Flags]:
    """Sides of documents shuffled within their groups, some rows (B, N) at a time."""
    draws = np.random.default_rng(seed)
    order = np.argsort(groups, kind="stable")
    blocks = np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
    rows = max(1, _AT_ONCE // sides.size)
    for begin in range(0, permutations, rows):
        made = np.tile(sides, (min(rows, permutations - begin), 1))
        for block in blocks:
            if 0 < sides[block].sum() < block.size:
                made[:, block] = draws.permuted(made[:, block], axis=1)
        yield made


def conformal_p(scores: ArrayLike, held_out: ArrayLike) -> Floats:
    """For each score the share of held-out scores as large, itself among them, shape (N,).

    Proof: a score and M held-out ones that are exchangeable with it are in any order equally
    often, so that it is among the k largest with probability k / (M + 1) at most.

    Source: Vovk, Gammerman and Shafer 2005, chapter 2.

    >>> conformal_p([9, 2], [1, 2, 3]).tolist()
    [0.25, 0.75]
    """
    others = np.sort(bits_array("held_out", held_out))
    below = np.searchsorted(others, bits_array("scores", scores), side="left")
    return (1 + others.size - below) / (1 + others.size)


def false_shares(p: ArrayLike) -> Floats:
    """The least share q at which Benjamini and Hochberg's procedure names each, shape (N,).

    Of those with a number of at most q, a share of at most q is named falsely, on average: the
    procedure needs p that depend on each other positively, as p from one set of held-out documents
    do.

    Source: Benjamini and Hochberg 1995; Bates et al. 2023, Testing for outliers with conformal
        p-values, theorem 2; Marandon et al. 2024, theorem 3.3, for exchangeable scores.

    >>> false_shares([0.01, 0.04, 0.5]).tolist()
    [0.03, 0.06, 0.5]
    """
    return np.asarray(stats.false_discovery_control(bits_array("p", p), method="bh"))


@dataclass(frozen=True, kw_only=True)
class _Test:
    """What no shuffling changes."""

    values: Floats  # the scores less their mean, shape (N,)
    ranks: Floats  # of each score among all, shape (N,)
    order: Counts  # of documents, the largest score first, shape (N,)
    share: Floats  # of the first group in the stratum of each, in that order, shape (N,)
    ends: Counts  # last place of each different score of the larger half, likewise, shape (T,)
    spread: Floats  # standard deviation of the count of the first group up to there, shape (T,)

    @classmethod
    def of(cls, values: Floats, sides: Flags, groups: Counts) -> "_Test":
        order = np.argsort(-values, kind="stable")
        _, own = np.unique(groups, return_inverse=True)
        size = np.bincount(own)
        share = np.bincount(own, sides) / size
        ends = np.append(np.flatnonzero(np.diff(values[order])), values.size - 1)
        ends = ends[ends < max(1, values.size // 2)]
        # Hypergeometric variance of each stratum's count: share (1 - share) n (N - n) / (N - 1).
        variance = np.zeros(ends.size)
        for group, among in enumerate(size):
            n = np.cumsum(own[order] == group)[ends]
            variance += share[group] * (1 - share[group]) * n * (among - n) / (among - 1)
        kept = variance > 0
        return cls(
            values=values - values.mean(),
            ranks=stats.rankdata(values),
            order=order,
            share=share[own][order],
            ends=ends[kept],
            spread=np.sqrt(variance[kept]),
        )

    def statistics(self, sides: Flags) -> Floats:
        """Sum of ranks, largest standardised count above a score, sum; sides (B, N) -> (3, B)."""
        sums = sides @ self.ranks, sides @ self.values
        if not self.ends.size:
            return np.stack([sums[0], np.zeros(len(sides)), sums[1]])
        above = np.cumsum(sides[:, self.order] - self.share, axis=1)[:, self.ends]
        return np.stack([sums[0], (above / self.spread).max(1), sums[1]])

    def seen(self, every: Floats, together: Floats) -> Iterator[tuple[int, float]]:
        """What k documents just above all others would give, spread like the first group."""
        first, total = round(float(self.share.sum())), self.share.size
        share = float(self.share @ self.share) / first
        spread = float(self.share @ (self.share * (1 - self.share))) / first
        most = max(1, min(first, total // 2))
        k = np.unique(np.geomspace(1, most, _MOST_SEEN).astype(int))
        more = k * (1 - share)
        by_others = every.std(1)[:, None] * np.sqrt(1 - k / first)
        mean = every.mean(1)[:, None]
        low = mean - _SURELY * by_others  # (3, K)
        largest = self.values.max()
        # k more of the largest score spread the shuffled sums of scores, too.
        before = float(np.square(self.values).mean())
        after = ((total - k) * before + k * largest**2) / total - np.square(k * largest / total)
        wider = np.sqrt(np.maximum(after / before, 1.0)) if before > 0 else np.ones(k.size)
        values = np.stack(
            [
                low[0] + more * total / 2,
                more / np.sqrt(k * spread * (total - k) / (total - 1)),
                mean[2] + (low[2] - mean[2] + more * largest) / wider,
            ]
        )
        own = np.stack([_as_large(*rows) for rows in zip(values, every, strict=True)])
        least = 1 / together.size
        found = _as_large(_together(np.maximum(own, least)), together)
        # As often as that, shuffled sides have all k in the first group too.
        places = np.arange(most)
        all_first = np.cumprod((share * total - places) / (total - places))[k - 1]
        last = 1.0
        for count, p in zip(k.tolist(), np.maximum(found, all_first).tolist(), strict=True):
            last = min(last, max(p, least))
            yield count, last
            if last <= least:
                return


def _together(p: Floats) -> Floats:
    """Weighted logarithms of three p, shape (3, B) -> (B,); larger = longer."""
    return np.asarray(-(_WEIGHTS * np.log(p)).sum(0))


def _as_large(values: Floats, among: Floats) -> Floats:
    """The share of `among` that is as large as each value; equal up to rounding counts."""
    slack = 1e-9 * max(1.0, float(np.abs(among).max()))
    below = np.searchsorted(np.sort(among), values - slack, side="left")
    return (among.size - below) / among.size
