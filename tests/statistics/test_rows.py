"""Every exposure as a row of a table: the same keys, plain JSON, and read-only arrays."""

from typing import Any

import numpy as np
import pytest
from known import as_json
from limit_spaces import small_draws

from lmexposure.statistics import (
    binomial_interval,
    calibrated_exposure,
    certified_exposure,
    concave_hull,
    exact_exposure,
    exposure_summary,
    guessing_test,
    importance_exposure,
    quantile_interval,
    roc_curve,
    sampled_exposure,
)
from lmexposure.statistics.intervals import mean_interval
from lmexposure.statistics.summary import compare_with_controls

KEYS = ["method", "value", "low", "high", "level", "rank", "capped", "place"]
DRAWN = small_draws([8.0] * 320, [3.0] * 320, list(range(8)) * 40, 2**10)
RANKS = {"space_size": 2**60, "place_low": [4, 2], "place_high": [4, 9], "steps": 100}


@pytest.mark.parametrize(
    ("result", "second", "words"),
    [
        (
            sampled_exposure([4.0, 0.0], range(1, 17)),
            {"value": 4.0, "high": None, "rank": 1, "capped": True},
            "at least 4.00 bits",
        ),
        (
            calibrated_exposure([5.0, 1.0], [9.0] * 2, [2.0] * 4, [7.0] * 4).calibrated,
            {"value": 2.0, "high": None, "rank": 1, "capped": True},
            "at least 2.00 bits",
        ),
        (
            certified_exposure(8.0, [9.0, 2.0]),
            {"value": 6.0, "low": 6.0, "high": 8.0, "level": 1.0, "rank": None, "capped": True},
            None,
        ),
        (
            exact_exposure([3, 2], [3, 8], **RANKS),  # type: ignore[arg-type]
            {"method": "bounded", "value": 57.0, "high": 59.0, "rank": 8, "place": 9, "steps": 100},
            "the rank lies between 2 and 8",
        ),
        (
            importance_exposure([2.0, 3.0], DRAWN, space_size=2**10, excluded_bits=[1.0, 9.0]),
            {"method": "importance", "rank": 10, "place": 11, "draws": 320, "effective_draws": 320},
            None,
        ),
    ],
)
def test_a_row(result: Any, second: dict[str, object], words: str | None) -> None:
    rows = [as_json(result.canary(i)) for i in (0, 1)]
    assert list(rows[0])[:8] == list(rows[1])[:8] == KEYS
    assert {name: rows[1][name] for name in second} == second
    assert words is None or (rows[0]["warnings"], words in rows[1]["warnings"][0]) == ([], True)
    whole = as_json(result)
    assert [whole["low"][i] for i in (0, 1)] == [row["low"] for row in rows]
    with pytest.raises(ValueError, match="read-only"):
        result.low[0] = 0.0


CURVE = roc_curve(range(3), [1])


@pytest.mark.parametrize(
    ("result", "some"),
    [
        (binomial_interval([0, 5], 5), {"level": 0.95}),
        (
            calibrated_exposure([1.0], [5.0], [2.0, 3.0], [2.0, 3.0]),
            {"gained_bits": [4.0], "reference_gained_bits": [0.0, 0.0]},
        ),
        (CURVE, {"thresholds": [0, 1, 2, None]}),
        (concave_hull(CURVE), {"positives": 3}),
        (exposure_summary([1.0, 2.0], controls_bits=[1.0, 3.0, 4.0]), {"n": 2}),
        (compare_with_controls([9.0], [1, 2, 3, 4], permutations=9), {"n": 4}),
        (
            guessing_test([1.0] * 10, [2.0] * 90, seed=3, permutations=15),
            {"n": 10, "references": 90, "permutations": 15},
        ),
        (quantile_interval([1.0, 2.0]), {"low": None, "attained": None}),
        (mean_interval(np.arange(30.0)), {"method": "bca"}),
    ],
)
def test_results_are_plain(result: Any, some: dict[str, object]) -> None:
    told = as_json(result)
    assert {name: told[name] for name in some} == some


@pytest.mark.parametrize("array", [binomial_interval(0, 5).low, CURVE.true_positives])
def test_arrays_cannot_be_written_to(array: Any) -> None:
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 0
