"""The section "privacy" of a result, from the scores of all formats."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lmexposure.audit.format_scores import FormatScores
from lmexposure.canaries import Manifest
from lmexposure.records import MeasureSettings, Privacy
from lmexposure.statistics import Claim, privacy_of, score_classes

_PACKED = (
    "training packs documents into blocks of tokens: one document more or less shifts the blocks "
    "behind it, so these bounds test claims about documents; a claim about blocks is another one"
)
_PERHAPS_PACKED = (
    "these bounds test claims about documents; if the training packed documents into blocks of "
    "tokens, one document more or less shifted the blocks behind it, and a claim about blocks is "
    "another one"
)
_REVERSED = (
    "the model finds canaries that went in more surprising than texts that it never saw: see "
    "whether it was trained on this corpus, and whether anything punishes what it memorised"
)


def privacy_section(
    scores: Sequence[FormatScores],
    manifest: Manifest,
    settings: MeasureSettings,
    *,
    own_training: bool = False,
) -> Privacy:
    """Bounds on epsilon, membership metrics and a verdict on the claim, as `privacy_of` gives them.

    Formats are pooled where coins were tossed, and stand apart where a fixed number went in.

    Args:
        scores: log-perplexities of every format.
        manifest: how the candidates were drawn.
        settings: significance, delta, claim.
        own_training: whether this package trained the model, and so packed its documents.

    Returns:
        what `privacy_of` returns; its notes begin with one on documents.
    """
    probability = manifest.plan.inclusion_probability
    claim = None
    if settings.claimed_epsilon is not None:
        claim = Claim(epsilon=settings.claimed_epsilon, delta=settings.delta)
    section = privacy_of(
        score_classes(*_columns(scores), pooled=probability is not None),
        inclusion_probability=probability,
        significance=settings.significance,
        deltas=settings.deltas(manifest.corpus.documents),
        claim=claim,
        level=settings.level,
        seed=settings.bootstrap_seed,
        if_reversed=_REVERSED,
    )
    packed = _PACKED if own_training else _PERHAPS_PACKED
    return Privacy.model_validate(section | {"notes": [packed, *section["notes"]]})


def _columns(scores: Sequence[FormatScores]) -> tuple[Any, Any, Any, Any]:
    """Scores, roles, repetitions and formats of all texts; higher scores = more likely in."""
    roles = [role for one in scores for role in one.roles]
    copies = [count for one in scores for count in one.repetitions]
    formats = np.repeat([one.format.name for one in scores], [one.bits.size for one in scores])
    return -np.concatenate([one.bits for one in scores]), roles, copies, formats
