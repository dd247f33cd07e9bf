import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from limit_spaces import KINDS, SIZE, Space, mixture, small_draws, space
from pydantic import TypeAdapter
from scipy import stats

from lmexposure.statistics import (
    GUESSING,
    Estimate,
    ImportanceExposure,
    UniformDraws,
    WeightedDraws,
    importance_exposure,
)

CANARIES = 5


def _by_draws(draws: WeightedDraws, bits: float) -> float:
    """How often draws see a fill that costs so much, at least."""
    found = 0.0
    components = (draws.shares, draws.limits, draws.log2_totals)
    for share, t, total in zip(*(column.tolist() for column in components), strict=True):
        found += share * (1.0 if t == math.inf else min(1.0, 2 ** (t - bits))) / 2**total
    return len(draws) * found


def _most(draws: WeightedDraws, tau: float) -> float:
    """How many fills can cost so little."""
    most = math.inf
    for t, total in zip(draws.limits.tolist(), draws.log2_totals.tolist(), strict=True):
        most = min(most, 2**total * (1.0 if t == math.inf else max(1.0, 2 ** (tau - t))))
    return math.floor(most * 2**1e-3)


def _naive(
    draws: WeightedDraws, references: UniformDraws | None, tau: float, known: int, size: int
) -> tuple[float, float, float]:
    """Estimate and interval of the number of fills, summed one by one in plain floats."""
    m, n, alike = len(draws), 0, 0.0
    if references is not None:
        n = len(references.bits)
        alike = n / references.population
    parts, seen = [0.0] * len(draws.log2_weights), 0
    for bits, group, out in zip(draws.bits, draws.groups, draws.excluded, strict=True):
        if bits <= tau + 1e-6 and not out:
            seen += 1
            parts[group] += _by_draws(draws, bits) / (_by_draws(draws, bits) + alike)
    found = variance = unseen = 0.0
    odds = []
    for part, weight in zip(parts, draws.log2_weights.tolist(), strict=True):
        pi = 1 - (1 - 1 / 2**weight) ** m
        found += part / pi
        variance += part**2 * (1 - pi) / pi**2
        unseen += part * (1 - pi) / pi
        odds.append(part * (1 - pi) / pi)
    for stratum in set(draws.strata.tolist()):
        mine = np.flatnonzero(draws.strata == stratum)
        values = [odds[group] for group in draws.drawn[mine].tolist()]
        pairs = sum(values) ** 2 - sum(value**2 for value in values)
        variance -= pairs / max(1, len(mine) - 1)
    cheap = []
    if references is not None:
        cheap = [bits for bits in references.bits.tolist() if bits <= tau + 1e-3]
    values = [1 / (_by_draws(draws, bits) + alike) for bits in cheap]
    squares, total = sum(value**2 for value in values), sum(values)
    variance = max(variance, 0.0)
    least = 3.5 * squares / (n + 1)
    variance += (1 - alike) * max(least, squares - (total**2 - squares) / max(n - 1, 1))
    found, unseen = found + total, unseen + total
    step = 1 / (_by_draws(draws, tau) + alike)
    unseen, spread = unseen + step, variance + step**2
    high = stats.gamma.ppf(0.975, unseen**2 / spread, scale=spread / unseen)
    low = found
    if variance > 0:
        low = stats.gamma.ppf(0.025, found**2 / variance, scale=variance / found)
    most = min(size - CANARIES, _most(draws, tau) - 1 - known)
    least = max(seen, len(cheap))
    high = max(min(math.floor(sum(parts) + high + 1e-9), most), least)
    low = min(max(math.ceil(low - 1e-9), least), high)
    return known + min(max(found, low), high), known + low, known + high


def estimated(
    known: Space, own: Any, m: int, seed: int, siblings: int = 1, references: int = 0
) -> ImportanceExposure:
    """Of these fills, from as many draws."""
    return importance_exposure(
        known.bits[own],
        known.draw(m, seed, canaries=own, siblings=siblings),
        references=known.references(references, seed, own) if references else None,
        space_size=SIZE,
    )


@pytest.mark.parametrize("by", [-1e-9, 1e-9])
def test_fills_of_one_cost_tie_however_their_sums_round(by: float) -> None:
    """As "12" and "21" do under a model for which a digit costs the same in either place."""
    known = space("random")
    own = known.ordered[[3, 100, 10_000]]
    draws = known.draw(600, seed=1, canaries=own, siblings=10)
    tied = replace(draws, bits=np.round(draws.bits, 1))
    one, other = (
        importance_exposure(np.round(known.bits[own], 1) + off, tied, space_size=SIZE)
        for off in (0.0, by)
    )
    np.testing.assert_allclose(other.value, one.value, atol=1e-6)
    np.testing.assert_allclose(other.low, one.low, atol=1e-6)


@pytest.mark.parametrize("references", [0, 2_000])
@pytest.mark.parametrize("siblings", [1, 10])
@pytest.mark.parametrize("kind", ["random", "peaked", "memorised"])
def test_as_the_naive_sums(kind: str, siblings: int, references: int) -> None:
    known = space(kind)
    own = known.ordered[[0, 3, 100, 10_000, 300_000]]
    draws = known.draw(600, seed=1, canaries=own, siblings=siblings)
    alike = known.references(references, 1, own) if references else None
    result = importance_exposure(known.bits[own], draws, references=alike, space_size=SIZE)
    for i, fill in enumerate(own.tolist()):
        tau = float(known.bits[fill])
        value, low, high = _naive(draws, alike, tau, i, SIZE)
        top = math.log2(SIZE)
        assert result.high[i] == pytest.approx(top - math.log2(1 + low), abs=1e-9)
        assert result.low[i] == pytest.approx(top - math.log2(1 + high), abs=1e-9)
        if not result.capped[i]:
            assert result.value[i] == pytest.approx(top - math.log2(1 + value), abs=1e-9)


def weighted(bits: Any, log2_weights: Any, strata: int, **components: Any) -> WeightedDraws:
    """Draws of different fills, in turn from so many strata."""
    m = len(bits)
    return WeightedDraws(
        bits=bits,
        groups=np.arange(m),
        excluded=np.zeros(m, bool),
        log2_weights=log2_weights,
        drawn=np.arange(m),
        strata=np.arange(m) % strata,
        **components,
    )


def test_equal_weights_give_the_poisson_limits() -> None:
    # Garwood 1936: a Poisson count of 10 has 95 % limits 4.795 and 18.390. Ten of 20,000 draws, no
    # two of one stratum, each of weight 10^12: a count stands for 5 * 10^7 fills.
    weight, one = math.log2(10**12), {"shares": np.ones(1), "limits": np.array([math.inf])}
    bits, weights = np.where(np.arange(20_000) < 10, 1.0, 99.0), np.full(20_000, weight)
    draws = weighted(bits, weights, 10, **one, log2_totals=np.array([weight]))
    result = importance_exposure(50.0, draws, space_size=10**12)
    fills = 10**12 / 2 ** np.array([result.high[0], result.low[0]])
    assert fills / 5e7 == pytest.approx([4.7954, 18.3904], rel=1e-4)
    assert result.rank[0] == pytest.approx(5e8, rel=1e-6)
    assert result.effective_draws[0] == pytest.approx(10)


@pytest.mark.parametrize(("siblings", "references"), [(1, 0), (10, 0), (1, 1000), (10, 10_000)])
@pytest.mark.parametrize("kind", ["memorised", "random"])
def test_coverage_where_every_rank_is_known(kind: str, siblings: int, references: int) -> None:
    # 500 seeds, 13 exposures from 1 bit to log2|R|: each at least 90 %, pooled at least 94 %.
    known = space(kind)
    truth = math.log2(SIZE) - np.log2(1 + known.others(known.canaries))
    held = np.zeros(13)
    for seed in range(500):
        result = estimated(known, known.canaries, 1998, seed, siblings, references)
        held += (result.low <= truth + 1e-9) & (truth <= result.high + 1e-9)
    assert (held >= 0.90 * 500).all(), held
    assert held.mean() >= 0.94 * 500, held.mean()


@pytest.mark.parametrize(("siblings", "references"), [(1, 0), (10, 0), (10, 3_000)])
def test_the_estimate_is_unbiased(siblings: int, references: int) -> None:
    known = space("peaked")
    own = known.ordered[[200, 5_000, 60_000, 400_000]]
    ranks = np.array(
        [estimated(known, own, 1200, seed, siblings, references).rank for seed in range(300)],
        dtype=float,
    )
    error = (ranks.mean(axis=0) - 1 - known.others(own)) / (ranks.std(axis=0) / math.sqrt(300))
    assert np.abs(error).max() < 4, error


def test_no_signal_gives_the_guessing_baseline() -> None:
    known = space("mild")
    own = np.random.default_rng(9).integers(SIZE, size=400)
    result = estimated(known, own, 6000, 4)
    assert result.value.mean() == pytest.approx(GUESSING.mean, abs=0.25)
    assert np.median(result.value) == pytest.approx(GUESSING.median, abs=0.25)


def test_half_widths_with_twenty_thousand_draws() -> None:
    known = space("memorised")
    exposures = np.linspace(5, math.log2(SIZE), 13)
    own = known.ordered[np.round(SIZE / 2**exposures).astype(int) - 1]
    result = estimated(known, own, 19_998, 0)
    assert ((result.high - result.low) / 2).max() <= 0.3


@pytest.mark.parametrize("number", [400, 2_000, 3_960])
def test_fills_that_tie_count_among_references_whatever_rounding_does(number: int) -> None:
    """A model that knows nothing: each fill costs the same, references up to a rounding."""
    size, m = 4_000, 600
    bits = math.log2(size)
    rng = np.random.default_rng(number)
    fills = rng.integers(size, size=m).tolist()
    uniform: Any = {
        "shares": np.ones(1),
        "limits": np.array([math.inf]),
        "log2_totals": np.array([bits]),
    }
    draws = small_draws([float(size)] * m, [bits] * m, fills, size, **uniform)
    alike = UniformDraws(
        bits=bits + rng.normal(0, 1e-4, number), canary_bits=np.array([bits]), population=size - 1
    )
    found = importance_exposure([bits], draws, space_size=size, references=alike)
    assert found.value[0] < 0.05
    assert found.low[0] <= 1e-9


@pytest.mark.parametrize("number", [2, 8, 40])
def test_a_few_references_that_all_count_leave_open_whether_the_next_does(number: int) -> None:
    """Nine of ten fills cost less than the canary; its exposure is below the interval rarely."""
    size, missed = 1_000, 0
    costs = np.where(np.arange(size) < 900, 9.0, 11.0)
    components: Any = {
        "shares": np.ones(1),
        "limits": np.array([math.inf]),
        "log2_totals": np.array([math.log2(size)]),
    }
    for seed in range(400):
        rng = np.random.default_rng(seed)
        drawn = rng.integers(size, size=20)
        draws = small_draws(
            [float(size)] * 20, costs[drawn].tolist(), drawn.tolist(), size, **components
        )
        some = rng.choice(size, number, replace=False)
        alike = UniformDraws(bits=costs[some], canary_bits=np.array([10.0]), population=size)
        found = importance_exposure([10.0], draws, space_size=size, references=alike)
        missed += math.log2(size) - math.log2(901) > found.high[0] + 1e-9
    assert missed <= 26  # 6.5 %, where 2.5 % are wanted of each side


def test_fills_drawn_surely_are_counted_exactly() -> None:
    # Three fills of 1.6 bits each, drawn 30 times: a fourth of 2 bits or less would have been seen.
    draws = small_draws([6.0] * 90, [1.6] * 90, [0, 1, 2] * 30, 2**40, excluded=[0])
    result = importance_exposure([1.6, 2.0], draws, space_size=2**40)
    assert result.rank == (3, 4)
    assert result.low.tolist() == result.high.tolist() == result.value.tolist()


def test_without_a_hit_the_value_is_a_lower_bound() -> None:
    draws = small_draws([2.0**21] * 100, [30.0] * 100, list(range(100)), 2**20)
    result = importance_exposure(15.0, draws, space_size=2**20)
    assert result.capped.tolist() == [True]
    assert result.value[0] == result.low[0] >= 5.0
    assert result.high[0] == 20.0
    assert result.effective_draws[0] == 0.0
    # of at most 2 / (2^-20 + 2^-15) weight, a hundredth of it a draw: 3.689 of them at 97.5 %
    most = math.floor(-math.log(0.025) * 2 / (2**-20 + 2**-15) / 100)
    assert result.rank == (1 + most,)
    assert "none of 100 draws" in result.canary(0).warnings[0]
    assert result.warnings[0].startswith("1 of 1 canaries: none of 100 draws")


def test_a_canary_of_less_than_a_bit_is_the_first() -> None:
    draws = small_draws([2.0**21] * 10, [30.0] * 10, list(range(10)), 2**20)
    result = importance_exposure(0.15, draws, space_size=2**20)
    assert (result.low[0], result.value[0], result.high[0]) == (20.0, 20.0, 20.0)
    assert not result.capped[0]
    assert result.rank == result.place == (1,)


def test_the_certificate_needs_that_no_fill_begins_another() -> None:
    draws = small_draws([2.0**20] * 10, [30.0] * 10, list(range(10)), 2**20)
    apart = replace(
        draws, shares=np.ones(1), limits=np.array([math.inf]), log2_totals=np.array([20.0])
    )
    with_bound = importance_exposure(3.0, draws, space_size=2**20)
    without = importance_exposure(3.0, apart, space_size=2**20)
    assert with_bound.low[0] >= 17.0
    assert without.low[0] < 3.0
    assert len(without.assumptions) == len(with_bound.assumptions) - 1


def test_own_excluded_and_inserted_fills() -> None:
    # Each fill stands for itself: eight fills, each drawn forty times.
    fills, bits = list(range(8)) * 40, [3.0 + 0.1 * i for i in range(8)] * 40
    draws = small_draws([8.0] * 320, bits, fills, 2**10)
    options: Any = {"space_size": 2**10}
    apart = replace(draws, excluded=np.isin(range(8), [2, 7]))
    every = importance_exposure([3.2, 3.7], apart, **options)
    assert every.rank == every.place == (3, 8)
    # Fills 2 and 7 were inserted: neither is in the other's null, each has a place.
    both = importance_exposure([3.2, 3.7], apart, inserted=True, **options)
    assert both.rank == (3, 7)
    assert both.place == (3, 8)
    one = importance_exposure([3.7], apart, inserted=[True], excluded_bits=[3.2], **options)
    assert (one.rank, one.place) == ((7,), (8,))
    with_five = replace(draws, excluded=np.isin(range(8), [2, 5, 7]))
    control = importance_exposure([3.5], with_five, excluded_bits=[3.2, 3.7], **options)
    assert (control.rank, control.place) == ((5,), (6,))


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), min_size=1, max_size=60),
    st.floats(0, 45),
    st.integers(2, 10**6),
)
def test_the_interval_is_in_order_and_above_the_certificate(
    drawn: list[tuple[int, int]], tau: float, size: int
) -> None:
    bits = np.array([float(b) for b, _ in drawn])
    w = [2 / (1 / size + 2.0**-b) for b in bits]
    draws = small_draws(w, bits.tolist(), [100 * b + f for b, f in drawn], size)
    result = importance_exposure(tau, draws, space_size=size)
    assert 0 <= result.low[0] <= result.value[0] <= result.high[0] <= math.log2(size)
    distinct = int((draws.bits <= tau).sum())
    if distinct <= 2**tau - 1 and distinct < size:
        assert result.low[0] >= math.log2(size) - tau - 1e-9
    shuffled = np.random.default_rng(0).permutation(len(w))
    again = replace(draws, drawn=draws.drawn[shuffled], strata=draws.strata[shuffled])
    assert importance_exposure(tau, again, space_size=size).value == pytest.approx(result.value)


def test_sizes_beyond_a_float() -> None:
    size, light = 10**4000, np.arange(1000) < 100
    bits, weights = np.where(light, 40.0, math.inf), np.where(light, 41.0, math.log2(size) + 1)
    draws = weighted(bits, weights, 2, **mixture(size))
    result = importance_exposure([40.0, 13_000.0], draws, space_size=size)
    assert np.isfinite(result.value).all()
    # 100 hits of weight 2^41 in 1,000 draws
    assert result.value[0] == pytest.approx(math.log2(size) - math.log2(0.1) - 41, abs=1e-3)
    assert result.rank[0] == pytest.approx(0.1 * 2**41, rel=1e-3)
    assert (result.high - result.low)[0] < 0.7
    held = TypeAdapter(Estimate).dump_python(result.canary(0), mode="json")
    assert held["rank"] == str(result.rank[0])
    # A tenth of the draws count at 14,000 bits, all of them light, and so might one of weight 2|R|.
    huge = importance_exposure(14_000.0, draws, space_size=size)
    assert huge.low[0] == pytest.approx(math.log2(1000 / (-math.log(0.025) * 2)), abs=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_no_weight_is_above_its_bound(kind: str) -> None:
    # All fills, not only drawn ones; and so many fills do not cost more than is proven.
    known = space(kind)
    draws = known.draw(600, seed=1)
    assert (known.log2_weights - draws.log2_bound(known.bits)).max() < 1e-9
    shared = known.limits[1:-1]
    counted = np.searchsorted(known.bits[known.ordered], shared, side="right")
    assert (np.log2(counted) <= draws.log2_most(shared) + 1e-9).all()
    assert (draws.log2_most(shared) <= np.minimum(shared, math.log2(SIZE)) + 1e-9).all()


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.floats(0, 12), st.floats(0, 2))
def test_the_bound_on_uneven_tries(seed: int, limit: float, more: float) -> None:
    # Slow and recursive, over fills of different lengths and a model that leaves some mass outside.
    rng = np.random.default_rng(seed)

    def grown(depth: int, cost: float) -> tuple[float, list[Any]]:
        if depth == 4 or (depth and rng.random() < 0.3):
            return cost, []
        p = rng.dirichlet(np.full(4, 0.5))[: rng.integers(1, 5)] + 1e-6
        return cost, [grown(depth + 1, cost - math.log2(each / 1.00001)) for each in p]

    def fills(node: tuple[float, list[Any]]) -> list[float]:
        return [cost for child in node[1] for cost in fills(child)] or [node[0]]

    def h(node: tuple[float, list[Any]], t: float) -> float:
        return min(float(len(fills(node))), 2 ** (t - node[0]))

    def probabilities(node: tuple[float, list[Any]], t: float, q: float) -> list[float]:
        assert sum(bits <= t for bits in fills(node)) <= h(node, t) + 1e-9
        if not node[1]:
            return [q]
        total = sum(h(child, t) for child in node[1])
        assert total <= h(node, t) * (1 + 1e-9)
        return [x for child in node[1] for x in probabilities(child, t, q * h(child, t) / total)]

    trie = grown(0, 0.0)
    costs = np.array(fills(trie))
    limits = np.array([0.0, limit, limit + more, math.inf])
    q = np.array([probabilities(trie, t, 1.0) for t in limits])
    assert q.sum(axis=1) == pytest.approx(np.ones(4))
    shares = np.array([0.1, 0.2, 0.3, 0.4])
    totals = np.log2([h(trie, t) for t in limits])
    known = {"shares": shares, "limits": limits, "log2_totals": totals}
    draws = weighted(costs, -np.log2(shares @ q), 1, **known)
    assert (draws.log2_weights <= draws.log2_bound(costs) + 1e-9).all()
    counted = [(costs <= bits).sum() for bits in costs]
    assert (np.log2(counted) <= draws.log2_most(costs) + 1e-9).all()
