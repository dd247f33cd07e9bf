"""The witnesses of a manifest under a model, in the rows of the canaries."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lmexposure.audit.base import Base
from lmexposure.audit.estimates import class_seed
from lmexposure.canaries import WITNESS, Manifest
from lmexposure.errors import InputError
from lmexposure.models import AnyContext, Encoded, LoadedModel, context_window, encode_in_context
from lmexposure.records import MeasureSettings, WitnessResult
from lmexposure.scoring import Vocabulary, find_beginning, score_encoded
from lmexposure.statistics import draws_needed, witness_certificate, witness_p_value

# A certificate of as many bits settles it: a model that never read the witnesses has one once in
# 65,000 times.
_SETTLED = 16.0


def measure_witness(
    loaded: LoadedModel,
    manifest: Manifest,
    context: AnyContext,
    settings: MeasureSettings,
    *,
    vocabulary: Vocabulary,
    base: Base | None,
    origin: str,
) -> WitnessResult | None:
    """How well a model knows the witnesses; None where none went in.

    They are compared with fresh draws only where their probabilities alone do not settle it. What
    cannot be scored is no failure of the measurement: the result says why.

    Args:
        loaded: model and tokenizer.
        manifest: what was inserted.
        context: what is around each text in its row.
        settings: of the measurement.
        vocabulary: what the model's tokens spell.
        base: the model before the training, where there is one: compared is then how much likelier
            a text became, so that what is likely by itself does not count.
        origin: what distinguishes this measurement from all others, for the permutations.
    """
    witnesses = manifest.witnesses
    if not witnesses:
        return None
    result = WitnessResult(
        witnesses=len(witnesses),
        copies=witnesses[0].repetitions,
        references=0,
        certificate_bits=None,
        p_value=None,
        beside_base=False,
    )
    draws = manifest.references(WITNESS.name, draws_needed(len(witnesses)))
    texts = [entry.text for entry in witnesses] + [WITNESS.text(index) for index in draws]
    try:
        encoded = _encode(loaded, texts, context)
        own = _own_bits(loaded, vocabulary, texts, encoded, context, settings, len(witnesses))
        bits = None if own is None else witness_certificate(own, size=_left(manifest))
        if bits is not None and bits >= _SETTLED:
            return result.model_copy(update={"certificate_bits": bits})
        scores = score_encoded(loaded.model, encoded, batch_size=settings.batch_size).totals
        if base is not None:
            scores = scores - base.bits(
                encoded, batch_size=settings.batch_size, kept=None, progress=lambda *_: None
            )
    except InputError as failure:
        return result.model_copy(update={"note": str(failure)})
    p = witness_p_value(
        scores[: len(witnesses)],
        scores[len(witnesses) :],
        seed=class_seed(settings.bootstrap_seed, origin, WITNESS.name, 0),
    )
    compared = {"references": len(draws), "p_value": p, "beside_base": base is not None}
    return result.model_copy(update={"certificate_bits": bits, **compared})


def _left(manifest: Manifest) -> int:
    """How many fills a witness was drawn from."""
    return WITNESS.size - len(manifest.set_aside.get(WITNESS.name, ()))


def _encode(loaded: LoadedModel, texts: list[str], context: AnyContext) -> list[Encoded]:
    """The texts in context, scored from the same token on."""
    window = context_window(loaded.model.config)
    encoded = encode_in_context(loaded.tokenizer, texts, context=context, max_length=window)
    earliest = min(text.scored_from for text in encoded)
    return [replace(text, scored_from=earliest) for text in encoded]


def _own_bits(
    loaded: LoadedModel,
    vocabulary: Vocabulary,
    texts: Sequence[str],
    encoded: Sequence[Encoded],
    context: AnyContext,
    settings: MeasureSettings,
    witnesses: int,
) -> NDArray[np.float64] | None:
    """Bits of the witnesses behind what all fills begin with; None where they prove nothing."""
    beginning = find_beginning(
        loaded.tokenizer, vocabulary, texts, encoded, context=context, literal=WITNESS.prefix
    )
    if not beginning.scored or beginning.characters is None:
        return None
    own = encoded[:witnesses]
    scores = score_encoded(loaded.model, own, batch_size=settings.batch_size)
    return scores.bits_from(len(beginning.ids))
