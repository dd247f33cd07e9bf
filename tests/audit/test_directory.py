"""A run's directory: other settings are refused by name.

Parts of a measurement are used only as they were written.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lmexposure._integrity import write_sealed
from lmexposure._written import study
from lmexposure.audit import RunSettings, refuse_foreign
from lmexposure.audit.directory import (
    RunLog,
    keep_part,
    mend_record,
    read_part,
    record_measured,
    set_aside,
)
from lmexposure.core import Part, claimed
from lmexposure.errors import FileError, ResultError
from lmexposure.studies import Canife, Extraction, RunRecord
from lmexposure.sweeps import prepare

SETTINGS = RunSettings(canaries=3, seed=7, training={"epochs": 2, "snapshot_epochs": (1,)})


def begun(out: Path, settings: RunSettings = SETTINGS) -> Path:
    log = RunLog.open(out, settings)
    with log.step("insert"):
        pass
    with study(out):
        write_sealed(out / "checkpoint.pt", b"")  # a step was trained
    return out


def test_a_run_without_a_step_takes_other_settings(tmp_path: Path) -> None:
    out = begun(tmp_path / "r")
    (out / "checkpoint.pt").unlink()
    other = replace(SETTINGS, seed=8, training={"epochs": 3})
    log = RunLog.open(out, other)
    assert (log.begun_anew, log.timings) == (True, {})
    assert not RunLog.open(out, SETTINGS).begun_anew
    with RunLog.open(out, SETTINGS).step("train"):  # it ended, and its files were moved away
        pass
    with pytest.raises(ResultError, match=r"holds another run: its epochs was 2"):
        RunLog.open(out, other)


def test_what_is_set_aside_is_kept_each_time(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / "corpus").mkdir()
        (tmp_path / "corpus" / "c.txt").write_text(f"{number}")
        (tmp_path / "manifest.json").write_text(f"{number}")
        home = set_aside(tmp_path)
        assert home == tmp_path / f"before-{number}"
        assert (home / "corpus" / "c.txt").read_text() == f"{number}"
    assert (tmp_path / "before-1" / "manifest.json").read_text() == "1"
    assert not (tmp_path / "manifest.json").exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"formats": ("pin",)}, r"its formats was \['random_number'\], now \['pin'\] is asked for"),
        (
            {"inclusion_probability": 0.5, "canaries": 3},
            "its inclusion_probability was None, now 0.5 is asked for",
        ),
        ({"training": {"epochs": 3}}, "its epochs was 2, now 3 is asked for"),
        (
            {"training": {"epochs": 2, "snapshot_epochs": (1, 2)}},
            r"its snapshot_epochs was \[1\], now \[1, 2\] is asked for",
        ),
        (
            {"measure": replace(SETTINGS.measure, references=50)},
            "its references was None, now 50 is asked for",
        ),
        ({"seed": 8}, "its seed was another"),
        ({"seed": None}, "its seed was given, and now it is not"),
    ],
)
def test_another_run_is_refused_by_what_differs(
    tmp_path: Path, changed: dict[str, object], said: str
) -> None:
    out = begun(tmp_path / "r")
    assert RunLog.open(out, replace(SETTINGS, threads=3)).timings.keys() == {"insert"}
    with pytest.raises(ResultError, match=f"holds another run: {said}; choose another directory"):
        RunLog.open(out, replace(SETTINGS, **changed))  # type: ignore[arg-type]


def test_an_edited_record_is_refused_where_no_manifest_stands_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = begun(tmp_path / "r") / "run.json"
    path.write_text(path.read_text().replace('"canaries": 3', '"canaries": 4'))
    with pytest.raises(ResultError, match=r"run\.json does not fit .*; choose another directory$"):
        RunLog.open(tmp_path / "r", SETTINGS)
    (tmp_path / "r" / "manifest.json").write_text("{}")
    assert RunLog.open(tmp_path / "r", SETTINGS).timings == {}
    assert "run.json is damaged" in caplog.text


def test_a_run_record_says_how_its_model_was_measured_last(tmp_path: Path) -> None:
    """By `lmexposure measure` into the run's directory, with settings of its own."""
    path = begun(tmp_path / "r") / "run.json"
    before = RunRecord.read(path)
    asked = replace(before.measure, references=77, threads=3)
    record_measured(path.parent, asked)
    after = RunRecord.read(path)
    assert after.settings == before.settings
    assert after.measure == replace(before.measure, references=77)


@pytest.mark.timeout(20)
def test_a_pipe_in_the_place_of_a_record_is_not_waited_for(tmp_path: Path) -> None:
    path = begun(tmp_path / "r") / "run.json"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ResultError, match=r"run\.json is not readable JSON.*choose another direct"):
        RunLog.open(tmp_path / "r", SETTINGS)


def test_whose_a_run_record_is(tmp_path: Path) -> None:
    """Of a run that was written here, be it damaged; never that of another program."""
    refuse_foreign(begun(tmp_path / "now"))
    path = tmp_path / "now" / "run.json"
    path.write_text(path.read_text().replace('"canaries": 3', '"canaries": 4'))
    refuse_foreign(tmp_path / "now")
    (tmp_path / "other").mkdir()
    path.rename(tmp_path / "other" / "run.json")
    with pytest.raises(FileError, match=r"run\.json is there already, and lmexposure did not"):
        refuse_foreign(tmp_path / "other")
    (tmp_path / "look").mkdir()
    (tmp_path / "look" / "verbatim.json").write_text("{}")
    with pytest.raises(ResultError, match=r"holds a look at memorised text \(verbatim.json\)"):
        refuse_foreign(tmp_path / "look")


def test_what_another_kind_began_is_not_mixed_with_a_run(tmp_path: Path) -> None:
    with claimed(Canife, tmp_path) as held, held.work({"rounds": 3}) as work:
        work.part("weights").write(b"kept")
    calls: list[Callable[[], object]] = [
        lambda: RunLog.open(tmp_path, SETTINGS),
        lambda: refuse_foreign(tmp_path),
        lambda: prepare(["none.txt"], out=tmp_path),
    ]
    for call in calls:
        with pytest.raises(ResultError, match=r"holds a federated training \(.work/asked.json\)"):
            call()
    assert work.part("weights").read() == b"kept"


@pytest.mark.parametrize("version", [2, 4])
@pytest.mark.parametrize("manifest", [True, False])
def test_the_record_of_another_version_is_kept(
    tmp_path: Path, manifest: bool, version: int
) -> None:
    """It is no damaged one: to begin it anew would lose what that version said."""
    path = begun(tmp_path / "r") / "run.json"
    path.write_text(path.read_text().replace("lmexposure.run/3", f"lmexposure.run/{version}"))
    content = path.read_bytes()
    if manifest:
        (path.parent / "manifest.json").write_text("{}")
    calls: list[Callable[[], object]] = [
        lambda: RunLog.open(path.parent, SETTINGS),
        lambda: record_measured(path.parent, SETTINGS.measure),
        lambda: mend_record(path.parent, SETTINGS.measure),
    ]
    for call in calls:
        with pytest.raises(ResultError, match=r"that wrote it; else give its command with ano"):
            call()
    assert path.read_bytes() == content


# Its fills are more than a float can count.
FOUND = Extraction(
    method="best_first",
    revealed=0,
    width=1_000,
    found=False,
    place=None,
    steps=9,
    proven=1_000,
    fills_left=10**40 + 1,
    by_chance=0.1 + 0.2,
)


def test_what_is_kept_is_read(tmp_path: Path) -> None:
    kept = Part(path=tmp_path / "parts" / "x.json")
    keep_part(kept, FOUND)
    assert read_part(kept, Extraction) == FOUND
    keep_part(None, FOUND)
    assert read_part(None, Extraction) is None


@pytest.mark.parametrize("content", [b"[]", b"{", b'{"method": "greedy"}'])
def test_what_another_version_wrote_is_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    kept = Part(path=tmp_path / "x.json")
    kept.write(content)
    assert read_part(kept, Extraction) is None
    assert "x.json is not as this version writes it: it is made again" in caplog.text
