import json

import numpy as np
import pytest

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics import (
    area_under_curve,
    membership_metrics,
    tpr_at_fpr,
)


def test_each_metric_is_its_own_function_s() -> None:
    rng = np.random.default_rng(1)
    inside, outside = rng.normal(1, 1, 300), rng.normal(0, 1, 2_000)
    found = membership_metrics(inside, outside, level=0.9)
    assert found["area_under_curve"] == area_under_curve(inside, outside, level=0.9).to_dict()
    assert found["tpr_at_fpr"] == [
        tpr_at_fpr(inside, outside, fpr=rate, level=0.9).to_dict() for rate in (0.1, 0.01, 0.001)
    ]
    assert json.loads(json.dumps(found)) == found


def test_a_rate_that_so_few_cannot_resolve_has_a_note_and_no_value() -> None:
    found = membership_metrics(range(50, 100), range(50))
    tenth, hundredth, thousandth = found["tpr_at_fpr"]
    assert tenth["value"] == 1
    assert hundredth["value"] is None
    assert thousandth["value"] is None
    assert "50" in thousandth["note"]


def test_no_signal() -> None:
    found = membership_metrics([1.0] * 40, [1.0] * 40)
    assert found["area_under_curve"]["value"] == 0.5
    assert found["area_under_curve"]["low"] < 0.5 < found["area_under_curve"]["high"]


def test_refusals() -> None:
    with pytest.raises(InputError, match="in_scores"):
        membership_metrics([], [1.0])
    with pytest.raises(InputError, match="out_scores"):
        membership_metrics([1.0], [np.nan])
    with pytest.raises(SettingsError, match="level"):
        membership_metrics([1.0], [1.0], level=1.5)
