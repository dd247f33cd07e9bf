import itertools
import json
import math

import numpy as np
import pytest

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics import (
    GUESSING,
    GuessingBaseline,
    guessing_test,
    sampled_exposure,
)


def _exact(canaries: list[float], references: list[float]) -> float:
    """The p-value over every split of the pool, by plain counting."""
    pool, n = canaries + references, len(canaries)
    observed = sampled_exposure(canaries, references).value.mean()
    splits = list(itertools.combinations(range(len(pool)), n))
    as_high = 0
    for split in splits:
        own = [pool[i] for i in split]
        rest = [pool[i] for i in range(len(pool)) if i not in split]
        as_high += sampled_exposure(own, rest).value.mean() >= observed - 1e-9
    return as_high / len(splits)


@pytest.mark.parametrize(
    ("canaries", "references"),
    [
        ([1.0, 2.5, 4.0], [2.0, 3.0, 5.0, 6.0, 7.0]),
        ([1.0, 1.0, 3.0], [1.0, 2.0, 2.0, 3.0, 3.0, 4.0]),  # ties within and across
        ([9.0], [1.0, 2.0, 3.0]),
    ],
)
def test_agrees_with_every_split_counted(canaries: list[float], references: list[float]) -> None:
    found = guessing_test(canaries, references, seed=1)
    assert found.p_value == pytest.approx(_exact(canaries, references), abs=0.02)
    expected = sampled_exposure(canaries, references).value.mean()
    assert found.statistic == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("alternative", ["memorised", "different"])
@pytest.mark.parametrize("grid", [None, 3.0])  # rounded to a grid there are many ties
def test_size_under_the_null(alternative: str, grid: float | None) -> None:
    rng, rejected = np.random.default_rng(4), 0
    for seed in range(500):
        scores = rng.normal(size=60)
        scores = scores if grid is None else np.round(scores * grid)
        found = guessing_test(
            scores[:12], scores[12:], seed=seed, permutations=99, alternative=alternative
        )
        rejected += found.p_value <= 0.05
    # Binomial(500, .05): above 45 in 1e-4 of runs.
    assert rejected <= 45
    if grid is None:
        assert rejected >= 8  # and the level is used


def test_power() -> None:
    rng, rejected = np.random.default_rng(6), 0
    for seed in range(40):
        found = guessing_test(
            rng.normal(-0.7, size=32), rng.normal(size=500), seed=seed, permutations=199
        )
        rejected += found.p_value <= 0.05
    assert rejected >= 34


def test_low_exposures_are_different_but_not_memorised() -> None:
    rng = np.random.default_rng(8)
    canaries, references = rng.normal(1.5, size=30), rng.normal(size=300)
    assert guessing_test(canaries, references, seed=0, permutations=999).p_value > 0.9
    two_sided = guessing_test(
        canaries, references, seed=0, permutations=999, alternative="different"
    )
    assert two_sided.p_value == pytest.approx(2 / 1000)


def test_groups_keep_models_apart() -> None:
    # One model is surer of everything: pooled it would look like memorisation.
    rng = np.random.default_rng(9)
    canaries = np.concatenate([rng.normal(0, 1, 40), rng.normal(50, 1, 4)])
    references = np.concatenate([rng.normal(0, 1, 40), rng.normal(50, 1, 400)])
    own, rest = ["a"] * 40 + ["b"] * 4, ["a"] * 40 + ["b"] * 400
    assert guessing_test(canaries, references, seed=0, permutations=999).p_value == 0.001
    apart = guessing_test(
        canaries,
        references,
        seed=0,
        permutations=999,
        canary_groups=own,
        reference_groups=rest,
    )
    assert apart.p_value > 0.05
    assert apart.groups == 2
    exposures = [
        sampled_exposure(canaries[:40], references[:40]).value,
        sampled_exposure(canaries[40:], references[40:]).value,
    ]
    assert apart.statistic == pytest.approx(np.concatenate(exposures).mean())


def test_size_under_the_null_with_groups() -> None:
    rng, rejected = np.random.default_rng(14), 0
    own, rest = [0] * 6 + [1] * 6, [0] * 20 + [1] * 10
    for seed in range(300):
        shift = rng.normal(scale=5, size=2)
        found = guessing_test(
            rng.normal(size=12) + shift[own],
            rng.normal(size=30) + shift[rest],
            seed=seed,
            permutations=99,
            canary_groups=own,
            reference_groups=rest,
        )
        rejected += found.p_value <= 0.05
    assert 4 <= rejected <= 30


def test_the_seed_decides_and_the_result_is_plain() -> None:
    rng = np.random.default_rng(10)
    canaries, references = rng.normal(size=10), rng.normal(size=90)
    one = guessing_test(canaries, references, seed=3, permutations=1500)
    assert one == guessing_test(canaries, references, seed=3, permutations=1500)
    assert one != guessing_test(canaries, references, seed=4, permutations=1500)
    plain = json.loads(json.dumps(one.to_dict()))
    assert (plain["n"], plain["references"], plain["permutations"]) == (10, 90, 1500)


def test_all_equal_scores_prove_nothing() -> None:
    assert guessing_test([2.0] * 5, [2.0] * 20, seed=0, permutations=99).p_value == 1.0


def test_refusals() -> None:
    with pytest.raises(SettingsError, match="alternative='less' must be one of memorised, diff"):
        guessing_test(1.0, [2.0], seed=0, alternative="less")
    with pytest.raises(SettingsError, match="permutations=0 must be a whole number at least 1"):
        guessing_test(1.0, [2.0], seed=0, permutations=0)
    with pytest.raises(SettingsError, match="seed=-1 must be a whole number at least 0"):
        guessing_test(1.0, [2.0], seed=-1)
    with pytest.raises(InputError, match=r"canary_bits\[0\]=nan is not finite"):
        guessing_test(math.nan, [2.0], seed=0)
    with pytest.raises(InputError, match=r"reference_groups has shape \(0,\); give one label"):
        guessing_test(1.0, [2.0], seed=0, canary_groups=["a"])
    with pytest.raises(InputError, match=r"canary_groups has shape \(2,\); give one label"):
        guessing_test(1.0, [2.0], seed=0, canary_groups=["a", "b"], reference_groups=["a"])
    with pytest.raises(InputError, match="canary_groups holds b, which no reference has"):
        guessing_test(1.0, [2.0], seed=0, canary_groups=["b"], reference_groups=["a"])


@pytest.mark.parametrize("n", [1, 2, 20, 101, 5000])
def test_the_baseline_is_that_of_every_rank_once(n: int) -> None:
    """A canary that nothing is known of takes each of the n + 1 places as often."""
    for size in (None, n + 7):
        exposures = sampled_exposure(
            np.arange(n + 1) + 0.5,
            np.arange(1, n + 1),
            space_size=size,
            exhaustive=size is not None,
        ).value
        found = GuessingBaseline.among(n, space_size=size)
        assert found.mean == pytest.approx(exposures.mean(), abs=1e-9)
        assert found.median == pytest.approx(np.median(exposures), abs=1e-9)
        assert found.upper_quartile == pytest.approx(np.quantile(exposures, 0.75), abs=1e-9)


def test_the_baseline_nears_its_limit() -> None:
    few, many = GuessingBaseline.among(20), GuessingBaseline.among(10**9)
    assert few.mean == pytest.approx(1.204, abs=5e-4)
    assert GuessingBaseline.among(100).mean == pytest.approx(1.382, abs=5e-4)
    assert many.to_dict() == pytest.approx(GUESSING.to_dict(), abs=1e-7)
    with pytest.raises(SettingsError, match="references=0"):
        GuessingBaseline.among(0)
