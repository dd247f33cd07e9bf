"""What a sweep says of the epsilon of its training recipe, question by question.

Canaries of each number of repetitions are a class of their own, at a share of the significance.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from lmexposure._style import times
from lmexposure.canaries import derive_seed
from lmexposure.errors import InputError
from lmexposure.statistics import (
    LargestBound,
    one_run_audit,
    per_model_epsilon,
    per_text_epsilon,
    together_epsilon,
)
from lmexposure.studies import SweepBound, SweepEpsilon, SweepPlan, WorstText
from lmexposure.sweeps.attacks import Group, attack_cells
from lmexposure.sweeps.matrices import Flags, Floats
from lmexposure.sweeps.rates import PerText, or_none, primary_of, separated

EXACTLY_HALF = (
    "coins=exactly_half: a text's last coin follows from its others, so that no bound holds; sweep "
    "with independent coins"
)
NO_CANARY = "no canary has coins"
Question = Literal["together", "per_model", "per_canary"]
_QUESTIONS: tuple[Question, ...] = ("together", "per_model", "per_canary")


def claims(plan: SweepPlan, group: Group) -> tuple[SweepEpsilon, PerText | None]:
    """All bounds that the coins of the canaries allow, and the canaries with a bound each."""
    significance = plan.settings.significance
    if not group.texts:
        return _epsilon([], [NO_CANARY], significance, share=significance), None
    of_texts = PerText.of(group, plan)
    if plan.settings.coins == "exactly_half":
        return _epsilon([], [EXACTLY_HALF], significance, share=significance), of_texts
    judged = attack_cells(group, *primary_of(group, plan))
    repetitions = np.array([text.repetitions for text in group.texts])
    classes = sorted(set(repetitions.tolist()))
    share = significance / len(classes)
    found: list[SweepBound] = []
    refused: list[str] = []
    alone = of_texts.epsilon.copy()
    for copies in classes:
        own = np.flatnonzero(repetitions == copies)
        audit = _Class(
            scores=of_texts.scores[:, own],
            judged=judged.values[:, own],
            included=group.included[:, own],
            kinds=tuple(group.kinds[place] for place in own),
            significance=share,
            repetitions=copies,
            seed=ties(plan, copies),
        )
        audit.ask(found, refused)
        alone[own] = audit.alone
    found.sort(key=lambda row: _QUESTIONS.index(row.question))
    return _epsilon(found, refused, significance, share=share), replace(of_texts, epsilon=alone)


def ties(plan: SweepPlan, repetitions: int) -> int:
    """The seed of the order of equal scores, which no coin is from."""
    return derive_seed(plan.seed, "sweep ties", str(repetitions))


def worst_text(plan: SweepPlan, of_texts: PerText | None) -> WorstText | None:
    """The worst text, if any can be judged, with a bound that pays for the choice."""
    worst = None if of_texts is None else of_texts.worst
    if of_texts is None or worst is None:
        return None
    text, among, bound = of_texts.group.texts[worst], of_texts.group.size, None
    if plan.settings.coins != "exactly_half":
        with suppress(InputError):  # coins that are hardly fair
            bound = one_run_audit(
                of_texts.scores[:, worst],
                of_texts.group.included[:, worst],
                significance=plan.settings.significance / among,
                repetitions=text.repetitions,
                seed=ties(plan, text.repetitions),
            )
    inside, outside = of_texts.sides(worst)
    return WorstText(
        id=text.id,
        among=among,
        tpr=or_none(of_texts.tpr[worst]),
        p=min(1.0, float(of_texts.p[worst]) * among),
        advantage_low=float(of_texts.low[worst]),
        separated=separated(inside, outside),
        bound=bound,
        scores_in=tuple(inside.tolist()),
        scores_out=tuple(outside.tolist()),
    )


def paid_epsilons(plan: SweepPlan, of_texts: PerText) -> Floats:
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


def _epsilon(
    found: list[SweepBound], refused: list[str], significance: float, *, share: float
) -> SweepEpsilon:
    """The record: what was named beforehand is that of the fewest repetitions."""
    primary = next((row for row in found if row.question == "together"), None)
    return SweepEpsilon(
        primary=primary,
        significance=share if primary is not None else significance,
        bounds=tuple(found),
        refused=tuple(refused),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Class:
    """Canaries of one number of repetitions."""

    scores: Floats  # raw, shape (S, N)
    judged: Floats  # leave-one-out, likewise; NaN where there is none
    included: Flags  # the coins, likewise
    kinds: tuple[str, ...]  # of the canaries, N of them
    significance: float  # of each question
    repetitions: int  # copies of each
    seed: int  # of ties

    def ask(self, found: list[SweepBound], refused: list[str]) -> None:
        """Answer each question, or say why there is no answer."""
        if not self._two_sided.any():
            refused.append(
                f"canaries inserted {times(self.repetitions)}: each was in all models or in none; "
                "train more models"
            )
            return
        for question in _QUESTIONS:
            try:
                found.append(self._answer(question))
            except InputError as failure:
                refused.append(f"{question}, {times(self.repetitions)}: {failure}")

    def _answer(self, question: Question) -> SweepBound:
        if question == "together":
            bound = together_epsilon(self.scores, self.included, kinds=self.kinds, **self._terms)
            chosen_from = 1
        else:
            largest = self._per_text
            if question == "per_model":
                largest = per_model_epsilon(self.judged, self.included, **self._terms)
            bound, chosen_from = largest.bound, largest.chosen_from
        return SweepBound(
            question=question, repetitions=self.repetitions, chosen_from=chosen_from, bound=bound
        )

    @cached_property
    def _per_text(self) -> LargestBound:
        return per_text_epsilon(self.scores, self.included, **self._terms)

    @property
    def alone(self) -> Floats:
        """A bound from each canary by itself, shape (N,); NaN where there is none."""
        if not self._two_sided.any():
            return np.full(len(self.kinds), np.nan)
        return np.where(self._two_sided, self._per_text.values, np.nan)

    @property
    def _two_sided(self) -> Flags:
        """Which canaries some models had, and others had not, shape (N,)."""
        models_in = self.included.sum(axis=0)
        return np.asarray((models_in > 0) & (models_in < len(self.included)))

    @property
    def _terms(self) -> dict[str, Any]:
        return {
            "significance": self.significance,
            "repetitions": self.repetitions,
            "seed": self.seed,
        }
