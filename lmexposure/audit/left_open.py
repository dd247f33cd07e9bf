"""What insertion, settings, training and a tokenizer leave open: warnings of a result."""

import math
from collections.abc import Iterator, Sequence

from lmexposure._style import number
from lmexposure.audit.format_scores import FormatScores
from lmexposure.canaries import Manifest
from lmexposure.core import TokenModel
from lmexposure.studies import MeasureSettings, Validation


def open_warnings(
    manifest: Manifest, settings: MeasureSettings, validation: Validation | None
) -> Iterator[str]:
    """What insertion, settings and training leave open, whatever was measured."""
    if not manifest.corpus.verified:
        yield (
            "the insertion was not verified: fills that the corpus already held would be taken for "
            "never inserted, which makes canaries seem less memorised; insert with verification"
        )
    if settings.coarser is not None:
        yield (
            f"{settings.coarser}: intervals are wider and fewer ranks are exact; before a release, "
            "measure in full"
        )
    # A model that learned nothing cannot leak, which says nothing of a model that did.
    if validation is not None and not validation.has_loss and validation.best_epoch < 1:
        yield (
            f"INCONCLUSIVE: the weights are of epoch {validation.best_epoch:.2f}, before all "
            "canaries were read; train for an epoch at least"
        )
    elif validation is not None and not validation.improved:
        yield (
            "INCONCLUSIVE: the model did not learn (validation "
            f"{number(validation.validation_bits, 3)} bits per token, "
            f"{number(validation.initial_validation_bits, 3)} before training), so low exposure "
            "says nothing; train longer or with another learning rate"
        )
    differs = "so another machine, or the same one when it is busy, gives other numbers"
    if validation is not None and validation.stopped == "max_seconds":
        yield f"max_seconds ended the training by the clock, {differs}"
    if settings.budget_seconds is not None:
        yield f"budget_seconds={settings.budget_seconds:g} ends each search by the clock, {differs}"


def tokenizer_warnings(lm: TokenModel, scores: Sequence[FormatScores]) -> Iterator[str]:
    """Tokens of another model's tokenizer are noise to a model, and it knows no canary in them."""
    bits = sum(part.bits.sum() for part in scores) / sum(part.tokens.sum() for part in scores)
    guessing = math.log2(lm.vocabulary)
    if bits > guessing:
        yield (
            f"the model finds these texts less likely than random tokens ({bits:.1f} bits per "
            f"token; random tokens take {guessing:.1f}), so low exposure says nothing: check that "
            "the tokenizer is that of the model, and that the model was trained"
        )
