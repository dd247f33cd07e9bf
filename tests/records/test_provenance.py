"""Version, date, model and weights: known where they are on record, and nowhere from the clock."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from made_results import small_result, small_run
from older_runs import older_run

from lmexposure._integrity import write_hashed
from lmexposure.records import Result, open_run
from lmexposure.reporting import write_compare, write_report

DATE, VERSION = "2026-02-03T04:05:06Z", "0.0.9"


def dated_run(path: Path) -> Path:
    """A run whose record has a date, measured by a version that no other record names."""
    small_run(path)
    record = json.loads((path / "run.json").read_text())
    record.pop("content_sha256")
    write_hashed(path / "run.json", {**record, "measured": DATE})
    result = json.loads((path / "result.json").read_text())
    result.pop("content_sha256")
    write_hashed(path / "result.json", {**result, "lmexposure": VERSION})
    return path


def test_an_older_result_says_that_its_version_and_date_are_unknown(tmp_path: Path) -> None:
    run = open_run(older_run("formats", tmp_path / "r"))
    assert run.provenance.line.startswith("version unknown, date unknown; model model, weights ")
    assert run.provenance.weights_sha256 == run.result.model.weights_sha256
    alone = shutil.copy(tmp_path / "r" / "result.json", tmp_path / "alone.json")
    assert open_run(alone).provenance == run.provenance


def test_a_result_with_its_version_is_read_as_it_was_written(tmp_path: Path) -> None:
    result = Result.read(dated_run(tmp_path) / "result.json")
    assert result.lmexposure == VERSION
    assert small_result().lmexposure is None


@pytest.mark.parametrize("known", [True, False])
def test_every_rendering_shows_where_its_numbers_come_from(tmp_path: Path, known: bool) -> None:
    path = dated_run(tmp_path / "r") if known else small_run(tmp_path / "r", whole=False)
    runs = [open_run(path)] * 2
    formats = ("html", "md", "csv", "json")
    (tmp_path / "model").mkdir()
    written = write_report(runs[0], out=tmp_path, formats=formats, model_card=tmp_path / "model")
    written += write_compare(runs, out=tmp_path, formats=formats)
    version = f"lmexposure {VERSION}" if known else "version unknown"
    date = f"measured {DATE}" if known else "date unknown"
    line = f"{version}, {date}; model model, weights {'1' * 12}"
    assert len(written) == 9
    for file in written:
        text = file.read_text(encoding="utf-8")
        if file.suffix in (".html", ".md") and file.name != "README.md":
            assert line in text, file
        elif file.suffix == ".csv":
            row = next(csv.DictReader(text.splitlines()))
            assert (row["lmexposure"], row["measured"]) == ((VERSION, DATE) if known else ("", ""))
            assert (row["model"], row["weights_sha256"]) == ("model", "1" * 64)
        else:
            assert "1" * 64 in text
            assert (DATE in text) == (VERSION in text) == known
    card = (tmp_path / "model" / "README.md").read_text()
    assert f"measured: {DATE!r}" in card if known else "measured: date unknown" in card
    said = json.loads((tmp_path / "report.json").read_text())["provenance"]
    assert said["measured"] == (DATE if known else None)
