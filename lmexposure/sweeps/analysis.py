"""What the matrices of a sweep mean: rates, the worst canary, epsilon."""

from collections.abc import Sequence

import numpy as np

from lmexposure._files import canonical_json, sha256_bytes
from lmexposure.errors import ResultError
from lmexposure.studies import (
    FailedModel,
    SweepEpsilon,
    SweepModel,
    SweepOptions,
    SweepPlan,
    SweepResult,
    SweepText,
    Utility,
    WorstText,
)
from lmexposure.sweeps.attacks import Group, attack_cells
from lmexposure.sweeps.counterfactual import counterfactual_of
from lmexposure.sweeps.epsilon_of_sweep import NO_CANARY, Claims, bound_of_worst, claims
from lmexposure.sweeps.matrices import Matrices
from lmexposure.sweeps.power import power_of
from lmexposure.sweeps.rates import PerText, primary_of, score_rows
from lmexposure.sweeps.remarks import learned, remarks


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
            "were given, or of others; collect the sweep again: lmexposure sweep --collect DIR"
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
        settings=_shown(plan.settings),
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


def _shown(settings: SweepOptions) -> SweepOptions:
    """Without a seed that was chosen: whoever has it, and the formats, can draw the secrets."""
    run = settings.run.model_copy(update={"seed": None})
    return settings.model_copy(update={"run": run})
