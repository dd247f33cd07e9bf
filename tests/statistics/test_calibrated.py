import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmexposure.statistics import GUESSING, calibrated_exposure, sampled_exposure

small = st.integers(-4, 4).map(float)  # few different numbers: many ties
texts = st.tuples(small, small)  # bits under the model, and under the base


def _naive(canary: tuple[float, float], references: list[tuple[float, float]]) -> int:
    saved = canary[1] - canary[0]
    return 1 + sum(base - bits >= saved for bits, base in references)


@given(st.lists(texts, min_size=1, max_size=8), st.lists(texts, min_size=1, max_size=40))
def test_order_ties_and_ranks_as_the_naive_count(
    canaries: list[tuple[float, float]], references: list[tuple[float, float]]
) -> None:
    (bits, base), (others, others_base) = zip(*canaries), zip(*references)  # noqa: B905 of pairs
    made = calibrated_exposure(bits, base, others, others_base)
    for i, canary in enumerate(canaries):
        rank = _naive(canary, references)
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
