"""`lmexposure check` and `report` of a sweep: exit codes, outputs, and flags of runs refused."""

from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Call
from made_sweeps import written_sweep


@pytest.mark.parametrize(
    ("parts", "code", "words"),
    [
        ({}, 0, "No leak found: "),
        ({"leaking": 1}, 1, "Leaks: canary pin/x1/0000 gives itself away"),
        ({"models": 6}, 2, "Inconclusive: 6 models are too few"),
    ],
)
def test_an_exit_code(
    call: Call, tmp_path: Path, parts: dict[str, Any], code: int, words: str
) -> None:
    seen = call("check", written_sweep(tmp_path / "sweep", **parts))
    assert seen.code == code
    assert seen.out.startswith(words)
    assert "; 64 models of lstm, scores efefefefefef" in seen.out or code == 2


def test_thresholds_of_flags_and_files(call: Call, tmp_path: Path) -> None:
    home = written_sweep(tmp_path / "sweep", leaking=1)
    assert call("check", home, "--max-worst-tpr", "0.5").code == 1
    assert call("check", home, "--max-worst-tpr", "0.9", "--max-epsilon", "4").code == 2
    call.done("check", written_sweep(tmp_path / "clean"), "--max-epsilon", "2")
    settings = tmp_path / "gate.toml"
    settings.write_text("[check]\nmax_worst_tpr = 0.5\n")
    assert call("check", home / "sweep.json", "--settings", settings).code == 1


@pytest.mark.parametrize("name", ["plan.json", "models/017-ab/model.json"])
def test_an_output_never_replaces_a_file_of_the_sweep(
    call: Call, tmp_path: Path, name: str
) -> None:
    home = written_sweep(tmp_path / "sweep")
    seen = call("check", home, "--json", home / name)
    seen.refused("is a file of the run, or has the name of one")


def test_a_report_with_charts(call: Call, tmp_path: Path) -> None:
    home = written_sweep(tmp_path / "sweep", leaking=1)
    seen = call.done("report", home, "--format", "json", "--format", "md", "--charts")
    assert seen.out.startswith("Leaks: ")
    assert f"report  {home / 'report.json'}" in seen.out
    assert (home / "charts" / "sweep-beside.svg").exists()


@pytest.mark.parametrize("flag", ["--manifest", "--model-card"])
def test_flags_of_runs_are_refused(call: Call, tmp_path: Path, flag: str) -> None:
    home = written_sweep(tmp_path / "sweep")
    call("report", home, flag, tmp_path / "other").refused(f"{flag} is of a run")


def test_a_sweep_has_no_secrets_to_show(call: Call, tmp_path: Path) -> None:
    home = written_sweep(tmp_path / "sweep")
    call("report", home, "--show-secrets").refused("a sweep holds no secrets")
