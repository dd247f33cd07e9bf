"""Tests of the noise's p-values: their level where noise is right, and what they see."""

import numpy as np
import pytest
from numpy.typing import NDArray

from lmexposure.models.dp_randomness import Noise, copies_p, law_p, noise_p, pair_p, volume_p

STEPS = 24
Floats = NDArray[np.float64]


def noise_of(values: Floats, *sizes: int) -> Noise:
    """Of values of shape (T, N), over weights of these sizes."""
    weight = np.repeat(np.arange(len(sizes)), sizes)
    squares = np.stack([(values[:, weight == w] ** 2).sum(1) for w in range(len(sizes))], axis=1)
    return Noise(squares=squares, sizes=np.array(sizes), kept=values, weight=weight)


@pytest.mark.parametrize("sizes", [(20,), (16, 1), (256, 32)])
def test_p_values_are_seldom_small_for_right_noise(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    found = np.array(
        [
            list(noise_p(noise_of(rng.standard_normal((STEPS, sum(sizes))), *sizes)).values())
            for _ in range(300)
        ]
    )
    # 300 runs at .05 hold 15 in the mean, and 32 or more with probability 6e-5.
    assert ((found < 0.05).sum(0) < 32).all()


def test_noise_that_is_wrong_is_seen() -> None:
    rng = np.random.default_rng(2)
    right = rng.standard_normal((STEPS, 400))
    faint, period, halves = right.copy(), right.copy(), right.copy()
    faint[10:] *= 0.1
    period[10:20] = right[:10]
    halves[:, 200:] = -halves[:, :200]
    mixed = 0.8 * np.repeat(rng.standard_normal((STEPS, 20)), 20, axis=1) + 0.6 * right
    uniform = rng.uniform(-(3**0.5), 3**0.5, right.shape)
    cut = np.clip(rng.standard_normal((STEPS, 4000)), -3, 3)
    planted = {
        "step": faint,
        "pair": period,
        "copies": halves,
        "volume": mixed,
        "law": uniform,
        "tail 3": cut,
    }
    for name, values in planted.items():
        assert noise_p(noise_of(values, values.shape[1]))[name] < 1e-9, name
    assert law_p(np.sign(right)) < 1e-9


def test_no_noise_and_too_few_coordinates_are_nothing_to_compare() -> None:
    assert pair_p(np.zeros((STEPS, 5))) == 1
    assert pair_p(np.ones((STEPS, 1))) == 1
    assert copies_p(np.zeros((STEPS, 5))) == 1
    assert volume_p(np.eye(3, 12)) == 1
