"""Which candidates go into the corpus: all of them, or those whose own coin says so.

A coin is tossed after everything else is drawn and from a stream of its own, so that it decides
whether a candidate is in the corpus and nothing else. Of all that is random, coins alone do not
follow from the plan's seed. Where that one is given, it is the trainer's too, and may be the same
in every audit: coins that follow from it could be known to the training, and every audit would toss
the same. What is proved from coins needs them unknown to the training and fresh for each audit.
"""

from lmexposure._validate import fraction, integer
from lmexposure.canaries.randomness import LARGEST_SEED, derive_seed
from lmexposure.errors import PlanError


def checked_inclusion(
    probability: float | None, seed: int | None
) -> tuple[float | None, int | None]:
    """Return both if they go together: no probability and no seed, or one in (0, 1) and its seed.

    Raises:
        PlanError: a value outside its range, or one without the other.
    """
    if probability is None:
        if seed is not None:
            raise PlanError(
                "an inclusion_seed needs coins to toss, such as inclusion_probability=0.5; leave "
                "it out"
            )
        return None, None
    probability = fraction("inclusion_probability", probability, error=PlanError)
    if seed is None:
        raise PlanError(
            f"inclusion_probability={probability} needs an inclusion_seed of its own, which the "
            "training cannot know; give a fresh one, such as secrets.randbits(63)"
        )
    return probability, integer("inclusion_seed", seed, low=0, high=LARGEST_SEED, error=PlanError)


def is_included(seed: int | None, candidate: str, probability: float | None) -> bool:
    """Whether a candidate goes in.

    With one seed, a larger probability leaves in whoever is in with a smaller one.

    Args:
        seed: of the coins, and not the plan's seed; None where none are tossed.
        candidate: its id; each has a stream of its own, so no coin moves another.
        probability: with which each candidate goes in; None lets all of them in.

    Raises:
        PlanError: coins to toss, and no seed.
    """
    if probability is None:
        return True
    if seed is None:
        raise PlanError(
            f"inclusion_probability={probability} cannot be tossed for without an inclusion_seed; "
            "give one"
        )
    return derive_seed(seed, "coins", candidate) < probability * 2**63
