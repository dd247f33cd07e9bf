import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmexposure.statistics import GUESSING, sampled_exposure

# tensorflow/privacy, secret_sharer/exposures_test.py (the first four) and the same code run on the
# input (the last two); references 1..16.
PUBLISHED = [
    (0.0, 4.0),
    (0.1, 4.0),
    (3.5, 2.0),
    (20.0, -0.0874628412503391),
    (1.0, 3.0),
    (8.0, 0.8300749985576878),
]


def _naive(canary: float, references: list[float]) -> tuple[int, float]:
    rank = 1 + sum(reference <= canary for reference in references)
    return rank, math.log2(len(references)) - math.log2(rank)


def test_published_exposures() -> None:
    canaries, expected = zip(*PUBLISHED, strict=True)
    result = sampled_exposure(canaries, range(1, 17))
    assert result.value == pytest.approx(expected, abs=1e-6)
    assert result.rank.tolist() == [1, 1, 4, 17, 2, 9]
    assert result.capped.tolist() == [True, True, False, False, False, False]


finite = st.integers(-6, 6).map(float)  # few different numbers: many ties


@given(st.lists(finite, min_size=1, max_size=8), st.lists(finite, min_size=1, max_size=40))
def test_order_ties_and_ranks_as_the_naive_count(
    canaries: list[float], references: list[float]
) -> None:
    result = sampled_exposure(canaries, references)
    for i, canary in enumerate(canaries):
        rank, value = _naive(canary, references)
        assert result.rank[i] == rank
        assert result.value[i] == pytest.approx(value)
        assert result.low[i] <= result.value[i] <= result.high[i]
        assert result.capped[i] == (rank == 1)


def test_no_signal_gives_the_guessing_baseline() -> None:
    rng = np.random.default_rng(3)
    value = sampled_exposure(rng.normal(size=20_000), rng.normal(size=100_000)).value
    assert value.mean() == pytest.approx(GUESSING.mean, abs=0.04)
    assert value.std() == pytest.approx(1 / math.log(2), abs=0.04)
    assert np.median(value) == pytest.approx(GUESSING.median, abs=0.04)
    assert np.quantile(value, 0.75) == pytest.approx(GUESSING.upper_quartile, abs=0.06)


def test_interval_is_clopper_pearson() -> None:
    result = sampled_exposure([0.0, 10.0], range(1, 1001))
    # 0 and 10 of 1,000 at 95 %: P(Bin = 0) = .025 at the upper end; the second pair from scipy's
    # binomtest(10, 1000).proportion_ci().
    assert 2.0 ** -result.low[0] == pytest.approx(1 - 0.025 ** (1 / 1000))
    assert result.high[0] == math.inf
    assert 2.0 ** -result.low[1] == pytest.approx(0.01831315, abs=1e-7)
    assert 2.0 ** -result.high[1] == pytest.approx(0.00480555, abs=1e-7)


def test_the_space_bounds_the_interval_from_above() -> None:
    result = sampled_exposure(0.0, range(1, 1001), space_size=2**20)
    assert result.high.tolist() == [20.0]
    assert sampled_exposure(0.0, range(1, 10), space_size=10**40).high[0] == pytest.approx(
        math.log2(10) * 40
    )


@pytest.mark.parametrize("size", [60, 2000, 10**6])
def test_coverage_of_the_rank_in_the_whole_space(size: int) -> None:
    rng, references = np.random.default_rng(size), min(400, size // 2)
    fills = np.sort(rng.normal(size=size - 1))  # never inserted; the canary is the last fill
    for exposure in (1.0, 3.0, 5.0, math.log2(size)):
        rank = max(1, round(size / 2**exposure))
        canary = fills[rank - 2] if rank > 1 else fills[0] - 1.0
        truth, held = math.log2(size) - math.log2(rank), 0
        for _ in range(500):
            drawn = rng.choice(fills, references, replace=False, shuffle=False)
            result = sampled_exposure(canary, drawn, space_size=size)
            held += result.low[0] <= truth <= result.high[0]
        assert held >= 0.94 * 500, (size, exposure)


def test_exhaustive_references_give_the_exact_exposure() -> None:
    result = sampled_exposure([0.0, 5.0, 99.0], range(1, 16), space_size=16, exhaustive=True)
    assert result.value.tolist() == pytest.approx([4.0, 4 - math.log2(6), 0.0])
    assert result.low.tolist() == result.high.tolist() == result.value.tolist()
    assert result.method == "exact"
    assert not result.capped.any()
    assert result.warnings == ()
