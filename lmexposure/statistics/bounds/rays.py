"""Where an audit looks: three rays over the canaries, fixed before any score is seen.

All canaries are guessed in one order, the highest score first ("in"), then the lowest ("out"),
then the second highest, and so on. A ray counts the right guesses along that order, or along the
highest or the lowest scores alone, at a few numbers of guesses.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from lmexposure.statistics.bounds.walks import log_odds_low

__all__ = ["Ray", "critical_counts", "fixed_rays", "reveal"]

# Most mechanisms are seen best where about two thirds of the canaries are guessed.
_SHARES = (0.06, 0.125, 0.25, 0.35, 0.5, 0.59, 0.7, 0.84, 1.0)
_FIRST_LOOK = 8
_ONE_SIDED_LOOKS = 11
# How the significance is shared out; the top alone is where memorisation of a part shows.
_BUDGETS = {"both": 0.45, "top": 0.45, "bottom": 0.1}


@dataclass(frozen=True, kw_only=True, eq=False)
class Ray:
    """Numbers of guesses to look at, with the nominal level of each look; shapes (J,).

    The levels only say how looks compare with each other. What a bound may claim is calibrated
    on the whole walk afterwards, so that no level here can make it invalid.
    """

    name: str
    looks: NDArray[np.int64]
    levels: NDArray[np.float64]

    def right(self, reveals: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Right guesses at each look, shape (J,), of canaries in the order of `reveal`."""
        along = {"both": reveals, "top": reveals[::2], "bottom": reveals[1::2]}[self.name]
        # A look at 0 guesses does not exist: every look is at least 1.
        return np.cumsum(along, dtype=np.int64)[self.looks - 1]


@lru_cache(maxsize=64)
def fixed_rays(canaries: int, significance: float) -> tuple[Ray, ...]:
    """The rays of an audit of so many canaries; one canary has no bottom.

    Args:
        canaries: at least 1.
        significance: shared out over the looks.
    """
    whole = np.unique(np.ceil(np.array(_SHARES) * canaries).astype(np.int64))
    rays = [Ray(name="both", looks=whole, levels=_levels("both", significance, whole / canaries))]
    for name, size in (("top", (canaries + 1) // 2), ("bottom", canaries // 2)):
        if size:
            spaced = np.geomspace(min(_FIRST_LOOK, size), size, _ONE_SIDED_LOOKS)
            looks = np.unique(np.round(spaced).astype(np.int64))
            levels = _levels(name, significance, np.ones(looks.size))
            rays.append(Ray(name=name, looks=looks, levels=levels))
    return tuple(rays)


def _levels(name: str, significance: float, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = weights / weights.sum()
    return significance * _BUDGETS[name] * shares


def reveal(
    scores: NDArray[np.float64], included: NDArray[np.bool_], generator: np.random.Generator
) -> NDArray[np.bool_]:
    """Whether each guess is right, from the most extreme canary to the least, shape (m,).

    Equal scores are put in an order by the generator, which must be independent of the coins.
    """
    falling = np.lexsort((generator.random(scores.size), -scores))
    top = (scores.size + 1) // 2
    right = np.empty(scores.size, dtype=np.bool_)
    right[::2] = included[falling[:top]]
    right[1::2] = ~included[falling[: top - 1 : -1]]
    return right


def critical_counts(ray: Ray, log_odds: float) -> NDArray[np.int64]:
    """The smallest counts that put the log-odds above `log_odds` at their look's level, (J,).

    One more than the guesses of a look where no count does. Falling `log_odds` gives counts that
    nowhere rise: the outcomes that reach them are nested.
    """
    chance = special.expit(log_odds)
    low, high = np.zeros_like(ray.looks), ray.looks + 1
    while np.any(high - low > 1):
        middle = np.clip((low + high) // 2, 1, ray.looks)
        rare = special.betainc(middle, ray.looks - middle + 1, chance) <= ray.levels
        open_ = high - low > 1
        low, high = np.where(open_ & ~rare, middle, low), np.where(open_ & rare, middle, high)
    # The same question asked backwards: where rounding decides, `log_odds_low` has the last word.
    below = (high > 1) & (log_odds_low(ray.looks, high - 1, ray.levels) >= log_odds)
    high = np.where(below, high - 1, high)
    enough = (high > ray.looks) | (log_odds_low(ray.looks, high, ray.levels) >= log_odds)
    return np.where(enough, high, high + 1)
