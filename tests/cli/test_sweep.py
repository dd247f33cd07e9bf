"""`sweep`, whole and step by step; `check` and `report` of one."""

from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Call
from made_sweeps import written_sweep
from tiny_sweeps import FLAGS, MODELS, corpus_at, scores_of

from lmexposure.cli import options
from lmexposure.errors import SettingsError
from lmexposure.studies import SweepPlan, SweepSettings


def test_step_by_step_as_slurm_does_it(call: Call) -> None:
    out, corpus = Path("sweep"), corpus_at(Path())
    said = call("sweep", corpus, *FLAGS, "--prepare", "--out", out)
    few = "5 models are too few for the worst of 6 canaries: the gate will be inconclusive"
    told = f"reading {corpus}\nwarning: {few}; give --models 18\n"
    assert (said.code, said.err) == (0, told)
    assert "5 models; by coins 6 canaries and 4 ordinary documents" in said.out
    assert f"lmexposure sweep --only N --out {out}, N from 0 to {MODELS - 1}" in said.out
    plan = SweepPlan.read(out)
    assert (out / "plan.json").stat().st_mode & 0o777 == 0o600
    call.done("sweep", corpus, *FLAGS, "--prepare", "--out", out)
    assert SweepPlan.read(out) == plan
    said = call.done("sweep", "--only", "1,3,1", "--out", out)
    shown = [line.split("  ")[0] for line in said.out.splitlines()]
    assert shown == ["model 1", "model 3"]
    assert len(scores_of(out)) == 2
    call("sweep", "--only", MODELS, "--out", out).refused("must be a whole number from 0")


@pytest.mark.slow
def test_the_whole_sweep_and_its_parts_end_alike(call: Call) -> None:
    out, corpus = Path("sweep"), corpus_at(Path())
    said = call.done("sweep", corpus, *FLAGS, "--workers", 1, "--out", out, "--full")
    shown = ("Lower bounds on the epsilon", "\nInconclusive: ")
    assert f"result  {out / 'sweep.json'}" in said.out
    assert [words for words in shown if words not in said.out] == []
    assert "warning: 5 models cannot show" in said.err
    parts = {"models", "matrices.npz", "sweep.json", "report.html", "report.md", "plan.json"}
    assert parts <= {path.name for path in out.iterdir()}
    before = (out / "matrices.npz").read_bytes()
    (out / "matrices.npz").unlink()
    again = call("sweep", "--collect", out)
    assert (again.code, (out / "matrices.npz").read_bytes()) == (0, before)
    models = sorted((home.name, home.stat().st_mtime_ns) for home in (out / "models").iterdir())
    call.done("sweep", corpus, *FLAGS, "--workers", 1, "--out", out)  # and trains none again
    assert models == sorted((x.name, x.stat().st_mtime_ns) for x in (out / "models").iterdir())
    call.done("report", out)
    assert call("check", out).code == 2
    other = call("sweep", corpus, *FLAGS, "--set", "units=9", "--workers", 1, "--out", out)
    other.refused("holds another sweep: its units was 8, now 9 is asked for; choose another")
    other = call("sweep", corpus, *FLAGS, "--seed", 6789, "--workers", 1, "--out", out)
    assert "holds another sweep: its seed was another; choose another directory" in other.err
    assert "6789" not in other.err


def test_a_model_that_diverges_is_said_and_is_no_failure(call: Call) -> None:
    out = Path("sweep")
    wild = (*FLAGS, "--set", "learning_rate=2e37", "--set", "patience=20", "--epochs", 20)
    call.done("sweep", corpus_at(Path()), *wild, "--prepare", "--out", out)
    said = call.done("sweep", "--only", 0, "--out", out)
    assert "warning: model 0 has no scores: the validation loss after" in said.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--out", "o"), "CORPUS is missing; name its files, or --collect a sweep"),
        (("-", "--out", "o"), "these files are read more than once, and standard input"),
        (("--only", "1", "--prepare", "--out", "o"), "--prepare and --only are steps of their own"),
        (("--only", "1", "--out", "o", "--epochs", "3"), "plan of its sweep; leave out --epochs"),
        (("--collect", "o", "--out", "o"), "--collect takes everything from the plan of its sweep"),
    ],
)
def test_what_it_refuses(call: Call, words: tuple[str, ...], message: str) -> None:
    corpus_at(Path()).rename("c.txt")
    call("sweep", *words).refused(message)
    assert [path.name for path in Path().iterdir()] == ["c.txt"]


def test_a_settings_file_has_settings_of_sweep_and_run() -> None:
    file = Path("s.toml")
    file.write_text('models = 8\ncoins = "exactly_half"\nunits = 16\nepochs = 3\n')
    chosen = options.TAKEN["sweep"].make({"settings_file": file, "models": 6, "epochs": 4})
    assert isinstance(chosen, SweepSettings)
    assert (chosen.models, chosen.coins, chosen.run.units) == (6, "exactly_half", 16)
    assert (chosen.run.training, chosen.run.canaries) == ({"epochs": 4}, 100)
    for wrong, message in (
        ("modles", "unknown setting 'modles'; did you mean 'mo"),
        ("controls", "'controls' has no effect here; leave it out"),
    ):
        file.write_text(f"{wrong} = 8\n")
        with pytest.raises(SettingsError, match=rf"s\.toml: {message}"):
            options.TAKEN["sweep"].make({"settings_file": file})


OF_THE_RUN = "is a file of the run, or has the name of one"


@pytest.mark.parametrize(
    ("parts", "code", "words"),
    [
        ({}, 0, "No leak found: "),
        ({"leaking": 1}, 1, "Leaks: canary pin/x1/0000 gives itself away"),
        ({"models": 6}, 2, "Inconclusive: 6 models are too few"),
    ],
)
def test_an_exit_code(call: Call, parts: dict[str, Any], code: int, words: str) -> None:
    seen = call("check", written_sweep(Path("sweep"), **parts))
    assert seen.code == code
    assert seen.out.startswith(words)
    assert "; 64 models of lstm, scores efefefefefef" in seen.out or code == 2


def test_thresholds_of_flags_and_files(call: Call) -> None:
    home = written_sweep(Path("sweep"), leaking=1)
    assert call("check", home, "--max-worst-tpr", "0.5").code == 1
    assert call("check", home, "--max-worst-tpr", "0.9", "--max-epsilon", "4").code == 2
    call.done("check", written_sweep(Path("clean")), "--max-epsilon", "2")
    settings = Path("gate.toml")
    settings.write_text("[check]\nmax_worst_tpr = 0.5\n")
    assert call("check", home / "sweep.json", "--settings", settings).code == 1


def test_a_report_with_charts(call: Call) -> None:
    home = written_sweep(Path("sweep"), leaking=1)
    seen = call.done("report", home, "--format", "json", "--format", "md", "--charts")
    assert seen.out.startswith("Leaks: ")
    assert f"report  {home / 'report.json'}" in seen.out
    assert (home / "charts" / "sweep-beside.svg").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("check", "sweep", "--json", "sweep/plan.json"), OF_THE_RUN),
        (("check", "sweep", "--json", "sweep/models/017-ab/model.json"), OF_THE_RUN),
        (("report", "sweep", "--manifest", "other"), "--manifest is of a run"),
        (("report", "sweep", "--model-card", "other"), "--model-card is of a run"),
        (("report", "sweep", "--show-secrets"), "a sweep holds no secrets"),
    ],
)
def test_what_a_sweep_is_not_used_for(call: Call, words: tuple[str, ...], message: str) -> None:
    written_sweep(Path("sweep"))
    call(*words).refused(message)
