"""Exposure of canaries in the wrapping that they were trained in."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure._validate import coverage
from lmexposure.canaries import Canary, Manifest
from lmexposure.errors import ManifestError
from lmexposure.integrations.wrapping import Wrapping, check_place, wrapped_log_perplexity
from lmexposure.records import CanaryResult, Estimate
from lmexposure.statistics import sampled_exposure

_SEARCHED = ("canary", "control")  # roles; the other one is of candidates held out


def wrapped_exposures(
    model: Any,
    tokenizer: Any,
    manifest: Manifest,
    wrapping: Wrapping,
    *,
    references: int | None = None,
    level: float = 0.95,
    batch_size: int | None = None,
) -> list[CanaryResult]:
    """Exposure of each canary and control by its rank among references wrapped alike.

    Args:
        model: a `transformers` causal language model, one with adapters too; scored in evaluation
            mode, also right after a training, and left in the mode that it was in.
        tokenizer: its tokenizer, with the chat template of the training.
        manifest: what was inserted.
        wrapping: that of the training.
        references: per format, at least 1; by default 10,000, or all that are left.
        level: two-sided coverage of each canary's interval.
        batch_size: texts a forward pass; None chooses one.

    Returns:
        canaries and controls in the manifest's order; `exposure` is the estimate "sampled", in
        bits, higher = more memorised.

    Raises:
        ManifestError: the manifest holds no inserted canary, or says that they stand in another
            place of a record than this wrapping does.
        ModelError: see `wrapped_log_perplexity`.
        NumericalError: the model gave NaN or infinite logits.
        PlanError: a format cannot give so many references as were asked for.
        SettingsError: `level` is not strictly between 0 and 1, or hardly.

    Source: Carlini et al. 2019, The Secret Sharer, section 4.
    """
    if not manifest.canaries:
        raise ManifestError("the manifest holds no inserted canary, so there is nothing to measure")
    check_place(manifest, wrapping)
    coverage("level", level)
    results = []
    for name, one in manifest.formats.items():
        drawn = [canary for canary in manifest.entries if canary.format == name]
        indices = manifest.references(name, references, strict=references is not None)
        texts = [canary.text for canary in drawn] + [one.text(index) for index in indices]
        bits = wrapped_log_perplexity(model, tokenizer, texts, wrapping, batch_size=batch_size)
        results += _by_rank(drawn, bits, size=one.size, level=level)
    return results


def _by_rank(
    drawn: Sequence[Canary], bits: NDArray[np.float64], *, size: int, level: float
) -> list[CanaryResult]:
    # A candidate that its coin kept out was drawn as a reference is: it is one.
    out = np.array([one.role not in _SEARCHED for one in drawn], dtype=bool)
    own = bits[: len(drawn)][~out]
    null = np.concatenate([bits[: len(drawn)][out], bits[len(drawn) :]])
    exposures = sampled_exposure(own, null, space_size=size, level=level)
    results = []
    for i, canary in enumerate(one for one in drawn if one.role in _SEARCHED):
        estimate = Estimate.model_validate(exposures.row(i))
        results.append(
            CanaryResult(
                id=canary.id,
                format=canary.format,
                role="canary" if canary.inserted else "control",
                repetitions=canary.repetitions,
                log_perplexity_bits=float(own[i]),
                exposure=estimate,
                estimates={"sampled": estimate},
                extraction=(),
            )
        )
    return results
