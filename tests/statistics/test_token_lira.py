import re

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import linalg, optimize, special, stats

from lmexposure.errors import InputError
from lmexposure.statistics import LiraScores, area_under_curve, lira_matrix, multivariate_lira

Floats = NDArray[np.float64]
Coins = NDArray[np.bool_]


def _covariance(seed: int, tokens: int) -> Floats:
    """Tokens that spread unlike each other and move together."""
    rng = np.random.default_rng(seed)
    loads, scale = rng.normal(size=(tokens, 2 * tokens)), np.exp(rng.normal(0, 0.5, tokens))
    found: Floats = np.cov(loads) * np.outer(scale, scale)
    return found


def _cells(
    seed: int,
    models: int,
    texts: int,
    shift: Floats,
    of_in: Floats,
    of_out: Floats,
    *,
    apart: float = 3.0,
) -> tuple[list[Floats], Coins, Floats]:
    """Scores by text, coins, and the true log-ratio of each cell, shape (M, N)."""
    rng = np.random.default_rng(seed)
    coins, zero = rng.random((models, texts)) < 0.5, np.zeros(len(shift))
    spread = np.where(
        coins[..., None],
        shift + rng.multivariate_normal(zero, of_in, (models, texts)),
        rng.multivariate_normal(zero, of_out, (models, texts)),
    )
    ratio = stats.multivariate_normal(shift, of_in).logpdf(spread)
    ratio -= stats.multivariate_normal(zero, of_out).logpdf(spread)
    x = spread + rng.normal(0, apart, (texts, len(shift)))
    return list(x.swapaxes(0, 1)), coins, ratio


def _slow_variances(groups: list[list[Floats]]) -> Floats:
    """Of each text, (C, T), drawn to the others by what in and out say together of each text."""
    df = np.array([[sum(len(g) - 1 for g in sides)] for sides in groups], dtype=float)
    v = np.stack([sum(((g - g.mean(axis=0)) ** 2).sum(axis=0) for g in sides) for sides in groups])
    v = v / df
    e = np.log(v) - special.digamma(df / 2) + np.log(df / 2)
    spread = np.mean(e.var(axis=0, ddof=1))
    chance = special.polygamma(1, df / 2).mean()
    logs = []
    for sides in groups:
        if min(len(g) for g in sides) > 1:
            own = [np.log(g.var(axis=0, ddof=1)) for g in sides]
            free = [(len(g) - 1) / 2 for g in sides]
            logs.append(
                [o - special.digamma(d) + np.log(d) for o, d in zip(own, free, strict=True)]
            )
    away, share = spread - chance, 1.0
    if v.shape[1] * (len(logs) - 1) >= 8:
        pairs = np.array(logs)  # (C, 2, T)
        away = min(away, np.mean([np.cov(pairs[:, :, k].T)[0, 1] for k in range(v.shape[1])]))
        share = min(1, chance / (spread - away))
    if away <= 1e-6:
        return np.tile((df * v).sum(axis=0) / df.sum(), (len(v), 1))
    prior = 2 * optimize.brentq(lambda x: special.polygamma(1, x) - away, 1e-3, 1e6)
    s = np.exp(e.mean(axis=0) + special.digamma(prior / 2) - np.log(prior / 2))
    found: Floats = (prior * s + share * df * v) / (prior + share * df)
    return found


def _slow_covariance(scatter: Floats, n: int) -> Floats:
    s = scatter / n
    v, p = np.diag(s), len(s)
    r = s / np.sqrt(np.outer(v, v))
    square = np.trace(r @ r)
    rho = min(1, ((n - 2) / n * square + p**2) / ((n + 2) * (square - p**2 / p)))
    share = min(1, (2 * v**2 / n).sum() / ((v - v.mean()) ** 2).sum())
    v = (1 - share) * v + share * v.mean()
    found: Floats = ((1 - rho) * r + rho * np.eye(p)) * np.sqrt(np.outer(v, v))
    return found


def _slow_judge(x: Floats, coins: Coins, own: Floats, two: bool) -> Floats:
    """One model's log-ratios, (C,), given others' scores (M, C, T): matrices, text by text."""
    texts, tokens = x.shape[1:]
    x, own = x - x.mean(axis=(0, 1)), own - x.mean(axis=(0, 1))
    groups = [[x[c, j] for c in (coins[:, j], ~coins[:, j])] for j in range(texts)]
    scale = np.sqrt(_slow_variances(groups))
    groups = [[g / scale[j] for g in sides] for j, sides in enumerate(groups)]
    scatters, counts = [np.zeros((tokens, tokens))] * 2, [0, 0]
    for sides in groups:
        for k, g in enumerate(sides):
            scatters[k] = scatters[k] + (g - g.mean(axis=0)).T @ (g - g.mean(axis=0))
            counts[k] += len(g) - 1
    if two:
        s = [_slow_covariance(w, n) for w, n in zip(scatters, counts, strict=True)]
        basis = linalg.eigh(s[1], s[0])[1]
    else:
        s = [_slow_covariance(scatters[0] + scatters[1], sum(counts))] * 2
        size, axes = np.linalg.eigh(s[0])
        basis = axes / np.sqrt(size)
    spread = [np.diag(basis.T @ c @ basis) for c in s]
    pairs = np.array([[g.mean(axis=0) @ basis for g in sides] for sides in groups])  # (C, 2, T)
    models = np.array([[len(g) for g in sides] for sides in groups])
    found, back = np.zeros(texts), np.linalg.inv(basis)
    known = [
        [np.diag(models[j] / [v[k] for v in spread]) for k in range(tokens)] for j in range(texts)
    ]
    means, errors = np.zeros((texts, 2, tokens)), np.zeros((texts, 2, tokens))
    for k in range(tokens):
        apart = np.cov(pairs[:, :, k].T)
        apart -= (texts - 3) / (texts - 1) * np.mean([np.linalg.inv(q[k]) for q in known], axis=0)
        values, vectors = np.linalg.eigh(apart)
        apart = vectors @ np.diag(np.maximum(values, 0)) @ vectors.T
        for j in range(texts):
            left = apart - apart @ np.linalg.inv(apart + np.linalg.inv(known[j][k])) @ apart
            centre = pairs[:, :, k].mean(axis=0)
            means[j, :, k] = centre + left @ known[j][k] @ (pairs[j, :, k] - centre)
            errors[j, :, k] = np.diag(left)
    for j in range(texts):
        logs = [
            stats.multivariate_normal(
                means[j, k] @ back, back.T @ np.diag(spread[k] + errors[j, k]) @ back
            ).logpdf(own[j] / scale[j])
            for k in (0, 1)
        ]
        found[j] = logs[0] - logs[1]
    return found


def _slow(x: Floats, coins: Coins) -> Floats:
    """Each model by the others, and the other half says whether it takes two covariances."""
    found, models = np.empty(coins.shape), np.arange(len(x))
    for m in models:
        half = models[models % 2 != m % 2]
        losses = []
        for two in (False, True):
            parts = (half[::2], half[1::2]), (half[1::2], half[::2])
            ratios = [
                np.logaddexp(
                    0, np.where(coins[i], -1, 1) * _slow_judge(x[train], coins[train], x[i], two)
                )
                for test, train in parts
                for i in test
            ]
            losses.append(np.mean(ratios))
        rest = models != m
        found[m] = _slow_judge(x[rest], coins[rest], x[m], losses[1] < losses[0])
    return found


def _area(scores: Floats, coins: Coins) -> float:
    return area_under_curve(scores[coins], scores[~coins]).value


def _summed(vectors: list[Floats], coins: Coins) -> Floats:
    sums = np.stack([x.sum(axis=1) for x in vectors], axis=1)
    return lira_matrix(sums, coins).scores


def _found(vectors: list[Floats], coins: Coins, shadows: Coins | None = None) -> LiraScores:
    return multivariate_lira(vectors, coins, kinds=["a"] * len(vectors), shadows=shadows)


@pytest.mark.parametrize("unlike", [1.0, 12.0])
def test_against_a_slow_version(unlike: float) -> None:
    s = _covariance(1, 3)
    vectors, coins, _ = _cells(21, 16, 8, np.full(3, 0.7), s * unlike, s)
    coins[:4], coins[4:8] = True, False  # every quarter of the models has both
    vectors = [x * scale for x, scale in zip(vectors, np.linspace(0.5, 3, 8), strict=True)]
    found = _found(vectors, coins).scores
    np.testing.assert_allclose(found, _slow(np.stack(vectors, axis=1), coins), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("apart", [0.0, 3.0])
def test_it_beats_the_sum_by_what_the_formulas_say(apart: float) -> None:
    """Areas of equal covariances S and a shift d: d' S^-1 d and (1' d)^2 / (1' S 1), halved."""
    shift, s = np.array([0.9, -0.3, 0.5, 0.0, 0.4, 0.2]), _covariance(1, 6)
    vectors, coins, _ = _cells(2, 64, 150, shift, s, s, apart=apart)
    whole = stats.norm.cdf(np.sqrt(shift @ np.linalg.solve(s, shift) / 2))
    summed = stats.norm.cdf(shift.sum() / np.sqrt(2 * s.sum()))
    assert whole > summed + 0.05
    assert _area(_found(vectors, coins).scores, coins) == pytest.approx(whole, abs=0.015)
    assert _area(_summed(vectors, coins), coins) == pytest.approx(summed, abs=0.025)


def test_in_and_out_that_spread_unlike_each_other() -> None:
    """Their log-ratio is no longer linear; what the true densities give is reached."""
    shift = np.array([0.6, 0.0, 0.4, 0.2, 0.3])
    vectors, coins, ratio = _cells(3, 64, 120, shift, _covariance(4, 5), _covariance(5, 5) / 2)
    found, whole = _found(vectors, coins).scores, _area(ratio, coins)
    assert whole > _area(_summed(vectors, coins), coins) + 0.1
    assert _area(found, coins) == pytest.approx(whole, abs=0.015)
    # With these numbers the log-ratio itself is right, and not its order alone.
    assert np.corrcoef(found.ravel(), ratio.ravel())[0, 1] > 0.97


def test_true_densities_cell_by_cell() -> None:
    """Of many models the estimates go over into the densities that the scores came from."""
    shift, s = np.array([1.0, 0.5]), np.array([[1.0, 0.6], [0.6, 2.0]])
    vectors, coins, ratio = _cells(6, 600, 30, shift, s, s)
    found = _found(vectors, coins).scores
    assert np.abs(found - ratio).mean() < 0.1 * np.abs(ratio).mean()


def test_texts_whose_tokens_spread_in_ways_of_their_own() -> None:
    """Tokens that say nothing are loud in each text at other places."""
    rng = np.random.default_rng(7)
    coins = rng.random((64, 60)) < 0.5
    scale = np.where(rng.random((60, 8)) < 0.5, 0.5, 5.0)
    x = scale * rng.normal(size=(64, 60, 8)) + 0.4 * coins[..., None]
    vectors = list(x.swapaxes(0, 1))
    own = stats.norm.cdf(np.sqrt((0.4**2 / scale**2).sum(axis=1) / 2)).mean()
    assert _area(_found(vectors, coins).scores, coins) == pytest.approx(own, abs=0.03)
    assert _area(_summed(vectors, coins), coins) < own - 0.2


def test_no_signal() -> None:
    s, areas = _covariance(8, 5), []
    for seed in range(20):
        vectors, coins, _ = _cells(seed, 16, 20, np.zeros(5), s, s)
        areas.append(_area(_found(vectors, coins).scores, coins))
    assert np.mean(areas) == pytest.approx(0.5, abs=0.02)


def test_own_coins_are_nowhere_in_a_row() -> None:
    vectors, coins, _ = _cells(9, 20, 12, np.full(3, 0.5), _covariance(1, 3), _covariance(2, 3))
    turned = coins.copy()
    turned[4] = ~turned[4]
    for scores in (vectors, [np.round(x) / 10 for x in vectors]):
        first, again = (_found(scores, c).scores[4] for c in (coins, turned))
        np.testing.assert_array_equal(first, again)


def test_shadows_alone_are_references() -> None:
    shift, s = np.full(3, 0.5), _covariance(1, 3)
    vectors, coins, _ = _cells(10, 30, 20, shift, s, s)
    shadows = np.arange(30) < 24
    found = _found(vectors, coins, shadows)
    alone = _found([x[:24] for x in vectors], coins[:24]).scores
    np.testing.assert_allclose(found.scores[:24], alone, rtol=1e-9, atol=1e-9)
    # A model that is no shadow changes no other's scores, and has its own as if it were alone.
    vectors = [np.concatenate([x[:24], x[25:26]]) for x in vectors]
    again = _found(vectors, coins[[*range(24), 25]], shadows[[*range(24), 25]]).scores
    np.testing.assert_allclose(found.scores[25], again[24], rtol=1e-9, atol=1e-9)


def test_kinds_are_judged_apart() -> None:
    s = _covariance(1, 3)
    first, coins, _ = _cells(11, 24, 20, np.full(3, 0.9), s, s)
    second, others, _ = _cells(12, 24, 20, np.full(4, -0.5), np.eye(4), np.eye(4))
    third, more, _ = _cells(13, 24, 20, np.zeros(3), s, s)
    order = np.random.default_rng(1).permutation(60)
    vectors = [*first, *second, *third]
    every = np.concatenate([coins, others, more], axis=1)
    kinds = ["a"] * 40 + ["b"] * 20  # the second's length tells it from the first
    found = multivariate_lira(
        [vectors[i] for i in order], every[:, order], kinds=[kinds[i] for i in order]
    )
    apart = [_found(x, c).scores for x, c in ((first, coins), (second, others), (third, more))]
    np.testing.assert_allclose(found.scores, np.concatenate(apart, axis=1)[:, order], atol=1e-8)
    assert found.notes == ()
    assert found.mode == "online"


def test_too_few_texts_are_judged_by_their_sum() -> None:
    s = _covariance(1, 4)
    vectors, coins, _ = _cells(14, 24, 9, np.full(4, 0.5), s, s)
    vectors[0], vectors[1] = vectors[0][:, :3], vectors[1][:, :2]
    found = _found(vectors, coins)
    sums = [x.sum(axis=1, keepdims=True) for x in vectors]  # nothing is left to be summed
    np.testing.assert_allclose(found.scores, _found(sums, coins).scores)
    assert _found(sums, coins).notes == ()
    assert found.notes[0].startswith("9 of 9 texts are judged by the sum of their tokens")
    vectors, coins, _ = _cells(15, 24, 9, np.full(4, 0.5), s, s)
    assert _found(vectors, coins).notes == ()
    long = np.eye(40)  # 9 texts of 24 models do not tell how 40 tokens move together
    vectors, coins, _ = _cells(15, 24, 9, np.full(40, 0.1), long, long)
    assert "for so long a vector" in _found(vectors, coins).notes[0]


def test_tokens_that_never_change() -> None:
    shift, s = np.full(3, 0.8), _covariance(1, 3)
    vectors, coins, _ = _cells(16, 24, 20, shift, s, s)
    fixed = [np.concatenate([x, np.full((24, 1), 7.0)], axis=1) for x in vectors]
    first, again = (_found(x, coins).scores for x in (vectors, fixed))
    assert np.corrcoef(first.ravel(), again.ravel())[0, 1] > 0.999
    flat = [np.ones((24, 3))] * 20
    np.testing.assert_array_equal(_found(flat, coins).scores, 0)


def test_tokens_without_a_spread_that_tell_all() -> None:
    rng = np.random.default_rng(17)
    coins = rng.random((16, 10)) < 0.5
    vectors = [np.where(coins[:, [j]], [-1.0, -2.0], [-3.0, -2.0]) for j in range(10)]
    found = _found(vectors, coins).scores
    assert np.isfinite(found).all()
    assert found[coins].min() > 100
    assert found[~coins].max() < -100


def test_texts_that_no_other_model_saw_have_the_means_of_their_kind() -> None:
    shift, s = np.full(3, 1.5), _covariance(1, 3)
    vectors, coins, _ = _cells(18, 24, 30, shift, s, s)
    coins[:, 0] = False
    assert np.isfinite(_found(vectors, coins).scores).all()
    coins[:] = False
    found = _found(vectors, coins)
    assert np.isnan(found.scores).all()
    assert "720 of 720 scores are NaN" in found.notes[-1]


def test_a_few_models_are_enough() -> None:
    s = _covariance(1, 3)
    vectors, coins, _ = _cells(19, 5, 200, np.full(3, 1.0), s, s)
    found = _found(vectors, coins).scores
    assert np.isfinite(found).all()
    assert _area(found, coins) > 0.6


@pytest.mark.parametrize("models", [2, 3, 4, 5])
def test_hardly_any_models(models: int) -> None:
    s = _covariance(1, 3)
    vectors, coins, _ = _cells(22, models, 40, np.full(3, 1.0), s, s)
    found = _found(vectors, coins).scores
    assert np.isnan(found).all() == (models == 2)  # another model alone has no spread


def test_refusals() -> None:
    vectors, coins, _ = _cells(20, 6, 3, np.zeros(2), np.eye(2), np.eye(2))
    short = re.escape("token_scores[2] has shape (5, 2); give one row for each of 6 models")
    with pytest.raises(InputError, match=short):
        _found([*vectors[:2], vectors[2][1:]], coins)
    with pytest.raises(InputError, match=r"token_scores\[0\]\[0, 0\]=nan is not finite"):
        _found([vectors[0] + np.nan, *vectors[1:]], coins)
    with pytest.raises(InputError, match=r"included has shape \(6, 3\); give one coin a score"):
        _found(vectors[:2], coins)
    with pytest.raises(InputError, match="kinds must be a list of 3 kinds, one for each text"):
        multivariate_lira(vectors, coins, kinds="abc")
    with pytest.raises(InputError, match="shadows holds 1 of 6 models; a model is judged by"):
        _found(vectors, coins, np.arange(6) == 2)
    with pytest.raises(InputError, match="there is no text to be judged; give at least one"):
        multivariate_lira([], np.zeros((6, 0)), kinds=[])
