import json
from itertools import combinations
from math import comb

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics import (
    area_under_curve,
    canaries_and_population,
    lira,
    lira_matrix,
    lira_offline,
)
from lmexposure.statistics.many_models import coin_matrix, coin_notes, score_matrix

# ethz-spylab/misleading-privacy-evals, src/attack_util.py run on the input; log N(x; in) -
# log N(x; out), standard deviations with n - 1: (target, in, out, score).
PUBLISHED = [(2.0, [1, 2, 3], [0, -1, 1], 2.0), (0.0, [0, 1, 2], [0, 1, -1], -0.5)]
Cells = tuple[NDArray[np.float64], NDArray[np.bool_]]


def _slow(
    x: NDArray[np.float64], coins: NDArray[np.bool_], mode: str, pooled: bool
) -> NDArray[np.float64]:
    """Cell by cell, with scipy's normal density."""
    found = np.empty_like(x)
    for model in range(len(x)):
        rest, its = np.delete(x, model, axis=0), np.delete(coins, model, axis=0)
        spreads = []
        for side in (its, ~its):
            groups = [rest[side[:, j], j] for j in range(x.shape[1])]
            squares = sum(float(((g - g.mean()) ** 2).sum()) for g in groups)
            whole = np.sqrt(squares / sum(len(g) - 1 for g in groups))
            spreads.append([whole if pooled else g.std(ddof=1) for g in groups])
        for j in range(x.shape[1]):
            inside, outside = rest[its[:, j], j].mean(), rest[~its[:, j], j].mean()
            out = stats.norm(outside, spreads[1][j])
            if mode == "offline":
                found[model, j] = (x[model, j] - outside) / spreads[1][j]
            else:
                own = stats.norm(inside, spreads[0][j]).logpdf(x[model, j])
                found[model, j] = own - out.logpdf(x[model, j])
    return found


def _cells(
    seed: int, models: int, canaries: int, shift: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    rng = np.random.default_rng(seed)
    coins = rng.random((models, canaries)) < 0.5
    hardness = rng.normal(0, 30, canaries)
    return hardness + shift * coins + rng.normal(size=coins.shape), coins


@pytest.mark.parametrize(("target", "inside", "outside", "score"), PUBLISHED)
def test_published_scores(
    target: float, inside: list[int], outside: list[int], score: float
) -> None:
    assert lira(target, inside, outside) == pytest.approx([score], abs=1e-12)


def test_several_canaries_at_once() -> None:
    targets = [target for target, _, _, _ in PUBLISHED]
    inside, outside = (np.array([row[i] for row in PUBLISHED]).T for i in (1, 2))
    assert lira(targets, inside, outside) == pytest.approx([2.0, -0.5])
    assert lira_offline(targets, outside) == pytest.approx([2.0, 0.0])


@pytest.mark.parametrize("mode", ["online", "offline"])
@pytest.mark.parametrize("pooled", [False, True])
def test_matrix_against_a_slow_version(mode: str, pooled: bool) -> None:
    x, coins = _cells(1, 14, 9, 1.0)
    found = lira_matrix(x, coins.astype(int), mode=mode, global_variance=pooled)  # type: ignore[arg-type]
    np.testing.assert_allclose(found.scores, _slow(x, coins, mode, pooled), atol=1e-9)
    np.testing.assert_array_equal(found.included, coins)
    assert found.notes == ()


def test_a_row_does_not_read_its_own_coins() -> None:
    x, coins = _cells(2, 30, 20, 1.0)
    turned = coins.copy()
    turned[3] = ~turned[3]
    for pooled in (False, True):
        first = lira_matrix(x, coins, global_variance=pooled).scores[3]
        again = lira_matrix(x, turned, global_variance=pooled).scores[3]
        np.testing.assert_array_equal(first, again)


def test_offline_is_one_sided_and_does_not_saturate() -> None:
    scores = lira_offline([-50, 0, 50, 60], np.array([[-1.0, 0, 1]] * 4).T)
    assert (np.diff(scores) > 0).all()


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_tells_members_where_the_plain_score_cannot(mode: str) -> None:
    x, coins = _cells(3, 24, 400, 2.0)
    found = lira_matrix(x, coins, mode=mode, global_variance=True).scores  # type: ignore[arg-type]
    assert area_under_curve(x[coins], x[~coins]).value < 0.6
    # 2 standard deviations apart: Phi(2 / sqrt 2) = .921, less for moments that are estimated.
    assert area_under_curve(found[coins], found[~coins]).value > 0.88


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_without_signal_it_is_at_chance(mode: str) -> None:
    x, coins = _cells(4, 24, 400, 0.0)
    found = lira_matrix(x, coins, mode=mode).scores  # type: ignore[arg-type]
    value = area_under_curve(found[coins], found[~coins]).value
    assert value == pytest.approx(0.5, abs=0.03)


def test_coins_that_follow_from_each_other_are_noted() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(16, 40))
    half = np.argsort(rng.random(x.shape), axis=0) < 8
    assert "same number of models" in lira_matrix(x, half).notes[0]
    half = np.argsort(rng.random(x.shape), axis=1) < 20
    assert "same number of canaries" in lira_matrix(x, half).notes[0]


def test_ties_and_too_few_models_are_refused() -> None:
    x, coins = _cells(6, 12, 5, 1.0)
    tied = x.copy()
    tied[:, 2] = 7
    with pytest.raises(InputError, match=r"scores \(out, without model 0\): canary 2 has the same"):
        lira_matrix(tied, coins)
    assert np.isfinite(lira_matrix(tied, coins, global_variance=True).scores).all()
    with pytest.raises(InputError, match="same score in all models"):
        lira_matrix(np.ones_like(x), coins, global_variance=True)
    few = np.zeros_like(coins)
    few[0] = True
    with pytest.raises(
        InputError,
        match=r"each was in or out in too few of 12 .* 2 others .* global_variance=True$",
    ):
        lira_matrix(x, few)
    with pytest.raises(
        InputError, match=r"too few of 1 models; LiRA needs 1 .*: train more models$"
    ):
        lira_matrix(x[:1], few[:1], global_variance=True)


def test_a_canary_that_was_in_too_rarely_has_no_score_and_takes_no_other_away() -> None:
    x, coins = _cells(6, 30, 5, 1.0)
    whole = lira_matrix(x, coins)
    coins[:, 4] = False
    coins[[0, 3], 4] = True
    found = lira_matrix(x, coins)
    # A model that holds it has one other that does: no spread. The rest have two.
    assert np.argwhere(np.isnan(found.scores)).tolist() == [[0, 4], [3, 4]]
    others = np.arange(5) != 4
    assert np.array_equal(found.scores[:, others], whole.scores[:, others])
    assert found.notes == (
        "2 of 150 scores are NaN, of 1 of 5 canaries: in (or out) in fewer than 2 of the other "
        "models; train more models, or use global_variance=True",
    )
    assert np.isfinite(lira_matrix(x, coins, mode="offline").scores).all()
    pooled = lira_matrix(x, coins, global_variance=True)
    assert pooled.notes == ()
    assert np.isfinite(pooled.scores).all()
    coins[0, 4] = False
    alone = lira_matrix(x, coins, global_variance=True)
    assert np.argwhere(np.isnan(alone.scores)).tolist() == [[3, 4]]
    assert np.isfinite(lira_matrix(x, coins, mode="offline", global_variance=True).scores).all()


def test_a_fair_design_of_few_models_is_not_refused() -> None:
    rng = np.random.default_rng(8)
    coins = rng.random((16, 500)) < 0.5
    found = lira_matrix(rng.normal(size=coins.shape), coins)
    missing = np.isnan(found.scores)
    few = np.minimum(coins.sum(axis=0), (~coins).sum(axis=0)) < 3
    assert 0 < missing.any(axis=0).sum() <= few.sum()
    assert not missing[:, ~few].any()
    # Whether a cell is NaN follows from the other coins: turned, its own changes nothing.
    model, canary = np.argwhere(missing)[0]
    coins[model, canary] ^= True
    turned = lira_matrix(rng.normal(size=coins.shape), coins)
    assert np.isnan(turned.scores[model, canary])


def test_refusals() -> None:
    x, coins = _cells(7, 8, 3, 1.0)
    with pytest.raises(InputError, match="scores has shape"):
        lira_matrix(x[0], coins[0])
    with pytest.raises(InputError, match=r"included has shape \(3, 8\)"):
        lira_matrix(x, coins.T)
    with pytest.raises(InputError, match="included must hold true"):
        lira_matrix(x, coins + 0.5)
    x[1, 2] = np.nan
    with pytest.raises(InputError, match=r"scores\[1, 2\]=nan is not finite \(1 of 24 are not\)"):
        lira_matrix(x, coins)
    with pytest.raises(SettingsError, match="mode='half' must be one of online, offline"):
        lira_matrix(np.ones((2, 2)), np.ones((2, 2)), mode="half")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="give at least 2 models"):
        lira(1.0, [1], [1, 2])
    with pytest.raises(InputError, match="one column for each of 2 canaries"):
        lira([1, 2], [1, 2], [1, 2])
    with pytest.raises(InputError, match="in_scores: canary 0 has the same score"):
        lira(1.0, [1, 1], [1, 2])


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
    record = json.loads(json.dumps(found.to_dict()))
    assert record["population"]["tpr"] is None
    assert record["canary_tpr"][2] is None


def test_cells_without_a_score_are_left_out_and_counted() -> None:
    rng = np.random.default_rng(6)
    x, coins = rng.normal(size=(20, 8)), rng.random((20, 8)) < 0.5
    whole = canaries_and_population(x, coins, fpr=0.2)
    x[3, 2] = x[5, 2] = np.nan
    with pytest.raises(InputError, match=r"scores\[3, 2\]=nan is not finite \(2 of 160"):
        canaries_and_population(x, coins)
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
    json.dumps(found.to_dict(), allow_nan=False)
    x[0, 0] = np.inf
    with pytest.raises(InputError, match=r"scores\[0, 0\]=inf is not finite"):
        canaries_and_population(x, coins, may_miss=True)


def test_population_refusals() -> None:
    scores, coins = _population_cells(7, 6, 3)
    with pytest.raises(InputError, match="out_scores has shape"):
        canaries_and_population(scores, np.ones_like(coins))
    with pytest.raises(InputError, match="included has shape"):
        canaries_and_population(scores, coins[:2])
    with pytest.raises(SettingsError, match="fpr=0 must"):
        canaries_and_population(scores, coins, fpr=0)
    with pytest.raises(SettingsError, match="significance=1 must"):
        canaries_and_population(scores, coins, significance=1)


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


def test_lists_and_numbers_are_taken() -> None:
    assert score_matrix("x", [[1, 2]]).dtype == np.float64
    assert coin_matrix("c", [[1, 0]], (1, 2)).tolist() == [[True, False]]


def test_matrix_refusals() -> None:
    with pytest.raises(InputError, match=r"x has shape \(2,\); give one row a model"):
        score_matrix("x", [1, 2])
    with pytest.raises(InputError, match=r"x has shape \(1, 0\)"):
        score_matrix("x", [[]])
    with pytest.raises(InputError, match=r"x\[0, 1\]=inf is not finite \(1 of 2 are not\)"):
        score_matrix("x", [[1, np.inf]])
    with pytest.raises(InputError, match=r"c has shape \(1, 1\); give one coin a score"):
        coin_matrix("c", [[1]], (1, 2))
    with pytest.raises(InputError, match="c must hold true"):
        coin_matrix("c", [[1, 2]], (1, 2))
