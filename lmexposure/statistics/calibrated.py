"""Calibrated exposure: ranks of what a training saved, against the model before it.

A secret may be likely to any model, or a canary may happen to look like much else in the training
data. Its exposure is then high without any memorisation. The same text under a base model that
never saw it says how likely it was anyway; what is left when that is taken off is the training's.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure._validate import bits_array
from lmexposure.errors import InputError
from lmexposure.statistics.exposures import SampledExposure, sampled_exposure

_ASSUMPTIONS = (
    "canary and references are fills of one format, scored in the same way under both models",
    "the base model never saw the canaries",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class CalibratedExposure:
    """Exposures of n canaries under a model, under its base, and calibrated; in bits."""

    calibrated: SampledExposure  # ranks of log-perplexity minus the base's; higher = more memorised
    base: SampledExposure  # ranks under the base alone: what was likely before the training
    # exposure by rank under the model minus that under the base, shape (n,)
    added: NDArray[np.float64]
    # whether `added` is a lower bound: lowest of all under the model, and not so under the base,
    # shape (n,)
    added_capped: NDArray[np.bool_]
    # by how many bits the training made each canary likelier, shape (n,)
    gained_bits: NDArray[np.float64]
    reference_gained_bits: NDArray[np.float64]  # the same of the references, shape (m,)


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

    Where the model knows nothing that the base does not, the difference of a canary is as those of
    the references, and calibrated exposure has the mean 1 / ln 2 and the median 1, whatever the
    base finds likely. Ties count against the canary.

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


def _pair(
    what: str, bits: ArrayLike, base_bits: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log-perplexities of the same texts under both models."""
    own, base = bits_array(f"{what}_bits", bits), bits_array(f"{what}_base_bits", base_bits)
    if own.shape != base.shape:
        raise InputError(
            f"{what}_base_bits has shape {base.shape}; give one for each of the {own.size} "
            f"{what}_bits"
        )
    return own, base
