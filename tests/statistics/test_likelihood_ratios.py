"""LiRA against slow versions, and what holds of every attack on a matrix of models and texts."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import special, stats

from lmexposure.statistics import (
    area_under_curve,
    label_logits,
    lira,
    lira_matrix,
    lira_offline,
    rmia_matrix,
)
from lmexposure.statistics.arrays import Flags, Floats
from lmexposure.statistics.likelihood_ratios import CERTAIN

# ethz-spylab/misleading-privacy-evals, src/attack_util.py run on the input; log N(x; in) -
# log N(x; out), standard deviations with n - 1: (target, in, out, score).
PUBLISHED = [(2.0, [1, 2, 3], [0, -1, 1], 2.0), (0.0, [0, 1, 2], [0, 1, -1], -0.5)]
Cells = tuple[Floats, Flags]
# Phi(shift / sqrt 2) of two normal densities of one variance.
IDEAL = float(special.ndtr(1.5 / np.sqrt(2)))


def _cells(seed: int, models: int, texts: int, shift: float, spread: float = 3.0) -> Cells:
    rng = np.random.default_rng(seed)
    coins = rng.random((models, texts)) < 0.5
    hardness = rng.normal(0, spread, texts)
    return hardness + shift * coins + rng.normal(size=coins.shape), coins


def _area(scores: Floats, coins: Flags) -> float:
    return area_under_curve(scores[coins], scores[~coins]).value


def _rate(scores: Floats, coins: Flags) -> float:
    """TPR at a FPR of 1 %."""
    return float((scores[coins] > np.quantile(scores[~coins], 0.99, method="higher")).mean())


def _slow(x: Floats, coins: Flags) -> Floats:
    """Three texts, too few to be drawn to each other: their own means and one variance, by scipy.

    In and out have one variance but for a factor; a new score has that of its mean as well.
    """
    found = np.empty_like(x)
    for model in range(len(x)):
        rest, its = np.delete(x, model, axis=0), np.delete(coins, model, axis=0)
        squares, freedom = [], []
        for side in (its, ~its):
            groups = [rest[side[:, j], j] for j in range(x.shape[1])]
            squares.append(sum(float(((g - g.mean()) ** 2).sum()) for g in groups))
            freedom.append(sum(len(g) - 1 for g in groups))
        for j in range(x.shape[1]):
            densities = []
            for side, whole, free in zip((its, ~its), squares, freedom, strict=True):
                own = rest[side[:, j], j]
                variance = whole / free * (1 + 1 / len(own))
                densities.append(stats.norm(own.mean(), np.sqrt(variance)).logpdf(x[model, j]))
            found[model, j] = densities[0] - densities[1]
    return found


def test_published_scores_one_by_one_and_at_once() -> None:
    for target, inside, outside, score in PUBLISHED:
        assert lira(target, inside, outside) == pytest.approx([score], abs=1e-12)
    targets = [target for target, _, _, _ in PUBLISHED]
    both, alone = (np.array([row[i] for row in PUBLISHED]).T for i in (1, 2))
    assert lira(targets, both, alone) == pytest.approx([2.0, -0.5])
    assert lira_offline(targets, alone) == pytest.approx([2.0, 0.0])


def test_texts_by_themselves_against_a_slow_version() -> None:
    # Seeds at which the three texts' own variances are alike, so that they have one.
    x, coins = _cells(3, 40, 3, 1.0)
    found = lira_matrix(x, coins)
    np.testing.assert_allclose(found.scores, _slow(x, coins), atol=1e-4)
    np.testing.assert_array_equal(found.included, coins)
    assert found.notes == ()


@pytest.mark.parametrize(("models", "texts", "close"), [(64, 300, 0.01), (256, 100, 0.01)])
def test_it_is_nearly_as_good_as_known_densities(models: int, texts: int, close: float) -> None:
    cells = [_cells(seed, models, texts, 1.5) for seed in range(4)]
    found = np.mean([_area(lira_matrix(x, coins).scores, coins) for x, coins in cells])
    plain = np.mean([_area(x, coins) for x, coins in cells])
    assert plain == pytest.approx(0.635, abs=0.02)
    assert found == pytest.approx(IDEAL, abs=close)


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_of_exchangeable_texts_it_is_no_worse_than_the_plain_score(mode: str) -> None:
    cells = [_cells(seed, 64, 64, 1.0, spread=0.0) for seed in range(4)]
    found = [
        _area(lira_matrix(x, coins, mode=mode).scores, coins)  # type: ignore[arg-type]
        for x, coins in cells
    ]
    assert np.mean(found) > np.mean([_area(x, coins) for x, coins in cells]) - 0.005


@pytest.mark.parametrize("mode", ["online", "offline"])
@pytest.mark.parametrize("noise", ["skewed", "heavy", "scaled"])
def test_scores_that_are_not_normal_cost_little_at_a_low_rate(noise: str, mode: str) -> None:
    """Of exchangeable texts; variances that differ by chance alone are not taken for their own."""
    found, plain = [], []
    for seed in range(4):
        rng = np.random.default_rng([seed, 5])
        coins = rng.random((64, 100)) < 0.5
        x = rng.normal(size=coins.shape)
        if noise == "skewed":
            x = x / 2 + coins * rng.exponential(2, coins.shape)
        elif noise == "heavy":
            x = coins + rng.standard_t(3, coins.shape)
        else:  # in alone, as of texts that some trainings learn and others do not
            x = coins + x * np.where(coins, np.exp(rng.normal(size=100)), 1)
        scores = lira_matrix(x, coins, mode=mode).scores  # type: ignore[arg-type]
        found.append(_rate(scores, coins))
        plain.append(_rate(x, coins))
    assert np.mean(found) > np.mean(plain) - 0.02


def test_variances_that_are_each_texts_own_are_told() -> None:
    rng = np.random.default_rng(16)
    coins = rng.random((64, 200)) < 0.5
    x = coins + rng.normal(size=coins.shape) * np.exp(rng.normal(size=200))
    assert _rate(lira_matrix(x, coins).scores, coins) > _rate(x, coins) + 0.2


def test_a_text_that_spreads_widely_takes_nothing_from_the_others() -> None:
    x, coins = _cells(6, 64, 60, 2.0)
    x[:, 0] *= 100
    rest = np.arange(1, 60)
    with_it = _area(lira_matrix(x, coins).scores[:, rest], coins[:, rest])
    without = _area(lira_matrix(x[:, rest], coins[:, rest]).scores, coins[:, rest])
    assert with_it > without - 0.025


def test_kinds_are_apart() -> None:
    x, coins = _cells(7, 32, 40, 1.0)
    kinds = ["a"] * 20 + ["b"] * 20
    found = lira_matrix(np.hstack([x[:, :20], 50 * x[:, 20:]]), coins, kinds=kinds).scores
    for its in (slice(20), slice(20, None)):
        alone = lira_matrix(x[:, its], coins[:, its]).scores
        np.testing.assert_allclose(found[:, its], alone, rtol=1e-6, atol=1e-9)


def test_shadows_judge_the_rest_and_each_other() -> None:
    x, coins = _cells(8, 20, 12, 1.0)
    shadows = np.arange(20) < 12
    found = lira_matrix(x, coins, shadows=shadows).scores
    np.testing.assert_array_equal(found[:12], lira_matrix(x[:12], coins[:12]).scores)
    changed = coins.copy()
    changed[12:] = ~changed[12:]
    np.testing.assert_array_equal(found, lira_matrix(x, changed, shadows=shadows).scores)


def test_no_spread_and_apart_is_as_good_as_proof() -> None:
    coins = np.random.default_rng(9).random((16, 6)) < 0.5
    found = lira_matrix(5.0 * coins, coins).scores
    assert (found[coins] > 1e6).all()
    assert (found[~coins] < -1e6).all()
    assert np.abs(found).max() <= CERTAIN


def test_no_spread_and_no_difference_says_nothing() -> None:
    coins = np.random.default_rng(10).random((16, 6)) < 0.5
    np.testing.assert_array_equal(lira_matrix(np.ones(coins.shape), coins).scores, 0)
    # A text that says nothing among others that do.
    x, coins = _cells(11, 16, 6, 2.0)
    x[:, 2] = 7
    for mode in ("online", "offline"):
        found = lira_matrix(x, coins, mode=mode).scores
        assert np.isfinite(found).all()
        np.testing.assert_array_equal(found[:, 2], 0)
    # By itself too, where what its models count for differs with the coin that is left out.
    alone = lira_matrix(x, coins, kinds=range(6)).scores
    np.testing.assert_array_equal(alone[:, 2], 0)
    # A model apart from references that are all equal is no such case.
    x[15, 2] = 9
    shadows = np.arange(16) < 15
    apart = lira_matrix(x, coins, shadows=shadows).scores[:, 2]
    np.testing.assert_array_equal(apart[:15], 0)
    assert apart[15] != 0


def test_name_and_shame_stays_at_its_text() -> None:
    rng = np.random.default_rng(12)
    coins = rng.random((64, 50)) < 0.5
    x = rng.normal(size=coins.shape)
    x[:, 7] += 40.0 * coins[:, 7]
    found = lira_matrix(x, coins).scores
    assert found[coins[:, 7], 7].min() > found[~coins[:, 7], 7].max()
    others = np.arange(50) != 7
    assert _area(found[:, others], coins[:, others]) == pytest.approx(0.5, abs=0.04)


def test_a_text_in_no_other_model_has_no_score_and_takes_no_other_away() -> None:
    x, coins = _cells(13, 30, 5, 1.0)
    coins[:, 4] = False
    coins[3, 4] = True
    found = lira_matrix(x, coins)
    assert np.argwhere(np.isnan(found.scores)).tolist() == [[3, 4]]
    assert found.notes == (
        "1 of 150 scores are NaN, of 1 of 5 texts: in (or out of) none of the other models; train "
        "more models",
    )
    assert np.isfinite(lira_matrix(x, coins, mode="offline").scores).all()
    # Whether a cell is NaN follows from the other coins: turned, its own changes nothing.
    coins[3, 4] = False
    assert np.isnan(lira_matrix(x, coins).scores[:, 4]).all()


def test_offline_is_one_sided_and_does_not_saturate() -> None:
    scores = lira_offline([-50, 0, 50, 60], np.array([[-1.0, 0, 1]] * 4).T)
    assert (np.diff(scores) > 0).all()


def test_coins_that_follow_from_each_other_are_noted() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(16, 40))
    half = np.argsort(rng.random(x.shape), axis=0) < 8
    assert "same number of models" in lira_matrix(x, half).notes[0]


def online(x: Floats, coins: Flags) -> Floats:
    return lira_matrix(x, coins).scores


def offline(x: Floats, coins: Flags) -> Floats:
    return lira_matrix(x, coins, mode="offline").scores


def relative(x: Floats, coins: Flags) -> Floats:
    documents = np.random.default_rng(2).uniform(40, 400, 60)
    drawn = np.random.default_rng(3).normal(0, 2, (len(x), 60))
    return rmia_matrix(100 - x, coins, documents + drawn)


def by_labels(x: Floats, coins: Flags) -> Floats:
    """Matches at eight places, the more the higher the score."""
    chance = 1 / (1 + np.exp(-x))
    draws = np.random.default_rng(4).random((x.shape[1], len(x), 8))
    vectors = [row < chance[:, [text]] for text, row in enumerate(draws)]
    return label_logits(vectors, coins, kinds=["a"] * x.shape[1])


ATTACKS = pytest.mark.parametrize("attack", [online, offline, relative, by_labels])
Attack = Callable[[Floats, Flags], Floats]


@ATTACKS
@pytest.mark.parametrize("models", [4, 16])
def test_a_row_does_not_read_its_own_coins(attack: Attack, models: int) -> None:
    """Not in the last digit: it would put equal scores in an order that tells coins."""
    for seed in range(5):
        x, coins = _cells(seed, models, 40, 1.0)
        for scores in (x, np.round(x) / 10, np.repeat(x[:, :1], 40, axis=1)):
            turned = coins.copy()
            turned[3] = ~turned[3]
            first, again = attack(scores, coins)[3], attack(scores, turned)[3]
            np.testing.assert_array_equal(first, again)


@ATTACKS
def test_a_leak_shows_and_no_signal_is_chance(attack: Attack) -> None:
    areas = np.zeros(2)
    for seed in range(12):
        for place, shift in enumerate((0.0, 3.0)):
            x, coins = _cells(seed, 24, 60, shift)
            scores = attack(x, coins)
            known = ~np.isnan(scores)
            areas[place] += area_under_curve(scores[coins & known], scores[~coins & known]).value
    assert areas[0] / 12 == pytest.approx(0.5, abs=0.02)
    assert areas[1] / 12 > 0.7
