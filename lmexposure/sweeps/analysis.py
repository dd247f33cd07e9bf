"""What the matrices of a sweep mean: rates, the worst canary, epsilon.

And what a reader must know: too few models, lost ones, coins that decide nothing.
"""

from collections.abc import Iterator, Sequence
from math import comb

import numpy as np

from lmexposure._files import canonical_json, sha256_bytes
from lmexposure._style import are, count, listed, percent, short, visible
from lmexposure.errors import ResultError
from lmexposure.statistics import models_needed
from lmexposure.studies import (
    MOST_LOST,
    FailedModel,
    SweepEpsilon,
    SweepModel,
    SweepPlan,
    SweepResult,
    SweepScore,
    SweepText,
    Utility,
    WorstText,
)
from lmexposure.sweeps.attacks import Group, attack_cells
from lmexposure.sweeps.counterfactual import counterfactual_of
from lmexposure.sweeps.epsilon_of_sweep import (
    EXACTLY_HALF,
    NO_CANARY,
    Claims,
    bound_of_worst,
    claims,
)
from lmexposure.sweeps.matrices import Matrices
from lmexposure.sweeps.power import power_of
from lmexposure.sweeps.rates import PerText, primary_of, score_rows


def analyse(
    matrices: Matrices,
    plan: SweepPlan,
    *,
    documents: int,
    models: Sequence[SweepModel],
    failed: Sequence[FailedModel] = (),
) -> SweepResult:
    """Everything that a sweep says, as its settings fixed it beforehand.

    Rates are of leave-one-out scores of all cells; texts by themselves, and bounds on epsilon of
    all cells and of each text, are of raw scores; what a text changes is in bits a token, whatever
    score decides. The primary score and attack decide alone: the others are shown beside them, and
    the best of them is never chosen.
    """
    numbers = [model.number for model in models]
    whole, everyone = matrices, models
    if sorted(numbers) != matrices.numbers.tolist():
        raise ResultError(
            f"the matrices are of {len(matrices.numbers):,} models, and {len(numbers):,} records "
            "were given, or of others; collect the sweep again"
        )
    if plan.settings.score not in matrices.scores:
        raise ResultError(
            f"score={plan.settings.score!r} was to decide, and the models have no such score; they "
            f"have {', '.join(matrices.scores)}: sweep again with one of these"
        )
    matrices, models = _deciding(whole, everyone, plan)
    groups = [Group.of(name, plan.scored, matrices) for name in ("canaries", "population")]
    canaries, population = groups
    scores = tuple(row for group in groups if group.texts for row in score_rows(group, plan))
    claimed = _claims(plan, canaries)
    of_canaries = None if claimed is None else claimed.of_texts
    ordinary = _ordinary(plan, population)
    return SweepResult.now(
        inputs_sha256=sha256_bytes(canonical_json([plan.sha256, whole.sha256])),
        plan_sha256=plan.sha256,
        manifest_sha256=plan.manifest_sha256,
        matrices_sha256=whole.sha256,
        settings=plan.settings.without_seed(),
        models=len(models),
        failed=tuple(sorted(failed, key=lambda model: model.number)),
        canaries=len(canaries.texts),
        population=len(population.texts),
        validation=len(plan.texts) - len(plan.scored),
        documents=documents,
        utility=_utility(models),
        scores=scores,
        texts=_texts(claimed),
        worst=_worst(plan, of_canaries),
        worst_of_population=_worst(plan, ordinary),
        epsilon=_nothing(plan) if claimed is None else claimed.epsilon,
        counterfactual=counterfactual_of(matrices, plan, (of_canaries, ordinary)),
        power=power_of(whole, plan, everyone),
        warnings=remarks(plan, matrices, models, failed, scores),
    )


def _deciding(
    matrices: Matrices, models: Sequence[SweepModel], plan: SweepPlan
) -> tuple[Matrices, list[SweepModel]]:
    """Those that can have all canaries; the others are for `power` alone."""
    first = plan.settings.models
    deciding = [model for model in models if model.number < first]
    if not deciding:
        raise ResultError(
            f"all {first:,} models with all canaries diverged; prepare another sweep with a lower "
            "learning rate"
        )
    return matrices.of_models(matrices.numbers < first), deciding


def _claims(plan: SweepPlan, canaries: Group) -> Claims | None:
    """Each canary by itself, and epsilon; None where there are no canaries."""
    if not canaries.texts:
        return None
    score, attack = primary_of(canaries, plan)
    of_texts = PerText.of(canaries, score, plan.settings.significance)
    return claims(plan, of_texts, attack_cells(canaries, score, attack))


def _texts(claimed: Claims | None) -> tuple[SweepText, ...]:
    if claimed is None:
        return ()
    return tuple(claimed.of_texts.row(place) for place in range(len(claimed.of_texts.tpr)))


def _ordinary(plan: SweepPlan, population: Group) -> PerText | None:
    if not population.texts:
        return None
    score, _ = primary_of(population, plan)
    return PerText.of(population, score, plan.settings.significance)


def _worst(plan: SweepPlan, of_texts: PerText | None) -> WorstText | None:
    if of_texts is None:
        return None
    return of_texts.worst_row(bound_of_worst(plan, of_texts))


def _nothing(plan: SweepPlan) -> SweepEpsilon:
    return SweepEpsilon(
        primary=None, significance=plan.settings.significance, bounds=(), refused=(NO_CANARY,)
    )


def _utility(models: Sequence[SweepModel]) -> Utility:
    """Of the models that have scores."""
    bits = np.array([model.training.validation_bits for model in models])
    return Utility(
        mean=float(bits.mean()),
        sd=float(bits.std(ddof=1)) if bits.size > 1 else None,
        initial=float(np.mean([model.training.initial_validation_bits for model in models])),
        learned=sum(learned(model) for model in models),
        tokens=float(np.mean([model.training.tokens for model in models])),
        seconds=float(np.mean([model.seconds for model in models])),
    )


_MUCH = 0.1  # of what a model learns; more canaries than that make it another model
_SHOWN = 5  # names in a sentence
_FARTHEST = 10**5  # models that are still an answer


def remarks(
    plan: SweepPlan,
    matrices: Matrices,
    models: Sequence[SweepModel],
    failed: Sequence[FailedModel],
    scores: Sequence[SweepScore],
) -> tuple[str, ...]:
    """All that is not as it should be, a sentence each."""
    canaries = Group.of("canaries", plan.scored, matrices)
    return (
        *_lost(plan, failed),
        *_not_learned(models),
        *_coins(plan, canaries),
        *_too_few(plan, canaries, len(matrices.numbers)),
        *_unresolved(scores, len(matrices.numbers), plan.settings.level),
        *_many_canaries(canaries, models),
    )


def _lost(plan: SweepPlan, failed: Sequence[FailedModel]) -> Iterator[str]:
    if not failed:
        return
    whole = plan.models
    names = listed([str(model.number) for model in failed], _SHOWN)
    said = (
        f"{len(failed):,} of {count(whole, 'model')} {'has' if len(failed) == 1 else 'have'} no "
        f"scores and {are(len(failed))} left out: {names} ({visible(failed[0].reason)})"
    )
    if len(failed) > MOST_LOST * whole:
        said += (
            f"; of more than {percent(MOST_LOST)} it is not known whether those that are left are "
            "like the others: train at a lower learning rate"
        )
    yield said


def _not_learned(models: Sequence[SweepModel]) -> Iterator[str]:
    idle = [model for model in models if not learned(model)]
    if idle:
        names = listed([str(model.number) for model in idle], _SHOWN)
        yield (
            f"{len(idle):,} of {count(len(models), 'model')} did not learn: the loss on documents "
            "that they did not see is no lower than before training, and what learned nothing "
            f"leaks nothing (model {names}); train longer"
        )


def learned(model: SweepModel) -> bool:
    """Whether training lowered the loss on documents that the model did not see."""
    return model.training.validation_bits < model.training.initial_validation_bits


def _coins(plan: SweepPlan, canaries: Group) -> Iterator[str]:
    if plan.settings.coins == "exactly_half":
        yield EXACTLY_HALF
    if not canaries.texts:
        yield "no canary has coins; what is said of epsilon and of the worst canary is missing"
        return
    coins = canaries.included
    alike = np.flatnonzero(coins.all(axis=0) | ~coins.any(axis=0))
    if alike.size:
        names = listed([visible(canaries.texts[place].id) for place in alike], _SHOWN)
        yield (
            f"{alike.size:,} of {count(len(canaries.texts), 'canary', 'canaries')} "
            f"{'was' if alike.size == 1 else 'were'} in all models or in none, and nothing is "
            f"known of {'it' if alike.size == 1 else 'them'}: {names}; train more than "
            f"{count(len(coins), 'model')}"
        )


def _too_few(plan: SweepPlan, canaries: Group, models: int) -> Iterator[str]:
    """Whether the worst canary could be told from chance, had it given itself away everywhere."""
    among, share = len(canaries.texts), plan.settings.significance
    if among and not _tells(models, among, share):
        wanted = next((n for n in range(models, _FARTHEST) if _tells(n, among, share)), _FARTHEST)
        yield (
            f"{count(models, 'model')} cannot show that the worst of "
            f"{count(among, 'canary', 'canaries')} leaks: even one that all models with it gave "
            f"away would be within chance (significance {short(share)}); it takes at least "
            f"{wanted:,}"
        )


def _tells(models: int, among: int, significance: float) -> bool:
    return among <= significance * comb(models, models // 2)


def _unresolved(scores: Sequence[SweepScore], models: int, level: float) -> Iterator[str]:
    """What the primary scores cannot say."""
    for row in scores:
        if not row.primary or row.group not in ("canaries", "population"):
            continue
        cells = row.cells_in + row.cells_out + row.cells_missing
        texts = cells // models
        lost = [rate.fpr for rate in row.rates if rate.value is None]
        if lost:
            wanted = " or ".join(
                f"{percent(fpr)} (it takes {models_needed(fpr, texts, level=level):,} models)"
                for fpr in lost
            )
            yield (
                f"{row.group}: {row.cells_out:,} scored cells without their text are too few for a "
                f"TPR at a FPR of {wanted}"
            )
        if row.cells_missing:
            yield (
                f"{row.group}: {row.cells_missing:,} of {cells:,} cells have no score by "
                f"{row.attack}, for their texts were in, or out of, too few of the other models; "
                "train more models"
            )


def _many_canaries(canaries: Group, models: Sequence[SweepModel]) -> Iterator[str]:
    """Whether the canaries make the models others than the corpus alone would."""
    if not models:
        return
    a_model = [m.training.tokens / m.training.epochs for m in models if m.training.epochs > 0]
    lengths = zip(canaries.texts, canaries.columns, strict=True)
    widths = canaries.matrices.token_bits
    inserted = sum(text.repetitions * widths[place].shape[1] for text, place in lengths) / 2
    if a_model and inserted > _MUCH * float(np.mean(a_model)):
        yield (
            f"canaries are about {percent(inserted / float(np.mean(a_model)))} of what a model is "
            "trained on, so that these models are unlike those of the corpus alone; insert fewer, "
            "or give a larger corpus"
        )
