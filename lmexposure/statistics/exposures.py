"""Exposure by rank among references, with the interval that sampling leaves open.

`exposure` gives it together with what a skew-normal curve through the references says.

Calibrated exposure is by ranks of what a training saved, against the model before it: a secret may
be likely to any model, or a canary may happen to look like much else in the training data. Its
exposure is then high without any memorisation. The same text under a base model that never saw it
says how likely it was anyway; what is left when that is taken off is the training's.
"""

import math
import warnings
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from lmexposure._quantiles import ExposureEstimate
from lmexposure._style import count
from lmexposure._validate import bits_array, fraction, integer
from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics.arrays import Counts, Flags, Floats, column, finite_or_none
from lmexposure.statistics.intervals import binomial_interval
from lmexposure.statistics.results import Estimate
from lmexposure.statistics.skew_normal import SkewNormalExposure, skew_normal_exposure

_SAME_SCORING = "canary and references are of one format, scored in the same way"
_SAMPLED = (
    _SAME_SCORING,
    "references are drawn uniformly, without replacement, from the secrets never inserted",
    "the interval (Clopper-Pearson) holds for one canary, not for all of them jointly",
)
_EXACT = (_SAME_SCORING, "the references are all secrets that were never inserted")
_UNLIKELY = 1e-3  # by chance, for scores in their right order
_ASSUMPTIONS = (
    "canary and references are of one format, scored in the same way under both models",
    "the base model never saw the canaries",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledExposure:
    """Exposures by rank, in bits; higher = more memorised; columns of shape (n,), as given."""

    value: Floats  # log2(references) - log2(rank)
    low: Floats
    high: Floats
    rank: Counts  # among the references, ties against the canary
    capped: Flags  # no reference came as low: `value` is a lower bound, shown with ">="
    references: int
    level: float
    method: Literal["exact", "sampled"]  # "exact": the references are all there are, low is high
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    space_bits: float = math.inf

    def estimates(self) -> list[ExposureEstimate]:
        """Each canary with what its error comes from, as `exposure_summary` takes it."""
        # Log-perplexities are not kept: `bits` is the rank. Next to estimates of another kind give
        # all of them their log-perplexities (`dataclasses.replace`), or none are in order.
        columns = (self.value, self.low, self.high, self.capped, self.rank)
        return [
            ExposureEstimate(
                method=self.method,
                value=value,
                low=low,
                high=high,
                capped=capped,
                level=self.level,
                bits=rank,
                references=self.references,
                space_bits=self.space_bits,
            )
            for value, low, high, capped, rank in zip(*(c.tolist() for c in columns), strict=True)
        ]

    def canary(self, i: int) -> Estimate:
        """The i-th canary alone; what is not finite is None."""
        capped = bool(self.capped[i])
        warnings = [_cap_warning(self.references)] if capped else []
        if not math.isfinite(self.high[i]):
            warnings.append("no upper bound: the number of possible secrets was not given")
        return Estimate(
            method=self.method,
            value=finite_or_none(self.value[i]),
            low=finite_or_none(self.low[i]),
            high=finite_or_none(self.high[i]),
            level=self.level,
            rank=int(self.rank[i]),
            capped=capped,
            assumptions=self.assumptions,
            warnings=tuple(warnings),
        )


def sampled_exposure(
    canary_bits: ArrayLike,
    reference_bits: ArrayLike,
    *,
    space_size: int | None = None,
    exhaustive: bool = False,
    level: float = 0.95,
) -> SampledExposure:
    """Exposure of each canary by its rank among references that the model never saw.

    Source: Carlini et al. 2019, The Secret Sharer, section 4 (exposure, and its approximation by
    sampling); ties as in tensorflow/privacy, against the canary.

    >>> sampled_exposure(3.5, range(1, 17)).value.tolist()
    [2.0]
    """
    canaries = bits_array("canary_bits", canary_bits)
    references = np.sort(bits_array("reference_bits", reference_bits))
    level = fraction("level", level)
    _check_space(space_size, references.size, exhaustive)
    k = np.searchsorted(references, canaries, side="right")  # (n,) references <= canary
    total = space_size if exhaustive and space_size is not None else references.size
    value = math.log2(total) - np.log2(1 + k)
    if exhaustive:
        low, high, capped = value, value, np.zeros(k.shape, bool)
    else:
        low, high = _interval(k, references.size, space_size, level)
        low, high, capped = np.minimum(low, value), np.maximum(high, value), k == 0
    warning = f"{int(capped.sum())} of {k.size} canaries: {_cap_warning(references.size)}"
    return SampledExposure(
        value=column(value, np.float64),
        low=column(low, np.float64),
        high=column(high, np.float64),
        rank=column(1 + k, np.int64),
        capped=column(capped, np.bool_),
        references=references.size,
        level=level,
        method="exact" if exhaustive else "sampled",
        assumptions=_EXACT if exhaustive else _SAMPLED,
        warnings=(warning,) if capped.any() else (),
        space_bits=math.inf if space_size is None else math.log2(space_size),
    )


def _check_space(space_size: int | None, references: int, exhaustive: bool) -> None:
    """Refuse a space that cannot hold the references and the canary."""
    if space_size is not None:
        integer("space_size", space_size, low=2)
        if references >= space_size:
            raise SettingsError(
                f"space_size={space_size} must be above the {references} references: they are "
                "different secrets, and the canary is one more; give each reference once"
            )
    elif exhaustive:
        raise SettingsError(
            "exhaustive=True needs space_size, the number of all secrets of the format"
        )


def _interval(k: Counts, n: int, space_size: int | None, level: float) -> tuple[Floats, Floats]:
    """Exposures that the counts leave open, shape (n,) each.

    With p = P(a reference is as low as the canary), the rank is 1 + p |R| at most, so that
    exposure = log2|R| - log2(rank) >= -log2(p + 1/|R|), and never above log2|R|.
    """
    p = binomial_interval(k, n, level=level)
    own = 0.0 if space_size is None else 1 / space_size
    most = math.inf if space_size is None else math.log2(space_size)
    with np.errstate(divide="ignore"):  # a lower bound of 0 means no upper bound on exposure
        high = -np.log2(p.low)
    return np.maximum(-np.log2(p.high + own), 0.0), np.minimum(high, most)


def _cap_warning(references: int) -> str:
    return (
        f"lower than all {references} references: the exposure is at least "
        f"{math.log2(references):.2f} bits, and more references could show more"
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Exposures:
    """Exposures of canaries in bits; higher = more memorised; columns of shape (n,), as given."""

    # among the references, which cannot show more than log2 of their number; its columns are here
    by_rank: SampledExposure = field(repr=False)
    # off the curve, without test and intervals, which `skew_normal_exposure` gives; None: no curve
    skew_normal: SkewNormalExposure | None = field(repr=False)
    warnings: tuple[str, ...]  # of both, and whether the scores look the wrong way round

    def __repr__(self) -> str:
        first = [f"{value:.2f}" for value in self.value[: None if self.value.size < 6 else 3]]
        more = ["..."] if len(first) < self.value.size else []
        of = count(self.value.size, "canary", "canaries")
        return f"<Exposures of {of}: {', '.join(first + more)} bits>"

    @property
    def value(self) -> Floats:
        """By rank."""
        return self.by_rank.value

    @property
    def low(self) -> Floats:
        """The lower ends of the intervals by rank."""
        return self.by_rank.low

    @property
    def high(self) -> Floats:
        """The upper ends; infinite where the size of the space was not given."""
        return self.by_rank.high

    @property
    def rank(self) -> Counts:
        """1 + references that cost no more."""
        return self.by_rank.rank

    @property
    def capped(self) -> Flags:
        """Whether the value is a lower bound: no reference costs as little."""
        return self.by_rank.capped


def exposure(
    bits: ArrayLike,
    reference_bits: ArrayLike,
    *,
    space_size: int | None = None,
    exhaustive: bool = False,
    level: float = 0.95,
) -> Exposures:
    """Exposure of each canary among references that the model never saw, both ways.

    Scores that look the wrong way round end in a warning that says so.

    Args:
        bits: log-perplexities of the canaries in bits, one or shape (n,); lower = more memorised.
        reference_bits: of secrets that were never inserted, scored in the same way, shape (m,).
        space_size: how many secrets the format has, where known; bounds the intervals.
        exhaustive: the references are all other secrets, so ranks are exact; needs `space_size`.
        level: two-sided coverage of each canary's interval.

    Raises:
        InputError: no numbers, a NaN or an infinity, or nothing but negative ones, which are no
            log-perplexities.
        SettingsError: `space_size` missing where needed or too small, `level` out of range.

    Source: see `sampled_exposure` and `skew_normal_exposure`.

    >>> exposure(3.5, range(1, 17)).value.tolist()
    [2.0]
    """
    canaries, references = bits_array("bits", bits), bits_array("reference_bits", reference_bits)
    # Differences to another model may be of either sign; a log-perplexity is never negative.
    largest = max(canaries.max(), references.max())
    if largest < 0:
        raise InputError(
            f"all scores are negative, {largest:.4g} at most, as log-likelihoods are; give "
            "log-perplexities in bits, -log2 of the likelihood: turn the sign, and divide nats by "
            "ln 2"
        )
    by_rank = sampled_exposure(
        canaries, references, space_size=space_size, exhaustive=exhaustive, level=level
    )
    notes = [*_reversed(canaries, references), *by_rank.warnings]
    curve = None
    try:
        curve = skew_normal_exposure(
            canaries, references, space_size=space_size, level=level, bootstraps=None
        )
        notes += [f"skew-normal curve: {line}" for line in curve.warnings]
    except InputError as failure:  # too few references, or all of them alike
        notes.append(f"no skew-normal curve: {failure}")
    return Exposures(by_rank=by_rank, skew_normal=curve, warnings=tuple(notes))


def _reversed(canaries: Floats, references: Floats) -> list[str]:
    """Canaries above references by more than chance explains."""
    n, m = canaries.size, references.size
    above = stats.mannwhitneyu(canaries, references, alternative="greater", method="asymptotic")
    # All n above all m, in one order of (n + m)! / (n! m!).
    ways = math.lgamma(n + m + 1) - math.lgamma(n + 1) - math.lgamma(m + 1)
    all_above = canaries.min() > references.max() and ways > -math.log(_UNLIKELY)
    if not all_above and not above.pvalue < _UNLIKELY:
        return []
    line = (
        "the canaries cost more bits than references that the model never saw, more than chance "
        "explains: lower must mean more memorised; where higher does, as of a likelihood, turn the "
        "sign of both"
    )
    warnings.warn(line, stacklevel=3)
    return [line]


@dataclass(frozen=True, kw_only=True, eq=False)
class CalibratedExposure:
    """Exposures of n canaries under a model, under its base, and calibrated; in bits."""

    calibrated: SampledExposure  # ranks of log-perplexity minus the base's; higher = more memorised
    base: SampledExposure  # ranks under the base alone: what was likely before the training
    added: Floats  # exposure by rank under the model minus that under the base, shape (n,)
    # whether it is a lower bound: lowest of all under the model, and not under the base, (n,)
    added_capped: Flags
    gained_bits: Floats  # by which the training made each canary likelier, shape (n,)
    reference_gained_bits: Floats  # the same of the references, shape (m,)


def calibrated_exposure(
    canary_bits: ArrayLike,
    canary_base_bits: ArrayLike,
    reference_bits: ArrayLike,
    reference_base_bits: ArrayLike,
    *,
    space_size: int | None = None,
    exhaustive: bool = False,
    level: float = 0.95,
) -> CalibratedExposure:
    """Exposure by the rank of log-perplexity minus that under a base model.

    Source: Jagielski 2023, A note on interpreting canary exposure (arXiv 2306.00133), the third of
    its suggestions; Watson et al. 2021, On the importance of difficulty calibration in membership
    inference attacks.

    >>> made = calibrated_exposure([3.0], [9.0], [5.0, 6.0, 7.0, 8.0], [7.0, 7.0, 7.0, 7.0])
    >>> made.calibrated.value.tolist(), made.base.rank.tolist()
    ([2.0], [5])
    """
    bits, base = _pair("canary", canary_bits, canary_base_bits)
    others, others_base = _pair("reference", reference_bits, reference_base_bits)
    options: dict[str, Any] = {"space_size": space_size, "exhaustive": exhaustive, "level": level}
    saved, others_saved = base - bits, others_base - others
    calibrated = sampled_exposure(-saved, -others_saved, **options)
    under_model = sampled_exposure(bits, others, **options)
    under_base = sampled_exposure(base, others_base, **options)
    return CalibratedExposure(
        calibrated=replace(calibrated, assumptions=(*_ASSUMPTIONS, *calibrated.assumptions[1:])),
        base=under_base,
        added=under_model.value - under_base.value,
        added_capped=under_model.capped & ~under_base.capped,
        gained_bits=saved,
        reference_gained_bits=others_saved,
    )


def _pair(what: str, bits: ArrayLike, base_bits: ArrayLike) -> tuple[Floats, Floats]:
    """Log-perplexities of the same texts under both models."""
    own, base = bits_array(f"{what}_bits", bits), bits_array(f"{what}_base_bits", base_bits)
    if own.shape != base.shape:
        raise InputError(
            f"{what}_base_bits has shape {base.shape}; give one for each of the {own.size} "
            f"{what}_bits"
        )
    return own, base
