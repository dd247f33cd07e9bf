"""What other models make of each score, and how well it tells in from out.

Over all cells of a group, and text by text over all models. Of texts by themselves the worst is
shown, which is paid for by their number.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lmexposure.canaries import derive_seed
from lmexposure.errors import InputError
from lmexposure.statistics import (
    CellRate,
    CellRates,
    canary_rates,
    cell_rates,
    label_logits,
    lira_matrix,
    models_needed,
    rmia_matrix,
    roc_curve,
    tpr_at_fpr,
)
from lmexposure.studies import (
    ATTACKS,
    READS,
    SCORES,
    AuditedText,
    SweepCurve,
    SweepPlan,
    SweepScore,
    SweepText,
)
from lmexposure.sweeps.matrices import Flags, Floats, Matrices

Places = NDArray[np.intp]
FPRS = (0.001, 0.01)
REGRESSION = "label_regression"  # of the greedy matches, one by one; no setting asks for it
_READS = {**READS, REGRESSION: ("label_only",)}


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """The texts of one group, with everything that an attack may read of them."""

    name: str  # "canaries", "population", or a kind of canaries
    texts: tuple[AuditedText, ...]  # of the group, N of them
    columns: Places  # of the matrices, shape (N,)
    matrices: Matrices  # of the sweep

    @classmethod
    def of(cls, name: str, texts: Sequence[AuditedText], matrices: Matrices) -> "Group":
        """Those texts of a plan that are of this group, or of this kind."""
        columns = [place for place, text in enumerate(texts) if name in (text.group, text.kind)]
        return cls(
            name=name,
            texts=tuple(texts[place] for place in columns),
            columns=np.array(columns, dtype=np.intp),
            matrices=matrices,
        )

    def of_models(self, kept: Flags) -> "Group":
        """The same texts in some models."""
        return replace(self, matrices=self.matrices.of_models(kept))

    def of_texts(self, kept: Flags) -> "Group":
        """Some of the texts in the same models."""
        texts = tuple(text for text, its in zip(self.texts, kept, strict=True) if its)
        return replace(self, texts=texts, columns=self.columns[kept])

    @property
    def size(self) -> int:
        """How many texts."""
        return len(self.texts)

    @property
    def included(self) -> Flags:
        """Which text was in which model, shape (S, N)."""
        return self.matrices.included[:, self.columns]

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of the texts, N of them: those of one kind are alike."""
        return tuple(text.kind for text in self.texts)

    def raw(self, score: str) -> Floats:
        """A score as the models gave it, shape (S, N)."""
        return self.matrices.scores[score][:, self.columns]


@dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """One score under one attack."""

    values: Floats  # shape (S, N), higher = more likely in; NaN where there is none
    notes: tuple[str, ...]  # what is not as it should be


def pairs_of(group: Group) -> Iterator[tuple[str, str]]:
    """Each score that a group has, under each attack that reads it."""
    ordinary = group.name == "population"
    for score in SCORES:
        if score not in group.matrices.scores or np.isnan(group.raw(score)).all():
            continue
        if ordinary and score == "secret_tokens":
            continue
        for attack in (*ATTACKS, REGRESSION):
            if score in _READS.get(attack, SCORES):
                yield score, attack


def attack_cells(group: Group, score: str, attack: str, *, shadows: Flags | None = None) -> Cells:
    """One score under one attack; each model with all others as its reference."""
    if attack == "plain":
        return Cells(values=group.raw(score), notes=())
    try:
        return _judged(group, score, attack, shadows)
    except InputError as failure:
        return Cells(values=np.full(group.included.shape, np.nan), notes=(str(failure),))


def _judged(group: Group, score: str, attack: str, shadows: Flags | None) -> Cells:
    coins, matrices = group.included, group.matrices
    if attack == "rmia":
        tokens = [matrices.secret[n].size for n in group.columns]
        values = rmia_matrix(
            -group.raw(score) / np.array(tokens),
            coins,
            matrices.validation_bits / matrices.validation_tokens,
            shadows=shadows,
        )
        return Cells(values=values, notes=())
    if attack == REGRESSION:
        matches = [matrices.matches[n] for n in group.columns]
        values = label_logits(matches, coins, kinds=group.kinds, shadows=shadows)
        return Cells(values=values, notes=())
    judged = lira_matrix(
        group.raw(score),
        coins,
        kinds=group.kinds,
        mode="offline" if attack == "lira_offline" else "online",
        shadows=shadows,
    )
    return Cells(values=judged.scores, notes=judged.notes)


def primary_of(group: Group, plan: SweepPlan) -> tuple[str, str]:
    """The score and the attack that decide, named beforehand."""
    score, attack = plan.settings.score, plan.settings.attack
    if group.name == "population" and score == "label_only":
        score = "log_perplexity"
    return score, attack


def score_rows(group: Group, plan: SweepPlan) -> Iterator[SweepScore]:
    """The primary score of a group and of each of its kinds, then the others beside it."""
    primary, level = primary_of(group, plan), plan.settings.level
    whole, kinds = {group.name: np.arange(group.size)}, places_of_kinds(group)
    parts = whole | (kinds if len(kinds) > 1 else {})
    yield from _rows(group, *primary, parts=parts, measured=True, primary=True, level=level)
    for pair in pairs_of(group):
        if pair != primary:
            plain = pair[1] == "plain"
            yield from _rows(group, *pair, parts=whole, measured=plain, primary=False, level=level)


def places_of_kinds(group: Group) -> dict[str, Places]:
    """Where the texts of each kind of a group are among its texts."""
    kinds = dict.fromkeys(group.kinds)
    return {kind: np.flatnonzero([own == kind for own in group.kinds]) for kind in kinds}


def part_rates(
    group: Group, score: str, attack: str, *, parts: Mapping[str, Places], level: float
) -> dict[str, SweepScore]:
    """One score under one attack for some parts of a group, with intervals, by their names."""
    rows = _rows(group, score, attack, parts=parts, measured=True, primary=False, level=level)
    return {row.group: row for row in rows}


def _rows(
    group: Group,
    score: str,
    attack: str,
    *,
    parts: Mapping[str, Places],
    measured: bool,
    primary: bool,
    level: float,
) -> Iterator[SweepScore]:
    """One score under one attack, for each part of a group."""
    cells = attack_cells(group, score, attack)
    found = {n: _Found.of(cells.values[:, its], group.included[:, its]) for n, its in parts.items()}
    with_interval: Mapping[str, CellRates] = {}
    if measured:
        two_sided = {name: parts[name] for name, part in found.items() if part.two_sided}
        with_interval = _with_intervals(group, (score, attack), cells, two_sided, level)
    for name, part in found.items():
        rates, curve = with_interval.get(name), None
        if primary and rates is not None:
            columns = ("fpr", "tpr", "low", "high")
            curve = SweepCurve(**{column: getattr(rates, column).tolist() for column in columns})
        yield SweepScore(
            group=name,
            score=score,
            attack=attack,
            primary=primary,
            area=part.area,
            area_low=None if rates is None else rates.area_low,
            area_high=None if rates is None else rates.area_high,
            rates=tuple(part.rates(level)) if rates is None else rates.rates,
            cells_in=part.inside.size,
            cells_out=part.outside.size,
            cells_missing=part.missing,
            curve=curve,
            notes=cells.notes,
        )


def _with_intervals(
    group: Group, pair: tuple[str, str], cells: Cells, parts: Mapping[str, Places], level: float
) -> Mapping[str, CellRates]:
    """Rates with models as units; none of too few models."""

    def attack(kept: Flags) -> Floats:
        if pair[1] == "plain" or kept.all():
            return cells.values[kept]
        return attack_cells(group.of_models(kept), *pair).values

    if not parts:
        return {}
    try:
        return cell_rates(attack, group.included, groups=parts, fprs=FPRS, level=level)
    except InputError:
        return {}


@dataclass(frozen=True, kw_only=True, eq=False)
class _Found:
    """Cells of some texts."""

    # inside, outside: scores of the cells with their text, and without, flat
    inside: Floats
    outside: Floats
    missing: int  # cells without a score
    texts: int  # how many

    @classmethod
    def of(cls, values: Floats, coins: Flags) -> "_Found":
        known = ~np.isnan(values)
        return cls(
            inside=values[coins & known],
            outside=values[~coins & known],
            missing=int((~known).sum()),
            texts=values.shape[1],
        )

    @property
    def two_sided(self) -> bool:
        return bool(self.inside.size and self.outside.size)

    @property
    def area(self) -> float | None:
        return roc_curve(self.inside, self.outside).area if self.two_sided else None

    def rates(self, level: float) -> Iterator[CellRate]:
        """Without intervals."""
        for fpr in FPRS:
            value = None
            if self.two_sided:
                value = tpr_at_fpr(self.inside, self.outside, fpr=fpr, level=level).value
            note = (
                f"{self.outside.size:,} cases without their text and {self.inside.size:,} with it "
                f"are too few for a false-positive rate of {fpr:g}; with {self.texts:,} texts it "
                f"takes {models_needed(fpr, self.texts, level=level):,} models"
            )
            said = note if value is None else None
            yield CellRate(fpr=fpr, value=value, low=None, high=None, note=said)


@dataclass(frozen=True, kw_only=True, eq=False)
class PerText:
    """The texts of a group, each over all models, by a raw score."""

    group: Group  # of N texts
    scores: Floats  # raw, shape (S, N), higher = more likely in
    # share of the models with a text that score above all without, (N,); NaN where there are none
    tpr: Floats
    p: Floats  # how often chance gives so high a `tpr`, (N,)
    low: Floats  # TPR - FPR is at least this, for all N at once, (N,)
    epsilon: Floats  # a lower bound from each text alone, nats, (N,); NaN where there is none

    @classmethod
    def of(cls, group: Group, plan: SweepPlan) -> "PerText":
        """Rates of a group by its primary score, raw; bounds on epsilon come apart."""
        scores, coins = group.raw(primary_of(group, plan)[0]), group.included
        count, significance = scores.shape[1], plan.settings.significance
        tpr, p, low = np.full(count, np.nan), np.ones(count), np.zeros(count)
        if coins.any() and not coins.all():
            found = canary_rates(scores, coins, significance=significance)
            tpr, p, low = found.tpr, found.p, found.low
        nothing = np.full(count, np.nan)
        return cls(group=group, scores=scores, tpr=tpr, p=p, low=low, epsilon=nothing)

    @property
    def worst(self) -> int | None:
        """The text that chance explains least, of equal ones that with the highest TPR."""
        judged = np.flatnonzero(~np.isnan(self.tpr))
        if not judged.size:
            return None
        return int(judged[np.lexsort((-self.tpr[judged], self.p[judged]))[0]])

    def sides(self, text: int) -> tuple[Floats, Floats]:
        """Its scores in the models that had it, and in those that had not, ascending."""
        coins: Flags = self.group.included[:, text]
        own = self.scores[:, text]
        return np.sort(own[coins]), np.sort(own[~coins])

    def row(self, text: int) -> SweepText:
        """What the result says of one text."""
        inside, outside = self.sides(text)
        both = bool(inside.size and outside.size)
        known = self.group.texts[text]
        return SweepText(
            id=known.id,
            kind=known.kind,
            models_in=inside.size,
            models_out=outside.size,
            tpr=or_none(self.tpr[text]),
            p=float(self.p[text]) if both else None,
            advantage_low=float(self.low[text]),
            separated=separated(inside, outside),
            difference=float(inside.mean() - outside.mean()) if both else None,
            epsilon=or_none(self.epsilon[text]),
        )


def separated(inside: Floats, outside: Floats) -> bool:
    """Whether every score in is above every score out."""
    return bool(inside.size and outside.size and inside[0] > outside[-1])


def or_none(value: float) -> float | None:
    """None for what a record cannot hold."""
    return float(value) if np.isfinite(value) else None


def ties(plan: SweepPlan, repetitions: int) -> int:
    """The seed of the order of equal scores, which no coin is from."""
    return derive_seed(plan.seed, "sweep ties", str(repetitions))
