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

# Most mechanisms are seen best where about two thirds of the canaries are guessed.
_SHARES = (0.06, 0.125, 0.25, 0.35, 0.5, 0.59, 0.7, 0.84, 1.0)
_FIRST_LOOK = 8
# The top alone is where the memorisation of a part shows, at a number of guesses that nobody
# knows beforehand: many looks, the early ones at the highest levels. Beyond three fifths of the
# top half the ray over both ends sees as much.
_TOP_LOOKS, _TOP_END = 32, 0.6
_BOTTOM_LOOKS = 11
# Levels in parts of the significance: of a look of both ends at all canaries (in proportion to
# the guesses at fewer), from the first to the last look of the top, and of each of the bottom.
_BOTH, _TOP, _BOTTOM = 0.5, (0.3, 0.05), 0.02


@dataclass(frozen=True, kw_only=True, eq=False)
class Ray:
    """Numbers of guesses to look at, with the nominal level of each look; shapes (J,).

    The levels only say how looks compare with each other; they need not sum to the significance.
    What a bound may claim is calibrated on the whole walk afterwards, so that no level here can
    make it invalid. Most power comes from levels near those that are left after that calibration.
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
    rays = [Ray(name="both", looks=whole, levels=significance * _BOTH * whole / canaries)]
    top = _spaced((canaries + 1) // 2, _TOP_LOOKS, _TOP_END)
    levels = significance * np.geomspace(*_TOP, top.size)
    rays.append(Ray(name="top", looks=top, levels=levels))
    if canaries > 1:
        bottom = _spaced(canaries // 2, _BOTTOM_LOOKS, 1.0)
        levels = np.full(bottom.size, significance * _BOTTOM)
        rays.append(Ray(name="bottom", looks=bottom, levels=levels))
    return tuple(rays)


def _spaced(size: int, looks: int, end: float) -> NDArray[np.int64]:
    """Numbers of guesses in equal ratios, from the first look to a share of the ray."""
    first = min(_FIRST_LOOK, size)
    spaced = np.geomspace(first, max(first, end * size), looks)
    return np.unique(np.round(spaced).astype(np.int64))


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
