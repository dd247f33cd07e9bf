import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize, special

from lmexposure.statistics import area_under_curve, label_logits

Matches = list[NDArray[np.bool_]]
Coins = NDArray[np.bool_]


def _cells(
    seed: int, models: int, lengths: list[int], more: float, shown: float = 0.2
) -> tuple[Matches, Coins]:
    """Matches, `more` likely in the first half of a vector where the model saw the text."""
    rng = np.random.default_rng(seed)
    coins = rng.random((models, len(lengths))) < 0.5
    vectors = []
    for text, length in enumerate(lengths):
        chance = shown + more * coins[:, [text]] * (np.arange(length) < length / 2)
        vectors.append(rng.random((models, length)) < chance)
    return vectors, coins


def _slow(
    vectors: Matches, coins: Coins, kinds: list[str], shadows: Coins, ridge: float
) -> NDArray[np.float64]:
    """Cell by cell, each fit by a general minimiser."""
    found = np.empty(coins.shape)
    for model, text in np.ndindex(coins.shape):
        others = shadows & (np.arange(len(coins)) != model)
        alike = [
            j
            for j, kind in enumerate(kinds)
            if (kind, vectors[j].shape[1]) == (kinds[text], vectors[text].shape[1])
        ]
        x = np.concatenate([vectors[j][others] for j in alike]).astype(float)
        y = np.concatenate([coins[others, j] for j in alike])
        if y.all() or not y.any():
            found[model, text] = np.nan
            continue

        def loss(
            weights: NDArray[np.float64], x: NDArray[np.float64] = x, y: NDArray[np.bool_] = y
        ) -> tuple[float, NDArray[np.float64]]:
            z = weights[0] + x @ weights[1:]
            missed = special.expit(z) - y
            slope = np.append(missed.sum(), x.T @ missed + ridge * weights[1:])
            value = (np.logaddexp(0, z) - y * z).sum() + ridge / 2 * (weights[1:] ** 2).sum()
            return float(value), slope

        fit = optimize.minimize(
            loss, np.zeros(x.shape[1] + 1), jac=True, tol=1e-12, options={"maxiter": 1000}
        )
        found[model, text] = vectors[text][model] @ fit.x[1:]
    return found


@pytest.mark.parametrize("ridge", [0.1, 1.0])
@pytest.mark.parametrize("shadows", [None, [1, 1, 0, 1, 1, 1, 0, 1]])
def test_against_a_slow_version(ridge: float, shadows: list[int] | None) -> None:
    lengths = [4, 4, 4, 6, 6, 4]
    vectors, coins = _cells(1, 8, lengths, 0.5)
    kinds = ["pin", "pin", "pin", "pin", "pin", "key"]
    found = label_logits(vectors, coins, kinds=kinds, shadows=shadows, ridge=ridge)
    mask = np.array(shadows or [1] * 8, dtype=bool)
    np.testing.assert_allclose(found, _slow(vectors, coins, kinds, mask, ridge), atol=1e-4)


def test_weights_find_the_places_that_tell() -> None:
    """Half of the places are noise: a share of matches counts them as much as the others."""
    lengths = [40] * 60
    vectors, coins = _cells(2, 32, lengths, 0.12, shown=0.4)
    found = label_logits(vectors, coins, kinds=["a"] * 60)
    share = np.stack([x.mean(axis=1) for x in vectors], axis=1)
    areas = [area_under_curve(s[coins], s[~coins]).value for s in (found, share)]
    assert areas[0] > areas[1] + 0.05


def test_matches_that_do_not_vary_say_nothing() -> None:
    rng = np.random.default_rng(3)
    coins = rng.random((6, 5)) < 0.5
    for value in (True, False):
        vectors = [np.full((6, 4), value)] * 5
        found = label_logits(vectors, coins, kinds=["a"] * 5)
        np.testing.assert_array_equal(found, np.zeros((6, 5)))


def test_matches_that_separate_in_from_out_stay_finite() -> None:
    rng = np.random.default_rng(4)
    coins = rng.random((20, 10)) < 0.5
    vectors = [np.repeat(coins[:, [text]], 6, axis=1) for text in range(10)]
    found = label_logits(vectors, coins, kinds=["a"] * 10, ridge=1e-3)
    assert np.isfinite(found).all()
    assert found[coins].min() > 5 > 0 == found[~coins].max()


def test_models_that_were_all_in_have_no_fit() -> None:
    vectors, coins = _cells(6, 4, [3, 3], 0.4)
    coins[:] = True
    assert np.isnan(label_logits(vectors, coins, kinds=["a", "a"])).all()
    coins[0] = False  # without it, all others were in
    found = label_logits(vectors, coins, kinds=["a", "a"])
    np.testing.assert_array_equal(np.isnan(found), np.arange(4)[:, None] + [[0, 0]] == 0)


def test_few_models_need_steps_of_their_own() -> None:
    """Without one of three models the fit is far from that of all."""
    vectors, coins = _cells(7, 3, [5] * 12, 0.7)
    kinds = ["a"] * 12
    found = label_logits(vectors, coins, kinds=kinds, ridge=0.01)
    np.testing.assert_allclose(
        found, _slow(vectors, coins, kinds, np.ones(3, dtype=bool), 0.01), atol=2e-3
    )
