"""What a training by DP-SGD promises: Poisson sampling, Gaussian noise, and the number of steps.

The numbers are those of Opacus' accountants: PRV, which is near the truth, and RDP, which is looser
and never fails. Both are of one document, added or removed; `group_epsilon` is of several. A
history is a list of (noise multiplier, sampling rate, steps), as those accountants keep it.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from types import ModuleType
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from lmexposure._validate import fraction, integer, positive
from lmexposure.errors import SettingsError
from lmexposure.statistics import epsilon_of_mu, sampled_epsilon

History = Sequence[tuple[float, float, int]]

LARGEST_NOISE = 1e4
_NOISE_PRECISION = 1e-3  # relative
_LEAST_EPSILON = 1e-12  # a logarithm of 0 is no number
_LARGEST_ORDERS = (80, 100, 128, 192, 256, 384, 512)  # of 1030, a binomial is no float
_ERROR, _RELATIVE_ERROR = 0.01, 0.00125  # of epsilon; the first is Opacus' own
_MOST_POINTS = 2_000_000  # of a discretised loss: a second, and tens of megabytes
_LARGEST_LOSS = 600.0  # exp(709) is no float, and Opacus' PRV takes exp of a loss
_MORE_NOISE, _LEAST_NOISE, _ENOUGH_NOISE = 1.1, 0.03, 10.0  # that PRV is tried at where it fails


@dataclass(frozen=True)
class Spent:
    """The epsilon of a training, in nats, at the delta that was asked for."""

    prv: float | None  # by the PRV accountant, an upper bound; None where it gives no usable number
    rdp: float  # by the RDP accountant, an upper bound
    note: str = ""  # why `prv` is None; else empty

    @property
    def epsilon(self) -> float:
        """What is claimed: by PRV where it gives a number, else by RDP."""
        return self.rdp if self.prv is None else self.prv

    @property
    def accountant(self) -> Literal["prv", "rdp"]:
        """Whose number `epsilon` is."""
        return "rdp" if self.prv is None else "prv"


def epsilon_spent(history: History, *, delta: float) -> Spent:
    """The epsilon that a training has spent on each document; exact where all are in each batch.

    Source: Gopi, Lee and Wutschitz 2021 (PRV); Mironov, Talwar and Zhang 2019 (RDP); Dong, Roth and
        Su 2019, Corollary 2.13 (the Gaussian curve).
    """
    stretches, delta = _checked(history), fraction("delta", delta)
    return _spent(tuple(stretches), delta)


@lru_cache(maxsize=256)  # a claim is made before the first step and after the last, of the same
def _spent(stretches: tuple[tuple[float, float, int], ...], delta: float) -> Spent:
    if not stretches:
        return Spent(prv=0.0, rdp=0.0)
    rdp = _rdp(stretches, delta)
    if all(rate == 1 for _, rate, _ in stretches):
        mu = math.sqrt(sum(steps / sigma**2 for sigma, _, steps in stretches))
        return Spent(prv=epsilon_of_mu(mu=mu, delta=delta), rdp=rdp)
    prv, why = _prv(stretches, delta, rdp)
    if prv is None:
        return Spent(prv=None, rdp=rdp, note=f"the PRV accountant gives no number: {why}")
    return Spent(prv=prv, rdp=rdp)


def epsilon_at_least(history: History, *, delta: float) -> float:
    """What a training with this noise spends at least, as an audit reads it; always a number.

    Where the noise is too little for PRV, it is asked for more: a step with more noise is a step
    with less and further noise on it, so that the training spends no less than that. And no
    training spends less than a single one of its steps, sampled.

    Source: Gopi, Lee and Wutschitz 2021, Theorem 5: the truth lies between both ends;
        `sampled_epsilon` for a single step.
    """
    stretches, delta = _checked(history), fraction("delta", delta)
    if not stretches or all(rate == 1 for _, rate, _ in stretches):
        return epsilon_spent(stretches, delta=delta).epsilon
    return _at_least(tuple(stretches), delta)


@lru_cache(maxsize=256)  # counts of guesses are few, and so are the noises that they leave room for
def _at_least(stretches: tuple[tuple[float, float, int], ...], delta: float) -> float:
    least = min(noise for noise, _, _ in stretches)
    step = max(sampled_epsilon(mu=1 / s, rate=q, delta=delta) for s, q, _ in stretches)
    while True:
        steps: dict[tuple[float, float], int] = {}
        for noise, rate, count in stretches:
            of = (max(noise, least), rate)
            steps[of] = steps.get(of, 0) + count
        raised = [(*of, count) for of, count in steps.items()]
        found, _ = _prv(raised, delta, _rdp(raised, delta), end="lower")
        if found is not None:
            return max(step, found)
        if least > _ENOUGH_NOISE:
            return step
        least = max(_LEAST_NOISE, least * _MORE_NOISE)


def noise_for(epsilon: float, *, delta: float, sample_rate: float, steps: int) -> float:
    """The smallest noise multiplier that keeps a training's epsilon, to .1 % on the safe side."""
    epsilon = positive("epsilon", epsilon)

    @cache
    def excess(log_noise: float) -> float:
        found = epsilon_spent([(math.exp(log_noise), sample_rate, steps)], delta=delta).epsilon
        return math.log(max(found, _LEAST_EPSILON) / epsilon)

    low, high = _bracket(excess)
    if excess(high) > 0:
        reached = epsilon * math.exp(excess(high))
        raise SettingsError(
            f"epsilon={epsilon!r} is not reached by {steps} steps at delta={delta!r}: with the "
            f"largest noise multiplier, {LARGEST_NOISE:g}, it is {reached:.4g}; ask for at least "
            "that, for fewer steps or for a larger delta"
        )
    root = float(optimize.brentq(excess, low, high, xtol=_NOISE_PRECISION / 4))
    # Of the two sides of the root the one that keeps the promise.
    while excess(root) > 0:
        root = min(root + _NOISE_PRECISION / 4, high)
    return math.exp(root)


def _bracket(excess: Callable[[float], float]) -> tuple[float, float]:
    """Two noise multipliers' logarithms: the first spends too much, the second not if any does."""
    noise, largest = 0.0, math.log(LARGEST_NOISE)
    if excess(noise) > 0:
        while (double := min(noise + math.log(2), largest)) < largest and excess(double) > 0:
            noise = double
        return noise, double
    while excess(noise - math.log(2)) <= 0:
        noise -= math.log(2)
    return noise - math.log(2), noise


def group_epsilon(history: History, *, delta: float, size: int) -> float:
    """The epsilon of a group of documents: what hides whether all of them were in the corpus.

    A canary that is inserted r times, each time into another document, is a group of r.

    Args:
        history: as `epsilon_spent` takes it.
        delta: in (0, 1).
        size: documents of the group, at least 1.

    Returns:
        An upper bound, in nats; exact where every document is in every batch.

    Raises:
        SettingsError: a number out of range, or Opacus is not installed.

    Source: Vadhan 2017, Lemma 2.2: of an (epsilon0, delta0) for one document, a group of k has
        k epsilon0 at delta0 (e^(k epsilon0) - 1) / (e^epsilon0 - 1); the best over delta0.
    """
    size = integer("size", size, low=1)
    stretches, delta = _checked(history), fraction("delta", delta)
    if not stretches:
        return 0.0
    if size == 1 or all(rate == 1 for _, rate, _ in stretches):
        # All of the group in every batch: together they shift the sum by up to `size` clips.
        return epsilon_spent([(s / size, q, t) for s, q, t in stretches], delta=delta).epsilon
    best = math.inf
    for half_decades in range(60):
        delta_each = delta * 10.0 ** (-half_decades / 2)
        each = _rdp(stretches, delta_each)
        # log(1 + e^each + ... + e^((size - 1) each))
        needed = math.log(delta_each) + float(np.logaddexp.reduce(each * np.arange(size)))
        if needed <= math.log(delta):
            best = min(best, size * each)
    return best


def _checked(history: History) -> list[tuple[float, float, int]]:
    stretches = []
    for noise, rate, steps in history:
        sigma = positive("noise_multiplier", noise)
        if not 0 < positive("sample_rate", rate) <= 1:
            raise SettingsError(f"sample_rate={rate!r} must be above 0 and at most 1")
        if integer("steps", steps, low=0):
            stretches.append((sigma, float(rate), int(steps)))
    return stretches


def _accountants() -> ModuleType:
    try:
        from opacus import accountants
    except ImportError as failure:
        raise SettingsError(
            "the epsilon of a training by DP-SGD needs opacus; install it: "
            "pip install 'lmexposure[dp]'"
        ) from failure
    return accountants  # type: ignore[no-any-return,unused-ignore]


def _rdp(stretches: History, delta: float) -> float:
    accountants = _accountants()
    spent = sum(_rdp_of_a_step(noise, rate) * steps for noise, rate, steps in stretches)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # It warns where the best order is the first or last; the number is an upper bound still.
        warnings.simplefilter("ignore")
        epsilon, _ = accountants.analysis.rdp.get_privacy_spent(
            orders=_orders(accountants), rdp=spent, delta=delta
        )
    return max(0.0, float(epsilon))


# A tenth of a second each, and one for each count of steps, each delta and most ends of an epsilon.
@lru_cache(maxsize=256)
def _rdp_of_a_step(noise: float, rate: float) -> NDArray[np.float64]:
    accountants = _accountants()
    with np.errstate(all="ignore"):
        curve: NDArray[np.float64] = accountants.analysis.rdp.compute_rdp(
            q=rate, noise_multiplier=noise, steps=1, orders=_orders(accountants)
        )
    return curve


def _orders(accountants: ModuleType) -> list[float]:
    return [*accountants.RDPAccountant.DEFAULT_ALPHAS, *_LARGEST_ORDERS]


def _prv(
    stretches: History, delta: float, rdp: float, *, end: Literal["lower", "upper"] = "upper"
) -> tuple[float | None, str]:
    """An end of the epsilon by PRV, or None and why."""
    delta_error = delta / 1000
    total = sum(steps for _, _, steps in stretches)
    largest = _rdp(stretches, delta_error / 4) + 3
    largest = max(
        largest, *(_rdp([(s, q, 1)], delta_error / (8 * total)) + 3 for s, q, _ in stretches)
    )
    if largest > _LARGEST_LOSS:
        return None, f"losses up to {largest:.4g} nats are beyond its arithmetic"
    # Points a nat at an error of 1, as Opacus has its mesh.
    points = 2 * largest * math.sqrt(total * math.log(12 / delta_error) / 2)
    error = max(min(_ERROR, _RELATIVE_ERROR * rdp), points / _MOST_POINTS)
    accountant = _accountants().PRVAccountant()
    accountant.history = list(stretches)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            # It gives its estimate at delta less `delta_error`, and `error` more.
            at, less = (delta, 0.0) if end == "upper" else (delta + 2 * delta_error, 2 * error)
            found = float(accountant.get_epsilon(at, eps_error=error, delta_error=delta_error))
    except (RuntimeError, ValueError, ArithmeticError) as failure:
        return None, str(failure) or type(failure).__name__
    if not 0 < found < math.inf:
        return None, f"it gave {found}"
    return max(0.0, found - less), ""
