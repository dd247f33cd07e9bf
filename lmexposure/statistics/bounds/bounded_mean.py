"""An exact lower bound on the mean of numbers in [0, 1], tight where the numbers vary little.

For shares of correlated guesses, one share a model: how much the guesses of a model hang together
shows in the spread of the shares, and a bet that adapts to the spread needs no model of it.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

# No single draw may cost more than this share of the capital.
_STAKE = 0.75


def mean_at_least(values: NDArray[np.float64], significance: float) -> float:
    """A lower bound on the mean of independent draws, valid for every distribution on [0, 1].

    For an upper bound take one minus the bound for `1 - values`.

    Bet against each possible mean m on every draw in turn: where m is the mean (or above it), the
    capital is a nonnegative (super)martingale and reaches 1 / significance with probability
    `significance` at most (Ville). Every m against which it does so is excluded. The capital
    falls with m, so that what is left is an interval.

    Args:
        values: draws in [0, 1], independent and alike, in an order that was not chosen by
            looking at them; shape (n,).
        significance: how often, at most, the bound may lie above the mean.

    Returns:
        The bound, in [0, 1].

    Source: Waudby-Smith and Ramdas 2024, Estimating means of bounded random variables by
    betting, equation 26 (their predictable plug-in bets, one-sided).
    """
    goal = -math.log(significance)
    bets = _bets(values, goal)

    def wealth(mean: float) -> float:
        stakes = np.minimum(bets, _STAKE / mean)
        return float(np.max(np.cumsum(np.log1p(stakes * (values - mean))))) - goal

    # Just above 0 only a capital that beats every mean counts; at 1 no bet can win.
    least = 1e-12
    return float(brentq(wealth, least, 1.0, xtol=1e-12)) if wealth(least) > 0 else 0.0


def _bets(values: NDArray[np.float64], goal: float) -> NDArray[np.float64]:
    """What to stake on each draw, from the draws before it alone, shape (n,)."""
    n = values.size
    seen = np.arange(1, n + 1)
    mean = (0.5 + np.cumsum(values)) / (seen + 1)
    variance = (0.25 + np.cumsum((values - mean) ** 2)) / (seen + 1)
    before = np.concatenate([[0.25], variance[:-1]])
    stakes: NDArray[np.float64] = np.sqrt(2 * goal / (n * before))
    return stakes
