import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics import (
    area_under_curve,
    lira,
    lira_matrix,
    lira_offline,
)

# ethz-spylab/misleading-privacy-evals, src/attack_util.py run on the input; log N(x; in) -
# log N(x; out), standard deviations with n - 1: (target, in, out, score).
PUBLISHED = [(2.0, [1, 2, 3], [0, -1, 1], 2.0), (0.0, [0, 1, 2], [0, 1, -1], -0.5)]


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
