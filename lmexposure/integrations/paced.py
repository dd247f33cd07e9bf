"""Score as many texts as a time budget allows, and no more, by what the texts before them cost."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure.integrations.budget import TimeBudget
from lmexposure.integrations.processes import from_first
from lmexposure.integrations.watched import Watched
from lmexposure.scoring import score_encoded

__all__ = ["PacedScoring"]

_FIRST = 15  # texts that tell, where nothing is known yet, what a text costs
_FEWEST = 32  # texts that are worth a round of their own
_SAFETY = 0.8  # of what is left of the budget, to plan for


class PacedScoring:
    """Scoring of the same texts again and again, each time within what the budget has left.

    Args:
        watched: the texts, in the order of scoring.
        budget: what each time may take.
    """

    def __init__(self, watched: Watched, budget: TimeBudget) -> None:
        self._texts, self._carried, self._least = watched.encoded, watched.carried, watched.least
        self._budget = budget
        self._pace: float | None = None  # seconds a text took last time

    def score(self, model: Any) -> NDArray[np.float64]:
        """Bits of n texts from the beginning of the order, shape (n,).

        n is 0, or at least the least that is of use. All processes score together, and the first
        one's clock decides for all.

        Args:
            model: in evaluation mode.

        Raises:
            ModelError: out of memory with one text at a time.
            NumericalError: the model gave NaN or infinite logits.
        """
        bits = np.empty(0)
        if from_first(self._budget.left) <= 0:
            return bits
        if self._pace is None:
            # So few are scored one by one: texts of a round cost less, never more.
            self._round(model, 0, _FIRST)
        began = self._budget.clock()
        while count := from_first(partial(self._affordable, bits.size)):
            more = self._round(model, bits.size, bits.size + count)
            bits = np.concatenate([bits, more])
            self._pace = (self._budget.clock() - began) / bits.size
        return bits

    def _round(self, model: Any, start: int, stop: int) -> NDArray[np.float64]:
        began = self._budget.clock()
        scores = score_encoded(model, self._texts[start:stop])
        pairs = zip(scores.bits, self._carried[start:stop], strict=True)
        bits = np.array([tokens[carried].sum() for tokens, carried in pairs], dtype=np.float64)
        self._pace = (self._budget.clock() - began) / bits.size
        return bits

    def _affordable(self, scored: int) -> int:
        """How many texts the next round has; 0: it is over."""
        assert self._pace is not None
        rest = len(self._texts) - scored
        count = int(_SAFETY * max(0.0, self._budget.left()) / self._pace)
        if count >= rest:
            return rest
        enough = count >= _FEWEST if scored else count >= self._least
        return count if enough else 0
