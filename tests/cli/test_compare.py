"""`lmexposure compare`: what a person types, and what they see."""

from pathlib import Path

from cli.conftest import Call
from made_results import small_run


def test_verdicts_and_where_the_comparison_lies(call: Call, tmp_path: Path) -> None:
    base = small_run(tmp_path / "base", memorised=())
    tuned = small_run(tmp_path / "tuned")
    out = tmp_path / "out"
    outcome = call("compare", base, tuned, "--out", out)
    assert outcome.code == 0
    assert "tuned leaks more than base: secrets inserted 4 times are " in outcome.out
    assert "tuned: Leaks: " in outcome.out
    assert f"compare  {out / 'compare.html'}" in outcome.out
    assert "# Compared: base and tuned" in (out / "compare.md").read_text()


def test_a_name_cannot_write_to_the_terminal(call: Call, tmp_path: Path) -> None:
    run = small_run(tmp_path / "a\x1b[31m\u202eb")
    outcome = call("compare", run, run, "--out", tmp_path / "out", "--format", "csv")
    assert outcome.code == 0
    assert r"a\x1b[31m\u202eb: Leaks" in outcome.out
    assert "\x1b[31m" not in outcome.out


def test_formats(call: Call, tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    outcome = call("compare", run, run, "--out", tmp_path, "--format", "csv", "--format", "json")
    assert outcome.code == 0
    assert (tmp_path / "compare.csv").read_text().startswith("run,format,role,")


def test_runs_that_cannot_be_compared_are_3(call: Call, tmp_path: Path) -> None:
    one = small_run(tmp_path / "a")
    other = small_run(tmp_path / "b", formats=("pin",))
    outcome = call("compare", one, other, "--out", tmp_path / "out")
    assert outcome.code == 3
    assert "no two runs have a format in common" in outcome.err.replace("\n", " ")
    assert not (tmp_path / "out").exists()
    alone = call("compare", one, "--out", tmp_path / "out")
    assert alone.code == 3
    assert "give at least two run directories" in alone.err.replace("\n", " ")
    assert call("compare").code == 3
    assert call("compare", one, tmp_path / "none").code == 3
