"""Coins that somebody declares and that could hardly have fallen as they did."""

import math

import numpy as np
import pytest
from known import as_json
from scipy import stats

from lmexposure.errors import InputError
from lmexposure.statistics import Claim, EpsilonBound
from lmexposure.statistics.bounds.bound import (
    beta_nodes,
    beta_quantiles,
    largest_rejected,
    refuse_unlikely_coins,
)


def _bound(value: float, most: float | None, delta: float = 1e-5) -> EpsilonBound:
    return EpsilonBound(
        method="some_epsilon",
        value=value,
        significance=0.05,
        delta=delta,
        validity="any-dp",
        counts={},
        threshold=None,
        threshold_choice="none",
        max_attainable=most,
    )


@pytest.mark.parametrize(
    ("value", "most", "verdict", "words"),
    [
        (
            3.0,
            6.0,
            "contradicted",
            "epsilon is at least 3 (any private training, significance 0.05), and 2 is",
        ),
        (1.0, 6.0, "consistent", "a perfect attack would have shown 6, above the 2 claimed"),
        (2.0, 6.0, "consistent", "the bound is 2;"),
        (1.0, 2.0, "cannot tell", "even a perfect attack on these canaries would have shown 2"),
        (1.0, None, "cannot tell", "some_epsilon has no max attainable value"),
        (3.0, None, "contradicted", "at least 3"),
    ],
)
def test_verdicts(value: float, most: float | None, verdict: str, words: str) -> None:
    check = Claim(epsilon=2, delta=1e-5).against(_bound(value, most))
    assert check.verdict == verdict
    assert words in check.reason


def test_a_larger_delta_may_contradict_and_says_what_it_leaves_open() -> None:
    claim = Claim(epsilon=2.0, delta=1e-5)
    assert claim.against(_bound(3.0, 6.0, delta=1e-3)).verdict == "contradicted"
    open_still = claim.against(_bound(1.0, 6.0, delta=1e-3))
    assert open_still.verdict == "consistent"
    assert "delta=0.001, and at the claim's 1e-05 it may be higher" in open_still.reason


def test_a_smaller_delta_is_refused() -> None:
    # (2, 1e-5)-private mechanisms may have any epsilon at delta 0: a bound there proves nothing.
    with pytest.raises(InputError, match=r"delta=0, below the claim's 1e-05.*at delta=1e-05"):
        Claim(epsilon=2.0, delta=1e-5).against(_bound(9.0, 9.0, delta=0.0))


def test_a_pure_claim() -> None:
    check = Claim(epsilon=0, delta=0).against(_bound(0.5, 3.0, delta=0.0))
    told = as_json(check)
    assert (told["verdict"], told["claimed_epsilon"], told["bound"]) == ("contradicted", 0, 0.5)


@pytest.mark.parametrize("root", [1e-3, 0.7, 12.0])
@pytest.mark.parametrize("above", [0.0, 0.5, 30.0])
def test_finds_the_root_from_either_side_and_stays_below(root: float, above: float) -> None:
    found = largest_rejected(lambda epsilon: math.tanh(epsilon - root), above)
    assert found == pytest.approx(root, abs=1e-8)
    assert found <= root


def test_nothing_rejected_gives_0_and_an_epsilon_rejected_again_further_up_counts() -> None:
    assert largest_rejected(lambda epsilon: 0.3, 2.0) == 0.0
    # Rejected between 1 and 2 only: whoever keeps to less than 1 keeps to 2 as well.
    assert largest_rejected(lambda e: (e - 1) * (e - 2), 2.5) == pytest.approx(2, abs=1e-8)


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
    with pytest.raises(InputError, match=f"{included} of 1000 candidates went in, which an"):
        refuse_unlikely_coins(included, 1_000, coins)


@pytest.mark.parametrize(
    ("a", "b"), [(0.5, 0.5), (0.5, 1000.5), (3, 4), (1, 1), (12.5, 1e7), (1e6, 1e6), (1e7, 1)]
)
def test_moments(a: float, b: float) -> None:
    x = beta_nodes(a, b, np.array([]))
    assert x.weight.sum() == pytest.approx(1, abs=1e-12)
    assert x.weight @ x.value == pytest.approx(a / (a + b), rel=1e-9)
    assert x.weight @ x.complement == pytest.approx(b / (a + b), rel=1e-9)
    second = a * (a + 1) / ((a + b) * (a + b + 1))
    assert x.weight @ x.value**2 == pytest.approx(second, rel=1e-9)


@pytest.mark.parametrize("cut", [0.1, 0.36, 0.8])
def test_a_step_at_a_break_costs_nothing(cut: float) -> None:
    x = beta_nodes(2.5, 3.5, np.array([cut, -1.0, 2.0]))
    assert x.weight @ (x.value <= cut) == pytest.approx(stats.beta(2.5, 3.5).cdf(cut), abs=1e-10)


def test_quantiles_ascend() -> None:
    marks = beta_quantiles(0.5, 200.5)
    assert (np.diff(marks) > 0).all()
    assert stats.beta(0.5, 200.5).cdf(marks[5]) == pytest.approx(0.5)
