"""What no result may say: numbers that cannot be, words that nobody knows."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lmexposure.result_checks import wrong_part
from made_results import small_result

from lmexposure.errors import ResultError
from lmexposure.records import open_run, read_result


def _form(**change: Any) -> Callable[[Any], object]:
    return lambda values: values["formats"][0].update(change)


def _one(**change: Any) -> Callable[[Any], object]:
    return lambda values: values["canaries"][0].update(change)


def _exposure(**change: Any) -> Callable[[Any], object]:
    return lambda values: values["canaries"][0]["exposure"].update(change)


def _changed(path: Path, change: Callable[[Any], object]) -> Path:
    values = json.loads(json.dumps(small_result().to_dict()))
    change(values)
    (path / "result.json").write_text(json.dumps(values))
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_form(bits=20.0), "has 20 bits, which is not log2 of its size 1000000000"),
        (_form(bits=True), "has no size"),
        (_form(space_size="0"), "is not log2 of its size 0"),
        (_form(space_size="-5"), "has no size"),
        (_form(space_size="9" * 4200), "a size of 4,200 digits, more than 4,000"),
        (_form(references=10**9), "has 1,000,000,000 references among 1000000000 fills"),
        (_form(references=-1), "has -1 references among"),
        (_form(references=True), "has no number of references"),
        (_form(reference_bits_quantiles=[1, 2]), "quantiles that are not 9 in order"),
        (_form(reference_bits_quantiles=[*range(8), 0]), "quantiles that are not 9 in order"),
        (_form(reference_bits_quantiles=[None] * 9), "quantiles that are not 9 in order"),
        (_form(reference_bits_quantiles=4), "quantiles that are not 9 in order"),
        (_one(log_perplexity_bits=-3.0), "a log-perplexity of -3 bits, and none is below 0"),
        (_one(log_perplexity_bits=True), "holds a number that is not finite"),
        (_one(repetitions=True), "repetitions True"),
        (
            _exposure(method="guess"),
            "an exposure by 'guess', which is none of exact, exact up to an",
        ),
        (_exposure(method=None), "an exposure by None, which is none of"),
        (_exposure(method=[]), r"an exposure by \[\], which is none of"),
        (_exposure(capped=1), "capped=1 in its exposure, not true or false"),
        (_exposure(method="sampled", value=30.5), "an exposure of 30.5 bits, outside of -0.0036"),
        (_exposure(method="exact", value=-0.001), "exposure of -0.001 bits, outside of 0 to 29.89"),
        (_exposure(method="sampled", value=-0.01), "an exposure of -0.01 bits, outside of -0.0036"),
        (lambda values: values.update(manifest_sha256=5), "manifest_sha256 is no text"),
        (lambda values: values.update(inputs_sha256=None), "inputs_sha256 is no text"),
    ],
)
def test_what_cannot_be(tmp_path: Path, change: Callable[[Any], object], message: str) -> None:
    with pytest.raises(ResultError, match=message + r".*; measure again with another --out"):
        open_run(_changed(tmp_path, change))


@pytest.mark.parametrize(
    "change",
    [
        _exposure(method="skew_normal", value=31.7),
        _exposure(method="skew_normal", value=-0.5),
        _exposure(method="importance", value=0.0),
        _exposure(method="sampled", value=math.log2(400 / 401)),
        _exposure(method="bounded", value=math.log2(10**9) + 1e-7, capped=True),
        _exposure(value=None, method=None, capped=None),
        _one(log_perplexity_bits=-1e-9),
        _form(reference_bits_quantiles=None),
        _form(reference_bits_quantiles=[]),
    ],
)
def test_what_can_be(tmp_path: Path, change: Callable[[Any], object]) -> None:
    assert wrong_part(read_result(_changed(tmp_path, change) / "result.json")) is None
