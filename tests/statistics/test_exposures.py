import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmexposure.statistics import GUESSING, calibrated_exposure, sampled_exposure

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


small = st.integers(-4, 4).map(float)  # few different numbers: many ties
texts = st.tuples(small, small)  # bits under the model, and under the base


def _naive_gain(canary: tuple[float, float], references: list[tuple[float, float]]) -> int:
    saved = canary[1] - canary[0]
    return 1 + sum(base - bits >= saved for bits, base in references)


@given(st.lists(texts, min_size=1, max_size=8), st.lists(texts, min_size=1, max_size=40))
def test_order_ties_and_ranks_as_the_naive_count_of_gains(
    canaries: list[tuple[float, float]], references: list[tuple[float, float]]
) -> None:
    (bits, base), (others, others_base) = zip(*canaries), zip(*references)  # noqa: B905 of pairs
    made = calibrated_exposure(bits, base, others, others_base)
    for i, canary in enumerate(canaries):
        rank = _naive_gain(canary, references)
        assert made.calibrated.rank[i] == rank
        assert made.calibrated.value[i] == pytest.approx(math.log2(len(references) / rank))
        assert made.calibrated.capped[i] == (rank == 1)
        assert made.gained_bits[i] == canary[1] - canary[0]
    np.testing.assert_array_equal(made.base.rank, sampled_exposure(base, others_base).rank)
    plain = sampled_exposure(bits, others).value
    np.testing.assert_allclose(made.added, plain - made.base.value)


def test_a_base_that_tells_nothing_apart_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    bits, others = rng.normal(size=20), rng.normal(size=100)
    made = calibrated_exposure(bits, np.full(20, 7.0), others, np.full(100, 7.0))
    np.testing.assert_array_equal(made.calibrated.rank, sampled_exposure(bits, others).rank)
    assert (made.base.rank == 101).all()  # all alike: ties count against the canary


def test_no_signal_gives_the_guessing_baseline_whatever_the_base_finds_likely() -> None:
    """The base knows canaries from references; the training added noise alone."""
    rng = np.random.default_rng(3)
    base, others_base = rng.normal(20, 5, 20_000), rng.normal(40, 5, 100_000)
    bits, others = base - rng.exponential(size=20_000), others_base - rng.exponential(size=100_000)
    made = calibrated_exposure(bits, base, others, others_base)
    value = made.calibrated.value
    assert value.mean() == pytest.approx(GUESSING.mean, abs=0.04)
    assert value.std() == pytest.approx(1 / math.log(2), abs=0.04)
    assert np.median(value) == pytest.approx(GUESSING.median, abs=0.04)
    assert np.median(made.base.value) > 8


def test_a_secret_that_was_likely_anyway_has_exposure_and_none_that_is_calibrated() -> None:
    rng = np.random.default_rng(5)
    others_base = rng.normal(30, 3, 10_000)
    others = others_base - rng.normal(2, 0.5, 10_000)  # the training made all of them likelier
    base = np.array([8.0, 30.0])  # likely to any model; not so
    bits = base - [2.0, 8.0]  # as the others are; memorised
    made = calibrated_exposure(bits, base, others, others_base)
    assert sampled_exposure(bits, others).capped[0]
    assert made.base.capped.tolist() == [True, False]
    assert made.calibrated.value[0] < 3
    assert made.calibrated.capped.tolist() == [False, True]
    assert made.added_capped.tolist() == [False, False]


def test_what_was_added_is_a_lower_bound_where_only_the_model_ranks_it_first() -> None:
    made = calibrated_exposure([1.0, 1.0], [5.0, 1.0], [2.0, 3.0], [2.0, 3.0])
    assert made.added_capped.tolist() == [True, False]
    assert made.added.tolist() == pytest.approx([1.0 - math.log2(2 / 3), 0.0])
