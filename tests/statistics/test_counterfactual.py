"""Counterfactual memorisation, influence and their tests: naive versions, figures, no signal."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from lmexposure.statistics import (
    counterfactual_memorisation,
    influence,
    influence_test,
    mean_difference,
    memorisation_by_halves,
    memorisation_test,
)
from lmexposure.statistics.arrays import Flags, Floats


def cells(seed: int, models: int, texts: int, others: int = 0) -> tuple[Floats, Flags, Floats]:
    """Scores that know nothing of the coins, and scores of others."""
    rng = np.random.default_rng(seed)
    scores = 5 * rng.normal(size=texts) + rng.normal(size=(models, texts))
    return scores, rng.random((models, texts)) < 0.5, rng.normal(size=(models, others))


def naive_ends(inside: Floats, outside: Floats) -> tuple[float, float, float]:
    if min(inside.size, outside.size) < 2:
        return np.nan, np.nan, np.nan
    found = mean_difference(inside, outside)
    return found.value, found.low, found.high


def naive_t(inside: Floats, outside: Floats) -> float:
    """Welch's statistic of two samples, or minus infinity where there is none."""
    if min(inside.size, outside.size) < 2:
        return -np.inf
    difference = float(inside.mean() - outside.mean())
    if inside.std() == outside.std() == 0:
        return 0.0 if difference == 0 else float(np.copysign(np.inf, difference))
    return float(stats.ttest_ind(inside, outside, equal_var=False).statistic)


def test_memorisation_is_what_a_loop_says() -> None:
    scores, coins, _ = cells(0, 9, 40)
    coins[:, 0], coins[:, 1], coins[:, 2] = True, False, np.arange(9) == 4
    scores[:, 3] = 7.25
    found = counterfactual_memorisation(scores, coins, lengths=np.arange(1, 41))
    for n in range(40):
        inside, outside = scores[coins[:, n], n], scores[~coins[:, n], n]
        wanted = naive_ends(inside, outside)
        got = (found.value[n], found.low[n], found.high[n])
        assert got == pytest.approx(wanted, nan_ok=True, abs=1e-10)
        assert found.log_ratio[n] == pytest.approx(wanted[0] * (n + 1), nan_ok=True, abs=1e-9)
        assert (found.models_in[n], found.models_out[n]) == (inside.size, outside.size)
        if not np.isnan(wanted[0]):
            assert found.mean_in[n] == pytest.approx(inside.mean())
            assert found.mean_out[n] == pytest.approx(outside.mean())
            squares = inside.var() * inside.size + outside.var() * outside.size
            assert found.spread[n] == pytest.approx(np.sqrt(squares / 7), abs=1e-12)
    assert np.isnan(found.value[:3]).all()
    assert (found.value[3], found.low[3], found.high[3], found.spread[3]) == (0, 0, 0, 0)
    assert found.method == "Welch"


def test_influence_is_what_a_loop_says() -> None:
    _, coins, others = cells(1, 11, 6, others=5)
    coins[:, 2] = True
    found = influence(others, coins)
    assert found.value.shape == found.low.shape == (6, 5)
    for n, v in np.ndindex(6, 5):
        wanted = naive_ends(others[coins[:, n], v], others[~coins[:, n], v])
        got = (found.value[n, v], found.low[n, v], found.high[n, v])
        assert got == pytest.approx(wanted, nan_ok=True, abs=1e-10)
    assert found.models_in.tolist() == coins.sum(axis=0).tolist()


def test_published_intervals_of_rates() -> None:
    # Newcombe 1998, table II, method 10: 56/70 - 48/80, 9/10 - 3/10, 10/10 - 0/20, 10/10 - 0/10.
    rates = (((56, 70), (48, 80)), ((9, 10), (3, 10)), ((10, 10), (0, 20)), ((10, 10), (0, 10)))
    ends = ((0.0524, 0.3339), (0.1705, 0.8090), (0.6791, 1.0), (0.6075, 1.0))
    for ((a, m), (b, n)), (low, high) in zip(rates, ends, strict=True):
        scores = np.repeat([1.0, 0.0, 1.0, 0.0], [a, m - a, b, n - b])[:, None]
        coins = np.repeat([True, False], [m, n])[:, None]
        found = counterfactual_memorisation(scores, coins, binary=True)
        assert found.value[0] == pytest.approx(a / m - b / n)
        assert (found.low[0], found.high[0]) == pytest.approx((low, high), abs=1e-4)
        ratio = np.log2((a / m) / (b / n)) if b else np.inf
        assert found.log_ratio[0] == pytest.approx(ratio)
    assert found.method == "Newcombe"
    never = counterfactual_memorisation(np.zeros((6, 1)), coins[7:13], binary=True)
    assert np.isnan(never.log_ratio[0])
    assert never.value[0] == 0


@pytest.mark.parametrize(
    ("models", "coverage", "width"),
    [(10, 0.948, 0.423), (20, 0.958, 0.263), (40, 0.947, 0.175), (100, 0.944, 0.109)],
)
def test_welch_covers_what_it_says(models: int, coverage: float, width: float) -> None:
    """Beta(8, 2) against Beta(5, 5), half of the models on each side."""
    rng, runs = np.random.default_rng(models), 4000
    coins = np.broadcast_to((np.arange(models) < models // 2)[:, None], (models, runs))
    scores = np.where(coins, rng.beta(8, 2, coins.shape), rng.beta(5, 5, coins.shape))
    found = counterfactual_memorisation(scores, coins)
    covered = ((found.low <= 0.3) & (found.high >= 0.3)).mean()
    assert covered == pytest.approx(coverage, abs=0.016)
    assert float((found.high - found.low).mean()) == pytest.approx(width, rel=0.06)


@pytest.mark.parametrize(("models", "coverage"), [(20, 0.908), (40, 0.950), (100, 0.942)])
def test_newcombe_covers_where_a_normal_interval_does_not(models: int, coverage: float) -> None:
    """Reproduced in .98 of the models with the text, and in .05 of the others."""
    rng, runs = np.random.default_rng(models), 4000
    coins = rng.random((models, runs)) < 0.5
    scores = (rng.random(coins.shape) < np.where(coins, 0.98, 0.05)).astype(float)
    found = counterfactual_memorisation(scores, coins, binary=True)
    covered = (found.low <= 0.93) & (found.high >= 0.93)
    assert covered.mean() == pytest.approx(coverage, abs=0.018)
    normal = counterfactual_memorisation(scores, coins)
    assert ((normal.low <= 0.93) & (normal.high >= 0.93)).mean() < covered.mean() - 0.05


def test_influence_covers() -> None:
    rng, hits = np.random.default_rng(5), []
    for _ in range(60):
        coins = rng.random((24, 8)) < 0.5
        moved = rng.normal(size=(24, 4)) + 1.5 * coins[:, [0]]
        found = influence(moved, coins)
        truth = np.where(np.arange(8) == 0, 1.5, 0.0)[:, None]
        hits.append((found.low <= truth) & (truth <= found.high))
    assert np.mean(hits) == pytest.approx(0.95, abs=0.02)


def test_p_is_what_a_loop_over_the_same_permutations_says() -> None:
    scores, coins, others = cells(2, 8, 5, others=3)
    scores[:, 0] += 4 * coins[:, 0]
    coins[:, 4] = False
    found = memorisation_test(scores, coins, permutations=60, seed=9)
    pairs = influence_test(others, coins, permutations=60, seed=9)
    rng, of_texts, of_pairs = np.random.default_rng(9), [], []

    def own(rows: NDArray[np.int64]) -> list[float]:
        dealt = scores[rows]
        return [naive_t(dealt[c, n], dealt[~c, n]) for n, c in enumerate(coins.T)]

    def both(rows: NDArray[np.int64]) -> list[list[float]]:
        dealt = others[rows]
        return [[abs(naive_t(dealt[c, v], dealt[~c, v])) for v in range(3)] for c in coins.T[:4]]

    for _ in range(60):
        rows = rng.permutation(8)
        of_texts.append(max(own(rows)))
        of_pairs.append(np.max(both(rows)))
    for n, t in enumerate(own(np.arange(8))[:4]):
        assert found.t[n] == pytest.approx(t)
        assert found.p[n] == (1 + np.sum(np.array(of_texts) >= t - 1e-12)) / 61
    for n, row in enumerate(both(np.arange(8))):
        for v, t in enumerate(row):
            assert pairs.p[n, v] == (1 + np.sum(np.array(of_pairs) >= t - 1e-12)) / 61
    assert np.isnan(found.p[4])
    assert np.isnan(pairs.p[4]).all()


@pytest.mark.parametrize("half", [False, True])
def test_without_a_trace_the_level_is_kept(half: bool) -> None:
    """Scores of one model have much in common; coins are fair, or half of the models a text."""
    rng, called, runs = np.random.default_rng(6), 0, 400
    for run in range(runs):
        coins = rng.random((12, 30)) < 0.5
        if half:
            coins = np.argsort(rng.random((12, 30)), axis=0) < 6
        scores = rng.exponential(size=(12, 1)) * 3 + rng.standard_t(3, size=(12, 30))
        found = memorisation_test(scores, coins, permutations=39, seed=run)
        called += bool(np.nanmin(found.p) <= 0.05)
    assert called <= 0.05 * runs + 3.5 * np.sqrt(0.05 * 0.95 * runs)
    assert called >= 0.02 * runs  # exact, not merely safe


def test_texts_that_leave_a_trace_make_no_other_text_look_so() -> None:
    rng, called, found_all = np.random.default_rng(7), 0, 0
    for run in range(150):
        coins = rng.random((24, 20)) < 0.5
        leak = coins[:, :3].sum(axis=1, keepdims=True)
        scores = rng.normal(size=(24, 20)) + leak  # they move all other scores as well
        scores[:, :3] += 6 * coins[:, :3]
        p = memorisation_test(scores, coins, permutations=39, seed=run).p
        called += bool((p[3:] <= 0.05).any())
        found_all += bool((p[:3] <= 0.05).all())
    assert called <= 0.05 * 150 + 3 * np.sqrt(0.05 * 0.95 * 150)
    assert found_all >= 100


def test_pairs_a_few_texts_at_a_time_are_the_same_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    _, coins, others = cells(12, 10, 7, others=3)
    whole = influence_test(others, coins, permutations=19, seed=0)
    monkeypatch.setattr("lmexposure.statistics.counterfactual._CELLS", 6)
    parts = influence_test(others, coins, permutations=19, seed=0)
    assert np.allclose(whole.t, parts.t, equal_nan=True)
    assert np.array_equal(whole.p, parts.p, equal_nan=True)


def test_influence_is_found_among_all_pairs() -> None:
    _, coins, others = cells(8, 40, 30, others=20)
    others[:, 7] += 3 * coins[:, 4]
    others[:, 9] -= 3 * coins[:, 5]
    found = influence_test(others, coins, permutations=199, seed=0)
    assert found.p[4, 7] == found.p[5, 9] == 1 / 200
    assert (found.p <= 0.05).sum() == 2
    assert found.t[4, 7] > 0 > found.t[5, 9]


def test_the_largest_is_too_large_and_halves_mend_it() -> None:
    """1,000 texts without a trace, 20 models, Beta(5, 5): .227 by all models, .007 by halves."""
    rng, largest, honest = np.random.default_rng(9), [], []
    for run in range(40):
        coins = rng.random((20, 1000)) < 0.5
        scores = rng.beta(5, 5, coins.shape)
        largest.append(np.nanmax(counterfactual_memorisation(scores, coins).value))
        honest.append(memorisation_by_halves(scores, coins, seed=run)[0])
    assert np.mean(largest) == pytest.approx(0.227, abs=0.012)
    assert np.mean(honest) == pytest.approx(0.0, abs=0.045)  # standard error .011


def test_halves_are_what_a_loop_says_and_find_a_trace() -> None:
    scores, coins, _ = cells(10, 30, 12)
    scores[:, 5] += 4 * coins[:, 5]
    found = memorisation_by_halves(scores, coins, splits=3, seed=4)
    rng, places = np.random.default_rng(4), np.zeros((6, 12))
    for split in range(3):
        first = np.isin(np.arange(30), rng.permutation(30)[:15])
        values = [
            [naive_ends(scores[h & c, n], scores[h & ~c, n])[0] for n, c in enumerate(coins.T)]
            for h in (first, ~first)
        ]
        for way, (chooses, says) in enumerate((values, values[::-1])):
            order = sorted(range(12), key=lambda n: -chooses[n])
            places[2 * split + way] = [says[n] for n in order]
    assert found.tolist() == pytest.approx(places.mean(axis=0).tolist())
    assert 3 < found[0] < 5
    assert np.abs(found[1:]).max() < 1
    assert np.isnan(memorisation_by_halves(scores[:4], coins[:4], seed=0)).any()


def test_binary_scores_that_tell_all_are_certain() -> None:
    coins = np.array([[1, 0, 1, 0, 1, 0, 1, 0, 1, 0]], dtype=bool).T
    found = memorisation_test(coins.astype(float), coins, permutations=199, seed=0)
    assert found.t[0] == np.inf
    assert found.p[0] <= 0.03  # 1 of 252 ways
    same = memorisation_test(np.full((10, 1), 0.1), coins, permutations=19, seed=0)
    assert (same.t[0], same.p[0]) == (0, 1)
