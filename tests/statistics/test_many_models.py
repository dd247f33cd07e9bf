from collections.abc import Sequence
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import pytest
from known import as_json
from scipy import stats

from lmexposure.errors import InputError
from lmexposure.statistics import (
    CanaryRates,
    area_under_curve,
    canary_rates,
    cell_rates,
    lira_matrix,
    lower_rate_p,
    models_needed,
    rate_parts,
    roc_curve,
    tpr_at_fpr,
)
from lmexposure.statistics.arrays import Flags, Floats, coin_notes

Cells = tuple[Floats, Flags]


def _population_cells(seed: int, models: int, canaries: int) -> Cells:
    """Scores that know nothing of the coins."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(models, canaries)), rng.random((models, canaries)) < 0.5


def _name_and_shame(seed: int, models: int, canaries: int, named: int) -> Cells:
    """Publishes one record in full where it is in, and nothing of the others."""
    scores, coins = _population_cells(seed, models, canaries)
    scores[:, named] += 50.0 * coins[:, named]
    return scores, coins


def worst_p(found: CanaryRates) -> float:
    """Of one such among all canaries by chance."""
    return min(1.0, float(found.p.min()) * found.p.size)


def test_name_and_shame_shows_up_at_its_canary_and_not_in_the_population() -> None:
    """Aerni et al. 2024: an average over canaries hides the one that is leaked."""
    scores, coins = _name_and_shame(1, 64, 1000, named=123)
    found = canary_rates(scores, coins)
    assert found.p.argmin() == 123
    assert found.tpr[123] == 1
    assert worst_p(found) < 1e-12
    assert found.low[123] > 0.35
    assert (np.delete(found.low, 123) == 0).all()
    over_all = scores[coins], scores[~coins]
    tpr = tpr_at_fpr(*over_all, fpr=0.001).value
    assert tpr is not None
    assert tpr < 0.005
    curve = roc_curve(*over_all)
    assert curve.advantage < 0.03
    assert curve.area == pytest.approx(0.5, abs=0.01)


def test_without_signal_no_canary_is_named() -> None:
    """Where each canary's best threshold would have named hundreds."""
    named = 0
    for seed in range(60):
        found = canary_rates(*_population_cells(seed, 10, 500))
        named += worst_p(found) <= 0.05
        assert (found.low == 0).all()
    assert np.nanmax(found.tpr) > 0.7
    assert named <= 8  # of 60 at 5 %: P(more) = .003


def test_p_values_are_exact() -> None:
    """Over all placements of the coins, each p-value holds what it says."""
    scores = np.array([3.0, 1, 4, 1.5, 9, 2.6])[:, None]
    found = []
    for inside in combinations(range(6), 3):
        coins = np.isin(np.arange(6), inside)[:, None]
        result = canary_rates(scores, coins)
        k = round(float(result.tpr[0]) * 3)
        assert result.p[0] == pytest.approx(comb(6 - k, 3) / comb(6, 3))
        found.append(float(result.p[0]))
    for p in set(found):
        assert np.mean(np.array(found) <= p + 1e-12) == pytest.approx(p)


def test_low_ends_hold_for_all_canaries_at_once() -> None:
    """A leak of known advantage: the score tells the truth with probability .6, else nothing."""
    rng, wrong = np.random.default_rng(4), 0
    for _ in range(300):
        coins = rng.random((40, 20)) < 0.5
        scores = rng.random(coins.shape) + 5.0 * (coins & (rng.random(coins.shape) < 0.6))
        wrong += bool((canary_rates(scores, coins).low > 0.6).any())
    assert wrong <= 0.05 * 300


def test_ties_count_against_a_leak() -> None:
    _, coins = _population_cells(5, 30, 4)
    found = canary_rates(np.ones(coins.shape), coins.astype(int))
    assert found.tpr.tolist() == [0] * 4
    assert found.p.tolist() == [1] * 4


def test_a_canary_that_all_or_no_models_saw_has_no_rate() -> None:
    scores, coins = _population_cells(6, 6, 8)
    coins[:, 2], coins[:, 5] = True, False
    found = canary_rates(scores, coins)
    assert np.isnan(found.tpr[[2, 5]]).all()
    assert (found.p[[2, 5]] == 1).all()
    assert (found.low[[2, 5]] == 0).all()
    assert as_json(found)["tpr"][2] is None


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


HARDNESS = np.random.default_rng(7).normal(0, 3, 400)  # the interval is of these texts


def _cells(seed: int, models: int, texts: int, shift: float) -> tuple[Floats, Flags]:
    rng = np.random.default_rng([seed, models])
    coins = rng.random((models, texts)) < 0.5
    return HARDNESS[:texts] + shift * coins + rng.normal(size=coins.shape), coins


def rates_of(x: Any, coins: Flags, **given: Any) -> Any:
    """Of the scores as they are, over all texts."""
    every = {"all": range(coins.shape[1])}
    return cell_rates(lambda kept: x[kept], coins, groups=every, **given)["all"]


def test_points_and_intervals_against_a_slow_version() -> None:
    x, coins = _cells(1, 12, 60, 1.5)
    found = rates_of(x, coins, fprs=(0.1,))
    assert found.area == pytest.approx(area_under_curve(x[coins], x[~coins]).value)
    exact = tpr_at_fpr(x[coins], x[~coins], fpr=0.1)
    assert found.rates[0].value == exact.value
    without = []
    for model in range(12):
        rest, its = np.delete(x, model, axis=0), np.delete(coins, model, axis=0)
        pairs = rest[its][:, None] - rest[~its][None]
        without.append(((pairs > 0) + (pairs == 0) / 2).mean())
    variance = 11 / 12 * ((np.array(without) - np.mean(without)) ** 2).sum()
    few = stats.norm.ppf(0.975) / stats.t.ppf(0.975, 11)
    models = few**2 * found.area * (1 - found.area) / variance
    right, wrong = models * found.area, models * (1 - found.area)
    independent = area_under_curve(x[coins], x[~coins])
    low, high = stats.beta.ppf(0.025, right, wrong + 1), stats.beta.ppf(0.975, right + 1, wrong)
    assert found.area_low == pytest.approx(min(independent.low, low))
    assert found.area_high == pytest.approx(max(independent.high, high))
    assert (found.models, found.cells_in, found.cells_missing) == (12, int(coins.sum()), 0)
    assert found.fpr[-1] == found.tpr[-1] == 1
    assert (np.diff(found.fpr) > 0).all()
    assert (found.low <= found.tpr).all()
    assert (found.tpr <= found.high).all()


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["plain", "lira"])
@pytest.mark.parametrize("shift", [0.0, 1.5])
def test_intervals_cover(attack: str, shift: float) -> None:
    values, intervals = [], []
    for seed in range(30):
        x, coins = _cells(seed, 12, 40, shift)

        def scores(kept: Flags, x: Floats = x, coins: Flags = coins) -> Floats:
            return x[kept] if attack == "plain" else lira_matrix(x[kept], coins[kept]).scores

        found = cell_rates(scores, coins, groups={"all": range(40)}, fprs=(0.1,))["all"]
        rate: Any = found.rates[0]
        values.append((found.area, rate.value))
        intervals.append(((found.area_low, found.area_high), (rate.low, rate.high)))
    truth, ends = np.mean(values, axis=0), np.array(intervals, dtype=float)
    covered = ((ends[:, :, 0] <= truth) & (truth <= ends[:, :, 1])).mean(axis=0)
    assert covered.min() >= 0.8  # P(Bin(30, .95) < 24) = 3e-4, in each of eight


def test_models_that_leak_or_do_not_widen_the_interval() -> None:
    """Half of the models leak everything: cells of a model go together."""
    x, coins = _cells(3, 16, 400, 0.0)
    x = x - HARDNESS[:400] + 4 * coins * (np.arange(16) % 2)[:, None]
    found = rates_of(x, coins)
    independent = area_under_curve(x[coins], x[~coins])
    assert found.area_high - found.area_low > 3 * (independent.high - independent.low)


def test_the_upper_end_covers_where_few_models_leak() -> None:
    """Of 16 models each leaks with chance .15: often one or none is in the sample."""
    rng, rates = np.random.default_rng(3), []
    for _ in range(120):
        coins = rng.random((16, 60)) < 0.5
        leaks = (rng.random(16) < 0.15)[:, None]
        x = rng.normal(size=coins.shape) + 6 * coins * leaks
        found = rates_of(x, coins)
        rates.append([found.rates[0].value, found.rates[0].high])
        coin = stats.beta.ppf(0.975, 16 * found.tpr + 1, 16 * (1 - found.tpr))
        assert (found.high >= coin)[:-1].all()
    value, high = np.array(rates, dtype=np.float64).T
    assert (high < value.mean()).mean() <= 0.05
    assert high[value.argmin()] < 0.3


def test_groups_are_apart() -> None:
    x, coins = _cells(4, 10, 60, 1.5)
    both = cell_rates(lambda kept: x[kept], coins, groups={"a": range(30), "b": range(30, 60)})
    alone = cell_rates(lambda kept: x[kept, :30], coins[:, :30], groups={"a": range(30)})["a"]
    assert both["a"].area == alone.area
    assert both["a"].area_low == pytest.approx(alone.area_low)


def test_what_cells_cannot_resolve_says_how_many_models_it_takes() -> None:
    x, coins = _cells(5, 8, 50, 1.0)
    rate = rates_of(x, coins).rates[1]
    needed = models_needed(0.001, 50)
    assert rate.value is None
    assert str(rate.note).endswith(f"with 50 texts it takes {needed} models")
    # With as many, half of the cells are enough.
    assert tpr_at_fpr([0.0], np.arange(needed * 25), fpr=0.001).note is None
    assert tpr_at_fpr([0.0], np.arange((needed - 1) * 25 - 25), fpr=0.001).note is not None


def test_missing_cells_are_counted() -> None:
    x, coins = _cells(6, 8, 30, 1.0)
    x[0, 0] = np.nan
    found = rates_of(x, coins)
    assert found.cells_missing == 1
    assert found.cells_in + found.cells_out == 239


def test_ties_are_half() -> None:
    _, coins = _cells(7, 8, 30, 1.0)
    flat = np.zeros(coins.shape)
    found = rates_of(flat, coins, fprs=(0.05,))
    assert (found.area, found.rates[0].value) == (0.5, 0)


def test_fresh_coins_show_nothing() -> None:
    """The same scores, with coins that no training saw."""
    x, _ = _cells(9, 24, 60, 1.5)
    areas, worst = [], []
    for seed in range(60):
        coins = np.random.default_rng([seed, 3]).random(x.shape) < 0.5
        areas.append(area_under_curve(*_apart(lira_matrix(x, coins).scores, coins)).value)
        worst.append(worst_p(canary_rates(x, coins)))
    assert np.mean(areas) == pytest.approx(0.5, abs=0.01)
    assert np.mean(np.array(worst) < 0.05) <= 0.15


def _apart(scores: Floats, coins: Flags) -> tuple[Floats, Floats]:
    return scores[coins], scores[~coins]


def test_the_p_of_two_rates_against_a_slow_version() -> None:
    x, coins = _cells(11, 9, 40, 1.0)
    y = _cells(12, 9, 40, 0.0)[0] + 2.0 * coins
    y[3, :4] = np.nan
    texts, fpr = range(5, 40), 0.1
    parts: Any = [rate_parts(scores, coins, texts=texts, fpr=fpr) for scores in (x, y)]

    def slow(scores: Floats, models: list[int]) -> float:
        cells = [(scores[m, n], coins[m, n]) for m in models for n in texts]
        inside = [value for value, its in cells if its and not np.isnan(value)]
        outside = sorted(value for value, its in cells if not its and not np.isnan(value))
        threshold = outside[len(outside) - 1 - int(fpr * len(outside) + 1e-9)]
        return float(np.mean([value > threshold for value in inside]))

    rates = [slow(scores, list(range(9))) for scores in (x, y)]
    assert [parts[0].value, parts[1].value] == pytest.approx(rates)
    away = []
    for model in range(9):
        rest = [other for other in range(9) if other != model]
        away.append(slow(y, rest) - slow(x, rest))
        assert parts[1].without[model] == pytest.approx(slow(y, rest))
    variance = 8 / 9 * sum((gap - np.mean(away)) ** 2 for gap in away)
    sums = np.zeros(40)
    for scores, rate, sign in ((x, rates[0], -1), (y, rates[1], 1)):
        known = ~np.isnan(scores[:, 5:])
        inside = (known & coins[:, 5:]).sum()
        outside = np.sort(scores[:, 5:][known & ~coins[:, 5:]])
        threshold = outside[outside.size - 1 - int(fpr * outside.size + 1e-9)]
        for n in texts:
            own = scores[coins[:, n] & ~np.isnan(scores[:, n]), n]
            sums[n] += sign * ((own > threshold).sum() - rate * own.size) / inside
    variance += 35 / 34 * (sums**2).sum() + 1 / min(parts[0].positives, parts[1].positives) ** 2
    expected = stats.t.sf((rates[1] - rates[0]) / np.sqrt(variance), 8)
    assert lower_rate_p(parts[0], parts[1]) == pytest.approx(expected)
    assert lower_rate_p(parts[1], parts[0]) == pytest.approx(1 - expected)


@pytest.mark.parametrize(("effect", "levels"), [(0.0, None), (1.0, None), (4.0, 2)])
def test_a_rate_is_called_lower_as_seldom_as_its_p_says(effect: float, levels: int | None) -> None:
    """LiRA on two methods with the same coins, texts as hard in both, errors in part the same."""
    found = []
    for seed in range(30):
        rng = np.random.default_rng([seed, 5])
        coins = rng.random((16, 40)) < 0.5
        hard, shared = np.exp(rng.normal(size=40)), rng.normal(size=coins.shape)
        parts: Any = []
        for _ in range(2):
            own = rng.normal(size=coins.shape) + 0.5 * rng.normal(size=(16, 1))
            x = effect * hard * coins + np.sqrt(0.5) * (shared + own)
            x = x if levels is None else np.round(x * levels) / levels  # heavy ties
            scores = lira_matrix(x, coins).scores
            parts.append(rate_parts(scores, coins, texts=range(40), fpr=0.02))
        found += [lower_rate_p(parts[0], parts[1]), lower_rate_p(parts[1], parts[0])]
    assert (np.array(found) <= 0.05).sum() <= 8  # P(Bin(60, .05) > 8) = 3e-3, in each of three
    assert min(found) > 1e-4


def test_two_rates_are_told_apart_where_two_intervals_cannot_tell() -> None:
    told = apart = 0
    for seed in range(20):
        rng = np.random.default_rng([seed, 6])
        coins = rng.random((16, 100)) < 0.5
        hard, shared = 3 * rng.random(100), rng.normal(size=coins.shape)
        low, high = (
            hard * effect * coins + 0.8 * shared + 0.6 * rng.normal(size=coins.shape)
            for effect in (1.0, 1.35)
        )
        parts: Any = [rate_parts(x, coins, texts=range(100), fpr=0.02) for x in (low, high)]
        told += lower_rate_p(parts[0], parts[1]) <= 0.05
        each: Any = [tpr_at_fpr(x[coins], x[~coins], fpr=0.02) for x in (low, high)]
        apart += each[0].high < each[1].low
    assert (told >= 15, apart <= 5) == (True, True), (told, apart)


def test_rates_without_a_difference_or_a_spread_are_not_told_apart() -> None:
    x, coins = _cells(13, 8, 30, 0.0)

    def parts(x: Any, coins: Flags = coins, texts: Sequence[int] = range(30)) -> Any:
        return rate_parts(x, coins, texts=texts, fpr=0.1)

    same, alone = parts(x), parts(x, texts=[3])
    assert lower_rate_p(same, same) == 0.5
    assert parts(x, np.ones_like(coins)) is None
    assert lower_rate_p(alone, alone) == 1.0
    one_in = np.arange(8)[:, None] == np.zeros(30)  # without its model no cell is in
    assert lower_rate_p(parts(x, one_in), same) == 1.0
    none, all_found = parts(0.0 * coins), parts(1.0 * coins)
    assert (none.value, all_found.value) == (0, 1)
    assert lower_rate_p(none, all_found) < 1e-9 < 1 - 1e-9 < lower_rate_p(all_found, none)
    fewer = parts(x[:7], coins[:7])
    with pytest.raises(InputError, match="lower has 7 models and 30 texts, higher 8 and 30"):
        lower_rate_p(fewer, same)
