"""Tables of a sweep: the worst texts, each canary, averages, bounds on epsilon."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
    visible,
    whole,
)
from lmexposure.core import Column, Section, Table
from lmexposure.statistics import CellRate
from lmexposure.studies.sweep_counterfactual import CounterfactualText
from lmexposure.studies.sweep_result import (
    SweepBound,
    SweepNumbers,
    SweepScore,
    SweepText,
    WorstText,
)
from lmexposure.studies.sweep_settings import ATTACKS, SCORES

_GROUPS = {"canaries": "all canaries", "population": "ordinary documents"}
_ATTACKS = {**ATTACKS, "label_regression": "regression on matches"}
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
    words = SCORES.get(score, score.replace("_", " "))
    return f"{words}, {_ATTACKS.get(attack, attack.replace('_', ' '))}"


def named_score(result: SweepNumbers) -> str:
    """The score that decides, as it was named before anything was trained."""
    return _score_and_attack(result.settings.score, result.settings.attack)


def rates_of(rows: Sequence[SweepScore]) -> list[float]:
    """The false-positive rates that any of these scores has, ascending."""
    return sorted({rate.fpr for row in rows for rate in row.rates})


def rate_at(row: SweepScore, fpr: float) -> CellRate | None:
    """The TPR of a score at a false-positive rate; None where it was not asked."""
    return next((rate for rate in row.rates if rate.fpr == fpr), None)


def primary_rows(result: SweepNumbers) -> list[SweepScore]:
    """The primary score of each group: canaries, ordinary documents, then kinds of canaries."""
    groups = list(_GROUPS)
    rows = [row for row in result.scores if row.primary]
    return sorted(rows, key=lambda row: groups.index(row.group) if row.group in groups else 9)


def _three(value: float) -> str:
    return number(value, 3)


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def average_table(result: SweepNumbers) -> Table:
    """What an average shows: each group by its primary score."""
    rows = primary_rows(result)
    name = Column(head="texts", value=lambda row: group_name(row.group), words=True)
    return Table(rows, [name, *_rate_columns(rows)])


def average_notes(result: SweepNumbers) -> list[str]:
    """What the rates rest on, and which cannot be resolved."""
    rows = primary_rows(result)
    return [_units(result), *_unresolved(rows, named=True)]


def other_scores(result: SweepNumbers, group: str) -> Section:
    """All scores of a group, the primary first."""
    rows = sorted(
        (row for row in result.scores if row.group == group), key=lambda row: not row.primary
    )
    name = Column(head="score", value=score_name, words=True)
    remarks = dict.fromkeys(f"{score_name(row)}: {note}" for row in rows for note in row.notes)
    return Section(
        id=f"scores-{group}",
        title=f"Every score, {group_name(group)}",
        table=Table(rows, [name, *_rate_columns(rows)]),
        notes=(
            _units(result),
            *_unresolved(rows, named=False),
            *remarks,
            "the largest of these numbers is no result: only the score named beforehand is judged",
        ),
        folded=True,
    )


def _units(result: SweepNumbers) -> str:
    level = percent(result.settings.level)
    return f"intervals at {level}, with models as units: cells of one model depend on each other"


def _unresolved(rows: Sequence[SweepScore], *, named: bool) -> list[str]:
    """Why a rate is missing; of kinds of canaries the whole group says it."""
    said = dict.fromkeys(
        f"TPR at FPR {short(rate.fpr)}{f', {group_name(row.group)}' if named else ''}: {rate.note}"
        for row in rows
        for rate in row.rates
        if rate.value is None and rate.note and row.group in _GROUPS
    )
    return list(said)


def _rate_columns(rows: Sequence[SweepScore]) -> Iterator[Column]:
    """TPR at each FPR, the area, and how many cells these are of."""
    for fpr in rates_of(rows):
        yield from _at(fpr)
    yield Column(head="AUC", value="area", shown=_three, worse="high")
    yield Column(head="interval of AUC", value=lambda row: interval(row.area_low, row.area_high, 3))
    yield Column(head="cells in", value="cells_in", shown=whole)
    yield Column(head="cells out", value="cells_out", shown=whole)


def _at(fpr: float) -> tuple[Column, Column]:
    def tpr(row: SweepScore) -> float | None:
        rate = rate_at(row, fpr)
        return None if rate is None else rate.value

    def ends(row: SweepScore) -> str:
        rate = rate_at(row, fpr)
        return MISSING if rate is None else interval(rate.low, rate.high, 3)

    head = f"TPR at FPR {short(fpr)}"
    return (
        Column(head=head, value=tpr, shown=_three, worse="high"),
        Column(head="interval", value=ends, name=f"interval at FPR {short(fpr)}"),
    )


def _worst_rows(result: SweepNumbers) -> Iterator[tuple[str, WorstText]]:
    """The worst texts by name; the id of a document says what it is."""
    if result.worst is not None:
        yield f"canary {visible(result.worst.id)}", result.worst
    if result.worst_of_population is not None:
        yield visible(result.worst_of_population.id), result.worst_of_population


def worst_table(result: SweepNumbers) -> Table:
    """What the average hides: the worst canary, and the worst ordinary document."""
    return Table(list(_worst_rows(result)), _WORST)


_Worst = tuple[str, WorstText]


def _bound(row: _Worst, name: str) -> float | None:
    bound = row[1].bound
    value: float | None = None if bound is None else getattr(bound, name)
    return value


_WORST = (
    Column(head="the worst", value=lambda row: row[0], words=True),
    Column(head="chosen from", value=lambda row: row[1].among, shown=whole),
    Column(head="models in", value=lambda row: len(row[1].scores_in), shown=whole),
    Column(head="models out", value=lambda row: len(row[1].scores_out), shown=whole),
    Column(head="TPR", value=lambda row: row[1].tpr, shown=_three, worse="high"),
    Column(head="p (chance)", value=lambda row: row[1].p, shown=probability, worse="low"),
    Column(head="TPR − FPR ≥", value=lambda row: row[1].advantage_low, shown=_three, worse="high"),
    Column(head="separated", value=lambda row: row[1].separated, shown=_yes),
    Column(head="epsilon ≥", value=lambda row: _bound(row, "value"), shown=nats, unit="nats"),
    Column(head="max attainable", value=lambda row: _bound(row, "max_attainable"), shown=nats),
)
WORST_NOTES = (
    "TPR: the share of the models with the text in which it scores higher than in every "
    "model without it",
    "p: how often chance alone gives such a text among all that it was chosen from",
    "TPR − FPR ≥: this much at least, for all texts of the group at once",
    "separated: every model with it scores above every model without it",
)
_TEXTS = (
    Column(head="canary", value="id", shown=visible, words=True),
    Column(head="kind", value="kind", shown=visible, words=True),
    Column(head="models in", value="models_in", shown=whole),
    Column(head="models out", value="models_out", shown=whole),
    Column(head="TPR", value="tpr", shown=_three, worse="high"),
    Column(head="p (chance)", value="p", shown=probability, worse="low"),
    Column(head="TPR − FPR ≥", value="advantage_low", shown=_three, worse="high"),
    Column(head="difference", value="difference", shown=signed),
    Column(head="epsilon ≥", value="epsilon", shown=nats, unit="nats", worse="high"),
    Column(head="separated", value="separated", shown=_yes),
)
_TEXT_NOTES = (
    "p (chance): of this canary by itself, not paid for by their number",
    "difference: mean score of the models with it minus that of the others, in units of the score",
)


def texts_section(texts: Sequence[SweepText], most: int) -> Section:
    """The canaries that leak most over all models, folded."""
    shown = most_leaking(texts)[:most]
    some = (
        f"The {len(shown):,} most leaking of {len(texts):,}"
        if len(shown) < len(texts)
        else (f"All {len(texts):,}")
    )
    more = ["the CSV file holds all"] if len(shown) < len(texts) else []
    return Section(
        id="texts",
        title=f"{some} canaries in numbers",
        table=Table(shown, _TEXTS),
        notes=(*_TEXT_NOTES, *more),
        folded=True,
    )


def most_leaking(rows: Sequence[SweepText]) -> list[SweepText]:
    """The canaries that give themselves away most first; what is not known comes first of all."""
    return sorted(rows, key=lambda row: (row.p is not None, row.p or 0.0, -(row.tpr or 0.0)))


def bounds_table(result: SweepNumbers) -> Table:
    """Lower bounds on epsilon with their ceilings, the primary first."""
    primary = result.epsilon.primary

    def question(row: SweepBound) -> str:
        return QUESTIONS[row.question] + (", primary" if row == primary else "")

    asked = Column(head="question", value=question, words=True)
    return Table(result.epsilon.bounds, [asked, *_BOUNDS])


_BOUNDS = (
    Column(head="bound", value=lambda row: bound_name(row.bound.name), words=True),
    Column(head="repetitions", value="repetitions", shown=whole),
    Column(head="chosen from", value="chosen_from", shown=whole),
    Column(head="epsilon ≥", value="bound.value", shown=nats, unit="nats", worse="high"),
    Column(head="max attainable", value="bound.max_attainable", shown=nats, unit="nats"),
    Column(head="delta", value="bound.delta", shown=short),
    Column(head="significance", value="bound.significance", shown=short),
)


def bounds_notes(result: SweepNumbers) -> Iterator[str]:
    """What each bound asks, holds for and assumes, and why one is missing."""
    bounds = result.epsilon.bounds
    kinds = dict.fromkeys(row.bound.validity for row in bounds)
    asked = dict.fromkeys(row.question for row in bounds)
    yield from (f"{QUESTIONS[name]}: {_ASKED[name]}" for name in asked)
    if bounds:
        yield "max attainable: what a perfect attack on these models and canaries would show"
    yield from (f"{kind}: holds for {validity(kind)}" for kind in kinds)
    assumed = dict.fromkeys(line for row in bounds for line in row.bound.assumptions)
    yield from (f"assumes: {line}" for line in assumed)
    yield from dict.fromkeys(
        f"{QUESTIONS[row.question]}: {line}" for row in bounds for line in row.bound.notes
    )
    yield from (f"not given: {line}" for line in result.epsilon.refused)


def epsilon_line(result: SweepNumbers) -> str:
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


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A canary or an ordinary document: its own numbers, and what it changes."""

    own: SweepText | None  # None of a document
    change: CounterfactualText | None  # None where that was not asked

    @property
    def any(self) -> SweepText | CounterfactualText | None:
        """What both have."""
        return self.own or self.change


_OF_ANY = ("id", "kind", "models_in", "models_out")
_OF_CANARIES = [name for name in SweepText.model_fields if name not in _OF_ANY]
_MEANS = ("mean_in", "mean_out", "difference", "low", "high")
_FLAT = (
    *(Column(value=f"any.{name}", name=name) for name in _OF_ANY),
    *(Column(value=f"own.{name}", name=name) for name in _OF_CANARIES),
    *(Column(value=f"change.memorised.{name}", name=f"memorised_{name}") for name in _MEANS),
    Column(value="change.log_ratio", name="log_ratio", unit="bits", worse="high"),
    Column(value="change.p", name="p_any_text", worse="low"),
    Column(value="change.epsilon", name="epsilon_any_text", unit="nats", worse="high"),
    *(Column(value=f"change.reproduced.{name}", name=f"reproduced_{name}") for name in _MEANS),
)


def texts_table(result: SweepNumbers) -> Table:
    """Every canary, then every ordinary document, for files."""
    groups = () if result.counterfactual is None else result.counterfactual.groups
    changes = {text.id: text for group in groups for text in group.texts}
    canaries = {text.id: text for text in result.texts}
    names = dict.fromkeys((*canaries, *changes))
    rows = [_Row(own=canaries.get(name), change=changes.get(name)) for name in names]
    return Table(rows, _FLAT)
