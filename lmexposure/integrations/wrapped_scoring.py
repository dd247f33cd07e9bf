"""Canaries scored in the wrapping that they were trained in: log-perplexity and exposure.

A model that met a canary inside a chat template has memorised it there. So canary and references
are scored in that very wrapping, and over no token that carried no loss.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure._validate import coverage
from lmexposure.canaries import Canary, Manifest, Wrapping
from lmexposure.core import Encoded
from lmexposure.errors import InputError, ManifestError, ModelError
from lmexposure.models import (
    AnyContext,
    encode_in_context,
    is_tokenizer,
    row_context,
)
from lmexposure.scoring import TorchModel
from lmexposure.statistics import sampled_exposure
from lmexposure.studies import CanaryResult, Estimate


def wrapped_log_perplexity(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    wrapping: Wrapping,
    *,
    batch_size: int | None = None,
) -> NDArray[np.float64]:
    """Log-perplexity in bits of each text in its wrapping. Lower = more memorised.

    Source: Carlini et al. 2019, "The Secret Sharer", Definition 1, given the wrapping.
    """
    lm = TorchModel(model=model, tokenizer=tokenizer, name="trained")
    wrapped = encode_wrapped(tokenizer, texts, wrapping, max_length=lm.window)
    return lm.token_bits(wrapped, batch_size=batch_size).totals


def encode_wrapped(
    tokenizer: Any, texts: Sequence[str], wrapping: Wrapping, *, max_length: int | None = None
) -> list[Encoded]:
    """Tokens of each text as the training had them, scored where they carry loss."""
    if isinstance(texts, str) or not texts:
        raise InputError("texts must be a list of at least one text; give [text] for a single one")
    if not is_tokenizer(tokenizer):
        raise ModelError(
            f"{type(tokenizer).__name__} is no tokenizer of transformers; give that of the training"
        )
    context: AnyContext = wrapping.context
    if wrapping.turn != "plain" or wrapping.context == "":
        context = row_context(tokenizer, wrapping, texts)
    wrapped = encode_in_context(tokenizer, texts, context=context, max_length=max_length)
    _check_apart(texts, wrapped)
    return wrapped


def check_place(manifest: Manifest, wrapping: Wrapping) -> None:
    """Refuse canaries that are in chats in another place than they would be scored in."""
    if manifest.wrapping is not None and manifest.corpus.text_field != wrapping.place:
        raise ManifestError(
            f"the canaries of this manifest were inserted as {manifest.corpus.text_field}, and "
            f"this wrapping scores them as {wrapping.place}, where they would look unknown; give "
            "the wrapping of insert(...)"
        )


def _check_apart(texts: Sequence[str], wrapped: Sequence[Encoded]) -> None:
    """A tokenizer that rewrites texts may write two alike, and no rank could tell them apart."""
    if len({tuple(text.ids) for text in wrapped}) < len(set(texts)):
        raise ModelError(
            "the tokenizer gives two different fills the same tokens; use a format whose "
            "characters it keeps"
        )


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
        ManifestError: the manifest holds no inserted canary, or says that they are in another
            place of a record than this wrapping does.
        ModelError: see `wrapped_log_perplexity`.
        NumericalError: the model gave NaN or infinite logits.
        PlanError: a format has fewer references than were asked for.
        SettingsError: `level` is not strictly between 0 and 1, or hardly.

    Source: Carlini et al. 2019, The Secret Sharer, section 4.
    """
    manifest = manifest.ranked
    if not manifest.canaries:
        raise ManifestError("the manifest holds no inserted canary, so there is nothing to measure")
    check_place(manifest, wrapping)
    coverage("level", level)
    results = []
    for name, form in manifest.formats.items():
        drawn = [canary for canary in manifest.entries if canary.format == name]
        indices = manifest.references(name, references, strict=references is not None)
        texts = [canary.text for canary in drawn] + [form.text(index) for index in indices]
        bits = wrapped_log_perplexity(model, tokenizer, texts, wrapping, batch_size=batch_size)
        results += _by_rank(drawn, bits, size=form.size, level=level)
    return results


def _by_rank(
    drawn: Sequence[Canary], bits: NDArray[np.float64], *, size: int, level: float
) -> list[CanaryResult]:
    # A candidate that its coin kept out was drawn as a reference is: it is one.
    out = np.array([canary.role == "held_out" for canary in drawn], dtype=bool)
    own = bits[: len(drawn)][~out]
    null = np.concatenate([bits[: len(drawn)][out], bits[len(drawn) :]])
    exposures = sampled_exposure(own, null, space_size=size, level=level)
    results = []
    for i, canary in enumerate(canary for canary in drawn if canary.role != "held_out"):
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
