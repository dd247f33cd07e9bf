"""Where every random number of this room comes from: a seed, many separate streams."""

import random
import secrets
from collections.abc import Callable, Iterator

from lmexposure._files import canonical_json, sha256_bytes
from lmexposure._validate import LARGEST_SEED as LARGEST_SEED


def fresh_seed() -> int:
    """A seed from the operating system, uniform in [0, 2^63): too many to try them all."""
    return secrets.randbits(63)


def derive_seed(seed: int, *names: str) -> int:
    """A seed of its own for each purpose, so that one stream never moves another.

    Args:
        seed: the seed of the plan or run.
        names: what the stream is for, e.g. `"positions", "pin/x4/0001"`.

    Returns:
        A whole number in [0, 2^63), which torch, numpy and random all take.

    >>> derive_seed(1, "secrets") != derive_seed(1, "positions")
    True
    """
    return int(sha256_bytes(canonical_json([seed, *names]))[:16], 16) >> 1


def permutation(size: int, seed: int) -> Iterator[int]:
    """All of range(size) in uniformly random order, without building it.

    A Fisher-Yates shuffle that remembers only the places it has touched: n numbers cost O(n) time
    and memory for any size. The first n numbers are the same however many are taken. Only
    `getrandbits` of the Mersenne Twister is used, which every Python version gives alike.
    """
    bits = random.Random(derive_seed(seed, "permutation")).getrandbits
    moved: dict[int, int] = {}
    for place in range(size):
        chosen = place + _below(size - place, bits)
        here = moved.pop(place, place)
        if chosen == place:
            yield here
        else:
            yield moved.get(chosen, chosen)
            moved[chosen] = here


def _below(bound: int, bits: Callable[[int], int]) -> int:
    """Uniform in range(bound), by drawing again when a draw falls outside."""
    width = (bound - 1).bit_length()
    if width == 0:
        return 0
    while (drawn := bits(width)) >= bound:
        pass
    return drawn
