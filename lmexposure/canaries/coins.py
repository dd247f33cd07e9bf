"""Which candidates go into the corpus: all of them, or those whose own coin says so.

A coin is tossed after everything else is drawn and from a stream of its own, so that it decides
whether a candidate stands in the corpus and nothing besides.
"""

from typing import Literal

from lmexposure._validate import fraction
from lmexposure.canaries.randomness import derive_seed
from lmexposure.errors import InputError, SettingsError

__all__ = ["Coins", "checked_coins", "is_included"]

Coins = Literal["fixed"] | float


def checked_coins(value: Coins, *, error: type[InputError] = SettingsError) -> Coins:
    """Return `value` if it is "fixed", or a probability strictly between 0 and 1."""
    if isinstance(value, str):
        if value != "fixed":
            raise error(f"coins={value!r} must be 'fixed' or a probability such as 0.5")
        return "fixed"
    return fraction("coins", value, error=error)


def is_included(seed: int, candidate: str, coins: Coins) -> bool:
    """Whether a candidate goes in.

    With one seed, a larger probability leaves in whoever is in with a smaller one.

    Args:
        seed: of the plan.
        candidate: its id; each has a stream of its own, so no coin moves another.
        coins: "fixed" lets all of them in, p each with probability p.
    """
    return coins == "fixed" or derive_seed(seed, "coins", candidate) < coins * 2**63
