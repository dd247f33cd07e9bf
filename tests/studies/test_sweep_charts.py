"""Charts of a sweep: what they say in words, and that they are drawn of little and of much."""

import math
import re

import numpy as np
import pytest
from exposure.charts.made import texts
from known import known
from made_sweeps import made_sweep, sweep_with

from lmexposure.core.charts import Chart
from lmexposure.studies import SweepResult
from lmexposure.studies.sweep_charts import _by_chance


def sweep_charts(result: SweepResult) -> list[Chart]:
    return result.document().drawings()


def chart(result: SweepResult, name: str) -> Chart:
    return next(found for found in sweep_charts(result) if found.name == name)


def test_all_charts_in_reading_order() -> None:
    assert [found.name for found in sweep_charts(made_sweep(formats=("pin", "api_key")))] == [
        "sweep-beside",
        "sweep-worst-canary",
        "sweep-worst-document",
        "sweep-canaries",
        "sweep-roc",
        "sweep-bounds",
    ]
    assert sweep_charts(made_sweep(canaries=0, population=0)) == []


@pytest.mark.parametrize(
    ("canaries", "population", "models", "coins"),
    [(1, 0, 4, "independent"), (3, 2, 6, "exactly_half"), (1_500, 100, 16, "independent")],
)
def test_little_and_much_is_drawn(canaries: int, population: int, models: int, coins: str) -> None:
    result = made_sweep(canaries=canaries, population=population, models=models, coins=coins)
    charts = sweep_charts(result)
    assert len({found.name for found in charts}) == len(charts) >= 3
    for found in charts:
        assert len(found.svg()) < 100_000, found.name
        assert not re.search(r"\d", found.caption), found.name


def test_the_average_and_the_worst_are_side_by_side() -> None:
    found = chart(made_sweep(leaking=1, canaries=64, population=100), "sweep-beside")
    assert "the worst: pin/x1/0000, p 3.6e-17: 1.000 (at least 0.565)" in found.description
    assert "all canaries, at FPR 0.01: 0.025" in found.description
    assert any(text.startswith("ordinary documents, at FPR 0.01: ") for text in texts(found))
    unresolved = chart(made_sweep(), "sweep-beside").description
    assert "all canaries, at FPR 0.001" not in unresolved


def test_each_canary_is_beside_what_chance_gives_as_shuffled_models_give_it() -> None:
    """The mean of sorted rates over sweeps at chance, each text in half of the models."""
    found = chart(made_sweep(leaking=3), "sweep-canaries")
    assert "over 32 canaries: largest 1.000" in found.description
    assert "3 are separated, and of 3 the advantage is above 0 for certain" in found.description
    rng = np.random.default_rng(0)
    models, canaries = 32, 40
    drawn = []
    for _ in range(200):
        places = np.argsort(rng.random((canaries, models)), axis=1)
        above = (np.cumprod(places < models // 2, axis=1)).sum(axis=1)
        drawn.append(np.sort(above / (models // 2))[::-1])
    expected = np.mean(drawn, axis=0)
    assert np.abs(_by_chance(models, canaries) - expected).max() < 0.06


def test_both_sides_of_the_worst_are_counted() -> None:
    result = made_sweep(leaking=1)
    found, worst = chart(result, "sweep-worst-canary"), known(result.worst)
    inside, outside = len(worst.scores_in), len(worst.scores_out)
    assert inside + outside == 64
    assert f"{inside} models with it" in texts(found)
    assert f"{outside} models without it" in texts(found)
    assert "all models with it above all without" in found.description
    alone = sweep_with(result, worst=worst.model_copy(update={"scores_out": ()}))
    assert chart(alone, "sweep-worst-canary").svg()


def test_bounds_have_their_ceilings() -> None:
    result = made_sweep(leaking=1)
    found, bound = chart(result, "sweep-bounds"), known(result.epsilon.primary).bound
    said = f"primary: all models together ≥ {bound.value:.3f} (max attainable "
    assert f"{said}{known(bound.max_attainable):.3f})" in found.description
    assert math.isfinite(found.height)


def test_more_curves_than_can_be_told_apart_are_left_out() -> None:
    formats = tuple(f"f{n}" for n in range(7))
    result = made_sweep(canaries=28)
    row = result.primary["canaries"]
    extra = tuple(row.model_copy(update={"group": f"{name}/x1"}) for name in formats)
    found = chart(sweep_with(result, scores=(*result.scores, *extra)), "sweep-roc")
    assert "The first 6 of 9 curves." in found.description
