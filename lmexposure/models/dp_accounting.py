"""What a training by DP-SGD promises: epsilon from noise, rate and steps, and noise from epsilon.

The numbers are those of Opacus' accountants, for the Gaussian mechanism on Poisson samples, where
one unit more or less is a neighbour. Epsilon is in nats, lower = more private.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lmexposure.errors import SettingsError

History = Sequence[tuple[float, float, int]]

# Orders of Renyi divergences: a good one is near 1 + log(1 / delta) / epsilon. Whole ones are
# quick.
_WHOLE = (*range(2, 64), *(2**k for k in range(6, 12)))
_ORDERS = (*(1 + x / 10 for x in range(1, 40)), *_WHOLE)
# Beyond, the numeric accountant takes minutes and gigabytes, or overflows (Opacus issue 587), and
# no such promise is worth a digit.
_LARGEST_NUMERIC = 40.0
_LARGEST_NOISE = 1e4
_CLOSE = 1e-3  # how far above the smallest noise that does, relative


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Epsilon next to a delta.

    Attributes:
        prv: by privacy random variables, an upper bound to .01; None where the promise is so weak
            that it takes minutes, or overflows.
        rdp: by Renyi divergences, an upper bound that is looser.
    """

    prv: float | None
    rdp: float

    @property
    def epsilon(self) -> float:
        """The tighter of the two."""
        return self.rdp if self.prv is None else min(self.prv, self.rdp)


def refuse_without_opacus() -> None:
    """Refuse where Opacus is not installed.

    Raises:
        SettingsError: it is not.
    """
    try:
        import opacus  # noqa: F401  whether it is there
    except ImportError as failure:
        raise SettingsError(
            "differential privacy needs opacus; install it: pip install 'lmexposure[dp]'"
        ) from failure


def epsilon_spent(history: History, *, delta: float) -> Spent:
    """What some steps spend.

    Args:
        history: (noise multiplier, sample rate, steps), as Opacus' accountants keep it.
        delta: in (0, 1).

    Raises:
        SettingsError: opacus is not installed.

    Source: Gopi et al. 2021, "Numerical composition of differential privacy"; Mironov et al. 2019,
    "Renyi differential privacy of the sampled Gaussian mechanism".
    """
    refuse_without_opacus()
    taken = [(float(noise), float(rate), int(steps)) for noise, rate, steps in history if steps]
    if not taken:
        return Spent(prv=0.0, rdp=0.0)
    rdp = _renyi(taken, delta)
    return Spent(prv=_numeric(taken, delta) if rdp <= _LARGEST_NUMERIC else None, rdp=rdp)


def noise_for(epsilon: float, *, delta: float, sample_rate: float, steps: int) -> float:
    """The smallest noise multiplier that keeps to epsilon, to a part in a thousand above it.

    Args:
        epsilon: to be promised.
        delta: next to it.
        sample_rate: of each unit in each step, in (0, 1].
        steps: to be taken.

    Raises:
        SettingsError: opacus is not installed; no noise up to 10,000 keeps to epsilon.
    """
    refuse_without_opacus()

    def by_whole_orders(noise: float) -> float:
        return _renyi([(noise, sample_rate, steps)], delta, _WHOLE)

    def by_both(noise: float) -> float:
        return epsilon_spent([(noise, sample_rate, steps)], delta=delta).epsilon

    least = by_whole_orders(_LARGEST_NOISE)
    if least > epsilon:
        raise SettingsError(
            f"epsilon={epsilon:g} is reached by no noise in {steps:,} steps at a rate of "
            f"{sample_rate:.3g} and delta {delta:g}; {least:.3g} would be, by a noise multiplier "
            f"of {_LARGEST_NOISE:g}: give a larger epsilon, fewer epochs or a larger delta"
        )
    # Whole orders ask for too much noise, so that the smallest that does lies below.
    enough = _smallest(by_whole_orders, epsilon, low=1e-3, high=_LARGEST_NOISE, close=0.02)
    return _smallest(by_both, epsilon, low=enough / 1.5, high=enough, close=_CLOSE)


def _smallest(
    spent: Callable[[float], float], epsilon: float, *, low: float, high: float, close: float
) -> float:
    """The smallest noise that keeps to epsilon, by bisection of its logarithm; `high` does."""
    while high / low > 1 + close:
        middle = math.sqrt(low * high)
        if spent(middle) <= epsilon:
            high = middle
        else:
            low = middle
    return high


def _renyi(history: History, delta: float, orders: Sequence[float] = _ORDERS) -> float:
    """Infinite where so little noise is no promise at all."""
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = list(history)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Optimal order is")  # no other helps much
        found = float(accountant.get_epsilon(delta, alphas=list(orders)))
    return max(0.0, found) if math.isfinite(found) else math.inf


def _numeric(history: History, delta: float) -> float | None:
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = list(history)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=RuntimeWarning)
            warnings.filterwarnings("ignore", message="Optimal order is")
            found = float(accountant.get_epsilon(delta))
    except (RuntimeError, ValueError, OverflowError, MemoryError):
        return None
    return found if math.isfinite(found) and found >= 0 else None
