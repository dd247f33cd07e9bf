"""Whether the model that was measured read the canaries at all: without that, nothing passes."""

from lmexposure._style import count, number, one_in, probability, sentence, times
from lmexposure.core import Check, CheckKind, Outcome, Thresholds
from lmexposure.studies.exposure.record import LEAST_GAIN, ResultNumbers, Validation

# How often, at most, a model that never read the canaries counts as one that did.
SEEN_LEVEL = 0.001
# Witnesses and classes of canaries share it.
_SHARE = SEEN_LEVEL / 2

SEEN: CheckKind = CheckKind(
    help="Low exposure means something only of a model that was trained on the canaries. A base in "
    "place of its fine-tune, another corpus' manifest, canaries lost before the training: each "
    "looks like a model that keeps secrets.",
    remedy="Check that this is the model that was trained on this manifest's corpus, and look at "
    "the trainer's rows (lmexposure verify --rows); measure with --base, which shows smaller "
    "traces; or take it on your own word (--accept-unseen-training).",
    precondition=True,
)


def check_seen(result: ResultNumbers, thresholds: Thresholds) -> Check:
    """Whether it is shown that the model read the canaries.

    A loss that fell shows it of no model: any text of the kind lowers it. Shown it is by what a
    model that is independent of the manifest reaches at most once in 1,000: witnesses, or canaries
    of any class, that it knows; or by the record of a training that delivered every canary and
    learned (`_recorded`), which is for a private training, whose witnesses need not show. Where it
    is known that canaries were not read, by the training's rows or because it ended before, none of
    this counts: witnesses, which are many, are known sooner.
    """
    lost = _lost(result)
    shown = None if lost else (_witnessed(result) or _class_known(result) or _recorded(result))
    outcome, reason = Outcome.PASS, shown
    if shown is None and thresholds.accept_unseen_training:
        outcome = Outcome.NOT_TESTED
        reason = "whether the model saw the canaries was taken on the user's word"
    elif shown is None:
        outcome = Outcome.INCONCLUSIVE
        reason = lost or _not_shown(result)
    witness = result.witness
    # Evidence of another kind is no number to be held against this level.
    compared = witness is not None and (outcome is not Outcome.PASS or bool(_witnessed(result)))
    return Check(
        name="model saw the canaries",
        key="accept_unseen_training",
        outcome=outcome,
        value=witness.chance if witness is not None and compared else None,
        threshold=_SHARE if compared else None,
        reason=sentence(reason or ""),
    )


def _witnessed(result: ResultNumbers) -> str | None:
    chance = None if result.witness is None else result.witness.chance
    if chance is None or chance > _SHARE:
        return None
    return (
        "the model read this corpus: it knows the witnesses as a model that never read them does "
        f"once in {one_in(chance)} times"
    )


def _class_known(result: ResultNumbers) -> str | None:
    """A class that the model knows, judged or not; not where its tokenizer may know them."""
    if result.witness is not None and result.witness.in_tokenizer:
        return None
    rows = [row for row in result.summary if row.role == "canary" and row.guessing_test]
    tests = [(row.guessing_test.p_value, row) for row in rows if row.guessing_test is not None]
    p, row = min(tests, key=lambda test: test[0], default=(1.0, None))
    if row is None or p * len(tests) > _SHARE:
        return None
    return (
        f"the model saw the canaries: it knows those that were inserted {times(row.repetitions)} "
        f"(p = {probability(p)})"
    )


def _recorded(result: ResultNumbers) -> str | None:
    """The record of a training, where it read every canary and learned.

    It must have come below its own beginning, by which a pretrained model is measured, and below
    the frequencies of tokens alone, which any beginning reaches. The checkpoint that was kept must
    have a whole epoch behind it; a private training draws its documents at random, and so may one
    of another trainer, of which only the rows were counted.
    """
    validation = result.model.validation
    if validation is None or validation.delivered is None or not _learned(validation):
        return None
    witness = result.witness
    planned = sum(c.repetitions for c in result.canaries if c.role == "canary")
    planned += 0 if witness is None else witness.witnesses * witness.copies
    if validation.delivered < planned:
        return None
    copies = f"all {validation.delivered:,} copies that went in"
    read = (
        f"read {copies}"
        if validation.claim is None and not validation.foreign
        else f"drew from {copies} for {number(validation.best_epoch, 1)} epochs"
    )
    return (
        f"the model saw the canaries: its training {read}, and brought the validation loss to "
        f"{number(validation.validation_bits, 3)} bits per token"
    )


def _learned(validation: Validation) -> bool:
    known = validation.validation_bits, validation.initial_validation_bits, validation.unigram_bits
    after, before, unigram = known
    if after is None or before is None or unigram is None:
        return False
    return after < min(before, unigram) - LEAST_GAIN


def _lost(result: ResultNumbers) -> str | None:
    """What is known of canaries that the model did not read, whatever else it knows."""
    lacking = None if result.context is None else result.context.lacking
    if lacking:
        return (
            f"the rows of the training lack {count(lacking, 'planned copy', 'planned copies')} of "
            "canaries, or cut them, or gave them no loss. Let lmexposure verify --rows say which; "
            "where this does not matter, give --accept-unseen-training"
        )
    validation = result.model.validation
    if validation is not None and validation.best_epoch < 1:
        return (
            f"the checkpoint that was kept is of epoch {number(validation.best_epoch)}, before all "
            "canaries were read. Train for an epoch at least, or give --accept-unseen-training"
        )
    return None


def _not_shown(result: ResultNumbers) -> str:
    """What the witnesses say, what that may mean, and the way out."""
    witness = result.witness
    if witness is None:
        said = "its manifest has no witnesses, and it knows no class of canaries"
    elif witness.chance is None:
        said = f"its witnesses could not be scored ({witness.note or 'no tokens of their own'})"
    else:
        said = (
            f"it knows the witnesses no better than texts that it never saw (p = "
            f"{probability(witness.chance)}, {probability(_SHARE)} or less would show it)"
        )
    return (
        f"nothing shows that this model saw the canaries: {said}. It may be another model, the "
        "canaries may have been lost before the training, or its privacy works. Check the model's "
        "path, let lmexposure verify --rows look at the training's rows, measure with --base, or "
        "give --accept-unseen-training"
    )
