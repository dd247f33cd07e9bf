"""Mechanisms whose true epsilon is known, each with its proof in a line.

A mechanism takes the coins of all candidates and gives a score for each; higher = more likely in.
It is (epsilon, delta)-DP for one candidate added or removed. "Tight" means that no smaller epsilon
would do; where a proof ends there, the truth is the epsilon asked for.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.optimize import brentq

from lmexposure.statistics import delta_of_epsilon

__all__ = ["MECHANISMS", "Mechanism"]

Floats = NDArray[np.float64]
Coins = NDArray[np.bool_]
Draw = Callable[[Coins, float, float, np.random.Generator], Floats]

_MEMORISED = 0.3
_FEW = 0.03
_FAR = 4.0  # standard deviations
_GROUP = 4


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """Scores from coins, and what is known of them.

    Attributes:
        name: in the table.
        proof: why it is (epsilon, delta)-DP.
        draw: scores from coins, epsilon, delta and a generator.
        truth: the smallest epsilon at delta, or one that it certainly keeps to.
        threshold: the score above which "in" is guessed, fixed beforehand.
        independent: scores are independent given the model, and alike but for the insertion.
        deltas: "pure" for delta 0 only, "approximate" for above 0 only, "any".
    """

    name: str
    proof: str
    draw: Draw
    truth: Callable[[float, float], float]
    threshold: Callable[[float, float], float]
    independent: bool = True
    deltas: str = "any"

    def at(self, delta: float) -> bool:
        """Whether it exists at this delta."""
        return self.deltas == "any" or (delta == 0) == (self.deltas == "pure")


def _laplace(coins: Coins, epsilon: float, delta: float, generator: np.random.Generator) -> Floats:
    return generator.laplace(size=coins.size) + epsilon * coins


def _respond(coins: Coins, epsilon: float, generator: np.random.Generator) -> Floats:
    flipped = generator.random(coins.size) > special.expit(epsilon)
    return (coins ^ flipped).astype(np.float64)


def _response(coins: Coins, epsilon: float, delta: float, generator: np.random.Generator) -> Floats:
    return _respond(coins, epsilon, generator)


def _xor(coins: Coins, epsilon: float, delta: float, generator: np.random.Generator) -> Floats:
    return np.repeat(_respond(coins[::2] ^ coins[1::2], epsilon, generator), 2)


def _shared(coins: Coins, epsilon: float, delta: float, generator: np.random.Generator) -> Floats:
    sums = coins.reshape(-1, _GROUP).sum(axis=1)
    return np.repeat(epsilon * sums + generator.laplace(size=sums.size), _GROUP)


def _alternating(
    coins: Coins, epsilon: float, delta: float, generator: np.random.Generator
) -> Floats:
    """Half of the runs give nothing away; in the others all canaries are responses."""
    spoken = _respond(coins, epsilon, generator)
    return spoken if generator.random() < 0.5 else generator.random(coins.size)


def _memorised_shift(epsilon: float) -> float:
    return math.log((math.exp(epsilon) - 1 + _MEMORISED) / _MEMORISED)


def _memorised(
    coins: Coins, epsilon: float, delta: float, generator: np.random.Generator
) -> Floats:
    picked = coins & (generator.random(coins.size) < _MEMORISED)
    return generator.laplace(size=coins.size) + _memorised_shift(epsilon) * picked


def _memorised_truth(epsilon: float, delta: float) -> float:
    inner = _memorised_shift(epsilon) + 2 * math.log1p(-delta / _MEMORISED)
    return max(0.0, math.log1p(_MEMORISED * math.expm1(inner)))


def _far(part: float) -> Draw:
    """A hidden part of the canaries is shifted far, the others are not."""

    def draw(coins: Coins, epsilon: float, delta: float, generator: np.random.Generator) -> Floats:
        picked = coins & (generator.random(coins.size) < part)
        return generator.normal(size=coins.size) + _FAR * picked

    return draw


def _far_truth(part: float) -> Callable[[float, float], float]:
    """Infinite at delta 0; else where the hockey-stick divergence of the mixture is delta."""

    def truth(epsilon: float, delta: float) -> float:
        if delta == 0:
            return math.inf

        def excess(epsilon: float) -> float:
            inner = math.log1p(math.expm1(epsilon) / part)
            return part * delta_of_epsilon(sigma=1 / _FAR, epsilon=inner) - delta

        return float(brentq(excess, 0.0, 60.0))

    return truth


def _extremal(coins: Coins, epsilon: float, delta: float, generator: np.random.Generator) -> Floats:
    w = generator.random(coins.size)
    # The inverse of a smaller of two rising functions is the larger of their inverses.
    inside = np.maximum((w - delta) * math.exp(-epsilon), 1 - delta - math.exp(epsilon) * (1 - w))
    return -np.where(coins, np.maximum(inside, 0.0), w)


def _reveal(size: Callable[[int], int]) -> Draw:
    """Blocks of candidates of this size; each is revealed with probability delta."""

    def draw(coins: Coins, epsilon: float, delta: float, generator: np.random.Generator) -> Floats:
        block = size(coins.size)
        shown = np.repeat(generator.random(-(-coins.size // block)) < delta, block)[: coins.size]
        return np.where(shown, 10.0 * coins - 4.5, _respond(coins, epsilon, generator))

    return draw


def _gaussian(coins: Coins, epsilon: float, delta: float, generator: np.random.Generator) -> Floats:
    return generator.normal(size=coins.size) + _mu(epsilon, delta) * coins


def _mu(epsilon: float, delta: float) -> float:
    """The shift whose epsilon at delta is this."""
    return float(
        brentq(lambda mu: delta_of_epsilon(sigma=1 / mu, epsilon=epsilon) - delta, 1e-9, 50.0)
    )


def _asked(epsilon: float, delta: float) -> float:
    return epsilon


def _half(epsilon: float, delta: float) -> float:
    return 0.5


MECHANISMS = {
    mechanism.name: mechanism
    for mechanism in (
        Mechanism(
            name="Laplace shift",
            proof="noise of scale 1 and a shift of epsilon; tight at epsilon + 2 ln(1 - delta)",
            draw=_laplace,
            truth=lambda epsilon, delta: max(0.0, epsilon + 2 * math.log1p(-delta)),
            threshold=lambda epsilon, delta: epsilon / 2,
        ),
        Mechanism(
            name="response",
            proof="each coin is told truly with odds e^epsilon: the definition at equality; ties",
            draw=_response,
            truth=_asked,
            threshold=_half,
            deltas="pure",
        ),
        Mechanism(
            name="XOR of pairs",
            proof="one coin turns one bit, which is told truly with odds e^epsilon; tight",
            draw=_xor,
            truth=_asked,
            threshold=_half,
            independent=False,
            deltas="pure",
        ),
        Mechanism(
            name="shared noise",
            proof="one coin moves one of the sums over four by epsilon, noise of scale 1; tight",
            draw=_shared,
            truth=_asked,
            threshold=lambda epsilon, delta: epsilon / 2,
            independent=False,
            deltas="pure",
        ),
        Mechanism(
            name="shared switch",
            proof="a mixture, by one toss for all, of responses and of nothing; tight in the first",
            draw=_alternating,
            truth=_asked,
            threshold=_half,
            independent=False,
            deltas="pure",
        ),
        Mechanism(
            name="30 % memorised",
            proof="hidden 30 % are shifted by s, .7 + .3 e^s = e^epsilon: the ratio; tight",
            draw=_memorised,
            truth=_memorised_truth,
            threshold=lambda epsilon, delta: _memorised_shift(epsilon) / 2,
        ),
        Mechanism(
            name="30 % at +4 sd",
            proof="normal scores: no epsilon at delta 0, else from the mixture's divergence; tight",
            draw=_far(_MEMORISED),
            truth=_far_truth(_MEMORISED),
            threshold=lambda epsilon, delta: _FAR / 2,
        ),
        Mechanism(
            name="3 % at +4 sd",
            proof="the same with fewer; tight",
            draw=_far(_FEW),
            truth=_far_truth(_FEW),
            threshold=lambda epsilon, delta: _FAR / 2,
        ),
        Mechanism(
            name="extremal pair",
            proof="P = min(e^eps Q + delta, 1 - e^-eps (1 - Q - delta)) of every lower set; tight",
            draw=_extremal,
            truth=_asked,
            threshold=lambda epsilon, delta: -float(special.expit(-epsilon)) * (1 - delta),
        ),
        Mechanism(
            name="delta reveal",
            proof="each coin by itself is shown with probability delta, else told as above; tight",
            draw=_reveal(lambda m: 1),
            truth=_asked,
            threshold=_half,
            deltas="approximate",
        ),
        Mechanism(
            name="blocks of 20",
            proof="a block is shown with probability delta, whichever coins are in it; tight",
            draw=_reveal(lambda m: 20),
            truth=_asked,
            threshold=_half,
            independent=False,
            deltas="approximate",
        ),
        Mechanism(
            name="large blocks",
            proof="the same with blocks of 3 sqrt(m), about what costs a bound most; tight",
            draw=_reveal(lambda m: round(3 * math.sqrt(m))),
            truth=_asked,
            threshold=_half,
            independent=False,
            deltas="approximate",
        ),
        Mechanism(
            name="one block",
            proof="all coins are shown together with probability delta; tight",
            draw=_reveal(lambda m: m),
            truth=_asked,
            threshold=_half,
            independent=False,
            deltas="approximate",
        ),
        Mechanism(
            name="Gaussian shift",
            proof="a shift by the mu that epsilon and delta belong to (Balle and Wang 2018); tight",
            draw=_gaussian,
            truth=_asked,
            threshold=lambda epsilon, delta: _mu(epsilon, delta) / 2,
            deltas="approximate",
        ),
    )
}
