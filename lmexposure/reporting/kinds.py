"""Canaries that are no uniform fills, in words: in and out told apart by their coins."""

from collections.abc import Iterator, Sequence

from lmexposure._style import MISSING, interval, nats, number, percent, probability, short, whole
from lmexposure._text import visible
from lmexposure.records import KindMembership
from lmexposure.reporting.data import Section


def kinds_section(kinds: Sequence[KindMembership], level: float) -> Section:
    """The table of one run's other kinds.

    Args:
        kinds: of a result, at least one.
        level: of their intervals.
    """
    rates = sorted({rate.fpr for row in kinds for rate in row.tpr_at_fpr}, reverse=True)
    return Section(
        title="Other kinds of canaries: those that were in told from those that were not",
        columns=(
            "canaries",
            "in",
            "out",
            "AUC",
            "interval",
            *(f"TPR at FPR {short(fpr)}" for fpr in rates),
            "p (chance)",
            "epsilon ≥",
            "max attainable",
        ),
        rows=tuple(
            (
                visible(row.group),
                whole(row.canaries),
                whole(row.held_out),
                *_area(row),
                *(_tpr(row, fpr) for fpr in rates),
                MISSING if row.test is None else probability(row.test.p_value),
                nats(None if row.bound is None else row.bound.value),
                nats(None if row.bound is None else row.bound.max_attainable),
            )
            for row in kinds
        ),
        notes=tuple(_notes(kinds, level)),
    )


def _area(row: KindMembership) -> tuple[str, str]:
    area = row.area_under_curve
    if area is None:
        return MISSING, MISSING
    return number(area.value, 3), interval(area.low, area.high, 3)


def _tpr(row: KindMembership, fpr: float) -> str:
    found = next((rate for rate in row.tpr_at_fpr if rate.fpr == fpr), None)
    return number(None if found is None else found.value, 3)


def _notes(kinds: Sequence[KindMembership], level: float) -> Iterator[str]:
    yield (
        f"by the bits of the secret's tokens; intervals at {percent(level)}; AUC 0.5 is guessing, "
        "higher = more leaks"
    )
    yield (
        "judged by their coins alone: their texts were chosen, not drawn from all fills of a "
        "format, so that they have no rank and no exposure"
    )
    shares = dict.fromkeys(row.significance for row in kinds)
    yield (
        f"epsilon in nats, each bound at significance {' or '.join(map(short, shares))}, which "
        f"pays for {len(kinds)} of them; beside the primary bound, not part of it"
    )
    for row in kinds:
        if row.note is not None:
            yield f"{visible(row.group)}: {visible(row.note)}"
