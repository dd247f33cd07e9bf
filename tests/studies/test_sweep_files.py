"""A sweep on the disk: found, read whole, or refused with the way out."""

from pathlib import Path

import pytest
from made_results import clean
from made_sweeps import made_sweep, written_sweep

from lmexposure.errors import ResultError
from lmexposure.studies import holds_sweep, is_sweep, open_run, open_sweep, sweep_of


def test_a_sweep_is_read_from_its_directory_or_file(tmp_path: Path) -> None:
    home = written_sweep(tmp_path / "recipe", leaking=1)
    opened, alone = open_sweep(home), open_sweep(home / "sweep.json")
    assert opened.result == alone.result == made_sweep(leaking=1)
    assert (opened.name, alone.name) == ("recipe", "recipe")
    assert opened.place == str(home / "sweep.json")
    (home / "sweep.json").rename(home / "other.json")
    assert open_sweep(home / "other.json").name == "other"
    assert is_sweep(opened)
    assert is_sweep(str(home / "other.json"))


def test_a_result_in_memory_is_a_sweep_too() -> None:
    sweep = sweep_of(made_sweep())
    assert sweep_of(sweep) is sweep
    assert (sweep.path, sweep.place) == (None, "the sweep in memory")
    said = sweep.provenance
    assert said.line == (
        "lmexposure 0.1.0, measured 2026-11-22T06:30:00Z; 64 models, scores efefefefefef"
    )
    assert said.to_dict()["plan_sha256"] == "ab" * 32


def test_runs_and_other_things_are_no_sweeps(tmp_path: Path) -> None:
    clean().write(tmp_path / "result.json")
    (tmp_path / "plan.json").write_text("{}")  # whoever has both is a run
    for other in (tmp_path / "result.json", tmp_path, tmp_path / "none", 3, clean()):
        assert not is_sweep(other)


def test_a_sweep_that_is_not_collected_says_how(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    assert holds_sweep(tmp_path)
    with pytest.raises(ResultError, match="collect the sweep first: lmexposure sweep --collect"):
        open_sweep(tmp_path)


def test_a_sweep_is_no_run(tmp_path: Path) -> None:
    home = written_sweep(tmp_path / "sweep")
    with pytest.raises(ResultError, match="is a sweep of many models, and no run"):
        open_run(home)


def test_a_damaged_sweep_is_refused(tmp_path: Path) -> None:
    home = written_sweep(tmp_path / "sweep")
    path = home / "sweep.json"
    path.write_text(path.read_text().replace('"canaries": 32', '"canaries": 31'))
    with pytest.raises(ResultError, match="was edited or damaged after it was written"):
        sweep_of(home)
