"""Canaries whose texts were chosen, in words: what their coins say, and what may be claimed."""

from collections.abc import Iterator, Sequence

from lmexposure._style import (
    LABELS,
    interval,
    nats,
    number,
    percent,
    probability,
    short,
    whole,
)
from lmexposure.core import Column, Section, Table
from lmexposure.statistics import TprAtFpr
from lmexposure.studies.exposure.parts import KindMembership
from lmexposure.studies.sweep_tables import kind_lines

_RATES = (0.01, 0.1)
_CLAIM = (
    "The texts of these canaries were chosen, and a coin of its own put each in or left it out: "
    "what may be claimed is how well the model tells the two apart, its secrets alone scored. They "
    "have neither rank nor exposure"
)


def kinds_section(rows: Sequence[KindMembership]) -> Section:
    """All that is said of the kinds beside the uniform fills."""
    return Section(
        id="kinds",
        title="Other kinds of canaries",
        table=Table(rows, _COLUMNS),
        notes=(_CLAIM, *kind_lines(row.kind for row in rows), *_meanings(rows), *_remarks(rows)),
    )


def _rate(row: KindMembership, fpr: float) -> str:
    """The rate with its interval; missing where the candidates do not resolve it."""
    found = _found(row, fpr)
    if found is None or found.value is None:
        return number(None)
    return f"{number(found.value, 3)} ({interval(found.low, found.high, 3)})"


def _found(row: KindMembership, fpr: float) -> TprAtFpr | None:
    return next((rate for rate in row.tpr_at_fpr if rate.fpr == fpr), None)


def _meanings(rows: Sequence[KindMembership]) -> Iterator[str]:
    """What the columns mean."""
    yield (
        f"{LABELS['auc']}: how often a canary that was inserted scores above a candidate that was "
        "held out; 0.5 is guessing"
    )
    yield f"{LABELS['p_value']}: how often shuffled coins give as much"
    deltas = sorted({row.bound.delta for row in rows if row.bound is not None})
    if deltas:
        yield (
            f"{LABELS['epsilon_bound']}: in nats, of one document, at delta "
            f"{', '.join(map(short, deltas))}; each bound at its own share of the significance, "
            "apart from the bounds of the uniform fills; the gate holds each against its threshold"
        )


def _remarks(rows: Sequence[KindMembership]) -> Iterator[str]:
    """Why numbers are missing, and what each bound says of itself."""
    for row in rows:
        if row.note is not None:
            yield f"{row.group}: {row.note}"
        for rate in row.tpr_at_fpr:
            if rate.note is not None and rate.fpr in _RATES:
                yield f"{row.group}: {rate.note}"
        for line in () if row.bound is None else row.bound.notes:
            yield f"{row.group}: {line}"


def _ends(row: KindMembership) -> tuple[float | None, float | None] | None:
    area = row.area_under_curve
    return None if area is None else (area.low, area.high)


def _at(fpr: float) -> Column:
    return Column(
        head=f"TPR at FPR {percent(fpr)}",
        value=lambda row: None if (found := _found(row, fpr)) is None else found.value,
        written=lambda row: _rate(row, fpr),
        worse="high",
    )


_COLUMNS = (
    Column(head="kind", value="group", words=True),
    Column(head=LABELS["inserted"], value="canaries", shown=whole),
    Column(head=LABELS["held_out"], value="held_out", shown=whole),
    Column(
        head=LABELS["auc"],
        value="area_under_curve.value",
        shown=lambda value: number(value, 3),
        worse="high",
    ),
    Column(
        head=LABELS["interval"],
        value=_ends,
        shown=lambda ends: interval(ends[0], ends[1], 3),
    ),
    *(_at(rate) for rate in _RATES),
    Column(head=LABELS["p_value"], value="test.p_value", shown=probability, worse="low"),
    Column(
        head=LABELS["epsilon_bound"], value="bound.value", shown=nats, unit="nats", worse="high"
    ),
    Column(head=LABELS["max_attainable"], value="bound.max_attainable", shown=nats, unit="nats"),
    Column(head=LABELS["significance"], value="significance", shown=short),
)
