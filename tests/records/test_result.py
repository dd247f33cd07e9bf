import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lmexposure.errors import ResultError
from lmexposure.records import RESULT_SCHEMA, CanaryResult, Result, foreign, plain, read_result


def result() -> Result:
    canary = CanaryResult(
        id="pin/x1/0000",
        format="pin",
        role="canary",
        repetitions=1,
        log_perplexity_bits=12.5,
        exposure={"value": 3.0, "high": float("inf")},
        estimates={"sampled": {"value": np.float64(3.0)}},
    )
    return Result(
        inputs_sha256="1",
        manifest_sha256="2",
        model={},
        settings={},
        formats=[],
        canaries=[canary],
        summary=[],
        warnings=["w"],
    )


def test_written_and_read_it_is_the_same(tmp_path: Path) -> None:
    result().write(tmp_path / "result.json")
    again = read_result(tmp_path / "result.json")
    assert again.to_dict() == result().to_dict()
    assert again.canaries[0].exposure == {"value": 3.0, "high": None}
    assert json.loads((tmp_path / "result.json").read_text())["schema"] == RESULT_SCHEMA


def test_plain_values_are_what_json_can_hold() -> None:
    mixed = {"a": (np.int64(1), float("nan")), "b": np.array([1.0, np.inf]), "c": None}
    assert plain(mixed) == {"a": [1, None], "b": [1.0, None], "c": None}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": ', "not readable JSON"),
        ("[]", "has schema None; expected 'lmexposure.result/1'"),
        ('{"schema": "other/1"}', "has schema 'other/1'; expected"),
        ('{"schema": "lmexposure.result/9"}', "newer than 'lmexposure.result/1'; install a newer"),
        ('{"schema": "lmexposure.result/1"}', "lacks or adds fields"),
        (f'{{"schema": "lmexposure.result/{"9" * 5000}"}}', r"9\.\.\., newer than"),
        (f'{{"schema": "{"x" * 5000}"}}', r"x\.\.\.; expected"),
        ('{"schema": "\\ud800"}', r"has schema '\\ud800'; expected"),
        ("[" * 100_000, "not readable JSON"),
        (f'{{"schema": "lmexposure.result/1", "a": {"9" * 5000}}}', "not readable JSON"),
        (f'{{"schema": "lmexposure.result/1", "a": [{10**400}]}}', "holds a number of 401 digits"),
        (f'{{"schema": "lmexposure.result/1", "a": {{"b": -{10**400}}}}}', "holds a number of"),
        ('{"schema": "lmexposure.result/1", "a": ["\\ud800"]}', r"half a character \('\\ud800'\)"),
        ('{"schema": "lmexposure.result/1", "\\udfff": 1}', r"half a character \('\\udfff'\)"),
        ('{"schema": "lmexposure.result/1", "canaries": [], "\\u001b[": 1}', r"'\\x1b\['"),
    ],
)
def test_refuses_what_it_cannot_read(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(ResultError, match=message):
        read_result(tmp_path / "r.json")


def test_refuses_a_missing_result(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match=r"no result at .*make one: lmexposure measure"):
        read_result(tmp_path / "none.json")


def test_refuses_an_unknown_field(tmp_path: Path) -> None:
    record: dict[str, Any] = {**result().to_dict(), "surprise": 1}
    (tmp_path / "r.json").write_text(json.dumps(record))
    with pytest.raises(ResultError, match="surprise"):
        read_result(tmp_path / "r.json")


@pytest.mark.parametrize("value", [1e308, 10**308, True, None, "\U0001f642", {"a": [1, "b"]}, []])
def test_what_a_result_may_hold_is_not_foreign(value: Any) -> None:
    assert foreign(value) is None


def _section(**claim: Any) -> dict[str, Any]:
    """The privacy of three classes as 6101006 wrote it: the level of one class for the largest."""
    bound = {"value": 2.0, "significance": 0.05 / 3 / 2}
    rows = [{"bounds": {"primary": dict(bound)}} for _ in range(3)]
    said = f"epsilon is at least 2 (any-dp, significance {0.05 / 6:g}), and 1 is claimed"
    verdict = {"verdict": "contradicted", "significance": 0.05 / 6, "reason": said} | claim
    return {"primary": bound, "classes": [*rows, {"bounds": None}], "claim": verdict}


def test_the_largest_bound_of_an_old_file_has_the_sum_of_the_levels(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    replace(result(), privacy=_section()).write(path)
    section = read_result(path).privacy
    assert section is not None
    assert section["primary"]["significance"] == pytest.approx(0.025)
    assert section["claim"]["significance"] == pytest.approx(0.025)
    assert "(any-dp, significance 0.025), and 1 is claimed" in section["claim"]["reason"]
    assert section["classes"][0]["bounds"]["primary"]["significance"] == 0.05 / 6
    replace(result(), privacy=section).write(path)
    assert read_result(path).privacy == section  # what is right stays as it is


@pytest.mark.parametrize(
    "section",
    [
        "text",
        {"primary": None, "classes": [], "claim": None},
        {"primary": {"significance": 0.1}, "classes": [{"bounds": "x"}], "claim": None},
        {"primary": {"significance": "much"}, "classes": [], "claim": None},
        {"primary": {"significance": 0.1}, "classes": [], "claim": None},
    ],
)
def test_a_damaged_section_is_left_to_those_who_refuse_it(tmp_path: Path, section: Any) -> None:
    path = tmp_path / "result.json"
    replace(result(), privacy=section).write(path)
    assert read_result(path).privacy == section
