import itertools
import json
import math

import numpy as np
import pytest
from scipy import stats

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics.summary import compare_with_controls


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
    small = [
        compare_with_controls(
            rng.exponential(size=12), rng.exponential(size=8), permutations=199, seed=seed
        ).p_value
        for seed in range(400)
    ]
    # Binomial(400, .05): more than 36 has probability 3e-4.
    assert sum(p <= 0.05 for p in small) <= 36
    assert np.mean(small) == pytest.approx(0.5, abs=0.06)


def test_summary_of_the_controls() -> None:
    found = compare_with_controls([9.0], [1, 2, 3, 4, 5, 6], permutations=9)
    assert (found.n, found.mean, found.median.value) == (6, 3.5, 3.5)
    assert (found.median.low, found.median.high) == (1.0, 6.0)
    assert found.p_value >= 0.1
    assert json.loads(json.dumps(found.to_dict()))["assumptions"][0].startswith("without")


def test_refusals() -> None:
    with pytest.raises(InputError, match="controls_bits has shape"):
        compare_with_controls([1.0], [])
    with pytest.raises(InputError, match=r"exposures_bits\[0\]=inf is not finite"):
        compare_with_controls([math.inf], [1.0])
    with pytest.raises(SettingsError, match="permutations=0 must be"):
        compare_with_controls([1.0], [1.0], permutations=0)
    with pytest.raises(SettingsError, match="level=0 must lie"):
        compare_with_controls([1.0], [1.0], level=0)
    with pytest.raises(SettingsError, match="seed=-1 must be"):
        compare_with_controls([1.0], [1.0], seed=-1)
