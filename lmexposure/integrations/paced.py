"""Score as many texts as a time budget allows, and no more, by what the texts before them cost.

At the end of a training all are scored, and what that takes is told before.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from lmexposure.integrations.budget import TimeBudget
from lmexposure.integrations.processes import from_first
from lmexposure.integrations.watched import Watched
from lmexposure.scoring import score_encoded

_FIRST = 15  # texts that tell, where nothing is known yet, what a text costs at most
_FEWEST = 32  # texts that are worth a round of their own,
_SHARE = 0.25  # and so many of those scored already: each round costs something by itself
_SAFETY = 0.8  # of what is left of the budget, to plan for
_GROWTH = 2  # times as many texts as ever before; beyond, nothing is known
_REMEMBERED = 8  # rounds; the machine may have been another long ago
_PROBES = (1, 3)  # times the least: two rounds that tell what a round costs, and what a text does


class RoundCosts:
    """What a round of scoring takes: something by itself, and something more for each text."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, float]] = deque(maxlen=_REMEMBERED)
        self._bound: float | None = None

    @property
    def known(self) -> bool:
        """Whether anything is."""
        return self._bound is not None

    @property
    def timed(self) -> bool:
        """Whether rounds were, so that more is known than a bound."""
        return bool(self._seen)

    def bound(self, seconds: float) -> None:
        """A text takes no more than this, in a round of more than a few."""
        self._bound = seconds

    def add(self, texts: int, seconds: float) -> None:
        """A round took so long."""
        self._seen.append((texts, max(seconds, 1e-9)))

    def seconds(self, texts: int) -> float:
        """What a round would take; infinite where nothing is known."""
        if not self._seen:
            return inf if self._bound is None else self._bound * texts
        fixed, each = self._line()
        return fixed + each * texts

    def texts(self, seconds: float) -> int:
        """The largest round that would take no longer."""
        if not self._seen:
            return int(seconds / self._bound) if self._bound else 0
        fixed, each = self._line()
        most = _GROWTH * max(texts for texts, _ in self._seen)
        if seconds < fixed or not each:
            return most if seconds >= fixed else 0
        return min(most, int((seconds - fixed) / each))

    def _line(self) -> tuple[float, float]:
        """Seconds of a round by itself, and of each text: neither is negative."""
        texts, seconds = np.array(self._seen).T
        # Relative to what it took, for that is how much it varies.
        fixed, each = nnls(np.stack([1 / seconds, texts / seconds], axis=1), np.ones(len(texts)))[0]
        return float(fixed), float(each)


class PacedScoring:
    """Scoring of the same texts again and again, each time within what the budget has left.

    Args:
        watched: the texts, in the order of scoring.
        budget: what each time may take.
    """

    def __init__(self, watched: Watched, budget: TimeBudget) -> None:
        self._texts, self._carried, self._least = watched.encoded, watched.carried, watched.least
        self._budget = budget
        self._costs = RoundCosts()

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
        if not self._costs.known:
            # So few are scored one by one: texts of a round cost less, hardly ever more.
            self._costs.bound(self._round(model, 0, _FIRST)[1] / _FIRST)
        while count := from_first(partial(self._affordable, bits.size)):
            bits = self._further(model, bits, count)
        return bits

    def score_all(self, model: Any, tell: Callable[[float], None]) -> NDArray[np.float64]:
        """Bits of all texts whatever the budget has left, shape (N,).

        All processes score together.

        Args:
            model: in evaluation mode.
            tell: hears, before most of it is done, how many seconds it will take.

        Raises:
            ModelError, NumericalError: as for `score`.
        """
        bits, began = np.empty(0), self._budget.clock()
        if not self._costs.timed:
            for probe in _PROBES:
                if 2 * (bits.size + probe * self._least) <= len(self._texts):
                    bits = self._further(model, bits, probe * self._least)
        rest = len(self._texts) - bits.size
        if self._costs.timed:
            tell(self._budget.clock() - began + self._costs.seconds(rest))
        return self._further(model, bits, rest)

    @property
    def seconds(self) -> float:
        """What all texts would take; infinite where no round was timed yet."""
        return self._costs.seconds(len(self._texts)) if self._costs.timed else inf

    def lacking(self, scored: int) -> float:
        """Seconds more that would do for all texts, or where none were scored for the least.

        Infinite where it is not known what a text costs.
        """
        texts = len(self._texts) - scored if scored else self._least
        return self._costs.seconds(texts) / _SAFETY

    def _further(self, model: Any, bits: NDArray[np.float64], count: int) -> NDArray[np.float64]:
        """One round more, remembered by what it took."""
        more, seconds = self._round(model, bits.size, bits.size + count)
        self._costs.add(count, seconds)
        return np.concatenate([bits, more])

    def _round(self, model: Any, start: int, stop: int) -> tuple[NDArray[np.float64], float]:
        """Bits of some texts, and the seconds that it took."""
        began = self._budget.clock()
        scores = score_encoded(model, self._texts[start:stop])
        pairs = zip(scores.bits, self._carried[start:stop], strict=True)
        bits = np.array([tokens[carried].sum() for tokens, carried in pairs], dtype=np.float64)
        return bits, self._budget.clock() - began

    def _affordable(self, scored: int) -> int:
        """How many texts the next round has; 0: it is over."""
        rest = len(self._texts) - scored
        count = self._costs.texts(_SAFETY * max(0.0, self._budget.left()))
        if count >= rest:
            return rest
        enough = count >= max(_FEWEST, _SHARE * scored) if scored else count >= self._least
        return count if enough else 0
