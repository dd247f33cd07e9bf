"""What a value must be: what passes, what is refused, and in which words."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lmexposure import _validate as validate
from lmexposure.errors import InputError, PlanError, SettingsError

NAN, INF = float("nan"), float("inf")
LAYOUTS = ["lines", "jsonl"]
# A function, what it is given behind the name, and what it gives.
PASSED: list[tuple[Callable[..., object], tuple[Any, ...], dict[str, Any], object]] = [
    (validate.integer, (3,), {"low": 0}, 3),
    (validate.integer, (np.int64(3),), {"low": 0}, 3),
    (validate.positive, (0.5,), {}, 0.5),
    (validate.positive, (np.float32(0.5),), {}, 0.5),
    (validate.positive, (1e-30,), {}, 1e-30),
    (validate.fraction, (0.95,), {}, 0.95),
    (validate.coverage, (1e-9,), {}, 1e-9),
    (validate.coverage, (1 - 1e-9,), {}, 1 - 1e-9),
    (validate.one_of, ("lines", LAYOUTS), {}, "lines"),
    (validate.text, ("cpu",), {}, "cpu"),
    (validate.flag, (False,), {}, False),
]
REFUSED: list[tuple[Callable[..., object], list[Any], dict[str, Any], str]] = [
    (validate.integer, [0], {"low": 1}, "x=0 must be a whole number at least 1"),
    (validate.integer, [True, 1.0, "1"], {"low": 0}, "must be a whole number"),
    (validate.positive, [0.0, -1.0, NAN, INF, 10**400], {}, "must be a finite number above 0"),
    (validate.positive, [True], {}, "x=True must be a finite number"),
    (
        validate.positive,
        [5e-324, 1e-320, 1e-38],
        {},
        r"x=\S+ is too small to calculate with; give 1",
    ),
    (validate.fraction, [0.0, 1.0, NAN], {}, "strictly between 0 and 1"),
    (
        validate.coverage,
        [0.0, 1e-10, 1 - 1e-10, 1.0, NAN, True, "x"],
        {},
        "strictly between 0 and 1, at least 1e-09 away",
    ),
    (validate.one_of, ["csv"], {"allowed": LAYOUTS}, "x='csv' must be one of lines, jsonl"),
    (validate.text, [""], {}, "x='' must be a string, and not an empty one"),
    (validate.flag, [1], {}, "x=1 must be true or false"),
]


@pytest.mark.parametrize(("check", "given", "limits", "passed"), PASSED)
def test_what_passes_is_given_back(
    check: Callable[..., object], given: tuple[Any, ...], limits: dict[str, Any], passed: object
) -> None:
    assert check("x", *given, **limits) == passed


@pytest.mark.parametrize(("check", "wrong", "limits", "message"), REFUSED)
def test_what_is_refused_is_named_with_its_value(
    check: Callable[..., object], wrong: list[Any], limits: dict[str, Any], message: str
) -> None:
    for value in wrong:
        with pytest.raises(SettingsError, match=message):
            check("x", value, **limits)


def test_an_error_may_be_of_another_class() -> None:
    with pytest.raises(PlanError, match="k=9 must be a whole number from 0 to 8"):
        validate.integer("k", 9, low=0, high=8, error=PlanError)


def test_bits_array_makes_one_flat_array() -> None:
    assert validate.bits_array("bits", 3).shape == (1,)
    assert validate.bits_array("bits", [1, 2]).dtype == np.float64
    wrong: list[tuple[Any, str]] = [
        ([], r"bits has shape \(0,\)"),
        ([[1, 2]], r"bits has shape \(1, 2\)"),
        ([1, NAN, INF], r"bits\[1\]=nan is not finite \(2 of 3 are not\)"),
        (["a", 1], "bits must hold numbers only"),
        ([[1], [2, 3]], "bits must hold numbers only"),
        ([{}], "bits must hold numbers only"),
    ]
    for values, message in wrong:
        with pytest.raises(InputError, match=message):
            validate.bits_array("bits", values)
