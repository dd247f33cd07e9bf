"""Epsilon from the scores of canaries that were in and of canaries that were not."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure._validate import bits_array, delta_of_dp, fraction, integer
from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics.bounds.bound import EpsilonBound, adjacency
from lmexposure.statistics.bounds.clopper_pearson import log_ratio, rates
from lmexposure.statistics.bounds.groups import per_document
from lmexposure.statistics.bounds.order_statistics import (
    order_statistics_bound,
    order_statistics_ceiling,
)
from lmexposure.statistics.bounds.thresholds import (
    Bonferroni,
    FixedThreshold,
    OrderStatistics,
    SplitSample,
    Threshold,
)

Floats = NDArray[np.float64]
Counts = NDArray[np.signedinteger[Any]]

_ASSUMPTIONS = ("scores are independent given the model, and alike but for the insertion",)
# Thresholds that a split sample is searched for, at ranks spread over both ends.
_CANDIDATES = 400


def epsilon_from_scores(
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    *,
    significance: float = 0.05,
    delta: float = 0.0,
    repetitions: int = 1,
    threshold: Threshold | None = None,
    seed: int = 0,
) -> EpsilonBound:
    """Lower bound on epsilon from two samples of scores, with the choice of threshold paid for.

    Both attacks count: "above the threshold means in" and "below it means out". A score equal to a
    threshold never counts for the bound.

    Args:
        in_scores: of canaries that were in the training data, shape (n,); higher = more likely
            in, such as a negative log-perplexity.
        out_scores: of canaries that were not, shape (m,).
        significance: in (0, 1).
        delta: of one document, in [0, 1).
        repetitions: copies of each canary, the same for all.
        threshold: how it is chosen; `OrderStatistics()` where nothing is given.
        seed: of the split of `SplitSample`; the other choices draw nothing.

    Returns:
        The bound in nats, class "iid-scores". With `OrderStatistics`, `threshold` is the score
        that decided, and stands for an exact joint test of all ranks on the ladder.

    Raises:
        SettingsError: a setting out of range, or a threshold of another type.
        InputError: no scores, a NaN or an infinity, or too few scores to split.

    Source: Jagielski, Ullman, Oprea 2020 (arXiv 2006.07709) for the attack; the joint test of all
    ranks is exact for two samples under the least favourable pair.

    >>> found = epsilon_from_scores([3, 4, 5, 6, 7, 8, 9, 10], [-3, -2, -1, 0, 1, 2])
    >>> 0 < found.value <= found.max_attainable
    True
    """
    ins = np.sort(bits_array("in_scores", in_scores))
    outs = np.sort(bits_array("out_scores", out_scores))
    significance, delta = fraction("significance", significance), delta_of_dp("delta", delta)
    repetitions = integer("repetitions", repetitions, low=1)
    seed = integer("seed", seed, low=0)
    level = _Level(significance, delta, repetitions)
    match threshold:
        case None | OrderStatistics():
            return level.order_statistics(ins, outs)
        case FixedThreshold(value=value):
            return level.rectangles(ins, outs, np.array([float(value)]), "fixed beforehand")
        case SplitSample(fraction=share):
            return level.split(ins, outs, share, seed)
        case Bonferroni(grid=grid, by=by):
            return level.bonferroni(ins, outs, bits_array("grid", grid), by)
    raise SettingsError(
        f"threshold={threshold!r} must be OrderStatistics(), Bonferroni(), SplitSample() or "
        "FixedThreshold(value=...)"
    )


class _Level:
    """What is asked of the bound; a method for each choice of threshold."""

    def __init__(self, significance: float, delta: float, repetitions: int) -> None:
        self.significance, self.delta, self.repetitions = significance, delta, repetitions

    def order_statistics(self, ins: Floats, outs: Floats) -> EpsilonBound:
        found = order_statistics_bound(
            ins,
            outs,
            significance=self.significance,
            delta=self.delta,
            repetitions=self.repetitions,
        )
        counts = {"positives": ins.size, "negatives": outs.size}
        if found.threshold is not None:
            counts |= _deciding_counts(found.top, found.rank, found.passed, ins.size, outs.size)
        return self._result(
            value=found.value,
            counts=counts,
            threshold=found.threshold,
            choice="best of all ranks on a ladder from both ends, at one exact joint level",
            max_attainable=order_statistics_ceiling(
                ins.size,
                outs.size,
                significance=self.significance,
                delta=self.delta,
                repetitions=self.repetitions,
            ),
            notes=_notes(found.value, ins, outs),
        )

    def rectangles(
        self, ins: Floats, outs: Floats, at: Floats, choice: str, fp: Counts | None = None
    ) -> EpsilonBound:
        """The best of the thresholds `at`, each with its part of the significance."""
        tp = ins.size - np.searchsorted(ins, at, side="right")
        if fp is None:
            fp = outs.size - np.searchsorted(outs, at, side="right")
        values = self._values(tp, fp, ins.size, outs.size)
        best = int(values.argmax())
        full, none = np.array([ins.size]), np.array([0])
        ceiling = self._values(full, none, ins.size, outs.size, parts=at.size)
        return self._result(
            value=float(values[best]),
            counts={
                "true_positives": int(tp[best]),
                "positives": ins.size,
                "false_positives": int(fp[best]),
                "negatives": outs.size,
            },
            threshold=float(at[best]),
            choice=choice,
            max_attainable=float(ceiling[0]),
            notes=_notes(float(values[best]), ins, outs),
        )

    def split(self, ins: Floats, outs: Floats, share: float, seed: int) -> EpsilonBound:
        """Choose on one part, bound on the other."""
        generator = np.random.default_rng(seed)
        (in_choice, in_rest), (out_choice, out_rest) = (
            _parts("in_scores", ins, share, generator),
            _parts("out_scores", outs, share, generator),
        )
        at = _candidates(in_choice, out_choice)
        tp = in_choice.size - np.searchsorted(in_choice, at, side="right")
        fp = out_choice.size - np.searchsorted(out_choice, at, side="right")
        values = self._values(tp, fp, in_choice.size, out_choice.size, parts=1)
        chosen = at[[int(values.argmax())]]
        choice = f"chosen on {share:g} of each sample (seed {seed}), bound on the rest"
        return self.rectangles(in_rest, out_rest, chosen, choice)

    def bonferroni(self, ins: Floats, outs: Floats, grid: Floats, by: str) -> EpsilonBound:
        """Thresholds fixed beforehand, as scores or as ranks of the out-scores."""
        if by == "value":
            return self.rectangles(
                ins, outs, grid, f"best of {grid.size} scores fixed beforehand (Bonferroni)"
            )
        ranks = np.unique(np.clip(np.ceil(grid * outs.size), 1, outs.size).astype(np.int64))
        # The share above the r-th highest out-score is at most Beta(r, m - r + 1), as for r - 1
        # false positives, whatever ties there are.
        return self.rectangles(
            ins,
            outs,
            outs[outs.size - ranks],
            f"best of {ranks.size} ranks of the out-scores fixed beforehand (Bonferroni)",
            ranks - 1,
        )

    def _values(
        self, tp: Counts, fp: Counts, positives: int, negatives: int, parts: int | None = None
    ) -> Floats:
        """Bounds per threshold; both directions follow from the same two rates."""
        tail = self.significance / 2 / (parts or len(tp))
        tpr, fpr = rates(tp, positives, fp, negatives, tail=tail)
        if self.repetitions == 1 or self.delta == 0:
            # One delta for every threshold: no equation to solve for each.
            up = log_ratio(tpr, fpr, self.delta)
            return np.maximum(up, log_ratio(1 - fpr, 1 - tpr, self.delta)) / self.repetitions

        def one(index: int) -> float:
            def at(group: float) -> float:
                up = log_ratio(tpr[[index]], fpr[[index]], group)
                down = log_ratio(1 - fpr[[index]], 1 - tpr[[index]], group)
                return float(max(up[0], down[0]))

            return per_document(at, delta=self.delta, repetitions=self.repetitions)

        return np.array([one(index) for index in range(len(tp))])

    def _result(
        self,
        *,
        value: float,
        counts: dict[str, int],
        threshold: float | None,
        choice: str,
        max_attainable: float,
        notes: tuple[str, ...],
    ) -> EpsilonBound:
        return EpsilonBound(
            method="epsilon_from_scores",
            value=value,
            significance=self.significance,
            delta=self.delta,
            validity="iid-scores",
            counts=counts,
            threshold=threshold,
            threshold_choice=choice,
            max_attainable=max(max_attainable, value),
            repetitions=self.repetitions,
            adjacency=adjacency(self.repetitions),
            assumptions=_ASSUMPTIONS,
            notes=notes,
        )


def _deciding_counts(top: bool, rank: int, passed: int, n: int, m: int) -> dict[str, int]:
    """From the bottom, what is not guessed to be out is guessed to be in."""
    if top:
        return {"true_positives": rank, "false_positives": passed}
    return {"true_positives": n - passed, "false_positives": m - rank}


def _parts(
    name: str, scores: Floats, share: float, generator: np.random.Generator
) -> tuple[Floats, Floats]:
    size = round(share * scores.size)
    if not 0 < size < scores.size:
        raise InputError(
            f"{name} has {scores.size} scores, too few to choose a threshold on {share:g} of them; "
            "use OrderStatistics()"
        )
    shuffled = generator.permutation(scores)
    return np.sort(shuffled[:size]), np.sort(shuffled[size:])


def _candidates(ins: Floats, outs: Floats) -> Floats:
    """Scores at ranks that are dense at the ends of each sample."""
    picked = []
    for scores in (ins, outs):
        steps = np.unique(np.geomspace(1, scores.size, _CANDIDATES // 4).astype(np.int64))
        picked += [scores[steps - 1], scores[scores.size - steps]]
    return np.unique(np.concatenate(picked))


def _notes(value: float, ins: Floats, outs: Floats) -> tuple[str, ...]:
    if value > 0:
        return ()
    below, up_to = (np.searchsorted(outs, ins, side=side).mean() for side in ("left", "right"))
    if below + up_to < outs.size:  # the area under the curve, ties as halves
        return (
            "worse than chance: canaries that were in score lower than those that were not, so "
            "that the bound is 0; higher scores must mean in",
        )
    return ("no signal that so many scores can tell from chance: the bound is 0",)
