"""Which candidates go into the corpus: all of them, or those whose own coin says so.

A coin is tossed after everything else is drawn and from a stream of its own, so that it decides
whether a candidate stands in the corpus and nothing besides. Of all that is random, coins alone do
not follow from the plan's seed. Where that one is given, it is the trainer's too, and may be the
same in every audit: coins that follow from it could be known to the training, and every audit would
toss the same. What is proved from coins needs them unknown to the training and fresh for each
audit.
"""

from typing import Literal

from lmexposure._validate import fraction, integer
from lmexposure.canaries.randomness import LARGEST_SEED, derive_seed
from lmexposure.errors import InputError, SettingsError

__all__ = ["Coins", "checked_coin_seed", "checked_coins", "is_included"]

Coins = Literal["fixed"] | float


def checked_coins(value: Coins, *, error: type[InputError] = SettingsError) -> Coins:
    """Return `value` if it is "fixed", or a probability strictly between 0 and 1."""
    if isinstance(value, str):
        if value != "fixed":
            raise error(f"coins={value!r} must be 'fixed' or a probability such as 0.5")
        return "fixed"
    return fraction("coins", value, error=error)


def checked_coin_seed(
    value: int | None, coins: Coins, *, error: type[InputError] = SettingsError
) -> int | None:
    """Return `value` if it is None, or a seed in [0, 2^63) and there are coins to toss."""
    if value is None:
        return None
    if coins == "fixed":
        raise error("a coin_seed needs coins to toss, such as coins=0.5; leave it out")
    return integer("coin_seed", value, low=0, high=LARGEST_SEED, error=error)


def is_included(coin_seed: int | None, candidate: str, coins: Coins) -> bool:
    """Whether a candidate goes in.

    With one seed, a larger probability leaves in whoever is in with a smaller one.

    Args:
        coin_seed: the coins' own, and not the plan's seed; None where none are tossed.
        candidate: its id; each has a stream of its own, so no coin moves another.
        coins: "fixed" lets all of them in, p each with probability p.

    Raises:
        SettingsError: coins to toss, and no seed.
    """
    if coins == "fixed":
        return True
    if coin_seed is None:
        raise SettingsError(f"coins={coins} cannot be tossed without a coin_seed; give one")
    return derive_seed(coin_seed, "coins", candidate) < coins * 2**63
