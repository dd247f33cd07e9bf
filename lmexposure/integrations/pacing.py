"""Scoring while a training waits: within a time budget, decided by one process, leaving no trace.

As many texts are scored as the budget allows, by what the texts before them cost. At the end of a
training all are scored, and what that takes is said before.
"""

import gc
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import ceil, floor, inf, log10
from typing import Any, TypeVar

import numpy as np
import torch.distributed
from numpy.typing import NDArray
from scipy.optimize import nnls

from lmexposure._validate import fraction, positive
from lmexposure.errors import LmexposureError
from lmexposure.integrations.watched import Watched
from lmexposure.scoring import evaluation_mode, same_random_numbers, score_encoded


class TimeBudget:
    """Seconds by the clock: a share of the training so far, or a fixed number at a time.

    What one measurement leaves of a share the next may use, and what it took too much is taken
    from the next: over a whole training the share holds but for the last overshoot.

    Args:
        share: of the time since training began that all measurements may take, in (0, 1).
        seconds: what each measurement may take instead, above 0; None: the share decides.
        clock: gives seconds that only grow.

    Raises:
        SettingsError: a value out of range.

    >>> now = iter([0.0, 100.0])
    >>> budget = TimeBudget(share=0.04, clock=lambda: next(now))
    >>> budget.left()
    4.0
    """

    def __init__(
        self,
        *,
        share: float,
        seconds: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._share = fraction("budget_share", share)
        self._seconds = None if seconds is None else positive("budget_seconds", seconds)
        self.clock = clock
        self.begin()

    def begin(self) -> None:
        """Training begins now, and nothing has been spent."""
        self.spent = self._aside = 0.0
        self._began = self.clock()
        self._entered: float | None = None

    @contextmanager
    def spending(self) -> Iterator[None]:
        """What happens inside is paid for."""
        self._entered = self.clock()
        try:
            yield
        finally:
            self.spent += self.clock() - self._entered
            self._entered = None

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Within what is spent: what happens inside is counted, and not held against the share."""
        entered = self.clock()
        try:
            yield
        finally:
            self._aside += self.clock() - entered

    def running(self) -> float:
        """Seconds since spending began; 0 outside."""
        return 0.0 if self._entered is None else self.clock() - self._entered

    def left(self) -> float:
        """Seconds that may still be spent now; negative where too many were."""
        if self._seconds is not None:
            return self._seconds - self.running()
        training, spent = self._so_far()
        return self._share * training - spent

    def wanted(self, seconds: float, *, before: float = 0.0) -> str:
        """The settings under which more could be spent now, rounded up.

        Args:
            seconds: more than was spent so far on this measurement.
            before: more than was spent on those before it, which would have the same settings.

        >>> now = iter([0.0, 100.0])
        >>> TimeBudget(share=0.04, clock=lambda: next(now)).wanted(7.0)
        'budget_share=0.07 or budget_seconds=7'
        """
        each = f"budget_seconds={_rounded_up(self.running() + seconds)}"
        if self._seconds is not None:
            return each
        training, spent = self._so_far()
        share = _rounded_up((spent + seconds + before) / max(training, 1e-9))
        return f"budget_share={share} or {each}" if float(share) < 1 else each

    def _so_far(self) -> tuple[float, float]:
        """Seconds of training and of the share spent; what is measured within is no training."""
        now = self.clock()
        spent = self.spent + (0.0 if self._entered is None else now - self._entered)
        return now - self._began - spent, spent - self._aside


def _rounded_up(value: float) -> str:
    """To two digits, so that what is said suffices."""
    if value <= 0:
        return "0"
    unit = 10.0 ** (floor(log10(value)) - 1)
    return f"{float(f'{ceil(value / unit - 1e-9) * unit:.2g}'):g}"


Out = TypeVar("Out")


def from_first(work: Callable[[], Out]) -> Out:
    """What `work` gives in the first process, in all of them; the others do not run it.

    With several processes (a torch.distributed group that is up) all must call this.

    Raises:
        LmexposureError: the one that the first process met, in all of them.

    >>> from_first(lambda: 3)
    3
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return work()
    sent: list[Any] = [None]
    if torch.distributed.get_rank() == 0:
        try:
            sent = [work()]
        except LmexposureError as failure:
            sent = [failure]  # the others wait for this process, and must hear of it
    torch.distributed.broadcast_object_list(sent, src=0)
    if isinstance(sent[0], LmexposureError):
        raise sent[0]
    found: Out = sent[0]
    return found


@contextmanager
def undisturbed(model: Any) -> Iterator[None]:
    """Put a bare model into evaluation mode; at the end all is as it was.

    Put back are the random number generators (Python, NumPy, torch on every device) and what
    `evaluation_mode` puts back.
    """
    with same_random_numbers(), evaluation_mode(model):
        yield


@contextmanager
def uncollected() -> Iterator[None]:
    """Make many objects and set off no search for garbage among all objects of the training.

    One full search takes a third of a second where torch and transformers are loaded.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


_FIRST = 15  # texts that tell, where nothing is known yet, what a text costs at most
_FEWEST = 32  # texts that are worth a round of their own,
_SHARE = 0.25  # and this share of those scored already: each round costs something by itself
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
        self._texts, self._least = watched.encoded, watched.least
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
            # These few are scored one by one: texts of a round cost less, hardly ever more.
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
        bits = np.array([tokens.sum() for tokens in scores.bits], dtype=np.float64)
        return bits, self._budget.clock() - began

    def _affordable(self, scored: int) -> int:
        """How many texts the next round has; 0: it is over."""
        rest = len(self._texts) - scored
        count = self._costs.texts(_SAFETY * max(0.0, self._budget.left()))
        if count >= rest:
            return rest
        enough = count >= max(_FEWEST, _SHARE * scored) if scored else count >= self._least
        return count if enough else 0
