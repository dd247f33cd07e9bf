"""The witnesses of a manifest under a model, in the rows of the canaries."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from lmexposure._forecast import Phase
from lmexposure.audit.base import Base
from lmexposure.audit.estimates import class_seed
from lmexposure.audit.workload import Progress, Watcher
from lmexposure.canaries import WITNESS, Manifest
from lmexposure.core import Encoded
from lmexposure.errors import InputError
from lmexposure.models import AnyContext
from lmexposure.scoring import TorchModel, Vocabulary, find_beginning
from lmexposure.statistics import draws_needed, witness_certificate, witness_p_value
from lmexposure.studies import MeasureSettings, WitnessResult

# A certificate of as many bits settles it: a model that never read the witnesses has one once in
# 65,000 times.
_SETTLED = 16.0
# How often the share of fills with as few tokens as a witness may be overstated.
_OVERSTATED = 1e-6
_AT_ONCE = 300  # draws that are scored before it is asked whether one witness still leads
_OWN_TOKENS = (
    "the tokenizer was made from text that holds them: it spells them in fewer tokens than any "
    "other text of their form, which makes them likely in a model that read nothing"
)

IN_TOKENIZER = (
    "the tokenizer was made from this corpus, witnesses and all: canaries may look known that its "
    "tokens know and the model does not; measure a model whose tokenizer did not read the corpus"
)


def measure_witness(  # noqa: PLR0913 (what a measurement has)
    lm: TorchModel,
    manifest: Manifest,
    context: AnyContext,
    settings: MeasureSettings,
    *,
    vocabulary: Vocabulary,
    base: Callable[[], Base | None],
    origin: str,
    progress: Progress,
) -> WitnessResult | None:
    """How well a model knows the witnesses; None where none went in."""
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
    k, needed = len(witnesses), draws_needed(len(witnesses))
    # More than are scored: those of as many tokens are looked for among them.
    draws = manifest.references(WITNESS.name, 2 * needed + 1_000)
    texts = [entry.text for entry in witnesses] + [WITNESS.text(index) for index in draws]
    try:
        encoded = _encode(lm, texts, context)
        tokens = np.array([len(text.ids) for text in encoded])
        own, drawn = tokens[:k], tokens[k:]
        if (own < drawn.min()).any():
            return result.model_copy(update={"note": _OWN_TOKENS, "in_tokenizer": True})
        own_bits = _own_bits(lm, vocabulary, texts, encoded, context, settings, k)
        bits = None if own_bits is None else _certificate(own_bits, own, drawn, _left(manifest))
        if bits is not None and bits >= _SETTLED:
            return result.model_copy(update={"certificate_bits": bits})

        before = base()
        if before is not None and not before.reads(encoded):  # tokens were added for the training
            before = None
        score = _Scorer(lm, before, settings.scoring_batch)
        known = score(encoded[:k])
        alike = np.concatenate([np.flatnonzero(drawn == n)[:needed] for n in np.unique(own)])
        others = np.empty(0)
        if isinstance(progress, Watcher):  # probabilities alone did not settle it
            read = sum(len(encoded[k + place].ids) for place in alike)
            read *= 1 if before is None else 2
            title = f"witness: compared with at most {alike.size:,} other texts"
            phase = Phase(what="witness", kind="scoring", work=float(read))
            progress.plan(title, [phase], keeps=False)
        while others.size < alike.size and not (k == 1 and (others <= known).any()):
            progress("witness", others.size, alike.size)
            part = alike[others.size : others.size + _AT_ONCE]
            others = np.concatenate([others, score([encoded[k + place] for place in part])])
        progress("witness", alike.size, alike.size)
    except InputError as failure:
        return result.model_copy(update={"note": str(failure)})
    p = witness_p_value(
        known,
        others,
        tokens=(own, drawn[alike[: others.size]]),
        seed=class_seed(settings.bootstrap_seed, origin, WITNESS.name, 0),
    )
    compared = {"references": others.size, "p_value": p, "beside_base": score.base is not None}
    return result.model_copy(update={"certificate_bits": bits, **compared})


@dataclass(frozen=True)
class _Scorer:
    """Log-perplexities under a model, less those under its base where there is one."""

    lm: TorchModel
    base: Base | None
    batch_size: int | None

    def __call__(self, texts: list[Encoded]) -> NDArray[np.float64]:
        size = self.batch_size
        scores = self.lm.token_bits(texts, batch_size=size).totals
        if self.base is None:
            return scores
        return scores - self.base.bits(texts, batch_size=size, kept=None, progress=lambda *_: None)


def _certificate(
    bits: NDArray[np.float64], own: NDArray[np.int64], drawn: NDArray[np.int64], left: int
) -> float:
    """Bits of evidence, though the tokenizer may have been made from the witnesses.

    The most that it can say of a witness is then that its fill is among those of no more tokens: of
    these it counts as drawn, and their share is bounded from below by that among the draws.
    """
    few = (drawn[None, :] <= own[:, None]).sum(axis=1)
    shares = beta.ppf(_OVERSTATED, few, drawn.size - few + 1)
    found = witness_certificate(bits, sizes=left * shares)
    return float(-np.logaddexp2(-found, math.log2(_OVERSTATED * own.size)))


def _left(manifest: Manifest) -> int:
    """How many fills a witness was drawn from."""
    return WITNESS.size - len(manifest.set_aside.get(WITNESS.name, ()))


def _encode(lm: TorchModel, texts: list[str], context: AnyContext) -> list[Encoded]:
    """The texts in context, scored from the same token on."""
    encoded = lm.encode(texts, context)
    earliest = min(text.scored_from for text in encoded)
    return [replace(text, scored_from=earliest) for text in encoded]


def _own_bits(
    lm: TorchModel,
    vocabulary: Vocabulary,
    texts: Sequence[str],
    encoded: Sequence[Encoded],
    context: AnyContext,
    settings: MeasureSettings,
    witnesses: int,
) -> NDArray[np.float64] | None:
    """Bits of the witnesses behind what all fills begin with; None where they prove nothing."""
    beginning = find_beginning(
        lm.tokenizer, vocabulary, texts, encoded, context=context, literal=WITNESS.prefix
    )
    if not beginning.scored or beginning.characters is None:
        return None
    own = encoded[:witnesses]
    scores = lm.token_bits(own, batch_size=settings.scoring_batch)
    return scores.bits_from(len(beginning.ids))
