import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmexposure.statistics import certified_exposure, exact_exposure


@pytest.mark.parametrize("seed", range(20))
def test_never_above_the_exposure_found_by_counting(seed: int) -> None:
    # A model over 64 fills: whatever its probabilities, counting gives the rank.
    rng = np.random.default_rng(seed)
    share = 1.0 if seed % 2 else 0.6  # the model may spend some of its belief elsewhere
    bits = -np.log2(share * rng.dirichlet(np.full(64, 0.1)) + 1e-300)
    rank = np.array([(bits <= own).sum() for own in bits])
    result = certified_exposure(6.0, bits)
    assert (result.low <= 6.0 - np.log2(rank) + 1e-9).all()


@pytest.mark.parametrize(
    ("space_bits", "bits", "low"),
    [
        (10.0, [0.0, 3.0, 10.0], [10.0, 7.0, 0.0]),  # 2^k fills of k bits share all belief
        (29.9, [29.9, 40.0], [0.0, 0.0]),
        # Carlini et al. 2019, Table 1: nine digits at 14.63 bits. The prefix cost part of them,
        # so that the exposure is at least 29.90 - 14.63.
        (math.log2(10**9), [14.63], [15.2674]),
    ],
)
def test_published_and_extreme_canaries(
    space_bits: float, bits: list[float], low: list[float]
) -> None:
    assert certified_exposure(space_bits, bits).low == pytest.approx(low, abs=1e-4)


def test_as_the_naive_count_of_a_small_space() -> None:
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 40, 200).astype(float)  # many ties
    inserted = [3, 50, 120]
    null = [b for i, b in enumerate(bits) if i not in inserted]
    ranks = [1 + sum(b <= bits[i] for b in null) for i in inserted]
    places = [sum(b <= bits[i] for b in bits) for i in inserted]
    result = exact_exposure(ranks, ranks, space_size=200, place_low=places, place_high=places)
    assert result.value.tolist() == [math.log2(200) - math.log2(r) for r in ranks]
    assert result.low.tolist() == result.high.tolist() == result.value.tolist()
    assert result.methods == ("exact",) * 3
    assert not result.capped.any()
    assert result.warnings == ()


def test_secret_sharer_first_of_nine_digits() -> None:
    # Carlini et al. 2019, section 4.1: an exposure is at most log2|R|, for nine digits about 30.
    result = exact_exposure([1], [1], space_size=10**9, place_low=[1], place_high=[1])
    assert result.value[0] == pytest.approx(29.897, abs=1e-3)


def test_no_signal_gives_the_guessing_baseline() -> None:
    ranks = np.random.default_rng(5).integers(1, 10**9, 20_000).tolist()
    result = exact_exposure(ranks, ranks, space_size=10**9, place_low=ranks, place_high=ranks)
    assert result.value.mean() == pytest.approx(1 / math.log(2), abs=0.04)
    assert np.median(result.value) == pytest.approx(1, abs=0.04)


def test_a_search_that_ended_early_gives_proven_bounds() -> None:
    result = exact_exposure(
        [1, 5], [1024, 5], space_size=1024, place_low=[1, 6], place_high=[1024, 6], steps=7
    )
    assert result.methods == ("bounded", "exact")
    assert result.value.tolist() == [0.0, 10 - math.log2(5)]
    assert (result.low[0], result.high[0]) == (0.0, 10.0)
    assert result.capped.tolist() == [True, False]
    assert result.warnings == ("1 of 2 canaries: the search ended before their rank was counted",)


@given(st.lists(st.integers(0, 30), min_size=2, max_size=60), st.integers(0, 60))
def test_bounds_hold_wherever_a_search_ends(costs: list[int], seen: int) -> None:
    canary, others = costs[0], costs[1:]
    counted = sum(cost <= canary for cost in others[:seen])
    rank = 1 + sum(cost <= canary for cost in others)
    low, high = 1 + counted, 1 + counted + len(others[seen:])
    size = len(costs)
    result = exact_exposure([low], [high], space_size=size, place_low=[low], place_high=[high])
    truth = math.log2(size) - math.log2(rank)
    assert result.low[0] <= truth + 1e-12
    assert truth <= result.high[0] + 1e-12
    assert bool(result.capped[0]) == (seen < len(others))


def test_an_empirical_margin_is_said() -> None:
    options = {"space_size": 64, "place_low": [2, 2, 2], "place_high": [2, 2, 9]}
    result = exact_exposure([2, 2, 2], [2, 2, 9], empirical=[True, False, True], **options)  # type: ignore[arg-type]
    assert result.methods == ("exact up to an empirical margin", "exact", "bounded")
    assert "measured on a sample" in result.canary(0).assumptions[-1]
    assert "again in float64" in result.canary(1).assumptions[-1]
    assert "measured on a sample" in result.canary(2).assumptions[-1]


def test_sizes_beyond_a_float() -> None:
    size = 10**4000
    result = exact_exposure(
        [1, 10**3990], [1, size], space_size=size, place_low=[1, size], place_high=[1, size]
    )
    assert result.high[0] == pytest.approx(4000 * math.log2(10))
    assert result.high[1] == pytest.approx(10 * math.log2(10))
    assert result.value[1] == 0.0
