"""What texts and kinds of canaries do: counterfactual memorisation, influence, kinds at equal cost.

Scores are minus bits a token of the secret, of a document of all its tokens, whatever score decides
the sweep: they compare over texts, and what they say is in bits.

Kinds side by side are in the same models, as many canaries of each, as often inserted. In models of
a smaller share there are fewer of all of them: a kind that shows more there was disturbed by other
canaries. In models of share 0 there are none, and their validation loss says what canaries cost.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal

import numpy as np

from lmexposure._style import count
from lmexposure.canaries import UNIFORM, derive_seed
from lmexposure.errors import InputError
from lmexposure.statistics import (
    CellRate,
    CounterfactualMemorisation,
    Difference,
    MaxTTest,
    counterfactual_memorisation,
    influence_test,
    mean_difference,
    memorisation_by_halves,
    memorisation_test,
    per_text_epsilon,
    rate_difference,
)
from lmexposure.studies import (
    AuditedText,
    CounterfactualGroup,
    CounterfactualText,
    InfluentialPair,
    KindComparison,
    KindPower,
    MeansApart,
    ShareUtility,
    SweepCounterfactual,
    SweepInfluence,
    SweepModel,
    SweepPlan,
    SweepPower,
    SweepScore,
)
from lmexposure.sweeps.matrices import Floats, Matrices
from lmexposure.sweeps.plan import eligible
from lmexposure.sweeps.rates import (
    Group,
    PerText,
    or_none,
    part_rates,
    places_of_kinds,
    primary_of,
    ties,
)

PERMUTATIONS = 999  # of models
SPLITS = 20  # of models into halves; more change the mean little
_SHOWN_PAIRS = 20
_FEWEST = 4  # models; with fewer there are not two on each side
_NOUNS = {
    "canaries": ("canary", "canaries"),
    "population": ("ordinary document", "ordinary documents"),
}


def counterfactual_of(
    matrices: Matrices, plan: SweepPlan, of_groups: Sequence[PerText | None]
) -> SweepCounterfactual:
    """Counterfactual memorisation of each group, and influence on documents that none learned."""
    found = [per_text for per_text in of_groups if per_text is not None]
    groups = tuple(_group(plan, per_text) for per_text in found)
    documents = [own.group for own in found if own.group.name == "population"]
    return SweepCounterfactual(
        models=len(matrices.numbers),
        level=plan.settings.level,
        significance=plan.settings.significance,
        permutations=PERMUTATIONS,
        splits=SPLITS,
        groups=groups,
        influence=_influence(matrices, plan, documents[0]) if documents else None,
        notes=tuple(_notes(plan, matrices, groups)),
    )


def _group(plan: SweepPlan, per_text: PerText) -> CounterfactualGroup:
    group = per_text.group
    scores, tokens = _bits(group)
    coins, level = group.included, plan.settings.level
    found = counterfactual_memorisation(scores, coins, lengths=tokens, level=level)
    tested = memorisation_test(scores, coins, permutations=PERMUTATIONS, seed=_seed(plan, group))
    halves = memorisation_by_halves(scores, coins, splits=SPLITS, seed=_seed(plan, group))
    epsilons = _paid_epsilons(plan, per_text)
    greedy = _greedy(group, level)
    known = found.spread[~np.isnan(found.spread)]
    return CounterfactualGroup(
        group="canaries" if group.name == "canaries" else "population",
        texts=tuple(
            CounterfactualText(
                id=group.texts[n].id,
                kind=group.texts[n].kind,
                models_in=int(found.models_in[n]),
                models_out=int(found.models_out[n]),
                memorised=_means(found, n),
                log_ratio=or_none(found.log_ratio[n]),
                p=or_none(tested.p[n]),
                epsilon=or_none(epsilons[n]),
                reproduced=None if greedy is None else _means(greedy, n),
            )
            for n in np.argsort(-found.value, kind="stable").tolist()
        ),
        by_halves=tuple(or_none(value) for value in halves),
        spread=float(np.median(known)) if known.size else None,
    )


def _paid_epsilons(plan: SweepPlan, of_texts: PerText) -> Floats:
    """A bound from each text alone, at a level that pays for all texts of its group."""
    texts = of_texts.group.texts
    found = np.full(len(texts), np.nan)
    if plan.settings.coins == "exactly_half":
        return found
    repetitions = np.array([text.repetitions for text in texts])
    for copies in sorted(set(repetitions.tolist())):
        own = np.flatnonzero(repetitions == copies)
        try:
            found[own] = per_text_epsilon(
                of_texts.scores[:, own],
                of_texts.group.included[:, own],
                significance=plan.settings.significance / len(texts),
                repetitions=copies,
                seed=ties(plan, copies),
            ).values
        except InputError:  # coins that are hardly fair, or a text without a score
            continue
    return found


def _bits(group: Group) -> tuple[Floats, Floats]:
    """Minus the bits of each text's secret a token, shape (S, N), and its tokens, (N,)."""
    bits, secret = group.matrices.token_bits, group.matrices.secret
    tokens = np.array([max(secret[n].sum(), 1) for n in group.columns], dtype=np.float64)
    whole = np.stack([bits[n][:, secret[n]].sum(axis=1) for n in group.columns], axis=1)
    return -whole / tokens, tokens


def _greedy(group: Group, level: float) -> CounterfactualMemorisation | None:
    """Whether greedy tokens are the secret, in the canary's own context; None: not read."""
    columns = []
    for n in group.columns:
        own = int(group.matrices.secret[n].sum())
        matches = group.matrices.matches[n][:, :own]
        if not own or matches.shape[1] < own:
            return None
        columns.append(matches.all(axis=1))
    scores = np.stack(columns, axis=1).astype(np.float64)
    return counterfactual_memorisation(scores, group.included, binary=True, level=level)


def _means(found: CounterfactualMemorisation, n: int) -> MeansApart | None:
    if np.isnan(found.value[n]):
        return None
    return MeansApart(
        mean_in=float(found.mean_in[n]),
        mean_out=float(found.mean_out[n]),
        difference=float(found.value[n]),
        low=float(found.low[n]),
        high=float(found.high[n]),
    )


def _influence(matrices: Matrices, plan: SweepPlan, group: Group) -> SweepInfluence | None:
    """Of the population on the documents for validation, none of which a model learned."""
    if _no_influence(plan, matrices):
        return None
    others, coins = -matrices.validation_bits / matrices.validation_tokens, group.included
    tested = influence_test(others, coins, permutations=PERMUTATIONS, seed=_seed(plan, group))
    return SweepInfluence(
        documents=len(group.texts),
        held_out=others.shape[1],
        found=int((tested.p <= plan.settings.significance).sum()),
        pairs=tuple(_pairs(plan, group, others, tested)),
    )


def _pairs(
    plan: SweepPlan, group: Group, others: Floats, tested: MaxTTest
) -> Iterator[InfluentialPair]:
    """The pairs that chance explains least, of equal ones those with the largest statistic."""
    names = [text.id for text in plan.texts if text.group == "validation"]
    known = np.argwhere(~np.isnan(tested.p))
    p, t = (values[tuple(known.T)] for values in (tested.p, tested.t))
    texts, held_out = known[np.lexsort((-np.abs(t), p))[:_SHOWN_PAIRS]].T
    if not texts.size:
        return
    coins = group.included[:, texts]
    found = counterfactual_memorisation(others[:, held_out], coins, level=plan.settings.level)
    for place, (text, other) in enumerate(zip(texts.tolist(), held_out.tolist(), strict=True)):
        change = _means(found, place)
        if change is not None:
            yield InfluentialPair(
                id=group.texts[text].id,
                held_out=names[other],
                models_in=int(found.models_in[place]),
                models_out=int(found.models_out[place]),
                change=change,
                p=float(tested.p[text, other]),
            )


def _notes(
    plan: SweepPlan, matrices: Matrices, groups: Sequence[CounterfactualGroup]
) -> Iterator[str]:
    """What the numbers do not say by themselves."""
    for group in groups:
        unknown = sum(text.memorised is None for text in group.texts)
        if unknown:
            yield (
                f"{unknown:,} of {count(len(group.texts), *_NOUNS[group.group])} "
                f"{'was' if unknown == 1 else 'were'} in, or out of, fewer than two models, and "
                "nothing is said of what they change; train more models"
            )
        if group.texts and group.by_halves[0] is None:
            yield (
                f"{count(len(matrices.numbers), 'model')} are too few to choose the most memorised "
                "text in one half of them and look at it in the other; train more models"
            )
    if plan.settings.coins == "exactly_half":
        yield (
            "coins=exactly_half: p-values hold as they are, for models may be numbered in any way; "
            "bounds on epsilon do not, and there are none"
        )
    if any(group.group == "population" for group in groups) and _no_influence(plan, matrices):
        yield (
            "influence on documents that no model learned is not known: it takes such documents, "
            f"and at least {_FEWEST} models"
        )


def _no_influence(plan: SweepPlan, matrices: Matrices) -> bool:
    held_out = any(text.group == "validation" for text in plan.texts)
    return not held_out or len(matrices.numbers) < _FEWEST


def _seed(plan: SweepPlan, group: Group) -> int:
    """Of permutations and splits; no coin is from it."""
    return derive_seed(plan.seed, "sweep counterfactual", group.name)


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
        notes=tuple(_notes_of_kinds(plan, rows)),
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


def _notes_of_kinds(plan: SweepPlan, rows: Sequence[KindPower]) -> Iterator[str]:
    """What the table does not say by itself."""
    if all(row.kind != UNIFORM for row in rows):
        yield "there are no uniform canaries to compare the kinds with; add the kind uniform"
    row = next((row for row in rows if row.rate.value is None), None)
    if row is not None:
        yield (
            f"{row.group}, models with a share of {row.share:g}: "
            f"{row.rate.note or 'its TPR is not resolved'}"
        )
