"""The power of kinds of canaries in words: a table at equal cost, and what canaries cost."""

from collections.abc import Iterator, Sequence

from lmexposure._style import (
    MISSING,
    count,
    interval,
    listed,
    number,
    percent,
    short,
    signed,
    whole,
)
from lmexposure._text import visible
from lmexposure.canaries import UNIFORM
from lmexposure.reporting.data import Section
from lmexposure.reporting.kinds import kind_lines
from lmexposure.studies import KindComparison, KindPower, SweepPower

_VERDICTS = {
    "stronger": "stronger than a uniform fill",
    "weaker": "weaker than a uniform fill",
    "open": "not told apart from a uniform fill",
}


def power_sections(power: SweepPower) -> list[Section]:
    """The table of kinds, and that of what canaries cost the models."""
    sections = [_kinds(power)]
    return [*sections, _cost(power)] if len(power.utility) > 1 else sections


def by_strength(power: SweepPower) -> list[KindPower]:
    """The classes in the models with all canaries, the strongest first."""
    rows = [row for row in power.rows if row.share == 1]
    return sorted(rows, key=lambda row: (-(row.rate.value or 0.0), -(row.area or 0.0)))


def shares_of(power: SweepPower) -> list[float]:
    """The shares of the canaries that have rates, descending."""
    return sorted({row.share for row in power.rows}, reverse=True)


def _kinds(power: SweepPower) -> Section:
    fewer = shares_of(power)[1:]
    beside = {row.group: row for row in power.comparisons}
    found = {(row.group, row.share): row for row in power.rows}
    head = f"TPR at FPR {short(power.fpr)}"
    return Section(
        title="Power of each kind of canary, at equal cost: as many canaries, copies and models",
        columns=(
            "canaries",
            "each",
            head,
            "interval",
            *(f"with {percent(share)} of them" for share in fewer),
            "AUC",
            "interval of AUC",
            "separated",
            "TPR − uniform fill's",
            "interval",
        ),
        rows=tuple(
            (
                visible(row.group),
                whole(row.canaries),
                number(row.rate.value, 3),
                interval(row.rate.low, row.rate.high, 3),
                *(_tpr(found.get((row.group, share))) for share in fewer),
                number(row.area, 3),
                interval(row.area_low, row.area_high, 3),
                f"{whole(row.separated)} of {whole(row.canaries)}",
                *_beside(beside.get(row.group)),
            )
            for row in by_strength(power)
        ),
        notes=tuple(_notes(power)),
    )


def _tpr(row: KindPower | None) -> str:
    return MISSING if row is None else number(row.rate.value, 3)


def _beside(row: KindComparison | None) -> tuple[str, str]:
    if row is None:
        return MISSING, MISSING
    return signed(row.difference, 3), interval(row.low, row.high, 3)


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
        title="What the canaries cost the models",
        columns=(
            "share of the canaries",
            "models",
            "copies in a model",
            "validation loss, bits a token",
            "sd between models",
            "more than without canaries",
            "interval",
        ),
        rows=tuple(
            (
                percent(row.share),
                whole(row.models),
                number(row.inserted, 1),
                number(row.bits, 4),
                number(row.sd, 4),
                signed(row.cost, 4),
                interval(row.cost_low, row.cost_high, 4),
            )
            for row in power.utility
        ),
        notes=(
            ("lower = more useful; above 0: canaries make the model worse on ordinary text",)
            if without
            else ("no models without canaries were trained: add the share 0",)
        ),
    )


def power_rows_in_words(rows: Sequence[KindPower], fpr: float) -> str:
    """For who cannot see the chart."""
    told = [
        f"{visible(row.group)} {number(row.rate.value, 3)} "
        f"({interval(row.rate.low, row.rate.high, 3)})"
        for row in rows
    ]
    return f"TPR at FPR {short(fpr)}: {', '.join(told)}."
