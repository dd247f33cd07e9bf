"""Bounds on epsilon from many models: proofs hold on mechanisms of a known epsilon."""

from collections.abc import Callable

import numpy as np
import pytest

from lmexposure.statistics import (
    EpsilonBound,
    lira_matrix,
    one_run_audit,
    per_model_epsilon,
    per_text_epsilon,
    together_epsilon,
)
from lmexposure.statistics.arrays import Flags, Floats

RUNS = 40  # of a mechanism; P(Bin(40, .05) > 9) = 2e-5
MOST = 9


def _coins(rng: np.random.Generator, models: int = 8, texts: int = 16) -> Flags:
    return rng.random((models, texts)) < 0.5


def _kinds(x: Floats) -> list[str]:
    return ["pin"] * x.shape[1]


def _randomised_response(rng: np.random.Generator, coins: Flags) -> Floats:
    """Says each coin, and lies with 1 / (1 + e): epsilon 1, the extreme case."""
    honest = rng.random(coins.shape) < 1 / (1 + np.exp(-1))
    return np.where(honest, coins, ~coins).astype(float)


def _of_unequal_texts(rng: np.random.Generator, coins: Flags) -> Floats:
    """The same, on texts whose scores are of other sizes."""
    sizes = rng.normal(0, 50, coins.shape[1])
    found: Floats = sizes + _randomised_response(rng, coins) * np.abs(sizes)
    return found


def _xor(rng: np.random.Generator, coins: Flags) -> Floats:
    """Texts in pairs: both scores say whether their coins differ. No coin shows by itself."""
    differ: Flags = coins[:, ::2] ^ coins[:, 1::2]
    found: Floats = np.repeat(differ, 2, axis=1) + 0.0 * rng.random(coins.shape)
    return found


def _ties(rng: np.random.Generator, coins: Flags) -> Floats:
    return np.zeros(coins.shape)


def _whole_models(rng: np.random.Generator, coins: Flags) -> Floats:
    """Every model has a level of its own, which says nothing."""
    return _randomised_response(rng, coins) + rng.normal(0, 9, (len(coins), 1))


MECHANISMS: list[tuple[Callable[[np.random.Generator, Flags], Floats], float]] = [
    (_of_unequal_texts, 1.0),
    (_whole_models, 1.0),
    (_xor, 0.0),
    (_ties, 0.0),
]


@pytest.mark.slow
@pytest.mark.parametrize(("mechanism", "truth"), MECHANISMS)
def test_no_bound_lies_above_the_truth_too_often(
    mechanism: Callable[[np.random.Generator, Flags], Floats], truth: float
) -> None:
    above = np.zeros(3)
    for seed in range(RUNS):
        rng = np.random.default_rng([seed, 7])
        coins = _coins(rng)
        x = mechanism(rng, coins)
        cells = lira_matrix(x, coins).scores
        bounds = (
            together_epsilon(x, coins, kinds=_kinds(x), seed=seed),
            per_model_epsilon(cells, coins, seed=seed).bound,
            per_text_epsilon(x, coins, seed=seed).bound,
        )
        above += [bound.value > truth for bound in bounds]
    assert above.max() <= MOST


def test_a_leak_is_seen_and_ceilings_are_said() -> None:
    rng = np.random.default_rng(1)
    coins = _coins(rng, 64, 40)
    leak = np.where(coins, 5.0, 0) + rng.normal(size=coins.shape) + rng.normal(0, 9, 40)
    cells = lira_matrix(leak, coins).scores
    together = together_epsilon(leak, coins, kinds=_kinds(leak), seed=1)
    model = per_model_epsilon(cells, coins, seed=1)
    text = per_text_epsilon(leak, coins, seed=1)
    for bound in (together, model.bound, text.bound):
        assert bound.max_attainable is not None
        assert 0 < bound.value <= bound.max_attainable
        assert bound.significance == 0.05
        assert bound.validity == "any-dp"
    assert together.value > max(model.bound.value, text.bound.value)
    assert "largest of 64 models" in model.bound.threshold_choice
    assert "largest of 40 texts" in text.bound.threshold_choice
    assert (model.chosen_from, text.chosen_from) == (64, 40)


def test_the_best_of_several_is_an_audit_at_its_share() -> None:
    rng = np.random.default_rng(2)
    coins = _coins(rng, 40, 5)
    x = rng.normal(size=coins.shape)
    x[:, 3] += 9 * coins[:, 3]
    found = per_text_epsilon(x, coins, seed=3)
    assert found.number == 3
    slow = [one_run_audit(x[:, i], coins[:, i], significance=0.01, seed=3).value for i in range(5)]
    assert found.bound.value == pytest.approx(max(slow), abs=1e-9)
    alone = [one_run_audit(x[:, i], coins[:, i], seed=3).value for i in range(5)]
    np.testing.assert_allclose(found.values, alone, atol=1e-9)


def test_cells_without_a_score_are_left_out_of_their_row() -> None:
    rng = np.random.default_rng(3)
    coins = _coins(rng, 6, 60)
    x = 4.0 * coins + rng.normal(size=coins.shape)
    holed = x.copy()
    holed[2, 5] = np.nan
    found = per_model_epsilon(holed, coins, seed=1)
    kept = np.arange(60) != 5
    slow = one_run_audit(x[2, kept], coins[2, kept], seed=1).value
    assert found.values[2] == pytest.approx(slow, abs=1e-9)


def test_repetitions_and_a_delta_are_paid_for() -> None:
    rng = np.random.default_rng(4)
    coins = _coins(rng, 16, 40)
    x = 6.0 * coins + rng.normal(size=coins.shape)
    bounds: list[EpsilonBound] = [
        together_epsilon(x, coins, kinds=_kinds(x), repetitions=r, delta=d, seed=1)
        for r, d in ((1, 0.0), (4, 0.0), (1, 1e-3))
    ]
    assert bounds[1].value == pytest.approx(bounds[0].value / 4, rel=1e-6)
    assert bounds[2].value < bounds[0].value
    assert per_text_epsilon(x, coins, delta=1e-6, seed=1).bound.delta == 1e-6
