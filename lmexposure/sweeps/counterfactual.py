"""What each text changes in its own score and in others: counterfactual memorisation, influence.

Scores are minus bits a token of the secret, of a document of all its tokens, whatever score decides
the sweep: they compare over texts, and what they say is in bits.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from lmexposure._style import count
from lmexposure.canaries import derive_seed
from lmexposure.errors import InputError
from lmexposure.statistics import (
    CounterfactualMemorisation,
    MaxTTest,
    counterfactual_memorisation,
    influence_test,
    memorisation_by_halves,
    memorisation_test,
    per_text_epsilon,
)
from lmexposure.studies import (
    CounterfactualGroup,
    CounterfactualText,
    InfluentialPair,
    MeansApart,
    SweepCounterfactual,
    SweepInfluence,
    SweepPlan,
)
from lmexposure.sweeps.matrices import Floats, Matrices
from lmexposure.sweeps.rates import Group, PerText, or_none, ties

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
