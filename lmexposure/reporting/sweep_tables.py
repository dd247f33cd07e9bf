"""A sweep in words: sections of text cells for a terminal, Markdown and the page."""

from collections.abc import Callable, Iterator, Sequence

from lmexposure._style import (
    MISSING,
    bound_name,
    interval,
    nats,
    number,
    percent,
    probability,
    short,
    signed,
    validity,
    whole,
)
from lmexposure._text import visible
from lmexposure.reporting.data import Section
from lmexposure.reporting.sweep_counterfactual import counterfactual_sections
from lmexposure.reporting.sweep_power import power_sections
from lmexposure.studies import SweepBound, SweepRate, SweepResult, SweepScore, SweepText, WorstText

_MOST_IN_TERMINAL = 3  # texts of a group
_GROUPS = {"canaries": "all canaries", "population": "ordinary documents"}
_SCORES = {
    "log_perplexity": "log-perplexity",
    "secret_tokens": "tokens of the secret",
    "calibrated": "beside the base",
    "min_k": "min-k",
    "min_k_plus_plus": "min-k++",
    "zlib": "zlib",
    "label_only": "greedy matches",
}
_ATTACKS = {
    "plain": "as it is",
    "lira": "LiRA",
    "lira_offline": "LiRA offline",
    "rmia": "RMIA",
    "label_regression": "regression on matches",
}
QUESTIONS = {
    "together": "all models together",
    "per_model": "largest of one model",
    "per_canary": "largest of one canary",
}
_ASKED = {
    "together": "all coins of all models are guessed in one order, by scores that look at no coin; "
    "the bound to quote, named beforehand",
    "per_model": "each model by its own coins, scored beside the other models; the largest is paid "
    "for by the number of models",
    "per_canary": "each canary by its own coins over all models; the largest is paid for by the "
    "number of canaries",
}


def group_name(group: str) -> str:
    """What texts are called: all canaries, those of one kind, ordinary documents."""
    return _GROUPS.get(group, visible(group))


def score_name(row: SweepScore) -> str:
    """A score and what the other models make of it."""
    return _score_and_attack(row.score, row.attack)


def _score_and_attack(score: str, attack: str) -> str:
    """In words; a name without better ones is a file's of a later version."""
    words = _SCORES.get(score, score.replace("_", " "))
    return f"{words}, {_ATTACKS.get(attack, attack.replace('_', ' '))}"


def named_score(result: SweepResult) -> str:
    """The score that decides, as it was named before anything was trained."""
    return _score_and_attack(result.settings.score, result.settings.attack)


def rates_of(rows: Sequence[SweepScore]) -> list[float]:
    """The false-positive rates that any of these scores has, ascending."""
    return sorted({rate.fpr for row in rows for rate in row.rates})


def rate_at(row: SweepScore, fpr: float) -> SweepRate | None:
    """The TPR of a score at a false-positive rate; None where it was not asked."""
    return next((rate for rate in row.rates if rate.fpr == fpr), None)


def primary_rows(result: SweepResult) -> list[SweepScore]:
    """The primary score of each group: canaries, ordinary documents, then kinds of canaries."""
    groups = list(_GROUPS)
    rows = [row for row in result.scores if row.primary]
    return sorted(rows, key=lambda row: groups.index(row.group) if row.group in groups else 9)


def average_section(result: SweepResult) -> Section:
    """What an average shows: each group by its primary score."""
    return _scores(
        result,
        "On average: true-positive rate (TPR) over all models and texts, by the score named "
        "beforehand",
        "texts",
        primary_rows(result),
        lambda row: group_name(row.group),
    )


def other_scores_section(result: SweepResult, group: str) -> Section:
    """All scores of a group, the primary first."""
    rows = sorted(
        (row for row in result.scores if row.group == group), key=lambda row: not row.primary
    )
    return _scores(
        result, f"Every score, {group_name(group)}", "score", rows, score_name, notes=True
    )


def _scores(
    result: SweepResult,
    title: str,
    head: str,
    rows: Sequence[SweepScore],
    name: Callable[[SweepScore], str],
    *,
    notes: bool = False,
) -> Section:
    rates = rates_of(rows)
    level = percent(result.settings.level)
    columns = [part for fpr in rates for part in (f"TPR at FPR {short(fpr)}", "interval")]
    unresolved = dict.fromkeys(
        f"TPR at FPR {short(rate.fpr)}{'' if notes else f', {name(row)}'}: {rate.note}"
        for row in rows
        for rate in row.rates
        if rate.value is None and rate.note and row.group in _GROUPS
    )
    remarks = [f"{name(row)}: {note}" for row in rows for note in row.notes]
    return Section(
        title=title,
        columns=(head, *columns, "AUC", "interval of AUC", "cells in", "cells out"),
        rows=tuple(
            (
                name(row),
                *(cell for fpr in rates for cell in _rate_cells(rate_at(row, fpr))),
                number(row.area, 3),
                interval(row.area_low, row.area_high, 3),
                whole(row.cells_in),
                whole(row.cells_out),
            )
            for row in rows
        ),
        notes=(
            f"intervals at {level}, with models as units: cells of one model depend on each other",
            *unresolved,
            *(dict.fromkeys(remarks) if notes else ()),
        ),
    )


def _rate_cells(rate: SweepRate | None) -> tuple[str, str]:
    if rate is None:
        return MISSING, MISSING
    return number(rate.value, 3), interval(rate.low, rate.high, 3)


def _worst_rows(result: SweepResult) -> Iterator[tuple[str, WorstText]]:
    """The worst texts by name; the id of a document says what it is."""
    if result.worst is not None:
        yield f"canary {visible(result.worst.id)}", result.worst
    if result.worst_of_population is not None:
        yield visible(result.worst_of_population.id), result.worst_of_population


def worst_section(result: SweepResult) -> Section:
    """What the average hides: the worst canary, and the worst ordinary document."""
    return Section(
        title="The worst text of each group, by its own coins over all models",
        columns=(
            *("the worst", "chosen from", "models in", "models out"),
            *("TPR", "p (chance)", "TPR − FPR ≥", "separated", "epsilon ≥", "max attainable"),
        ),
        rows=tuple(
            (
                name,
                whole(text.among),
                whole(len(text.scores_in)),
                whole(len(text.scores_out)),
                number(text.tpr, 3),
                probability(text.p),
                number(text.advantage_low, 3),
                "yes" if text.separated else "no",
                nats(None if text.bound is None else text.bound.value),
                nats(None if text.bound is None else text.bound.max_attainable),
            )
            for name, text in _worst_rows(result)
        ),
        notes=(
            "TPR: the share of the models with the text in which it scores higher than in every "
            "model without it",
            "p: how often chance alone gives such a text among all that it was chosen from",
            "TPR − FPR ≥: this much at least, for all texts of the group at once",
            "separated: every model with it scores above every model without it",
        ),
    )


def texts_section(rows: Sequence[SweepText]) -> Section:
    """Each canary over all models, in the order given."""
    return Section(
        title="Every canary over all models",
        columns=(
            *("canary", "kind", "models in", "models out", "TPR", "p (chance)"),
            *("TPR − FPR ≥", "difference", "epsilon ≥", "separated"),
        ),
        rows=tuple(
            (
                visible(row.id),
                visible(row.kind),
                whole(row.models_in),
                whole(row.models_out),
                number(row.tpr, 3),
                probability(row.p),
                number(row.advantage_low, 3),
                signed(row.difference),
                nats(row.epsilon),
                "yes" if row.separated else "no",
            )
            for row in rows
        ),
        words=2,
        notes=(
            "p (chance): of this canary by itself, not paid for by their number",
            "difference: mean score of the models with it minus that of the others, in units of "
            "the score",
        ),
    )


def most_leaking(rows: Sequence[SweepText]) -> list[SweepText]:
    """The canaries that give themselves away most first; what is not known comes first of all."""
    return sorted(rows, key=lambda row: (row.p is not None, row.p or 0.0, -(row.tpr or 0.0)))


def bounds_section(result: SweepResult) -> Section:
    """Lower bounds on epsilon with their ceilings, the primary first."""
    epsilon = result.epsilon
    kinds = dict.fromkeys(row.bound.validity for row in epsilon.bounds)
    asked = dict.fromkeys(row.question for row in epsilon.bounds)
    assumed = dict.fromkeys(line for row in epsilon.bounds for line in row.bound.assumptions)
    notes = dict.fromkeys(
        f"{QUESTIONS[row.question]}: {line}" for row in epsilon.bounds for line in row.bound.notes
    )
    return Section(
        title="Lower bounds on the epsilon of the training recipe, in nats; higher = less private",
        columns=(
            *("question", "bound", "repetitions", "chosen from"),
            *("epsilon ≥", "max attainable", "delta", "significance"),
        ),
        rows=tuple(_bound_cells(row, row == epsilon.primary) for row in epsilon.bounds),
        words=2,
        notes=(
            *(f"{QUESTIONS[name]}: {_ASKED[name]}" for name in asked),
            *(
                ["max attainable: what a perfect attack on these models and canaries would show"]
                if epsilon.bounds
                else []
            ),
            *(f"{kind}: holds for {validity(kind)}" for kind in kinds),
            *(f"assumes: {line}" for line in assumed),
            *notes,
            *(f"not given: {line}" for line in epsilon.refused),
        ),
    )


def _bound_cells(row: SweepBound, primary: bool) -> tuple[str, ...]:
    return (
        QUESTIONS[row.question] + (", primary" if primary else ""),
        bound_name(row.bound.name),
        whole(row.repetitions),
        whole(row.chosen_from),
        nats(row.bound.value),
        nats(row.bound.max_attainable),
        short(row.bound.delta),
        short(row.bound.significance),
    )


def epsilon_line(result: SweepResult) -> str:
    """The bound to quote in a sentence, or why there is none."""
    primary = result.epsilon.primary
    if primary is None:
        why = "; ".join(result.epsilon.refused) or "no canary was audited"
        return f"No bound on epsilon: {why}."
    bound = primary.bound
    return (
        f"Epsilon is at least {nats(bound.value)} nats at delta {short(bound.delta)} and "
        f"significance {short(bound.significance)} ({bound_name(bound.name)}, "
        f"{QUESTIONS[primary.question]}); max attainable is {nats(bound.max_attainable)}."
    )


def sweep_sections(result: SweepResult) -> Iterator[Section]:
    """What a sweep says, for a terminal: average, kinds, worst texts, what they change, bounds."""
    yield average_section(result)
    if result.power is not None:
        yield from power_sections(result.power)
    yield worst_section(result)
    if result.counterfactual is not None:
        yield from counterfactual_sections(result.counterfactual, _MOST_IN_TERMINAL)[:1]
    yield bounds_section(result)
