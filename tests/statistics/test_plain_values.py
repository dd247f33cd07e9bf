"""Every result is plain values for JSON, without a NaN, under the names that readers know."""

import json
from typing import Any

import numpy as np
import pytest

from lmexposure._record import plain
from lmexposure.statistics import (
    binomial_interval,
    calibrated_exposure,
    concave_hull,
    exposure_summary,
    guessing_test,
    quantile_interval,
    roc_curve,
)
from lmexposure.statistics.intervals import mean_interval
from lmexposure.statistics.summary import compare_with_controls

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
    told = json.loads(json.dumps(plain(result), allow_nan=False))
    assert {name: told[name] for name in some} == some


@pytest.mark.parametrize("array", [binomial_interval(0, 5).low, CURVE.true_positives])
def test_arrays_cannot_be_written_to(array: Any) -> None:
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 0
