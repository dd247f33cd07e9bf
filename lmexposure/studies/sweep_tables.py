"""Tables of a sweep: worst texts, canaries, averages, bounds, kinds, what single texts change."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING

from lmexposure._style import (
    MISSING,
    bound_name,
    conditions_of,
    count,
    interval,
    listed,
    nats,
    number,
    percent,
    probability,
    setting_value,
    short,
    signed,
    visible,
    whole,
)
from lmexposure.canaries import KINDS, UNIFORM
from lmexposure.core import Column, Place, Section, Table
from lmexposure.statistics import CellRate
from lmexposure.studies.sweep_record import (
    CounterfactualGroup,
    CounterfactualText,
    InfluentialPair,
    KindComparison,
    KindPower,
    MeansApart,
    SweepBound,
    SweepCounterfactual,
    SweepInfluence,
    SweepNumbers,
    SweepPower,
    SweepScore,
    SweepText,
    WorstText,
)
from lmexposure.studies.sweep_settings import ATTACKS, SCORES, SweepSettings

if TYPE_CHECKING:
    from lmexposure.core.charts import Chart


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
    "per_model": "each model by its own coins, scored beside the other models; the largest is "
    "corrected for the number of models",
    "per_canary": "each canary by its own coins over all models; the largest is corrected for the "
    "number of canaries",
}


def group_name(group: str) -> str:
    """What texts are called: all canaries, those of one kind, ordinary documents."""
    return _GROUPS.get(group, visible(group))


def score_name(row: SweepScore | SweepSettings) -> str:
    """A score and what the other models make of it; an unknown name is a later version's."""
    words = SCORES.get(row.score, row.score.replace("_", " "))
    return f"{words}, {_ATTACKS.get(row.attack, row.attack.replace('_', ' '))}"


def primary_rows(result: SweepNumbers) -> list[SweepScore]:
    """The primary score of each group: canaries, ordinary documents, then kinds of canaries."""
    groups = list(_GROUPS)
    rows = [row for row in result.scores if row.primary]
    return sorted(rows, key=lambda row: groups.index(row.group) if row.group in groups else 9)


def average_section(result: SweepNumbers, chart: "Callable[[], Chart | None]") -> Section:
    """What an average shows: each group by its primary score, then by all that it has."""
    rows = primary_rows(result)
    name = Column(head="texts", value=lambda row: group_name(row.group), words=True)
    scores = Counter(row.group for row in result.scores)
    return Section(
        id="average",
        title="On average",
        text="Over all models and texts: how many that were in are found while few others are "
        "taken for them. The score that decides was named before anything was trained: "
        f"{score_name(result.settings)}; of an ordinary document every token counts. What other "
        "models make of it leaves out the model that is judged. Both axes of the chart are "
        "logarithmic, since the left end is what counts [2].",
        caption="True-positive rate (TPR) over all models and texts, by the score named beforehand",
        table=Table(rows, [name, *_rate_columns(rows)]),
        chart=chart,
        notes=(_units(result), *_unresolved(rows, named=True)),
        parts=[_other_scores(result, group) for group, found in scores.items() if found > 1],
        folded=True,
    )


def _other_scores(result: SweepNumbers, group: str) -> Section:
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
    return (
        f"a case: one text under one model; intervals at {level}, with models as units, for cases "
        "of one model depend on each other"
    )


def _unresolved(rows: Sequence[SweepScore], *, named: bool) -> Iterable[str]:
    """Why a rate is missing; of kinds of canaries the whole group says it."""
    return dict.fromkeys(
        f"TPR at FPR {short(rate.fpr)}{f', {group_name(row.group)}' if named else ''}: {rate.note}"
        for row in rows
        for rate in row.rates
        if rate.value is None and rate.note and row.group in _GROUPS
    )


def _rate_columns(rows: Sequence[SweepScore]) -> Iterator[Column]:
    """TPR at each FPR, ascending, the area, and how many cells these are of."""
    for fpr in sorted({rate.fpr for row in rows for rate in row.rates}):
        yield from _at(fpr)
    yield _AREA
    yield _AREA_INTERVAL
    yield Column(head="cases in", value="cells_in", shown=whole)
    yield Column(head="cases out", value="cells_out", shown=whole)


def _at(fpr: float) -> tuple[Column, Column]:
    def at(row: SweepScore) -> CellRate | None:
        return next((rate for rate in row.rates if rate.fpr == fpr), None)

    def tpr(row: SweepScore) -> float | None:
        return None if (rate := at(row)) is None else rate.value

    def ends(row: SweepScore) -> str:
        return MISSING if (rate := at(row)) is None else interval(rate.low, rate.high, 3)

    head = f"TPR at FPR {short(fpr)}"
    return (
        Column(head=head, value=tpr, shown=3, worse="high"),
        Column(head="interval", value=ends, name=f"interval at FPR {short(fpr)}"),
    )


_AREA = Column(head="AUC", value="area", shown=3, worse="high")
_AREA_INTERVAL = Column(
    head="interval of AUC", value=lambda row: interval(row.area_low, row.area_high, 3)
)


def worst_table(result: SweepNumbers) -> Table:
    """What the average hides: the worst canary, and the worst ordinary document."""

    def name(row: WorstText) -> str:  # the id of a document says what it is
        return f"canary {visible(row.id)}" if row is result.worst else visible(row.id)

    rows = [row for row in (result.worst, result.worst_of_population) if row is not None]
    return Table(rows, [Column(head="the worst", value=name, words=True), *_WORST])


def worst_in_short(result: SweepNumbers) -> Table:
    """The same, as a terminal has room for it."""
    table = worst_table(result)
    name, among, _, _, tpr, p, advantage, _, epsilon, _ = table.columns
    return replace(table, columns=[name, among, tpr, p, advantage, epsilon])


_WORST = (
    Column(head="chosen from", value=lambda row: row.among, shown=whole),
    Column(head="models in", value=lambda row: len(row.scores_in), shown=whole),
    Column(head="models out", value=lambda row: len(row.scores_out), shown=whole),
    Column(head="TPR", value=lambda row: row.tpr, shown=3, worse="high"),
    Column(head="p (chance)", value=lambda row: row.p, shown=probability, worse="low"),
    Column(head="TPR − FPR ≥", value=lambda row: row.advantage_low, shown=3, worse="high"),
    Column(head="separated", value=lambda row: row.separated, shown=setting_value),
    Column(head="epsilon ≥", value="bound.value", shown=nats, unit="nats"),
    Column(head="max attainable", value="bound.max_attainable", shown=nats),
)
_SIDES = (
    Column(head="models in", value="models_in", shown=whole),
    Column(head="models out", value="models_out", shown=whole),
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
    *_SIDES,
    Column(head="TPR", value="tpr", shown=3, worse="high"),
    Column(head="p (chance)", value="p", shown=probability, worse="low"),
    Column(head="TPR − FPR ≥", value="advantage_low", shown=3, worse="high"),
    Column(head="difference", value="difference", shown=signed),
    Column(head="epsilon ≥", value="epsilon", shown=nats, unit="nats", worse="high"),
    Column(head="separated", value="separated", shown=setting_value),
)
_TEXT_NOTES = (
    "p (chance): of this canary by itself, not corrected for their number",
    "difference: mean score of the models with it minus that of the others, in units of the score",
)


def texts_section(texts: Sequence[SweepText], most: int) -> Section:
    """The canaries that leak most over all models, folded; what is not known comes first."""
    ordered = sorted(texts, key=lambda row: (row.p is not None, row.p or 0.0, -(row.tpr or 0.0)))
    shown, left = ordered[:most], len(texts) > most
    some = f"The {most:,} most leaking of {len(texts):,}" if left else f"All {len(texts):,}"
    return Section(
        id="texts",
        title=f"{some} canaries in numbers",
        table=Table(shown, _TEXTS),
        notes=(*_TEXT_NOTES, *["the CSV file holds all"] * left),
        folded=True,
    )


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
        yield "max attainable: the most that a perfect attack on these models could show"
    yield from map(conditions_of, kinds)
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


_VERDICTS = {
    "stronger": "shows more than uniform canaries",
    "weaker": "shows less than uniform canaries",
    "open": "not told apart from uniform canaries",
}
_WHAT_KINDS = (
    "What is hidden decides how much is seen. Each class had as many canaries, as often inserted, "
    "in the same models; only uniform canaries have ranks, the others are judged by coins alone."
)


def kinds_section(power: SweepPower, chart: "Callable[[], Chart | None]") -> Section:
    """The table of kinds with its chart, and that of what canaries cost the models."""
    return Section(
        id="kinds",
        title="Kinds of canaries",
        text=_WHAT_KINDS,
        caption="Power of each kind of canary, at equal cost: as many canaries, copies and models",
        table=Table(by_strength(power), _kind_columns(power)),
        notes=tuple(_kind_notes(power)),
        parts=[_cost(power)] if len(power.utility) > 1 else [],
        chart=chart,
        folded=True,
    )


def by_strength(power: SweepPower) -> list[KindPower]:
    """The classes in the models with all canaries, the strongest first."""
    rows = [row for row in power.rows if row.share == 1]
    return sorted(rows, key=lambda row: (-(row.rate.value or 0.0), -(row.area or 0.0)))


def shares_of(power: SweepPower) -> list[float]:
    """The shares of the canaries that have rates, descending."""
    return sorted({row.share for row in power.rows}, reverse=True)


def _kind_columns(power: SweepPower) -> list[Column]:
    beside = {row.group: row for row in power.comparisons}
    found = {(row.group, row.share): row for row in power.rows}

    def fewer(share: float) -> Column:
        def tpr(row: KindPower) -> float | None:
            other = found.get((row.group, share))
            return None if other is None else other.rate.value

        return Column(head=f"with {percent(share)} of them", value=tpr, shown=3)

    def compared(shown: Callable[[KindComparison], str]) -> Callable[[KindPower], str | None]:
        return lambda row: shown(beside[row.group]) if row.group in beside else None

    less = compared(lambda row: signed(row.difference, 3))
    return [
        Column(head="canaries", value="group", shown=visible, words=True),
        Column(head="each", value="canaries", shown=whole),
        Column(head=f"TPR at FPR {short(power.fpr)}", value="rate.value", shown=3, worse="high"),
        Column(head="interval", value=lambda row: interval(row.rate.low, row.rate.high, 3)),
        *map(fewer, shares_of(power)[1:]),
        _AREA,
        _AREA_INTERVAL,
        Column(head="separated", value=lambda row: f"{row.separated:,} of {row.canaries:,}"),
        Column(head="TPR − that of uniform", value=less, worse="high"),
        Column(head="interval", value=compared(lambda row: interval(row.low, row.high, 3))),
    ]


def _kind_notes(power: SweepPower) -> Iterator[str]:
    rows = by_strength(power)
    yield (
        f"each: canaries, of which about half are in a model; intervals at "
        f"{percent(power.level)}, with models as units; those of differences hold for all kinds at "
        "once"
    )
    uniform = [visible(row.group) for row in rows if row.kind == UNIFORM]
    if uniform:
        yield f"{listed(uniform)}: uniform canaries, which have ranks as well"
    if len(uniform) < len(rows):
        yield "kinds that are not uniform are judged by their coins alone: they have no ranks"
    yield from kind_lines(row.kind for row in rows)
    if len(shares_of(power)) > 1:
        yield (
            "with fewer of them: the same in models of their own, where only that share of every "
            "class can be in; a kind that shows more there is disturbed by other canaries"
        )
    yield strongest_line(power, len(rows))
    for row in power.comparisons:
        yield f"{visible(row.group)}: {_VERDICTS[row.verdict]} ({visible(row.against)})"
    yield from map(visible, power.notes)


def strongest_line(power: SweepPower, classes: int) -> str:
    """Which kind shows most, with what is certain of it after the choice."""
    if power.strongest is None:
        return "strongest: these models are too few for that FPR in every class; train more models"
    sure = ""
    if power.strongest_low is not None:
        sure = (
            f"; its TPR is at least {number(power.strongest_low, 3)}, corrected for the choice "
            f"among {count(classes, 'class', 'classes')}"
        )
    return f"strongest: {visible(power.strongest)}{sure}"


def _cost(power: SweepPower) -> Section:
    """Validation loss by share, beside that of the models without canaries."""
    note = "no models without canaries were trained: add the share 0"
    if any(row.share == 0 for row in power.utility):
        note = "lower = more useful; above 0: canaries make the model worse on ordinary text"
    title = "What the canaries cost the models"
    return Section(id="cost", title=title, table=Table(power.utility, _COST), notes=(note,))


_COST = (
    Column(head="share of the canaries", value="share", shown=percent, words=True),
    Column(head="models", value="models", shown=whole),
    Column(head="copies in a model", value="inserted", shown=1),
    Column(head="validation loss, bits a token", value="bits", shown=4, worse="high"),
    Column(head="sd between models", value="sd", shown=4),
    Column(head="more than without canaries", value="cost", shown=lambda cost: signed(cost, 4)),
    Column(head="interval", value=lambda row: interval(row.cost_low, row.cost_high, 4)),
)


def kind_lines(names: Iterable[str]) -> Iterator[str]:
    """Which part of each kind is scored, and what is otherwise with it than with all others."""
    for name in dict.fromkeys(names):
        if name == UNIFORM or name not in KINDS:
            continue
        kind = KINDS[name]
        exception = f"; an exception to the rules of canaries: {kind.exception}"
        yield f"{name}: scored is {kind.secret}{exception if kind.exception else ''}"


GROUPS = ("population", "canaries")  # in reading order
_TITLES = {
    "population": "Ordinary documents, the most memorised first",
    "canaries": "Canaries, the most memorised first",
}
_NOUNS = {"population": "documents", "canaries": "canaries"}
_WHAT_CHANGES = (
    "How much better do the models know a text that had it in their training than those that had "
    "not? That difference is counterfactual memorisation: what is likely anyway is likely in both, "
    "and does not count [5] [6]. Influence is the same difference of another text's score."
)


def _signed(value: float) -> str:
    return signed(value, 3)


def _ends(name: str) -> Column:
    """The interval of what a field holds."""

    def shown(row: CounterfactualText | InfluentialPair) -> str | None:
        means: MeansApart | None = getattr(row, name)
        return None if means is None else interval(means.low, means.high, 3)

    return Column(head="interval", value=shown)


_OF_TEXTS = (
    Column(head="text", value="id", shown=visible, words=True),
    *_SIDES,
    Column(head="score in", value="memorised.mean_in", shown=3),
    Column(head="score out", value="memorised.mean_out", shown=3),
    Column(head="memorised", value="memorised.difference", shown=_signed, worse="high"),
    _ends("memorised"),
    Column(head="log ratio", value="log_ratio", shown=signed, unit="bits", worse="high"),
    Column(head="p (any text)", value="p", shown=probability, worse="low"),
)
_EPSILON = Column(head="epsilon ≥", value="epsilon", shown=nats, unit="nats", worse="high")
_GREEDY = (
    Column(head="greedy in", value="reproduced.mean_in", shown=3, worse="high"),
    Column(head="greedy out", value="reproduced.mean_out", shown=3),
    replace(_ends("reproduced"), head="interval of the difference"),
)
_OF_PAIRS = (
    Column(head="document", value="id", shown=visible, words=True),
    Column(head="on", value="held_out", shown=visible, words=True),
    *_SIDES,
    Column(head="score in", value="change.mean_in", shown=3),
    Column(head="score out", value="change.mean_out", shown=3),
    Column(head="change", value="change.difference", shown=_signed),
    _ends("change"),
    Column(head="p (any pair)", value="p", shown=probability),
)


def changes_section(
    found: SweepCounterfactual, most: int, place: Place, chart: "Callable[[], Chart | None] | None"
) -> Section:
    """A table of each group, the `most` memorised first, and one of influence."""
    groups = [group for name in GROUPS if (group := found.group(name)) is not None]
    parts = [_group(found, group, most) for group in groups]
    if found.influence is not None:
        parts.append(_influence(found, found.influence, most))
    less = sum(max(0, len(group.texts) - most) for group in found.groups)
    more = [f"{less:,} less memorised texts are in the CSV file"] if less else []
    return Section(
        id="changes",
        title="What single texts change",
        text=_WHAT_CHANGES,
        said=[
            f"{len(certain(found, group)):,} of {len(group.texts):,} {_NOUNS[group.group]} left a "
            f"trace that chance does not explain (p at most {short(found.significance)}, all of "
            "them together)."
            for group in groups
        ],
        parts=parts,
        notes=(*more, *found.notes),
        chart=chart,
        folded=True,
        on=frozenset({place}),
    )


def certain(found: SweepCounterfactual, group: CounterfactualGroup) -> list[CounterfactualText]:
    """The texts that chance does not explain, all texts of the group taken together."""
    return [text for text in group.texts if text.p is not None and text.p <= found.significance]


def _group(found: SweepCounterfactual, group: CounterfactualGroup, most: int) -> Section:
    greedy = any(text.reproduced for text in group.texts)
    halves = {text.id: half for text, half in zip(group.texts, group.by_halves, strict=True)}
    by_halves = Column(head="by halves", value=lambda text: halves[text.id], shown=_signed)
    columns = [*_OF_TEXTS, by_halves, _EPSILON, *(_GREEDY if greedy else ())]
    return Section(
        id=f"changes-{group.group}",
        title=_TITLES[group.group],
        table=Table(group.texts[:most], columns),
        notes=_change_notes(found, group, greedy=greedy),
        folded=True,
    )


def _change_notes(
    found: SweepCounterfactual, group: CounterfactualGroup, *, greedy: bool
) -> list[str]:
    noun, texts = _NOUNS[group.group], len(group.texts)
    of = "secret" if group.group == "canaries" else "document"
    notes = [
        f"score: minus the bits of the {of} a token, mean over the models with the text and over "
        "those without; higher = likelier",
        "memorised: score in − score out, higher = more memorised; intervals at "
        f"{percent(found.level)} by Welch, each text by itself",
        f"log ratio: bits by which the whole {of} became likelier",
        f"p (any text): how often chance gives any of the {texts:,} {noun} so large a difference "
        f"for its spread; {found.permutations:,} permutations of whole models",
        "by halves: the same difference in models that were not used to pick the text, so that it "
        f"is not large by being picked; mean of {count(found.splits, 'split')} in halves",
    ]
    if any(text.epsilon is not None for text in group.texts):
        notes.append(
            f"epsilon ≥: from this text alone, of all {texts:,} {noun} at once at significance "
            f"{short(found.significance)}"
        )
    if greedy:
        notes.append(
            "greedy: the share of models whose likeliest next tokens are the whole secret, in the "
            "canary's own context; the interval is Newcombe's"
        )
    if group.spread is not None:
        error = group.spread * sqrt(4 / found.models)
        notes.append(
            f"standard error: about sd · √(4/S) = {number(error, 3)} bits a token, with sd = "
            f"{number(group.spread, 3)} between models alike (the median text) and S = "
            f"{found.models:,} models; it assumes that half of the models had a text, that both "
            "sides spread alike, and that the models were trained independently"
        )
    return notes


def _influence(found: SweepCounterfactual, influence: SweepInfluence, most: int) -> Section:
    pairs = influence.documents * influence.held_out
    return Section(
        id="influence",
        title="Influence of documents on documents that no model learned",
        table=Table(influence.pairs[:most], _OF_PAIRS),
        notes=(
            "change: what the first document in the training changes in the score of the second, "
            "which none learned, in bits a token; above 0 = it became likelier",
            f"p (any pair): how often chance gives any of {pairs:,} pairs so large a change for "
            f"its spread, up or down; {count(influence.found, 'pair')} at most "
            f"{short(found.significance)}",
        ),
        folded=True,
    )
