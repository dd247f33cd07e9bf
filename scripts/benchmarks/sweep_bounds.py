"""How often a bound on epsilon from many models lies above the truth, on mechanisms of a known one.

Argument: runs of each mechanism. At a significance of .05 and 1,000 runs, more than 80 above are an
alarm: an exact bound gives that once in 50,000 cells.
"""

import sys

import numpy as np
from numpy.typing import NDArray

from lmexposure.statistics import (
    lira_matrix,
    per_model_epsilon,
    per_text_epsilon,
    together_epsilon,
)

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
SHAPES = ((8, 16), (16, 64), (64, 16))  # models, texts


def response(rng: np.random.Generator, coins: Flags, epsilon: float) -> Floats:
    """Says each coin, and lies as often as (epsilon, 0)-DP asks for: the extreme case."""
    honest = rng.random(coins.shape) < 1 / (1 + np.exp(-epsilon))
    return np.where(honest, coins, ~coins).astype(float)


def of_unequal_texts(rng: np.random.Generator, coins: Flags, epsilon: float) -> Floats:
    """The same on texts whose scores are of other sizes, in models of other levels."""
    sizes = rng.normal(0, 50, coins.shape[1])
    levels = rng.normal(0, 9, (len(coins), 1))
    return sizes + response(rng, coins, epsilon) * np.abs(sizes) + levels


def laplace(rng: np.random.Generator, coins: Flags, epsilon: float) -> Floats:
    """A score of sensitivity 1 with Laplace noise."""
    return coins + rng.laplace(0, 1 / epsilon, coins.shape)


def xor(rng: np.random.Generator, coins: Flags, epsilon: float) -> Floats:
    """Texts in pairs that say whether their coins differ, and how surely: no coin shows."""
    del epsilon
    differ = coins[:, ::2] ^ coins[:, 1::2]
    return np.repeat(differ * (1 + rng.random(differ.shape)), 2, axis=1)


MECHANISMS = (
    (response, 1.0),
    (response, 3.0),
    (of_unequal_texts, 1.0),
    (laplace, 1.0),
    (xor, 0.0),
)


def main(runs: int) -> int:
    """Print a row a cell; return how many cells raise an alarm."""
    alarms = 0
    most = runs * 0.05 + 4.4 * np.sqrt(runs * 0.05 * 0.95)
    print("mechanism        epsilon  models x texts   above: together  per model  per text")
    for mechanism, truth in MECHANISMS:
        for shape in SHAPES:
            above = np.zeros(3, dtype=int)
            for seed in range(runs):
                rng = np.random.default_rng([seed, *shape])
                coins = rng.random(shape) < 0.5
                x = mechanism(rng, coins, truth)
                cells = lira_matrix(x, coins).scores
                bounds = (
                    together_epsilon(x, coins, kinds=["text"] * shape[1], seed=seed),
                    per_model_epsilon(cells, coins, seed=seed).bound,
                    per_text_epsilon(x, coins, seed=seed).bound,
                )
                above += [bound.value > truth for bound in bounds]
            alarms += int((above > most).sum())
            places = f"{shape[0]} x {shape[1]}"
            row = "  ".join(f"{count:>9}" for count in above)
            print(f"{mechanism.__name__:<17}{truth:>6}  {places:>14}   {row}", flush=True)
    print(f"of {runs} runs each; {alarms} alarms (above {most:.0f})")
    return alarms


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200) > 0)
