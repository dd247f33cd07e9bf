"""What a sweep says of the epsilon of its training recipe, question by question.

Canaries of each number of repetitions are a class of their own, at a share of the significance.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from lmexposure._style import times
from lmexposure.canaries import derive_seed
from lmexposure.errors import InputError
from lmexposure.statistics import (
    EpsilonBound,
    LargestBound,
    one_run_audit,
    per_model_epsilon,
    per_text_epsilon,
    together_epsilon,
)
from lmexposure.studies import SweepBound, SweepEpsilon, SweepPlan
from lmexposure.sweeps.attacks import Cells
from lmexposure.sweeps.matrices import Flags, Floats
from lmexposure.sweeps.rates import PerText

EXACTLY_HALF = (
    "coins=exactly_half: a text's last coin follows from its others, so that no bound holds; sweep "
    "with independent coins"
)
NO_CANARY = "no canary has coins"
Question = Literal["together", "per_model", "per_canary"]
_QUESTIONS: tuple[Question, ...] = ("together", "per_model", "per_canary")


@dataclass(frozen=True, kw_only=True, eq=False)
class Claims:
    """Bounds on epsilon, and those of each canary."""

    epsilon: SweepEpsilon  # as the result has it
    of_texts: PerText  # the canaries, with a bound each


def claims(plan: SweepPlan, of_texts: PerText, judged: Cells) -> Claims:
    """All bounds that the coins of the canaries allow."""
    significance = plan.settings.significance
    if plan.settings.coins == "exactly_half":
        return Claims(
            epsilon=_epsilon([], [EXACTLY_HALF], significance, share=significance),
            of_texts=of_texts,
        )
    group = of_texts.group
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
    return Claims(
        epsilon=_epsilon(found, refused, significance, share=share),
        of_texts=replace(of_texts, epsilon=alone),
    )


def ties(plan: SweepPlan, repetitions: int) -> int:
    """The seed of the order of equal scores, which no coin is from."""
    return derive_seed(plan.seed, "sweep ties", str(repetitions))


def bound_of_worst(plan: SweepPlan, of_texts: PerText) -> EpsilonBound | None:
    """A bound from the worst text alone, at a level that pays for the choice; None: no coins."""
    worst = of_texts.worst
    if worst is None or plan.settings.coins == "exactly_half":
        return None
    text = of_texts.group.texts[worst]
    try:
        found = one_run_audit(
            of_texts.scores[:, worst],
            of_texts.group.included[:, worst],
            significance=plan.settings.significance / len(of_texts.group.texts),
            repetitions=text.repetitions,
            seed=ties(plan, text.repetitions),
        )
    except InputError:
        return None
    return found


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
            return self._row(question, 1, bound)
        if question == "per_canary":
            return self._row(question, self._per_text.chosen_from, self._per_text.bound)
        largest = per_model_epsilon(self.judged, self.included, **self._terms)
        return self._row(question, largest.chosen_from, largest.bound)

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

    def _row(self, question: Question, chosen_from: int, bound: EpsilonBound) -> SweepBound:
        return SweepBound(
            question=question, repetitions=self.repetitions, chosen_from=chosen_from, bound=bound
        )
