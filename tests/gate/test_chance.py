import math

import numpy as np
import pytest
from made_results import by_chance
from scipy import stats

from lmexposure.gate import (
    Thresholds,
    unseen,
)
from lmexposure.gate.chance import (
    Shares,
    chance_of_exposure,
    chance_of_finds,
    fewest_finds,
)


@pytest.mark.parametrize("classes", [1, 3, 30])
@pytest.mark.parametrize(
    ("thresholds", "tests"),
    [
        (Thresholds(), 2),
        (Thresholds(p_value=False), 1),
        (Thresholds(median_exposure=3, quantile_exposure=(0.9, 5), significance=0.05), 4),
    ],
)
def test_shares_add_up_to_the_significance(
    thresholds: Thresholds, tests: int, classes: int
) -> None:
    shares = Shares.of(thresholds, classes)
    assert classes * (shares.extraction + tests * shares.test) == pytest.approx(
        thresholds.significance
    )


def test_the_default_threshold_is_passed_by_chance_as_rarely_as_it_says() -> None:
    rng, limit = np.random.default_rng(3), chance_of_exposure(20, 0.05)
    passed = sum(max(by_chance(rng, 20)) > limit for _ in range(4_000))
    assert stats.binomtest(passed, 4_000, 0.05, alternative="greater").pvalue > 1e-3
    assert stats.binomtest(passed, 4_000, 0.05, alternative="less").pvalue > 1e-3  # not idle


@pytest.mark.parametrize(("guesses", "size"), [(1000, 10**4), (10, 100), (1, 10**9)])
def test_finds_by_chance_are_never_rarer_than_the_binomial_tail(guesses: int, size: int) -> None:
    for found in range(1, 11):
        bound = chance_of_finds(found, canaries=10, guesses=guesses, size=size)
        exact = stats.hypergeom.sf(found - 1, size, guesses, 10)
        assert bound >= exact * (1 - 1e-9)


def test_finds_of_a_whole_space_say_nothing() -> None:
    assert chance_of_finds(10, canaries=10, guesses=100, size=100) == 1.0
    assert chance_of_finds(0, canaries=10, guesses=1, size=100) == 1.0
    assert fewest_finds(0.01, canaries=10, guesses=100, size=100) is None


def test_a_small_space_takes_more_finds_and_a_huge_one_does_not_overflow() -> None:
    assert fewest_finds(3e-4, canaries=10, guesses=1000, size=10**4) == 6
    assert fewest_finds(3e-4, canaries=10, guesses=1000, size=10**9) == 1
    assert chance_of_finds(5_000, canaries=10_000, guesses=10, size=10**400) == 0.0


def test_what_a_pass_leaves_unseen_is_the_exact_binomial_bound() -> None:
    for n in (1, 3, 10, 29, 299):
        bound = stats.binomtest(0, n).proportion_ci(0.90, method="exact").high
        assert unseen(n) == pytest.approx(bound)
        assert math.isclose((1 - unseen(n)) ** n, 0.05)
