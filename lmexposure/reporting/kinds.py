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
from lmexposure.reporting.data import Section
from lmexposure.studies import KindMembership, kind_lines

_RATES = (0.01, 0.1)
_CLAIM = (
    "The texts of these canaries were chosen, and a coin of its own put each in or left it out: "
    "what may be claimed is how well the model tells the two apart, its secrets alone scored. They "
    "have neither rank nor exposure"
)


def kinds_section(rows: Sequence[KindMembership]) -> Section | None:
    """All that is said of the kinds beside the uniform fills; None where there are none."""
    if not rows:
        return None
    return Section(
        title="Other kinds of canaries",
        columns=(
            "kind",
            LABELS["inserted"],
            LABELS["held_out"],
            LABELS["auc"],
            LABELS["interval"],
            *(f"TPR at FPR {percent(rate)}" for rate in _RATES),
            LABELS["p_value"],
            LABELS["epsilon_bound"],
            LABELS["max_attainable"],
            LABELS["significance"],
        ),
        rows=tuple(map(_cells, rows)),
        notes=(
            _CLAIM,
            *kind_lines(row.kind for row in rows),
            *_meanings(rows),
            *_remarks(rows),
        ),
    )


def _cells(row: KindMembership) -> tuple[str, ...]:
    area, bound = row.area_under_curve, row.bound
    return (
        row.group,
        whole(row.canaries),
        whole(row.held_out),
        number(None if area is None else area.value, 3),
        interval(None, None) if area is None else interval(area.low, area.high, 3),
        *(_rate(row, rate) for rate in _RATES),
        probability(None if row.test is None else row.test.p_value),
        nats(None if bound is None else bound.value),
        nats(None if bound is None else bound.max_attainable),
        short(row.significance),
    )


def _rate(row: KindMembership, fpr: float) -> str:
    """The rate with its interval; missing where the candidates do not resolve it."""
    found = next((rate for rate in row.tpr_at_fpr if rate.fpr == fpr), None)
    if found is None or found.value is None:
        return number(None)
    return f"{number(found.value, 3)} ({interval(found.low, found.high, 3)})"


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
