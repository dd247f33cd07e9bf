"""What an audit could show at best is what its result will call the ceiling."""

import time

import numpy as np
import pytest

from lmexposure.audit import (
    RunSettings,
    attainable,
)
from lmexposure.statistics import joint_bounds


def settings_of(probability: float | None, per_class: int, **values: object) -> RunSettings:
    asked = {"inclusion_probability": probability, "canaries": per_class, "repetitions": (1,)}
    return RunSettings().override(asked | values)


def ceiling(
    coins: float,
    candidates: int,
    *,
    significance: float = 0.05,
    delta: float = 0.0,
    repetitions: int = 1,
) -> float:
    """Of the primary bound, had coins of one seed fallen so and every guess been right."""
    included = np.random.default_rng(1).random(candidates) < coins
    primary = joint_bounds(
        included.astype(float),
        included,
        inclusion_probability=coins,
        significance=significance,
        deltas=(delta,),
        repetitions=repetitions,
    ).primary
    assert primary.max_attainable is not None
    return primary.max_attainable


@pytest.mark.parametrize(("coins", "candidates"), [(0.5, 30), (0.5, 400), (0.02, 600), (0.9, 300)])
@pytest.mark.parametrize("delta", [None, 1e-5])
def test_it_is_the_ceiling_of_the_primary_bound(
    coins: float, candidates: int, delta: float | None
) -> None:
    best = attainable(settings_of(coins, candidates, delta=delta))
    assert best is not None
    assert best.epsilon == pytest.approx(ceiling(coins, candidates, delta=delta or 0.0), rel=1e-9)
    assert best.epsilon > 0
    assert (best.candidates, best.delta) == (candidates, delta or 0.0)
    assert f"on {candidates} candidates shows epsilon of at most" in best.sentence
    assert (best.warning, best.needed) == (None, None)


def test_formats_are_pooled_and_classes_share_the_significance() -> None:
    best = attainable(
        settings_of(0.5, 100, formats=("pin", "random_number"), repetitions=(4, 2), delta=1e-6)
    )
    assert best is not None
    assert best.candidates == 200
    alone = ceiling(0.5, 200, significance=0.025, delta=1e-6, repetitions=2)
    assert best.epsilon == pytest.approx(alone, rel=1e-9)


def test_no_coins_no_ceiling() -> None:
    assert attainable(settings_of(None, 9)) is None


@pytest.mark.parametrize(
    ("coins", "candidates"), [(1e-12, 20), (1 - 1e-12, 20), (0.5, 1), (0.1, 1)]
)
def test_next_to_nothing_shows_nothing(coins: float, candidates: int) -> None:
    best = attainable(settings_of(coins, candidates))
    assert best is not None
    assert best.epsilon == 0
    assert "epsilon of at most 0 at delta 0" in best.sentence


@pytest.mark.parametrize("coins", [0.5, 0.05])
def test_a_claim_that_needs_more_is_told_how_many(coins: float) -> None:
    claim = {"claimed_epsilon": 4.0, "delta": 1e-5, "formats": ("pin", "random_number")}
    best = attainable(settings_of(coins, 20, **claim))
    assert best is not None
    assert best.needed is not None
    assert best.warning is not None
    assert f"it takes about {best.needed} canaries" in best.warning
    enough = attainable(settings_of(coins, best.needed, **claim))
    assert enough is not None
    assert enough.epsilon > 4
    assert enough.warning is None
    fewer = attainable(settings_of(coins, int(best.needed / 1.06), **claim))
    assert fewer is not None
    assert fewer.epsilon <= 4


def test_a_claim_out_of_reach_is_told_so_without_a_number() -> None:
    began = time.process_time()
    best = attainable(settings_of(0.5, 20, claimed_epsilon=50.0, delta=1e-5))
    assert time.process_time() - began < 5
    assert best is not None
    assert best.needed is None
    assert best.warning is not None
    assert best.warning.endswith(f"no attack could show more than {best.epsilon:.3g}")
