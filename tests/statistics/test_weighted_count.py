import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from limit_spaces import KINDS, SIZE, small_draws, space

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics import WeightedDraws, importance_exposure


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
    draws = WeightedDraws(
        bits=costs,
        log2_weights=-np.log2(shares @ q),
        fills=np.arange(len(costs)),
        strata=np.zeros(len(costs), int),
        excluded=np.zeros(len(costs), bool),
        shares=shares,
        limits=limits,
        log2_totals=np.log2([h(trie, t) for t in limits]),
    )
    assert (draws.log2_weights <= draws.log2_bound(costs) + 1e-9).all()
    counted = [(costs <= bits).sum() for bits in costs]
    assert (np.log2(counted) <= draws.log2_most(costs) + 1e-9).all()


def test_refused_draws() -> None:
    good = small_draws([8.0] * 4, [3.0] * 4, [0, 1, 2, 3], 8)
    with pytest.raises(InputError, match=r"fills has shape \(3,\), bits \(4,\)"):
        replace(good, fills=np.arange(3))
    with pytest.raises(InputError, match=r"bits has shape \(0,\)"):
        small_draws([], [], [], 8)
    with pytest.raises(InputError, match=r"bits\[0\] is no usable number \(4 of 4 are not\)"):
        replace(good, bits=np.full(4, math.nan))
    with pytest.raises(InputError, match=r"log2_weights\[0\] is no usable number"):
        replace(good, log2_weights=np.full(4, math.inf))


def test_refused_mixtures() -> None:
    good = small_draws([8.0] * 4, [3.0] * 4, [0, 1, 2, 3], 8)
    for shares in ([0.0, 1.0], [0.5, 0.6], [math.nan, 1.0]):
        with pytest.raises(SettingsError, match=r"shares=\[.*\] must lie in \(0, 1\] and add up"):
            replace(good, shares=np.array(shares))
    for limit in (-1.0, math.nan):
        with pytest.raises(SettingsError, match="must each be at least 0 bits, or infinite"):
            replace(good, limits=np.array([limit, math.inf]))
    for totals in ([0.0, math.inf], [0.1, 3.0], [math.nan, 3.0]):
        with pytest.raises(InputError, match="must be finite and at most the limits"):
            replace(good, log2_totals=np.array(totals))
    with pytest.raises(InputError, match=r"limits has shape \(1,\), shares \(2,\): give one entry"):
        replace(good, limits=np.zeros(1))
    with pytest.raises(InputError, match=r"do not fit space_size, of 4.000 bits"):
        importance_exposure(1.0, good, space_size=16)
    wide = replace(good, limits=np.array([9.0, math.inf]), log2_totals=np.array([4.0, 3.0]))
    with pytest.raises(InputError, match=r"do not fit space_size, of 3.000 bits"):
        importance_exposure(1.0, wide, space_size=8)
