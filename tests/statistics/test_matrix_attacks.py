"""What holds of every attack that scores a matrix of models and texts: LiRA, RMIA, label-only."""

from collections.abc import Callable

import numpy as np
import pytest

from lmexposure.statistics import area_under_curve, label_logits, lira_matrix, rmia_matrix
from lmexposure.statistics.arrays import Flags, Floats


def online(x: Floats, coins: Flags) -> Floats:
    return lira_matrix(x, coins).scores


def offline(x: Floats, coins: Flags) -> Floats:
    return lira_matrix(x, coins, mode="offline").scores


def relative(x: Floats, coins: Flags) -> Floats:
    documents = np.random.default_rng(2).uniform(40, 400, 60)
    drawn = np.random.default_rng(3).normal(0, 2, (len(x), 60))
    return rmia_matrix(100 - x, coins, documents + drawn)


def by_labels(x: Floats, coins: Flags) -> Floats:
    """Matches at eight places, the more the higher the score."""
    chance = 1 / (1 + np.exp(-x))
    draws = np.random.default_rng(4).random((x.shape[1], len(x), 8))
    vectors = [row < chance[:, [text]] for text, row in enumerate(draws)]
    return label_logits(vectors, coins, kinds=["a"] * x.shape[1])


ATTACKS = pytest.mark.parametrize("attack", [online, offline, relative, by_labels])
Attack = Callable[[Floats, Flags], Floats]


def cells(seed: int, models: int, texts: int, shift: float) -> tuple[Floats, Flags]:
    rng = np.random.default_rng(seed)
    coins = rng.random((models, texts)) < 0.5
    return rng.normal(0, 3, texts) + shift * coins + rng.normal(size=coins.shape), coins


@ATTACKS
@pytest.mark.parametrize("models", [4, 16])
def test_a_row_does_not_read_its_own_coins(attack: Attack, models: int) -> None:
    """Not in the last digit: it would put equal scores in an order that tells coins."""
    for seed in range(5):
        x, coins = cells(seed, models, 40, 1.0)
        for scores in (x, np.round(x) / 10, np.repeat(x[:, :1], 40, axis=1)):
            turned = coins.copy()
            turned[3] = ~turned[3]
            first, again = attack(scores, coins)[3], attack(scores, turned)[3]
            np.testing.assert_array_equal(first, again)


@ATTACKS
def test_a_leak_shows_and_no_signal_is_chance(attack: Attack) -> None:
    areas = np.zeros(2)
    for seed in range(12):
        for place, shift in enumerate((0.0, 3.0)):
            x, coins = cells(seed, 24, 60, shift)
            scores = attack(x, coins)
            known = ~np.isnan(scores)
            areas[place] += area_under_curve(scores[coins & known], scores[~coins & known]).value
    assert areas[0] / 12 == pytest.approx(0.5, abs=0.02)
    assert areas[1] / 12 > 0.7
