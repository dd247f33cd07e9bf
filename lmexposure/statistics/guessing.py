"""Are canaries told from references at all? A permutation test against guessing."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure._validate import bits_array, integer, one_of
from lmexposure.errors import InputError

_ASSUMPTIONS = ("without memorisation canaries and references of a group are exchangeable",)
_CHUNK = 1024


@dataclass(frozen=True, kw_only=True)
class GuessingBaseline:
    """Exposure in bits of canaries that a model knows nothing of; as it is given, the limit.

    Among references without end the exposure is -log2 of a uniform number, exponential with mean
    1 / ln 2 (Jagielski 2023); among few it is lower, since no rank is below 1.
    """

    mean: float = 1 / math.log(2)
    median: float = 1.0
    upper_quartile: float = 2.0

    @classmethod
    def among(cls, references: int, *, space_size: int | None = None) -> "GuessingBaseline":
        """The baseline among so many references: the rank is uniform on 1 .. references + 1.

        Args:
            references: n, at least 1.
            space_size: of the randomness space, where the references are all fills never inserted,
                so that exposure is log2(space_size) - log2(rank); None: log2(n) - log2(rank).

        Raises:
            SettingsError: no references.

        >>> round(GuessingBaseline.among(20).mean, 3)
        1.204
        """
        n = integer("references", references, low=1)
        most = math.log2(n if space_size is None else space_size)
        # The mean of log2 of 1 .. n + 1.
        mean = most - math.lgamma(n + 2) / math.log(2) / (n + 1)
        return cls(
            mean=mean, median=most - _log_rank(n, 0.5), upper_quartile=most - _log_rank(n, 0.25)
        )

    def to_dict(self) -> dict[str, float]:
        """Plain Python values."""
        return asdict(self)


def _log_rank(n: int, share: float) -> float:
    """The quantile of log2 of 1 .. n + 1, interpolated as `quantile_interval` interpolates."""
    whole = math.floor(share * n)
    low, high = math.log2(1 + whole), math.log2(2 + whole)
    return low + (share * n - whole) * (high - low)


GUESSING = GuessingBaseline()


@dataclass(frozen=True, kw_only=True)
class GuessingTest:
    """How often chance alone gives a mean exposure such as this; lower p = harder to explain.

    `statistic` is the canaries' mean exposure in bits among the references of their group; `n`
    is the number of canaries. The p-value is exact, and at least 1 / (1 + permutations).
    """

    p_value: float
    statistic: float
    n: int
    references: int
    groups: int
    alternative: str
    permutations: int
    seed: int
    assumptions: tuple[str, ...] = _ASSUMPTIONS

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values."""
        return asdict(self) | {"assumptions": list(self.assumptions)}


def guessing_test(
    canary_bits: ArrayLike,
    reference_bits: ArrayLike,
    *,
    seed: int,
    permutations: int = 9999,
    alternative: str = "memorised",
    canary_groups: ArrayLike | None = None,
    reference_groups: ArrayLike | None = None,
) -> GuessingTest:
    """Test that canaries come from the same distribution as the references.

    Canaries against the same references are dependent, so that a test which adds up their ranks
    as if they were not is wrong. Here canaries and references are pooled, and as many as there
    are canaries are drawn from the pool again and again and ranked among the rest.

    Args:
        canary_bits: log-perplexities in bits, one or shape (n,); lower = more memorised.
        reference_bits: log-perplexities in bits of never-inserted fills, shape (m,).
        seed: of the permutations. Given the permutations, the share of false alarms is no longer
            exact but that of this draw of them: who tests many data sets of one size takes a seed
            for each, from what tells them apart.
        permutations: at least 1.
        alternative: "memorised" (exposure is higher than chance gives) or "different" (either
            way: for controls, where a low exposure is as suspicious as a high one).
        canary_groups: a label for each canary (a model, a format), where there are several:
            canaries are ranked and permuted within their group only; shape (n,).
        reference_groups: the labels of the references, shape (m,); needed with `canary_groups`.

    Returns:
        The p-value with what it was computed from.

    Raises:
        InputError: no numbers, a NaN or an infinity, labels that do not match.
        SettingsError: a setting out of range.

    Source: Phipson and Smyth 2010, permutation p-values should never be zero;
    p = (1 + as extreme) / (1 + permutations).
    """
    canaries = bits_array("canary_bits", canary_bits)
    references = bits_array("reference_bits", reference_bits)
    seed = integer("seed", seed, low=0)
    permutations = integer("permutations", permutations, low=1)
    one_of("alternative", alternative, ("memorised", "different"))
    generator = np.random.default_rng(seed)
    observed, chance, groups = 0.0, np.zeros(permutations), 0
    for own, rest in _grouped(canaries, references, canary_groups, reference_groups):
        ends, chosen = _pool(own, rest)
        observed += float(_total_exposure(ends[chosen][None, :], rest.size)[0])
        chance += _permuted(ends, own.size, permutations, generator)
        groups += 1
    return GuessingTest(
        p_value=_p_value(observed, chance, alternative),
        statistic=observed / canaries.size,
        n=canaries.size,
        references=references.size,
        groups=groups,
        alternative=alternative,
        permutations=permutations,
        seed=seed,
    )


def _grouped(
    canaries: NDArray[np.float64],
    references: NDArray[np.float64],
    canary_groups: ArrayLike | None,
    reference_groups: ArrayLike | None,
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Canaries and references of each group, in the order of the sorted labels."""
    if canary_groups is None and reference_groups is None:
        yield canaries, references
        return
    own = _labels("canary_groups", canary_groups, canaries.size)
    rest = _labels("reference_groups", reference_groups, references.size)
    for label in np.unique(own):
        if not (rest == label).any():
            raise InputError(
                f"canary_groups holds {label!s}, which no reference has: score references for "
                "every group"
            )
        yield canaries[own == label], references[rest == label]


def _labels(name: str, labels: ArrayLike | None, size: int) -> NDArray[Any]:
    found = np.asarray([] if labels is None else labels)
    if found.shape != (size,):
        raise InputError(
            f"{name} has shape {found.shape}; give one label for each of the {size} numbers, or "
            "no groups at all"
        )
    return found


def _pool(
    own: NDArray[np.float64], rest: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of the sorted pool: how many are <= each place's number, and the canaries' places."""
    pool = np.concatenate([own, rest])
    order = np.argsort(pool, kind="stable")
    ends = np.searchsorted(pool[order], pool[order], side="right")  # (n + m,)
    places = np.flatnonzero(order < own.size)
    return ends, places


def _total_exposure(ends: NDArray[np.int64], references: int) -> NDArray[np.float64]:
    """Sum of exposures in bits for each row of chosen ends, ascending within a row: (B, n) -> (B,).

    References <= a canary = all <= it less the chosen <= it; of equal chosen ones the last counts
    for all, so that ties stand against the canary as in `sampled_exposure`.
    """
    n = ends.shape[1]
    last = np.where(np.diff(ends, axis=1, append=ends[:, -1:] + 1) > 0, np.arange(1, n + 1), n)
    chosen = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]  # (B, n) chosen ones <= it
    total: NDArray[np.float64] = np.sum(math.log2(references) - np.log2(1 + ends - chosen), axis=1)
    return total


def _permuted(
    ends: NDArray[np.int64], n: int, permutations: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Sums of exposures of n places drawn without replacement, shape (permutations,)."""
    totals = np.empty(permutations)
    for start in range(0, permutations, _CHUNK):
        count = min(_CHUNK, permutations - start)
        places = np.stack(
            [generator.choice(ends.size, n, replace=False, shuffle=False) for _ in range(count)]
        )
        places.sort(axis=1)
        totals[start : start + count] = _total_exposure(ends[places], ends.size - n)
    return totals


def _p_value(observed: float, chance: NDArray[np.float64], alternative: str) -> float:
    """Share of permutations at least as extreme; sums equal but for rounding count as equal."""
    slack = 1e-9 * max(1.0, abs(observed))
    above = (1 + int((chance >= observed - slack).sum())) / (1 + chance.size)
    if alternative == "memorised":
        return above
    below = (1 + int((chance <= observed + slack).sum())) / (1 + chance.size)
    return min(1.0, 2 * min(above, below))
