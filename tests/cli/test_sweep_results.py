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
    assert "; 64 models, scores efefefefefef" in seen.out or code == 2


def test_thresholds_of_flags_and_files(call: Call, tmp_path: Path) -> None:
    home = written_sweep(tmp_path / "sweep", leaking=1)
    assert call("check", home, "--max-worst-tpr", "0.5").code == 1
    assert call("check", home, "--max-worst-tpr", "0.9", "--max-epsilon", "4").code == 2
    assert call("check", written_sweep(tmp_path / "clean"), "--max-epsilon", "2").code == 0
    settings = tmp_path / "gate.toml"
    settings.write_text("[check]\nmax_worst_tpr = 0.5\n")
    assert call("check", home / "sweep.json", "--settings", settings).code == 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--max-exposure", "5"), "max_exposure=5.0 is a threshold of a run"),
        (("--max-worst-tpr", "1"), "max_worst_tpr=1.0 must be a rate"),
        (("--json", "plan.json"), "is a file of the run, or has the name of one"),
        (("--json", "models/017-ab/model.json"), "is a file of the run, or has the name of one"),
    ],
)
def test_what_cannot_be_is_3(
    call: Call, tmp_path: Path, flags: tuple[str, str], words: str
) -> None:
    home = written_sweep(tmp_path / "sweep")
    given = (flags[0], home / flags[1] if flags[0] == "--json" else flags[1])
    seen = call("check", home, *given)
    assert seen.code == 3
    assert words in seen.err.replace("\n", " ")


def test_a_sweep_that_is_not_collected_is_3(call: Call, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    for command in ("check", "report"):
        seen = call(command, tmp_path)
        assert seen.code == 3
        assert "collect the sweep first" in seen.err.replace("\n", " ")


def test_a_report_with_charts(call: Call, tmp_path: Path) -> None:
    home = written_sweep(tmp_path / "sweep", leaking=1)
    seen = call("report", home, "--format", "json", "--format", "md", "--charts")
    assert seen.code == 0
    assert seen.out.startswith("Leaks: ")
    assert f"report  {home / 'report.json'}" in seen.out
    assert (home / "charts" / "sweep-beside.svg").exists()


@pytest.mark.parametrize("flag", ["--show-secrets", "--manifest", "--model-card"])
def test_flags_of_runs_are_refused(call: Call, tmp_path: Path, flag: str) -> None:
    home = written_sweep(tmp_path / "sweep")
    given = (flag,) if flag == "--show-secrets" else (flag, tmp_path / "other")
    seen = call("report", home, *given)
    assert seen.code == 3
    assert f"{flag} is of a run" in seen.err.replace("\n", " ")
