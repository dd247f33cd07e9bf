"""How well each kind of canary shows what a training gives away, all at equal cost.

Kinds side by side are in the same models, as many canaries of each, as often inserted. In models of
a smaller share there are fewer of all of them: a kind that shows more there was disturbed by other
canaries. In models of share 0 there are none, and their validation loss says what canaries cost.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal

import numpy as np

from lmexposure.canaries import UNIFORM
from lmexposure.errors import InputError
from lmexposure.statistics import CellRate, Difference, mean_difference, rate_difference
from lmexposure.studies import (
    AuditedText,
    KindComparison,
    KindPower,
    ShareUtility,
    SweepModel,
    SweepPlan,
    SweepPower,
    SweepScore,
)
from lmexposure.sweeps.matrices import Matrices
from lmexposure.sweeps.plan import eligible
from lmexposure.sweeps.rates import Group, PerText, part_rates, places_of_kinds, primary_of

FPR = 0.01  # whose TPR is told: a quarter of the usual canaries still resolves it


def power_of(
    matrices: Matrices, plan: SweepPlan, models: Sequence[SweepModel]
) -> SweepPower | None:
    """Power of each class of canaries in the models of each share."""
    classes = dict.fromkeys(text.kind for text in plan.canaries)
    shares = sorted(set(plan.shares), reverse=True)
    if not classes or (len(classes) < 2 and len(shares) < 2):
        return None
    level = plan.settings.level
    several = 1 - (1 - level) / len(classes)
    groups = {share: _of_share(matrices, plan, share) for share in shares if share > 0}
    found = {share: _class_rows(group, plan, level) for share, group in groups.items()}
    rows = [
        _row(plan, group, name, share, found[share])
        for share, group in groups.items()
        for name in dict.fromkeys(group.kinds)
    ]
    paid = _class_rows(groups[1.0], plan, several)
    known = [row for row in rows if row.share == 1 and row.rate.value is not None]
    # Of the largest TPR; of equal ones that of the largest area, then the first.
    best = max(known, key=lambda row: (row.rate.value or 0.0, row.area or 0.0), default=None)
    strongest = None if best is None else best.group
    return SweepPower(
        fpr=FPR,
        level=level,
        rows=tuple(rows),
        comparisons=tuple(_comparisons(plan, paid)),
        strongest=strongest,
        strongest_low=None if strongest is None else _rate(paid[strongest]).low,
        utility=tuple(_utility(plan, models, share) for share in shares),
        notes=tuple(_notes(plan, rows)),
    )


def kind_of(text: AuditedText, plan: SweepPlan) -> str:
    """The kind of a canary: that of its format's name, else a uniform fill."""
    chosen = text.format is not None and text.format in plan.settings.run.kinds
    return str(text.format) if chosen else UNIFORM


def _of_share(matrices: Matrices, plan: SweepPlan, share: float) -> Group:
    """The canaries that can be in the models of a share, in these models."""
    of_share = np.array(plan.shares)[matrices.numbers] == share
    canaries = Group.of("canaries", plan.scored, matrices.of_models(of_share))
    per_class = plan.settings.run.canaries or 0
    return canaries.of_texts(np.array(eligible(canaries.texts, share, per_class), dtype=bool))


def _class_rows(group: Group, plan: SweepPlan, level: float) -> dict[str, SweepScore]:
    """The primary score of each class of a group, with intervals, by the name of the class."""
    parts = places_of_kinds(group)
    return part_rates(group, *primary_of(group, plan), parts=parts, level=level)


def _row(
    plan: SweepPlan, group: Group, name: str, share: float, rows: Mapping[str, SweepScore]
) -> KindPower:
    kept = np.array([kind == name for kind in group.kinds])
    own, found = group.of_texts(kept), rows[name]
    by_text = PerText.of(own, plan)
    return KindPower(
        group=name,
        kind=kind_of(own.texts[0], plan),
        share=share,
        canaries=len(own.texts),
        models=len(own.matrices.numbers),
        area=found.area,
        area_low=found.area_low,
        area_high=found.area_high,
        rate=_rate(found),
        separated=sum(by_text.row(place).separated for place in range(len(own.texts))),
    )


def _rate(row: SweepScore) -> CellRate:
    return next(rate for rate in row.rates if rate.fpr == FPR)


def _comparisons(plan: SweepPlan, rows: Mapping[str, SweepScore]) -> Iterator[KindComparison]:
    """Each other class with the first uniform fill of as many repetitions."""
    by_class = {text.kind: text for text in plan.canaries}
    yardsticks: dict[int, str] = {}
    for name, text in by_class.items():
        if kind_of(text, plan) == UNIFORM:
            yardsticks.setdefault(text.repetitions, name)
    for name, text in by_class.items():
        against = yardsticks.get(text.repetitions)
        if against is None or against == name:
            continue
        found = _difference(_rate(rows[name]), _rate(rows[against]))
        verdict: Literal["open", "stronger", "weaker"] = "open"
        if found is not None and (found.low > 0 or found.high < 0):
            verdict = "stronger" if found.low > 0 else "weaker"
        yield KindComparison(
            group=name,
            against=against,
            difference=None if found is None else found.value,
            low=None if found is None else found.low,
            high=None if found is None else found.high,
            verdict=verdict,
        )


def _difference(first: CellRate, second: CellRate) -> Difference | None:
    """Of two rates with their intervals; None where one has none."""
    ends = [(rate.value, rate.low, rate.high) for rate in (first, second)]
    known = [(v, a, b) for v, a, b in ends if v is not None and a is not None and b is not None]
    return rate_difference(*known) if len(known) == len(ends) else None


def _utility(plan: SweepPlan, models: Sequence[SweepModel], share: float) -> ShareUtility:
    own, without = (
        [m.training.validation_bits for m in models if plan.shares[m.number] == part]
        for part in (share, 0.0)
    )
    cost = None
    if share > 0:
        with suppress(InputError):  # a single model, or none without canaries
            cost = mean_difference(own, without, level=plan.settings.level)
    # Copies of canaries and partners in a model, on average.
    times = np.array([text.repetitions for text in plan.inserted])
    numbers = [model.number for model in models if plan.shares[model.number] == share]
    coins = np.array([[coin == "1" for coin in plan.coins[n][: len(times)]] for n in numbers])
    return ShareUtility(
        share=share,
        models=len(own),
        inserted=float(np.mean(coins @ times)) if coins.size else 0.0,
        bits=float(np.mean(own)) if own else 0.0,
        sd=float(np.std(own, ddof=1)) if len(own) > 1 else None,
        cost=None if cost is None else cost.value,
        cost_low=None if cost is None else cost.low,
        cost_high=None if cost is None else cost.high,
    )


def _notes(plan: SweepPlan, rows: Sequence[KindPower]) -> Iterator[str]:
    """What the table does not say by itself."""
    if all(row.kind != UNIFORM for row in rows):
        yield "there is no uniform fill to hold the kinds against; add the kind uniform"
    row = next((row for row in rows if row.rate.value is None), None)
    if row is not None:
        yield (
            f"{row.group}, models with a share of {row.share:g}: "
            f"{row.rate.note or 'its TPR is not resolved'}"
        )
