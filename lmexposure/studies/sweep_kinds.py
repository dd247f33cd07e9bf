"""The power of kinds of canaries in words: a table at equal cost, and what canaries cost."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from lmexposure._style import (
    count,
    interval,
    listed,
    number,
    percent,
    short,
    signed,
    visible,
    whole,
)
from lmexposure.canaries import KINDS, UNIFORM
from lmexposure.core import Column, Section, Table
from lmexposure.studies.sweep_power import KindComparison, KindPower, SweepPower

if TYPE_CHECKING:
    from lmexposure.core.charts import Chart

_VERDICTS = {
    "stronger": "stronger than a uniform fill",
    "weaker": "weaker than a uniform fill",
    "open": "not told apart from a uniform fill",
}
_WHAT = (
    "What is hidden decides how much is seen. Each class had as many canaries, as often inserted, "
    "in the same models; only uniform fills have ranks, the others are judged by their coins alone."
)


def kinds_section(power: SweepPower, chart: "Callable[[], Chart | None]") -> Section:
    """The table of kinds with its chart, and that of what canaries cost the models."""
    return Section(
        id="kinds",
        title="Kinds of canaries",
        text=_WHAT,
        caption="Power of each kind of canary, at equal cost: as many canaries, copies and models",
        table=Table(by_strength(power), _kind_columns(power)),
        notes=tuple(_notes(power)),
        parts=[_cost(power)] if len(power.utility) > 1 else [],
        chart=chart,
    )


def by_strength(power: SweepPower) -> list[KindPower]:
    """The classes in the models with all canaries, the strongest first."""
    rows = [row for row in power.rows if row.share == 1]
    return sorted(rows, key=lambda row: (-(row.rate.value or 0.0), -(row.area or 0.0)))


def shares_of(power: SweepPower) -> list[float]:
    """The shares of the canaries that have rates, descending."""
    return sorted({row.share for row in power.rows}, reverse=True)


def _three(value: float) -> str:
    return number(value, 3)


def _four(value: float) -> str:
    return number(value, 4)


def _kind_columns(power: SweepPower) -> list[Column]:
    beside = {row.group: row for row in power.comparisons}
    found = {(row.group, row.share): row for row in power.rows}

    def fewer(share: float) -> Column:
        def tpr(row: KindPower) -> float | None:
            other = found.get((row.group, share))
            return None if other is None else other.rate.value

        return Column(head=f"with {percent(share)} of them", value=tpr, shown=_three)

    def compared(shown: Callable[[KindComparison], str]) -> Callable[[KindPower], str | None]:
        return lambda row: shown(beside[row.group]) if row.group in beside else None

    head = f"TPR at FPR {short(power.fpr)}"
    return [
        Column(head="canaries", value="group", shown=visible, words=True),
        Column(head="each", value="canaries", shown=whole),
        Column(head=head, value="rate.value", shown=_three, worse="high"),
        Column(head="interval", value=lambda row: interval(row.rate.low, row.rate.high, 3)),
        *map(fewer, shares_of(power)[1:]),
        Column(head="AUC", value="area", shown=_three, worse="high"),
        Column(head="interval of AUC", value=lambda row: interval(row.area_low, row.area_high, 3)),
        Column(
            head="separated",
            value=lambda row: f"{whole(row.separated)} of {whole(row.canaries)}",
        ),
        Column(
            head="TPR − uniform fill's",
            value=compared(lambda row: signed(row.difference, 3)),
            worse="high",
        ),
        Column(head="interval", value=compared(lambda row: interval(row.low, row.high, 3))),
    ]


def _notes(power: SweepPower) -> Iterator[str]:
    level = percent(power.level)
    classes = len(by_strength(power))
    yield (
        f"each: candidates, of which about half are in a model; intervals at {level}, with models "
        "as units; those of differences hold for all kinds at once"
    )
    uniform = [visible(row.group) for row in by_strength(power) if row.kind == UNIFORM]
    if uniform:
        yield f"{listed(uniform)}: uniform fills, which have ranks as well"
    if len(uniform) < classes:
        yield "kinds that are no uniform fills are judged by their coins alone: they have no ranks"
    yield from kind_lines(row.kind for row in by_strength(power))
    if len(shares_of(power)) > 1:
        yield (
            "with fewer of them: the same in models of their own, where only that share of every "
            "class can be in; a kind that shows more there is disturbed by other canaries"
        )
    yield strongest_line(power, classes)
    for row in power.comparisons:
        yield f"{visible(row.group)}: {_VERDICTS[row.verdict]} ({visible(row.against)})"
    yield from (visible(note) for note in power.notes)


def strongest_line(power: SweepPower, classes: int) -> str:
    """Which kind shows most, with what is certain of it after the choice."""
    if power.strongest is None:
        return "strongest: no class resolves that FPR; train more models"
    sure = ""
    if power.strongest_low is not None:
        sure = (
            f"; its TPR is at least {number(power.strongest_low, 3)}, which pays for the choice "
            f"among {count(classes, 'class', 'classes')}"
        )
    return f"strongest: {visible(power.strongest)}{sure}"


def _cost(power: SweepPower) -> Section:
    """Validation loss by share, beside that of the models without canaries."""
    without = any(row.share == 0 for row in power.utility)
    return Section(
        id="cost",
        title="What the canaries cost the models",
        table=Table(power.utility, _COST),
        notes=(
            ("lower = more useful; above 0: canaries make the model worse on ordinary text",)
            if without
            else ("no models without canaries were trained: add the share 0",)
        ),
    )


_COST = (
    Column(head="share of the canaries", value="share", shown=percent, words=True),
    Column(head="models", value="models", shown=whole),
    Column(head="copies in a model", value="inserted", shown=lambda copies: number(copies, 1)),
    Column(head="validation loss, bits a token", value="bits", shown=_four, worse="high"),
    Column(head="sd between models", value="sd", shown=_four),
    Column(head="more than without canaries", value="cost", shown=lambda cost: signed(cost, 4)),
    Column(head="interval", value=lambda row: interval(row.cost_low, row.cost_high, 4)),
)


def power_rows_in_words(rows: Sequence[KindPower], fpr: float) -> str:
    """For who cannot see the chart."""
    told = [
        f"{visible(row.group)} {number(row.rate.value, 3)} "
        f"({interval(row.rate.low, row.rate.high, 3)})"
        for row in rows
    ]
    return f"TPR at FPR {short(fpr)}: {', '.join(told)}."


def kind_lines(names: Iterable[str]) -> Iterator[str]:
    """Which part of each kind is scored, and what is otherwise with it than with all others."""
    for name in dict.fromkeys(names):
        if name == UNIFORM or name not in KINDS:
            continue
        kind = KINDS[name]
        exception = f"; an exception to the rules of canaries: {kind.exception}"
        yield f"{name}: scored is {kind.secret}{exception if kind.exception else ''}"
