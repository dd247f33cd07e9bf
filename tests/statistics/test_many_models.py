import json
from itertools import combinations
from math import comb

import numpy as np
import pytest
from numpy.typing import NDArray

from lmexposure._record import plain
from lmexposure.statistics import area_under_curve, canaries_and_population
from lmexposure.statistics.arrays import coin_notes

Cells = tuple[NDArray[np.float64], NDArray[np.bool_]]


def _population_cells(seed: int, models: int, canaries: int) -> Cells:
    """Scores that know nothing of the coins."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(models, canaries)), rng.random((models, canaries)) < 0.5


def _name_and_shame(seed: int, models: int, canaries: int, named: int) -> Cells:
    """Publishes one record in full where it is in, and nothing of the others."""
    scores, coins = _population_cells(seed, models, canaries)
    scores[:, named] += 50.0 * coins[:, named]
    return scores, coins


def test_name_and_shame_shows_up_at_its_canary_and_not_in_the_population() -> None:
    """Aerni et al. 2024: an average over canaries hides the one that is leaked."""
    found = canaries_and_population(*_name_and_shame(1, 64, 1000, named=123))
    assert found.worst == 123
    assert found.canary_tpr[123] == 1
    assert found.worst_p < 1e-12
    assert found.canary_low[123] > 0.35
    assert (np.delete(found.canary_low, 123) == 0).all()
    assert found.population_tpr is not None
    assert found.population_tpr < 0.005
    assert found.population_advantage < 0.03
    assert found.population_area == pytest.approx(0.5, abs=0.01)
    assert found.notes == ()


def test_without_signal_no_canary_is_named() -> None:
    """Where each canary's best threshold would have named hundreds."""
    named = 0
    for seed in range(60):
        found = canaries_and_population(*_population_cells(seed, 10, 500))
        named += found.worst_p <= 0.05
        assert (found.canary_low == 0).all()
    assert np.nanmax(found.canary_tpr) > 0.7
    assert named <= 8  # of 60 at 5 %: P(more) = .003


def test_p_values_are_exact() -> None:
    """Over all placements of the coins, each p-value holds what it says."""
    scores = np.array([3.0, 1, 4, 1.5, 9, 2.6])[:, None]
    found = []
    for inside in combinations(range(6), 3):
        coins = np.isin(np.arange(6), inside)[:, None]
        result = canaries_and_population(scores, coins)
        k = round(float(result.canary_tpr[0]) * 3)
        assert result.canary_p[0] == pytest.approx(comb(6 - k, 3) / comb(6, 3))
        found.append(float(result.canary_p[0]))
    for p in set(found):
        assert np.mean(np.array(found) <= p + 1e-12) == pytest.approx(p)


def test_low_ends_hold_for_all_canaries_at_once() -> None:
    """A leak of known advantage: the score tells the truth with probability .6, else nothing."""
    rng, wrong = np.random.default_rng(4), 0
    for _ in range(300):
        coins = rng.random((40, 20)) < 0.5
        scores = rng.random(coins.shape) + 5.0 * (coins & (rng.random(coins.shape) < 0.6))
        wrong += bool((canaries_and_population(scores, coins).canary_low > 0.6).any())
    assert wrong <= 0.05 * 300


def test_ties_count_against_a_leak() -> None:
    _, coins = _population_cells(5, 30, 4)
    found = canaries_and_population(np.ones(coins.shape), coins.astype(int))
    assert found.canary_tpr.tolist() == [0] * 4
    assert found.canary_p.tolist() == [1] * 4
    assert (found.worst_p, found.population_advantage, found.population_area) == (1, 0, 0.5)


def test_what_few_models_and_negatives_cannot_tell_is_said() -> None:
    scores, coins = _population_cells(6, 6, 8)
    coins[:, 2] = True
    found = canaries_and_population(scores, coins)
    assert np.isnan(found.canary_tpr[2])
    assert (found.canary_p[2], found.canary_low[2]) == (1, 0)
    assert "1 of 8 canaries were in all models or in none" in found.notes[0]
    assert "negatives do not resolve a FPR of 0.001" in found.notes[1]
    told = json.loads(json.dumps(plain(found)))
    assert told["population_tpr"] is None
    assert told["canary_tpr"][2] is None


def test_cells_without_a_score_are_left_out_and_counted() -> None:
    rng = np.random.default_rng(6)
    x, coins = rng.normal(size=(20, 8)), rng.random((20, 8)) < 0.5
    whole = canaries_and_population(x, coins, fpr=0.2)
    x[3, 2] = x[5, 2] = np.nan
    found = canaries_and_population(x, coins, fpr=0.2, may_miss=True)
    others = np.arange(8) != 2
    assert np.isnan(found.canary_tpr[2])
    assert (found.canary_p[2], found.canary_low[2]) == (1, 0)
    assert np.array_equal(found.canary_p[others], whole.canary_p[others])
    known = ~np.isnan(x)
    area = area_under_curve(x[coins & known], x[~coins & known]).value
    assert found.population_area == pytest.approx(area)
    assert found.notes == (
        "2 of 160 cells have no score (NaN) and are left out of the population; their 1 of 8 "
        "canaries have no rate of their own",
    )
    json.dumps(plain(found), allow_nan=False)


@pytest.mark.parametrize("shape", [(16, 40), (3, 500), (64, 2), (2, 3), (1, 5), (5, 1)])
@pytest.mark.parametrize("p", [0.01, 0.5])
def test_independent_coins_are_not_noted(shape: tuple[int, int], p: float) -> None:
    rng = np.random.default_rng(1)
    assert not any(coin_notes(rng.random(shape) < p) for _ in range(200))


def test_designs_of_exactly_half_are_noted() -> None:
    rng = np.random.default_rng(2)
    columns = np.argsort(rng.random((16, 40)), axis=0) < 8
    assert len(coin_notes(columns)) == 1
    assert "every canary is in the same number of models" in coin_notes(columns)[0]
    assert "every model holds the same number of canaries" in coin_notes(columns.T)[0]
