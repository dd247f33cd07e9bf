"""Each text by itself over all models, and the worst of a group, paid for by their number."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lmexposure.statistics import EpsilonBound, canaries_and_population
from lmexposure.studies import SweepText, WorstText
from lmexposure.sweeps.attacks import Flags, Floats, Group

_ANY_FPR = 0.5  # of the rates over all cells, which are not read here


@dataclass(frozen=True, kw_only=True, eq=False)
class PerText:
    """The texts of a group, each over all models, by a raw score."""

    group: Group  # of N texts
    scores: Floats  # raw, shape (S, N), higher = more likely in
    # share of the models with a text that score strictly above every model without, (N,); NaN where
    # all had it, or none
    tpr: Floats
    p: Floats  # how often chance gives so high a `tpr`, (N,)
    low: Floats  # TPR - FPR is at least this, for all N at once, (N,)
    epsilon: Floats  # a lower bound from each text alone, nats, (N,); NaN where there is none

    @classmethod
    def of(cls, group: Group, score: str, significance: float) -> "PerText":
        """Rates of a group by a raw score; bounds on epsilon come apart."""
        scores, coins = group.raw(score), group.included
        count = scores.shape[1]
        tpr, p, low = np.full(count, np.nan), np.ones(count), np.zeros(count)
        if coins.any() and not coins.all():
            found = canaries_and_population(scores, coins, fpr=_ANY_FPR, significance=significance)
            tpr, p, low = found.canary_tpr, found.canary_p, found.canary_low
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
            tpr=_or_none(self.tpr, text),
            p=float(self.p[text]) if both else None,
            advantage_low=float(self.low[text]),
            separated=_separated(inside, outside),
            difference=float(inside.mean() - outside.mean()) if both else None,
            epsilon=_or_none(self.epsilon, text),
        )

    def worst_row(self, bound: EpsilonBound | None) -> WorstText | None:
        """The worst text, if any can be judged."""
        text = self.worst
        if text is None:
            return None
        inside, outside = self.sides(text)
        return WorstText(
            id=self.group.texts[text].id,
            among=len(self.group.texts),
            tpr=_or_none(self.tpr, text),
            p=min(1.0, float(self.p[text]) * len(self.group.texts)),
            advantage_low=float(self.low[text]),
            separated=_separated(inside, outside),
            bound=bound,
            scores_in=tuple(inside.tolist()),
            scores_out=tuple(outside.tolist()),
        )


def _separated(inside: Floats, outside: Floats) -> bool:
    return bool(inside.size and outside.size and inside[0] > outside[-1])


def _or_none(values: NDArray[np.float64], place: int) -> float | None:
    value = float(values[place])
    return None if np.isnan(value) else value
