"""What the matrices of a sweep mean: rates, the worst canary, epsilon.

Of the epsilon of the training recipe question by question; canaries of each number of repetitions
are a class of their own, at a share of the significance. And what a reader must know: too few
models, lost ones, coins that decide nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import comb
from typing import Any, Literal

import numpy as np

from lmexposure._files import canonical_json, sha256_bytes
from lmexposure._style import are, count, listed, percent, short, times, visible
from lmexposure.errors import InputError, ResultError
from lmexposure.statistics import (
    EpsilonBound,
    LargestBound,
    models_needed,
    one_run_audit,
    per_model_epsilon,
    per_text_epsilon,
    together_epsilon,
)
from lmexposure.studies import (
    MOST_LOST,
    FailedModel,
    SweepBound,
    SweepEpsilon,
    SweepModel,
    SweepPlan,
    SweepResult,
    SweepScore,
    Utility,
    WorstText,
)
from lmexposure.sweeps.counterfactual import counterfactual_of, power_of
from lmexposure.sweeps.matrices import Flags, Floats, Matrices
from lmexposure.sweeps.rates import (
    Group,
    PerText,
    attack_cells,
    or_none,
    primary_of,
    score_rows,
    separated,
    ties,
)


def analyse(
    matrices: Matrices,
    plan: SweepPlan,
    *,
    documents: int,
    models: Sequence[SweepModel],
    failed: Sequence[FailedModel] = (),
) -> SweepResult:
    """Everything that a sweep says, as its settings fixed it beforehand."""
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
    first = plan.settings.models
    models = [model for model in everyone if model.number < first]
    if not models:
        raise ResultError(
            f"all {first:,} models with all canaries diverged; prepare another sweep with a lower "
            "learning rate"
        )
    # The others are for `power` alone.
    matrices = whole.of_models(whole.numbers < first)
    groups = [Group.of(name, plan.scored, matrices) for name in ("canaries", "population")]
    canaries, population = groups
    scores = tuple(row for group in groups if group.texts for row in score_rows(group, plan))
    epsilon, of_canaries = claims(plan, canaries)
    ordinary = PerText.of(population, plan) if population.texts else None
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
        texts=() if of_canaries is None else tuple(map(of_canaries.row, range(canaries.size))),
        worst=worst_text(plan, of_canaries),
        worst_of_population=worst_text(plan, ordinary),
        epsilon=epsilon,
        counterfactual=counterfactual_of(matrices, plan, (of_canaries, ordinary)),
        power=power_of(whole, plan, everyone),
        warnings=(
            *_lost(plan, failed),
            *_not_learned(models),
            *_coins(plan, canaries),
            *_too_few(plan, canaries, len(models)),
            *_unresolved(scores, len(models), plan.settings.level),
            *_many_canaries(canaries, models),
        ),
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


_NAMES = {"canaries": "canaries", "population": "ordinary documents"}


def _unresolved(scores: Sequence[SweepScore], models: int, level: float) -> Iterator[str]:
    """What the primary scores cannot say."""
    for row in scores:
        if not row.primary or row.group not in _NAMES:
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
                f"{_NAMES[row.group]}: {row.cells_out:,} scored cases without their text are too "
                f"few for a TPR at a FPR of {wanted}"
            )
        if row.cells_missing:
            yield (
                f"{_NAMES[row.group]}: {row.cells_missing:,} of {cells:,} cases have no score by "
                f"{row.attack}, for their texts were in, or out of, too few of the other models; "
                "train more models"
            )


def _many_canaries(canaries: Group, models: Sequence[SweepModel]) -> Iterator[str]:
    """Whether the canaries make the models others than the corpus alone would."""
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


EXACTLY_HALF = (
    "coins=exactly_half: a text's last coin follows from its others, so that no bound holds; sweep "
    "with independent coins"
)
NO_CANARY = "no canary has coins"
Question = Literal["together", "per_model", "per_canary"]
_QUESTIONS: tuple[Question, ...] = ("together", "per_model", "per_canary")


def claims(plan: SweepPlan, group: Group) -> tuple[SweepEpsilon, PerText | None]:
    """All bounds that the coins of the canaries allow, and the canaries with a bound each."""
    significance = plan.settings.significance
    if not group.texts:
        return _epsilon([], [NO_CANARY], significance, share=significance), None
    of_texts = PerText.of(group, plan)
    if plan.settings.coins == "exactly_half":
        return _epsilon([], [EXACTLY_HALF], significance, share=significance), of_texts
    judged = attack_cells(group, *primary_of(group, plan))
    repetitions = np.array([text.repetitions for text in group.texts])
    classes = sorted(set(repetitions.tolist()))
    share = significance / len(classes)
    found: list[SweepBound] = []
    refused: list[str] = []
    alone = of_texts.epsilon.copy()
    for copies in classes:
        own = np.flatnonzero(repetitions == copies)
        coins, kinds = group.included[:, own], [group.kinds[place] for place in own]
        two_sided = coins.any(axis=0) & ~coins.all(axis=0)
        if not two_sided.any():
            refused.append(
                f"canaries inserted {times(copies)}: each was in all models or in none; train more "
                "models"
            )
            continue
        terms = {"significance": share, "repetitions": copies, "seed": ties(plan, copies)}
        raw, left_out = of_texts.scores[:, own], judged.values[:, own]
        for question, answer in _answers(raw, left_out, coins, kinds, terms):
            if isinstance(answer, InputError):
                refused.append(f"{question}, {times(copies)}: {answer}")
                continue
            if isinstance(answer, LargestBound):
                bound, number = answer.bound, answer.chosen_from
                if question == "per_canary":
                    alone[own] = np.where(two_sided, answer.values, np.nan)
            else:
                bound, number = answer, 1
            found.append(
                SweepBound(question=question, repetitions=copies, chosen_from=number, bound=bound)
            )
    found.sort(key=lambda row: _QUESTIONS.index(row.question))
    return _epsilon(found, refused, significance, share=share), replace(of_texts, epsilon=alone)


def _answers(
    scores: Floats, left_out: Floats, coins: Flags, kinds: Sequence[str], terms: dict[str, Any]
) -> Iterator[tuple[Question, EpsilonBound | LargestBound | InputError]]:
    """Each question's bound, or why there is none; by raw and by leave-one-out scores, (S, N)."""
    rules: dict[Question, Callable[[], EpsilonBound | LargestBound]] = {
        "together": partial(together_epsilon, scores, coins, kinds=kinds, **terms),
        "per_model": partial(per_model_epsilon, left_out, coins, **terms),
        "per_canary": partial(per_text_epsilon, scores, coins, **terms),
    }
    for question in _QUESTIONS:
        try:
            yield question, rules[question]()
        except InputError as failure:
            yield question, failure


def worst_text(plan: SweepPlan, of_texts: PerText | None) -> WorstText | None:
    """The worst text, if any can be judged, with a bound that pays for the choice."""
    worst = None if of_texts is None else of_texts.worst
    if of_texts is None or worst is None:
        return None
    text, among, bound = of_texts.group.texts[worst], of_texts.group.size, None
    if plan.settings.coins != "exactly_half":
        with suppress(InputError):  # coins that are hardly fair
            bound = one_run_audit(
                of_texts.scores[:, worst],
                of_texts.group.included[:, worst],
                significance=plan.settings.significance / among,
                repetitions=text.repetitions,
                seed=ties(plan, text.repetitions),
            )
    inside, outside = of_texts.sides(worst)
    return WorstText(
        id=text.id,
        among=among,
        tpr=or_none(of_texts.tpr[worst]),
        p=min(1.0, float(of_texts.p[worst]) * among),
        advantage_low=float(of_texts.low[worst]),
        separated=separated(inside, outside),
        bound=bound,
        scores_in=tuple(inside.tolist()),
        scores_out=tuple(outside.tolist()),
    )


def _epsilon(
    found: list[SweepBound], refused: list[str], significance: float, *, share: float
) -> SweepEpsilon:
    """The record: what was named beforehand is that of the fewest repetitions."""
    primary = next((row for row in found if row.question == "together"), None)
    return SweepEpsilon(
        primary=primary,
        significance=share if primary is not None else significance,
        bounds=tuple(found),
        refused=tuple(refused),
    )
