"""`lmexposure check`: exit codes 0, 1, 2 and 3, and what its outputs never replace."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli.conftest import Call
from made_results import canary, changed, clean, exact, hostile_run, made, options, small_run

import lmexposure as lx
from lmexposure.studies import Result

# Not there, there, within folders, and reached by other names.
FILES_OF_A_RUN = (
    *("manifest.json", "run.json", "metrics.jsonl", "training.json", "scores.parquet"),
    *("report.html", "model", "model/config.json", "corpus/corpus.txt", "charts/new.svg"),
    *("other/../manifest.json", "linked.json", "hard.json", "linked/config.json"),
)
Written = Callable[[Result], Path]


@pytest.fixture
def written() -> Written:
    def write(result: Result) -> Path:
        path = Path("result.json")
        result.write(path)
        return path

    return write


def leaking() -> Result:
    return made([canary(i, exact(28.0), place=i + 1) for i in range(12)])


def test_a_quick_look_is_2_unless_it_is_accepted(call: Call, written: Written) -> None:
    result = written(changed(clean(), settings=options(effort="quick")))
    seen = call("check", result)
    assert (
        seen.code,
        seen.out.startswith("Inconclusive: a quick look is too coarse for a pass: "),
    ) == (2, True)
    call.done("check", result, "--accept-quick")
    file = result.with_name("gate.toml")
    file.write_text("[check]\naccept_quick = true\n")
    call.done("check", result, "--settings", file)
    leak = written(changed(leaking(), settings=options(effort="quick")))
    assert call("check", leak).code == call("check", leak, "--accept-quick").code == 1


def test_notes_of_a_result_are_said_and_the_rest_counted(call: Call, written: Written) -> None:
    """They were on no terminal of a job, and a pass looked as if all were well."""
    notes = ["look at num_epochs=3", *(f"note {n}" for n in range(4))]
    result = written(changed(clean(), warnings=notes))
    lines = call.done("check", result).out.splitlines()
    assert lines[-4:] == [
        *(f"note          {n}" for n in notes[:3]),
        f"{'note':<12}  2 more notes in the report",
    ]
    assert "--full" not in lines[-1]
    assert call("check", result, "--full").out.splitlines()[-5:] == [
        f"note          {n}" for n in notes
    ]


def test_check_is_short_and_full_says_why_of_each_class(call: Call, written: Written) -> None:
    result = written(leaking())
    short, full = call("check", result), call("check", result, "--full")
    assert short.code == full.code == 1
    reasons = [check.reason for check in lx.check(Result.read(result)).findings]
    assert [reason in full.out for reason in reasons] == [True] * len(reasons)
    assert not any(reason in short.out for reason in reasons)
    assert short.out.endswith("--full prints each check of each class with its reason\n")
    assert "Tested:" not in short.out


@pytest.mark.parametrize(
    "content",
    [
        "[check]\nmin_canaries = 12\n[Check]\nmax_exposure = 0.01\n",
        "[thresholds]\nmax_exposure = 0.01\n",
        "max_exposur = 0.01\n",
    ],
)
def test_a_settings_file_has_no_name_that_is_passed_over(
    call: Call, written: Written, content: str
) -> None:
    """A threshold in a table that is misspelled was dropped, and the model passed."""
    file = Path("gate.toml")
    file.write_text(content)
    call("check", written(clean()), "--settings", file).refused("unknown setting")


def test_a_summary_is_not_appended_to_a_record(call: Call, written: Written) -> None:
    other = small_run(Path("other"))
    for name in ("result.json", "manifest.json"):
        before = (other / name).read_bytes()
        answer = call("check", written(clean()), "--summary", other / name)
        answer.refused("is a record of lmexposure; give another file")
        assert (other / name).read_bytes() == before


def test_a_closed_standard_output_is_said(written: Written) -> None:
    words = f"exec {sys.executable} -m lmexposure check {written(clean())} --json - >&-"
    done = subprocess.run(["sh", "-c", words], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, "standard output is closed" in done.stderr) == (3, True), done.stderr


def test_a_reader_that_has_enough_is_no_error(written: Written) -> None:
    """`check ... | head` ended in an error, with 3, and wrote no file that was asked for."""
    result = written(leaking())
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as unread:
        done = subprocess.run(
            [sys.executable, "-m", "lmexposure", "check", result, "--json", "v.json"],
            stdout=unread,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(Path("v.json").read_text())["exit_code"] == 1


def test_the_summary_of_a_step_is_appended_to(call: Call, written: Written) -> None:
    file = Path("summary.md")
    file.write_text("before\n")
    for _ in range(2):
        call("check", written(clean()), "--summary", file)
    text = file.read_text()
    assert text.startswith("before\n")
    assert text.count("## lmexposure: no leak found") == 2


@pytest.mark.parametrize("flag", ["--json", "--junit", "--sarif", "--summary"])
def test_an_output_never_replaces_a_file_of_the_run(call: Call, flag: str) -> None:
    run = small_run(Path("run").absolute())
    for there in ("model", "corpus", "other"):
        (run / there).mkdir()
    (run / "linked.json").symlink_to(run / "manifest.json")
    (run / "hard.json").hardlink_to(run / "scores.parquet")
    (run / "linked").symlink_to(run / "model")
    (run / "model" / "config.json").write_text("{}")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for name in FILES_OF_A_RUN:
        for judged in (run, run / "result.json"):
            seen = call("check", judged, flag, run / name)
            seen.refused("give another file")
            assert not seen.out, name
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert call("check", run, flag, run / "verdict.txt").code == 1


def test_an_output_never_replaces_what_is_measured(call: Call) -> None:
    Path("m").mkdir()
    both = ("--model", "m", "--manifest", "i/manifest.json")
    for path in ("m/config.json", "o/result.json", "o/model/x", "i/corpus/c.txt", "i/run.json"):
        seen = call("check", *both, "--out", "o", "--sarif", Path(path))
        seen.refused("is a file of the run, or has the name of one")


def test_a_place_that_cannot_be_written_is_3(call: Call, written: Written) -> None:
    path = written(clean())
    Path("file").write_text("")
    for flag in ("--json", "--summary"):
        seen = call("check", path, flag, "file/v")
        seen.refused("cannot write")
        assert "No leak found" in seen.out  # what was found is not lost
    Path("circle").symlink_to("circle")
    call("check", path, "--json", "circle").refused("choose a path whose links lead somewhere")


def test_a_dash_is_standard_output_and_a_link_is_followed(call: Call, written: Written) -> None:
    path, link = written(clean()), Path("link")
    link.symlink_to(Path("linked.xml"))
    command = [sys.executable, "-m", "lmexposure", "check", str(path)]
    for flags, out in (
        (("--sarif", "-", "--junit", str(link)), '{\n "$schema"'),
        (("--summary", "-"), "## lmexposure: no leak found"),
    ):
        done = subprocess.run([*command, *flags], capture_output=True, text=True, check=True)
        assert done.stdout.startswith(out)
        assert done.stderr.startswith("No leak found")
    assert ElementTree.parse(Path("linked.xml"))
    assert link.is_symlink()
    call("check", path, "--json", "/dev/stdout").refused("or - for standard output")


def test_hostile_names_break_nothing(call: Call) -> None:
    run = hostile_run(Path("a <b>&|`run"), name="\x1b[31m<b>|\x00`")
    out = Path("v.xml")
    seen = call("check", run, "--junit", out, "--summary", "s.md")
    assert (seen.code, "\x1b" in seen.out) == (1, False)
    ElementTree.parse(out)
    assert "<b>" not in Path("s.md").read_text()


@pytest.mark.slow
def test_a_model_is_measured_first(call: Call, trained: Path) -> None:
    manifest, settings = trained / "i" / "manifest.json", Path("s.toml")
    settings.write_text(
        "references = 300\nrevealed = 1\nbudget_steps = 20000\ndraws = 1000\nguesses = 20\n"
        "[check]\nmax_guesses = 30\n"
    )
    both = ("--model", trained / "t" / "model", "--manifest", manifest, "--settings", settings)
    out = ("--out", "m", "--sarif", "v.sarif")
    seen = call("check", *both, *out)
    assert seen.code in (1, 2)  # two canaries a class cannot pass
    again = call("check", "m", "--max-guesses", 30)
    assert (again.code, again.out) == (seen.code, seen.out)
    record = json.loads(Path("m/result.json").read_text())
    assert record["settings"]["guesses"] == 30  # as many as are allowed, though the file says 20
    assert "manifest.json" in Path("v.sarif").read_text()
    before = set(Path().iterdir())
    alone = call("check", *both, "--effort", "quick")
    assert alone.code in (1, 2)
    assert set(Path().iterdir()) == before
    call("check", *both, "--json", manifest).refused("give another file")
