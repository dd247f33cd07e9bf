"""Whatever stands in a damaged result or its metrics: a report is written, or refused in words."""

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jinja2 import UndefinedError
from made_results import small_result

from lmexposure.audit import MeasureSettings
from lmexposure.errors import FileError, LmexposureError, ResultError
from lmexposure.records import open_run
from lmexposure.reporting import write_compare, write_report
from lmexposure.reporting.damaged import refused

STRANGE: tuple[Any, ...] = (None, 0, -1, 1e308, 10**400, "x", [], {}, True, "\ud800")
QUICK = MeasureSettings(bootstraps=39, permutations=99, revealed=1, delta=1e-5)
MADE_OF: dict[str, Any] = {
    "canaries": 3,
    "controls": 4,
    "references": 60,
    "repetitions": (4,),
    "claimed_epsilon": 1.0,
    "measure": QUICK,
}

Path_ = tuple[str | int, ...]


def leaves(value: Any, at: Path_ = ()) -> Iterator[Path_]:
    """Where each value stands, tables and lists too; of a list the first and the last."""
    if at:
        yield at
    if isinstance(value, dict):
        for key, one in value.items():
            yield from leaves(one, (*at, key))
    if isinstance(value, list) and value:
        for number in sorted({0, len(value) - 1}):
            yield from leaves(value[number], (*at, number))


def changed(values: Any, at: Path_, new: Any) -> Any:
    """The values with another one there."""
    whole = json.loads(json.dumps(values))
    inner = whole
    for step in at[:-1]:
        inner = inner[step]
    inner[at[-1]] = new
    return whole


@cache
def cases() -> tuple[tuple[Path_, Any], ...]:
    """Every place and every strange value, in an order that any first few of them cover well."""
    found = [(at, new) for at in leaves(small()) if len(at) > 1 for new in STRANGE]
    return tuple(found[number] for number in np.random.default_rng(0).permutation(len(found)))


@cache
def small() -> dict[str, Any]:
    """What stands in a small result and its metrics."""
    rows = [{"step": 0, "epoch": 0.0, "validation_bits_per_token": 6.5}]
    rows += [{"step": 9, "epoch": 1.0, "train_bits_per_token": 2.0, "tokens": 9, "seconds": 1.0}]
    return {"result": small_result(**MADE_OF).to_dict(), "metrics": rows}


def written(path: Path, values: dict[str, Any]) -> Path:
    """A run with these values in its files."""
    path.mkdir(exist_ok=True)
    (path / "result.json").write_text(json.dumps(values["result"]))
    rows = "".join(json.dumps(row) + "\n" for row in values["metrics"])
    (path / "metrics.jsonl").write_text(rows)
    return path


def report_of(path: Path, formats: tuple[str, ...]) -> bool:
    """Whether a report was written; if not, it was refused in words."""
    try:
        return bool(write_report(open_run(path), out=path / "out", formats=formats))
    except LmexposureError:
        return False


@pytest.mark.parametrize(
    ("formats", "first", "last"),
    [(("md", "csv", "json"), 0, 120), (("html",), 120, 123)],
)
@pytest.mark.filterwarnings("error")
def test_a_report_is_written_or_refused(
    tmp_path: Path, formats: tuple[str, ...], first: int, last: int
) -> None:
    for at, new in cases()[first:last]:
        report_of(written(tmp_path, changed(small(), at, new)), formats)
    assert report_of(written(tmp_path, small()), formats)


@pytest.mark.parametrize(
    ("at", "new"),
    [
        (("privacy", "primary"), 5),
        (("privacy", "primary"), {}),
        (("privacy", "primary", "value"), "x"),
        (("privacy", "primary", "formats"), None),
        (("privacy", "primary", "validity"), []),
        (("privacy", "notes"), 3),
        (("privacy", "claim"), {"verdict": 1}),
        (("summary", 0, "median"), None),
        (("summary", 0, "median", "value"), "x"),
        (("summary", 1, "guesses", 0, "guesses"), "x"),
        (("summary", 1, "guesses"), 7),
        (("summary", 1, "methods"), []),
        (("summary", 1, "extraction", 0, "by_chance"), None),
    ],
)
def test_a_section_of_the_wrong_kind_is_refused(tmp_path: Path, at: Path_, new: Any) -> None:
    run = open_run(written(tmp_path, changed(small(), ("result", *at), new)))
    with pytest.raises(ResultError, match="measure again"):
        write_report(run, out=tmp_path / "out", formats=("json", "csv", "md"))
    assert not (tmp_path / "out").exists()
    with suppress(ResultError):  # a comparison shows less
        write_compare([run, run], out=tmp_path / "out", formats=("json", "csv", "md"))


def test_every_step_says_whose_result_it_is() -> None:
    for failure in (TypeError("a\x1b"), KeyError("b"), OverflowError(), UndefinedError("c")):
        with (
            pytest.raises(ResultError, match=r"the result of 'mine' lacks or adds fields \(") as it,
            refused("mine"),
        ):
            raise failure
        assert str(it.value).isprintable()
    with pytest.raises(FileError, match="full"), refused("mine"):
        raise FileError(28, "full")
