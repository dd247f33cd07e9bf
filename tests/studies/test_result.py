"""The door: a result.json is read once, whole, or refused with the way out."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_results import canary as made_canary
from made_results import clean, estimate, exact, made
from pydantic import ValidationError

from lmexposure._record import plain
from lmexposure.errors import ResultError
from lmexposure.studies import Result


def test_written_and_read_it_is_the_same_each_time(tmp_path: Path) -> None:
    result = clean(n=3)
    result.write(tmp_path / "result.json")
    assert Result.read(tmp_path / "result.json") == result
    values = json.loads((tmp_path / "result.json").read_text())
    assert values["schema"] == "lmexposure.result/1"
    assert values["formats"][0]["space_size"] == "1000000000"
    clean(n=3).write(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "result.json").read_bytes()


def test_small_floats_are_spelled_as_json_spells_them(tmp_path: Path) -> None:
    """pydantic would write 0.00001, and the hash is over the text."""
    result = clean(n=3, settings=replace(clean().settings, delta=1e-05))
    result.write(tmp_path / "r.json")
    assert '"delta": 1e-05' in (tmp_path / "r.json").read_text()
    assert Result.read(tmp_path / "r.json").settings.delta == 1e-05


MANY = ", ".join(f'"k{i}": 1' for i in range(100_000))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not readable JSON"),
        ('{"schema": ', "not readable JSON"),
        ("[]", "has schema None; expected 'lmexposure.result/1'"),
        ('{"schema": "other/1"}', "has schema 'other/1'; expected"),
        ('{"schema": "lmexposure.manifest/2"}', "'lmexposure.manifest/2'; expected"),
        ('{"schema": "lmexposure.result/1"}', "does not fit its content_sha256"),
        (f'{{"schema": "lmexposure.result/{"9" * 5000}"}}', r"9\.\.\., and this version of"),
        ('{"schema": "lmexposure.result/²"}', "expected 'lmexposure.result/1'"),
        (f'{{"schema": "{"x" * 5000}"}}', r"x\.\.\.; expected"),
        ('{"schema": "\\ud800"}', "half a character"),
        ("[" * 100_000, "not readable JSON"),
        (f'{{"schema": "lmexposure.result/1", "a": {"9" * 5000}}}', "not readable JSON"),
        ('{"schema": "lmexposure.result/1", "a": 1, "a": 2}', "the key 'a' is there twice"),
        (f'{{{MANY}, "k99999": 1}}', "the key 'k99999' is there twice"),  # and found at once
    ],
)
def test_refuses_what_it_cannot_read(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "r.json").write_text(text, encoding="utf-8")
    with pytest.raises(ResultError, match=message):
        Result.read(tmp_path / "r.json")


def test_refuses_a_missing_result_and_a_directory(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match=r"no run or result at .*; make one: lmexposure run"):
        Result.read(tmp_path / "none.json")
    with pytest.raises(ResultError, match=r"holds no result\.json; it is no run directory"):
        Result.read(tmp_path)


def test_refuses_an_edit(tmp_path: Path) -> None:
    clean(n=3).write(tmp_path / "r.json")
    text = (tmp_path / "r.json").read_text()
    (tmp_path / "r.json").write_text(text.replace('"repetitions": 4', '"repetitions": 3', 1))
    with pytest.raises(ResultError, match="does not fit its content_sha256: it was edited"):
        Result.read(tmp_path / "r.json")


def test_a_number_that_is_missing_says_why() -> None:
    with pytest.raises(ValueError, match="lacks its value or an end, and no warning says why"):
        estimate("sampled", None, warnings=())
    with pytest.raises(ValidationError, match="has no log-perplexity, and no warning says why"):
        made([made_canary(0, exact(3.0), log_perplexity_bits=None)])


def test_not_a_number_is_no_number() -> None:
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"finite number|outside its interval"):
            made_canary(0, exact(value))


def test_plain_values_are_what_json_can_hold() -> None:
    mixed = {"a": (np.int64(1), float("nan")), "b": np.array([1.0, np.inf]), "c": None}
    assert plain(mixed) == {"a": [1, None], "b": [1.0, None], "c": None}
    assert plain({1: np.float64(0.5), "t": np.bool_(True)}) == {"1": 0.5, "t": True}
    with pytest.raises(TypeError, match="is nothing that JSON holds"):
        plain(Path("x"))


@pytest.mark.parametrize("beyond", [-1e101, 1e308])
def test_what_lies_beyond_every_axis_is_no_number(beyond: float) -> None:
    """It would not look wrong in a chart: all else would be pressed together, or nothing drawn."""
    low, high = sorted((3.0, beyond))
    with pytest.raises(ValidationError, match=r"Input should be (less|greater) than or equal to"):
        made_canary(0, estimate("skew_normal", 3.0, low=low, high=high))


def test_a_result_is_short_where_it_is_printed() -> None:
    assert (
        repr(clean(n=3)) == "<Result of model (lstm): 6 canaries and 16 controls of random_number>"
    )
    assert str(clean(n=3)) == repr(clean(n=3))
