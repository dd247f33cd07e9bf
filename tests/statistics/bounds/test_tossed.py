"""Coins that somebody declares and that could hardly have fallen as they did."""

import numpy as np
import pytest

from lmexposure.errors import InputError
from lmexposure.statistics.bounds.bound import refuse_unlikely_coins


@pytest.mark.parametrize("coins", [0.5, 0.01])
def test_coins_that_were_tossed_are_believed(coins: float) -> None:
    for count in np.random.default_rng(1).binomial(1_000, coins, 2_000).tolist():
        refuse_unlikely_coins(count, 1_000, coins)
    refuse_unlikely_coins(0, 3, 0.5)
    refuse_unlikely_coins(3, 3, 0.5)


@pytest.mark.parametrize(
    ("included", "coins"), [(500, 0.01), (10, 0.5), (1_000, 0.5), (0, 0.5), (990, 0.5)]
)
def test_coins_that_were_not_are_refused(included: int, coins: float) -> None:
    with pytest.raises(InputError, match=f"{included} of 1000 candidates went in, which coins of"):
        refuse_unlikely_coins(included, 1_000, coins)
