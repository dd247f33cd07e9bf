from typing import Any

import numpy as np
import pytest

from lmexposure import _validate
from lmexposure.errors import InputError, PlanError, SettingsError


def test_integer_passes_and_refuses() -> None:
    assert _validate.integer("seed", 3, low=0) == 3
    assert _validate.integer("seed", np.int64(3), low=0) == 3  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="canaries=0 must be a whole number at least 1"):
        _validate.integer("canaries", 0, low=1)
    with pytest.raises(PlanError, match="k=9 must be a whole number from 0 to 8"):
        _validate.integer("k", 9, low=0, high=8, error=PlanError)
    for bad in (True, 1.0, "1"):
        with pytest.raises(SettingsError, match="must be a whole number"):
            _validate.integer("n", bad, low=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf"), 10**400])
def test_positive_refuses(bad: float) -> None:
    assert _validate.positive("rate", 0.5) == 0.5
    assert _validate.positive("rate", np.float32(0.5)) == 0.5  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="must be a finite number above 0"):
        _validate.positive("rate", bad)


@pytest.mark.parametrize("bad", [0.0, 1.0, float("nan")])
def test_fraction_refuses(bad: float) -> None:
    assert _validate.fraction("level", 0.95) == 0.95
    with pytest.raises(SettingsError, match="strictly between 0 and 1"):
        _validate.fraction("level", bad)


@pytest.mark.parametrize("bad", [0.0, 1e-10, 1 - 1e-10, 1.0, float("nan"), True, "x"])
def test_coverage_refuses_what_no_sample_reaches(bad: Any) -> None:
    assert _validate.coverage("level", 1e-9) == 1e-9
    assert _validate.coverage("level", 1 - 1e-9) == 1 - 1e-9
    with pytest.raises(SettingsError, match="strictly between 0 and 1, at least 1e-09 away"):
        _validate.coverage("level", bad)


def test_one_of_lists_what_there_is() -> None:
    assert _validate.one_of("layout", "lines", ["lines", "jsonl"]) == "lines"
    with pytest.raises(SettingsError, match="layout='csv' must be one of lines, jsonl"):
        _validate.one_of("layout", "csv", ["lines", "jsonl"])


def test_bits_array_makes_one_flat_array() -> None:
    assert _validate.bits_array("bits", 3).shape == (1,)
    assert _validate.bits_array("bits", [1, 2]).dtype == np.float64
    with pytest.raises(InputError, match=r"bits has shape \(0,\)"):
        _validate.bits_array("bits", [])
    with pytest.raises(InputError, match=r"bits has shape \(1, 2\)"):
        _validate.bits_array("bits", [[1, 2]])
    with pytest.raises(InputError, match=r"bits\[1\]=nan is not finite \(2 of 3 are not\)"):
        _validate.bits_array("bits", [1, float("nan"), float("inf")])
    wrong: list[Any] = [["a", 1], [[1], [2, 3]], [{}]]
    for values in wrong:
        with pytest.raises(InputError, match="bits must hold numbers only"):
            _validate.bits_array("bits", values)


def test_text_and_flag_refuse_what_only_looks_like_them() -> None:
    assert _validate.text("device", "cpu") == "cpu"
    assert _validate.flag("offline", False) is False
    with pytest.raises(SettingsError, match="device='' must be a string, and not an empty one"):
        _validate.text("device", "")
    with pytest.raises(SettingsError, match="offline=1 must be true or false"):
        _validate.flag("offline", 1)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="rate=True must be a finite number"):
        _validate.positive("rate", True)


@pytest.mark.parametrize("value", [5e-324, 1e-320, 1e-38])
def test_a_scale_that_cannot_be_calculated_with_is_refused(value: float) -> None:
    with pytest.raises(
        SettingsError, match=f"clip={value!r} is too small to calculate with; give 1"
    ):
        _validate.positive("clip", value)
    assert _validate.positive("clip", 1e-30) == 1e-30
