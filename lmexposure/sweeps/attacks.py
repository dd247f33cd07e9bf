"""What other models make of a score: each score under each attack, for the texts of one group."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lmexposure.errors import InputError
from lmexposure.statistics import label_logits, lira_matrix, rmia_matrix
from lmexposure.studies import ATTACKS, READS, SCORES, AuditedText
from lmexposure.sweeps.matrices import Flags, Floats, Matrices

REGRESSION = "label_regression"  # of the greedy matches, one by one; no setting asks for it
_READS = {**READS, REGRESSION: ("label_only",)}


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """The texts of one group, with everything that an attack may read of them."""

    name: str  # "canaries", "population", or a kind of canaries
    texts: tuple[AuditedText, ...]  # of the group, N of them
    columns: NDArray[np.intp]  # of the matrices, shape (N,)
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
        return Cells(
            values=label_logits(matches, coins, kinds=group.kinds, shadows=shadows), notes=()
        )
    judged = lira_matrix(
        group.raw(score),
        coins,
        kinds=group.kinds,
        mode="offline" if attack == "lira_offline" else "online",
        shadows=shadows,
    )
    return Cells(values=judged.scores, notes=judged.notes)
