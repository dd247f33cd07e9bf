import itertools
import math
from typing import Any

import numpy as np
import pytest
from known import ends, holds
from scipy import stats

from lmexposure.statistics import GUESSING, exposure_summary
from lmexposure.statistics.summary import compare_with_controls


def test_against_a_hand_count() -> None:
    values = [5.0, 1.0, 3.0, 2.0, 4.0, 7.0, 6.0, 8.0]
    summary = exposure_summary(values)
    assert (summary.n, summary.mean, summary.median.value) == (8, 4.5, 4.5)
    spread = math.sqrt(sum((value - 4.5) ** 2 for value in values) / 7)
    assert summary.standard_error == pytest.approx(spread / math.sqrt(8))
    assert (summary.lower_quartile.value, summary.upper_quartile.value) == (2.75, 6.25)
    # Ranks 1 and 8: 1 - 2 / 2^8; ranks 2 and 7 would give 1 - 18 / 2^8 = .93.
    assert (summary.median.low, summary.median.high) == (1.0, 8.0)
    assert summary.median.attained == pytest.approx(1 - 2 / 256)


def test_no_signal_lies_on_the_baseline() -> None:
    exposures = -np.log2(np.random.default_rng(2).random(4000))
    summary = exposure_summary(exposures, level=0.999)
    assert abs(summary.mean - GUESSING.mean) < 4 * float(summary.standard_error or 0)
    assert holds(summary.lower_quartile, math.log2(4 / 3))
    assert holds(summary.median, GUESSING.median)
    assert holds(summary.upper_quartile, GUESSING.upper_quartile)
    assert summary.notes == ()


def test_published_baseline() -> None:
    # Jagielski 2023: mean 1/ln 2, median 1, 75th percentile 2.
    assert pytest.approx(1.442695041) == GUESSING.mean
    assert (GUESSING.median, GUESSING.upper_quartile) == (1.0, 2.0)


@pytest.mark.parametrize(
    ("exposures", "capped", "words"),
    [
        ([1.0, 2.0, 3.0], None, "at least 6"),
        ([4.0], None, "one canary has no standard error; insert more"),
        ([1.0, 2.0], None, "no interval of a mean"),
        ([1.0, 2.0, 6.0, 7.0], None, "rough with 4 values"),
        ([1.0, 13.29, 13.29], [False, True, True], "2 of 3 exposures are lower bounds"),
        ([1.0, 13.29, 13.29], [False, True, True], "from 13.29 bits upwards"),
    ],
)
def test_what_few_or_capped_exposures_leave_open_is_said(
    exposures: list[float], capped: list[bool] | None, words: str
) -> None:
    summary = exposure_summary(exposures, capped=capped)
    assert any(words in note for note in summary.notes)
    assert summary.median.low is None
    assert (summary.standard_error is None) == (len(exposures) == 1)
    assert summary.capped == sum(capped or [])


def test_mean_carries_its_interval_and_notes_what_is_rough() -> None:
    exposures = np.random.default_rng(3).exponential(1 / math.log(2), 40)
    summary = exposure_summary(exposures, seed=5)
    assert summary.mean_interval.method == "bca"
    assert ends(summary.mean_interval)[0] < summary.mean
    assert summary.notes == ()
    assert exposure_summary(exposures, resamples=0).mean_interval.method == "normal"


def test_controls_are_the_measured_null() -> None:
    rng = np.random.default_rng(3)
    controls = rng.exponential(1 / math.log(2), 30)
    assert exposure_summary(controls).controls is None
    summary: Any = exposure_summary(rng.exponential(1, 20) + 6, controls_bits=controls)
    assert (summary.controls.n, summary.controls.p_value < 0.001) == (30, True)
    assert summary.controls.median.value < summary.median.value


@pytest.mark.parametrize(
    ("own", "controls"),
    [
        ([3.0, 5.0, 1.5], [1.0, 2.0, 0.5, 4.0]),
        ([3.0, 5.0, 1.5, 6.0], [1.0, 2.0]),
        ([2.0, 2.0, 7.0], [2.0, 1.0, 7.0, 0.0]),
    ],
)
def test_against_every_permutation(own: list[float], controls: list[float]) -> None:
    def wins(chosen: list[float], rest: list[float]) -> float:
        return sum((a > b) + (a == b) / 2 for a in chosen for b in rest)

    pool, chance = own + controls, []
    for places in itertools.combinations(range(len(pool)), len(own)):
        rest = [pool[i] for i in range(len(pool)) if i not in places]
        chance.append(wins([pool[i] for i in places], rest))
    observed = wins(own, controls)
    exact = np.mean(np.array(chance) >= observed)
    found = compare_with_controls(own, controls, permutations=20_000)
    assert found.p_value == pytest.approx(exact, abs=0.015)
    assert found.exceeds == pytest.approx(observed / (len(own) * len(controls)))


def test_large_samples_against_scipy() -> None:
    rng = np.random.default_rng(1)
    own, controls = rng.exponential(size=700).round(1) + 0.1, rng.exponential(size=600).round(1)
    found = compare_with_controls(own, controls)
    other = stats.mannwhitneyu(own, controls, alternative="greater", method="asymptotic")
    assert (found.method, found.permutations) == ("normal approximation", 0)
    assert found.p_value == pytest.approx(float(other.pvalue), rel=1e-9)
    same = compare_with_controls(np.ones(501), np.ones(501))
    assert (same.p_value, same.exceeds) == (1.0, 0.5)


def test_no_signal_gives_uniform_p_values() -> None:
    rng = np.random.default_rng(5)
    draws = ((rng.exponential(size=12), rng.exponential(size=8)) for _ in range(400))
    found = [compare_with_controls(*d, permutations=199, seed=n) for n, d in enumerate(draws)]
    small = [row.p_value for row in found]
    # Binomial(400, .05): more than 36 has probability 3e-4.
    assert sum(p <= 0.05 for p in small) <= 36
    assert np.mean(small) == pytest.approx(0.5, abs=0.06)


def test_summary_of_the_controls() -> None:
    found = compare_with_controls([9.0], [1, 2, 3, 4, 5, 6], permutations=9)
    assert (found.n, found.mean, found.median.value) == (6, 3.5, 3.5)
    assert (found.median.low, found.median.high) == (1.0, 6.0)
    assert found.p_value >= 0.1
