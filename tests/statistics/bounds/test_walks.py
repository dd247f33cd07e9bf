import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from lmexposure.statistics.bounds.one_run import (
    binomial_window,
    crossing_probability,
    log_odds_low,
)


def enumerated(looks: list[int], critical: list[int], q: float) -> float:
    """P(crossing), over every sequence of right and wrong guesses."""
    total = 0.0
    for guesses in itertools.product((0, 1), repeat=looks[-1]):
        counts = np.cumsum(guesses)
        if any(counts[look - 1] >= count for look, count in zip(looks, critical, strict=True)):
            total += q ** sum(guesses) * (1 - q) ** (looks[-1] - sum(guesses))
    return total


def one_by_one(looks: list[int], critical: list[int], q: float) -> float:
    """P(crossing), one guess at a time."""
    alive, crossed = {0: 1.0}, 0.0
    at = dict(zip(looks, critical, strict=True))
    for guess in range(1, looks[-1] + 1):
        following: dict[int, float] = {}
        for count, chance in alive.items():
            following[count] = following.get(count, 0.0) + chance * (1 - q)
            following[count + 1] = following.get(count + 1, 0.0) + chance * q
        stop = at.get(guess, guess + 1)
        crossed += math.fsum(chance for count, chance in following.items() if count >= stop)
        alive = {count: chance for count, chance in following.items() if count < stop}
    return crossed


@given(st.integers(1, 9), st.floats(-3, 6), st.data())
def test_crossing_of_small_walks_is_enumerated(n: int, odds: float, data: st.DataObject) -> None:
    looks = sorted({*data.draw(st.sets(st.integers(1, n))), n})
    critical = [data.draw(st.integers(0, look + 1)) for look in looks]
    exact = enumerated(looks, critical, 1 / (1 + math.exp(-odds)))
    assert crossing_probability(np.array(looks), np.array(critical), odds) == pytest.approx(
        exact, abs=1e-12
    )


@pytest.mark.parametrize("odds", [0.0, 1.0, 4.0])
def test_crossing_of_a_long_walk_guess_by_guess(odds: float) -> None:
    looks = [24, 50, 100, 250, 700]
    q = 1 / (1 + math.exp(-odds))
    critical = [int(look * q + 2 * math.sqrt(look * q * (1 - q))) + 1 for look in looks]
    assert crossing_probability(np.array(looks), np.array(critical), odds) == pytest.approx(
        one_by_one(looks, critical, q), rel=1e-10
    )


def test_fourier_transforms_agree_with_plain_convolution(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = np.array([20_000, 60_000, 100_000])
    critical = np.array([10_150, 30_250, 50_300])
    fast = crossing_probability(looks, critical, 0.0)
    monkeypatch.setattr("lmexposure.statistics.bounds.one_run._SHORT", 10**9)
    assert fast == pytest.approx(crossing_probability(looks, critical, 0.0), abs=1e-13)


@pytest.mark.parametrize(("trials", "odds"), [(0, 1.0), (1, -2.0), (50, 0.3), (10**6, 1.0)])
def test_window_is_the_binomial(trials: int, odds: float) -> None:
    first, chances = binomial_window(trials, odds)
    counts = first + np.arange(chances.size)
    expected = stats.binom.pmf(counts, trials, special.expit(odds))
    assert chances == pytest.approx(expected, rel=1e-9, abs=1e-15)
    assert chances.sum() == pytest.approx(1, abs=1e-12)


def test_log_odds_low_solves_the_binomial_tail() -> None:
    looks, counts = np.array([10, 10, 400, 10**6]), np.array([10, 7, 250, 999_990])
    levels = np.array([0.01, 0.05, 0.001, 0.02])
    q = special.expit(log_odds_low(looks, counts, levels))
    assert stats.binom.sf(counts - 1, looks, q) == pytest.approx(levels, rel=1e-6)
    assert log_odds_low(looks, np.array([0, -3, 0, 0]), levels).tolist() == [-math.inf] * 4
