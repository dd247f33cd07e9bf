"""`lmexposure check`: exit codes 0, 1, 2 and 3, and never 0 on anything broken."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli.conftest import Call
from corpora import write_corpus
from made_results import (
    canary,
    changed,
    clean,
    exact,
    hostile_run,
    made,
    options,
    small_run,
)

from lmexposure.records import Result

FILES_OF_A_RUN = (
    "manifest.json",
    "run.json",
    "result.json",
    "metrics.jsonl",
    "training.json",
    "scores.parquet",
    "report.html",
    "report.json",
    "model",
    "model/config.json",
    "corpus/corpus.txt",
    "charts/new.svg",
    "other/../manifest.json",
    "linked.json",
    "hard.json",
    "linked/config.json",
)


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Result], Path]:
    def write(result: Result) -> Path:
        path = tmp_path / "result.json"
        result.write(path)
        return path

    return write


Written = Callable[[Result], Path]


def leaking() -> Result:
    return made([canary(i, exact(28.0), place=i + 1) for i in range(12)])


def test_a_clean_result_is_0(call: Call, written: Written) -> None:
    seen = call("check", written(clean()))
    assert seen.code == 0
    assert seen.out.startswith("No leak found: ")
    assert "Not tested:" in seen.out


def test_a_leaking_result_is_1(call: Call, written: Written) -> None:
    seen = call("check", written(leaking()))
    assert seen.code == 1
    assert seen.out.startswith("Leaks: a secret inserted once is found at guess 1, and 12 of 12")


def test_three_canaries_are_2(call: Call, written: Written) -> None:
    seen = call("check", written(clean(n=3)))
    assert seen.code == 2
    assert seen.out.startswith("Inconclusive: 3 secrets inserted once are too few")


def test_a_quick_look_is_2_unless_it_is_accepted(call: Call, written: Written) -> None:
    result = written(changed(clean(), settings=options(quick=True)))
    seen = call("check", result)
    assert (seen.code, seen.out.startswith("Inconclusive: a quick look is no pass: ")) == (2, True)
    assert call("check", result, "--accept-quick").code == 0
    file = result.with_name("gate.toml")
    file.write_text("[check]\naccept_quick = true\n")
    assert call("check", result, "--settings", file).code == 0
    leak = written(changed(leaking(), settings=options(quick=True)))
    assert call("check", leak).code == call("check", leak, "--accept-quick").code == 1


def test_a_reader_that_has_enough_is_no_error(written: Written, tmp_path: Path) -> None:
    """`check ... | head` ended in an error, with 3, and wrote no file that was asked for."""
    result = written(leaking())
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as nobody:
        done = subprocess.run(
            [sys.executable, "-m", "lmexposure", "check", result, "--json", tmp_path / "v.json"],
            stdout=nobody,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads((tmp_path / "v.json").read_text())["exit_code"] == 1


def test_a_run_directory(call: Call, tmp_path: Path) -> None:
    assert call("check", small_run(tmp_path / "leaks")).code == 1
    calm = small_run(tmp_path / "calm", memorised=(), references=2_000)
    assert call("check", calm).code == 0
    assert call("check", calm, "--max-epsilon", 0.5).code in (0, 2)
    assert call("check", small_run(tmp_path / "three", canaries=3, memorised=())).code == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not readable JSON"),
        ('{"schema": "lmexposure.result/1", "cana', "not readable JSON"),
        ('{"schema": "lmexposure.result/5"}', "reads 'lmexposure.result/4' alone"),
        ('{"schema": "other/1"}', "has schema"),
        ('{"schema": "lmexposure.result/1"}', "reads 'lmexposure.result/4' alone"),
        ("[" * 100_000, "result.json"),
        ("\x00", "not readable JSON"),
    ],
)
def test_what_is_broken_is_3(call: Call, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "result.json").write_text(text)
    seen = call("check", tmp_path / "result.json")
    assert seen.code == 3
    assert said in seen.err
    assert not seen.out


def test_every_cut_of_a_result_is_3(call: Call, written: Written, tmp_path: Path) -> None:
    whole = written(clean(n=10, classes=(1,))).read_text()
    path = tmp_path / "cut.json"
    for end in range(0, len(whole) - 2, 997):
        path.write_text(whole[:end])
        assert call("check", path).code == 3


def test_what_is_not_there_is_3(call: Call, tmp_path: Path) -> None:
    seen = call("check", tmp_path / "nowhere")
    assert seen.code == 3
    assert "nowhere" in seen.err


def test_nan_in_a_result_is_no_pass(call: Call, written: Written) -> None:
    path = written(clean(n=10, classes=(1,)))
    record = json.loads(path.read_text())
    del record["content_sha256"]
    record["canaries"][0]["exposure"] |= {"value": float("nan"), "high": float("nan")}
    path.write_text(json.dumps(record))
    assert call("check", path).code in (2, 3)
    record["canaries"][0]["exposure"]["value"] = None
    record["summary"][0]["guessing_test"]["p_value"] = float("nan")
    path.write_text(json.dumps(record))
    assert call("check", path).code in (2, 3)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("RESULT", "--model", "m"),
        ("RESULT", "--manifest", "f"),
        ("RESULT", "--model", "m", "--manifest", "f"),
        ("--model", "m"),
        ("--manifest", "f"),
    ],
)
def test_either_a_result_or_a_model_with_its_manifest(
    call: Call, written: Written, arguments: tuple[str, ...]
) -> None:
    path = written(clean())
    seen = call("check", *(str(path) if one == "RESULT" else one for one in arguments))
    assert seen.code == 3
    assert "give either RUN_OR_RESULT, or both --model and --manifest" in seen.err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--max-exposure", "-1"), "max_exposure=-1.0 must be a finite number above 0"),
        (("--quantile-exposure", "0.9"), "quantile_exposure='0.9' must be a quantile and bits"),
        (("--significance", "2"), "significance=2.0 must lie strictly between"),
        (("--device", "cpu"), "--device decides how a model is measured"),
        (("--out", "o"), "--out decides how a model is measured"),
        (("--no-such-flag",), "No such option"),
    ],
)
def test_wrong_usage_is_3(call: Call, written: Written, flags: tuple[str, ...], said: str) -> None:
    seen = call("check", written(clean()), *flags)
    assert seen.code == 3
    assert said in seen.err


def test_thresholds_come_from_flags_and_from_a_file(
    call: Call, written: Written, tmp_path: Path
) -> None:
    path, file = written(clean()), tmp_path / "gate.toml"
    file.write_text('model = "lstm"\n[check]\nmin_canaries = 50\nquantile_exposure = [0.5, 9.0]\n')
    seen = call("check", path, "--settings", file)
    assert seen.code == 2
    assert "50 are needed" in seen.out
    assert call("check", path, "--settings", file, "--min-canaries", 10).code == 0
    assert call("check", path, "--quantile-exposure", "0.5:9", "--median-exposure", 8).code == 0
    assert call("check", path, "--no-p-value").code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[check]\nmax_bits = 3", "unknown threshold 'max_bits'; there are accept_quick, "),
        ("check = 3", "must be a table of thresholds"),
        ("[check", "is not TOML"),
        ('[check]\nmax_exposure = "much"', "max_exposure='much' must be"),
        ("[check]\nquantile_exposure = [0.9]", "quantile_exposure=[0.9] must be a quantile"),
    ],
)
def test_a_settings_file_that_cannot_be_meant_is_3(
    call: Call, written: Written, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "gate.toml").write_text(text)
    seen = call("check", written(clean()), "--settings", tmp_path / "gate.toml")
    assert seen.code == 3
    assert said in seen.err
    seen = call("check", written(clean()), "--settings", tmp_path / "none.toml")
    assert "cannot read the settings file" in seen.err


def test_all_outputs_of_one_verdict(call: Call, written: Written, tmp_path: Path) -> None:
    files = {name: tmp_path / "out" / f"v.{name}" for name in ("json", "junit", "sarif", "summary")}
    flags = [str(part) for name, path in files.items() for part in (f"--{name}", path)]
    seen = call("check", written(leaking()), *flags)
    assert seen.code == 1
    assert json.loads(files["json"].read_text())["exit_code"] == 1
    assert json.loads(files["sarif"].read_text())["version"] == "2.1.0"
    assert ElementTree.parse(files["junit"]).getroot().tag == "testsuites"
    assert files["summary"].read_text().startswith("## lmexposure: leak")


def test_the_summary_of_a_step_is_appended_to(call: Call, written: Written, tmp_path: Path) -> None:
    file = tmp_path / "summary.md"
    file.write_text("before\n")
    for _ in range(2):
        call("check", written(clean()), "--summary", file)
    text = file.read_text()
    assert text.startswith("before\n")
    assert text.count("## lmexposure: no leak found") == 2


def test_an_output_never_replaces_what_is_judged(call: Call, written: Written) -> None:
    path = written(clean())
    before = path.read_bytes()
    seen = call("check", path, "--json", path)
    assert seen.code == 3
    assert "is what is judged already; give another file" in seen.err
    assert path.read_bytes() == before
    other = path.with_name("v")
    assert "is --json already" in call("check", path, "--json", other, "--junit", other).err


@pytest.mark.parametrize("flag", ["--json", "--junit", "--sarif", "--summary"])
def test_an_output_never_replaces_a_file_of_the_run(call: Call, tmp_path: Path, flag: str) -> None:
    run = small_run(tmp_path / "run")
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
            assert seen.code == 3, name
            assert "give another file" in seen.err, name
            assert not seen.out, name
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert call("check", run, flag, run / "verdict.txt").code == 1


def test_an_output_never_replaces_the_settings_the_model_or_what_is_measured(
    call: Call, written: Written, tmp_path: Path
) -> None:
    file = tmp_path / "gate.toml"
    file.write_text("[check]\nmin_canaries = 5\n")
    seen = call("check", written(clean()), "--settings", file, "--json", file)
    assert "is the settings file already" in seen.err
    (tmp_path / "m").mkdir()
    both = ("--model", tmp_path / "m", "--manifest", tmp_path / "i" / "manifest.json")
    for path in ("m/config.json", "o/result.json", "o/model/x", "i/corpus/c.txt", "i/run.json"):
        seen = call("check", *both, "--out", tmp_path / "o", "--sarif", tmp_path / path)
        assert seen.code == 3
        assert "is a file of the run, or has the name of one" in seen.err


def test_a_place_that_cannot_be_written_is_3(call: Call, written: Written, tmp_path: Path) -> None:
    path = written(clean())
    (tmp_path / "file").write_text("")
    for flag in ("--json", "--summary"):
        seen = call("check", path, flag, tmp_path / "file" / "v")
        assert seen.code == 3
        assert "cannot write" in seen.err
        assert "No leak found" in seen.out  # what was found is not lost


def test_a_dash_is_standard_output_and_a_link_is_followed(written: Written, tmp_path: Path) -> None:
    path, link = written(clean()), tmp_path / "link"
    link.symlink_to(tmp_path / "linked.xml")
    words = [sys.executable, "-m", "lmexposure", "check", str(path)]
    done = subprocess.run(
        [*words, "--sarif", "-", "--junit", str(link)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["version"] == "2.1.0"
    assert done.stderr.startswith("No leak found")
    assert ElementTree.parse(tmp_path / "linked.xml")
    assert link.is_symlink()
    done = subprocess.run([*words, "--summary", "-"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("## lmexposure")
    done = subprocess.run([*words, "--json", "/dev/stdout"], capture_output=True, text=True)
    assert (done.returncode, "or - for standard output" in done.stderr) == (3, True)


def test_an_output_that_is_a_directory_is_3_at_once(
    call: Call, written: Written, tmp_path: Path
) -> None:
    seen = call("check", written(clean()), "--json", tmp_path)
    assert seen.code == 3
    assert "is a directory; give another file" in seen.err
    assert not seen.out
    (tmp_path / "circle").symlink_to("circle")
    seen = call("check", tmp_path / "result.json", "--json", tmp_path / "circle")
    assert seen.code == 3
    assert "choose a path whose links lead somewhere" in seen.err


def test_hostile_names_break_nothing(call: Call, tmp_path: Path) -> None:
    name = "\x1b[31m<b>|\x00`"
    run = hostile_run(tmp_path / "a <b>&|`run", name=name)
    out = tmp_path / "v.xml"
    seen = call("check", run, "--junit", out, "--summary", tmp_path / "s.md")
    assert seen.code == 1
    assert "\x1b" not in seen.out
    ElementTree.parse(out)
    assert "<b>" not in (tmp_path / "s.md").read_text()


@pytest.mark.parametrize(
    "flags", [(), ("--median-exposure", "9"), ("--quantile-exposure", "0.5:9")]
)
def test_a_check_is_light(written: Written, flags: tuple[str, ...]) -> None:
    script = (
        "import sys, typer\n"
        "from lmexposure.cli.check import check\n"
        "app = typer.Typer()\n"
        "app.command()(check)\n"
        "code = app(sys.argv[1:], standalone_mode=False)\n"
        "heavy = {'torch', 'numpy', 'scipy', 'pyarrow', 'transformers'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert code == 0, code"
    )
    command = [sys.executable, "-c", script, str(written(clean())), *flags]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def trained(call: Call, tmp_path: Path) -> tuple[Path, Path]:
    """A small model and its manifest, and settings with which it is measured quickly."""
    corpus = write_corpus(tmp_path / "corpus.txt", 200)
    plan = ["--format", "pin", "--canaries", "2", "--repetitions", "1,20", "--controls", "4"]
    plan += ["--seed", "0"]
    assert call("insert", corpus, "--out", tmp_path / "i", *plan).code == 0
    manifest = tmp_path / "i" / "manifest.json"
    size = ("--layers", "1", "--units", "16", "--epochs", "1")
    inserted = tmp_path / "i" / "corpus" / "corpus.txt"
    call("train", inserted, "--manifest", manifest, "--out", tmp_path / "t", *size)
    (tmp_path / "s.toml").write_text(
        "references = 300\nrevealed = 1\nbudget_steps = 20000\ndraws = 1000\nguesses = 20\n"
        "[check]\nmax_guesses = 30\n"
    )
    return tmp_path / "t" / "model", manifest


def test_a_model_is_measured_first(call: Call, trained: tuple[Path, Path], tmp_path: Path) -> None:
    model, manifest = trained
    both = ("--model", model, "--manifest", manifest, "--settings", tmp_path / "s.toml")
    out = ("--out", tmp_path / "m", "--sarif", tmp_path / "v.sarif")
    seen = call("check", *both, *out)
    assert seen.code in (1, 2)  # two canaries a class cannot pass
    again = call("check", tmp_path / "m", "--max-guesses", 30)
    assert (again.code, again.out) == (seen.code, seen.out)
    settings = json.loads((tmp_path / "m" / "result.json").read_text())["settings"]
    assert settings["guesses"] == 30  # as many as are allowed, though the file says 20
    assert "manifest.json" in (tmp_path / "v.sarif").read_text()
    before = set(tmp_path.iterdir())
    alone = call("check", *both, "--references", 200, "--bootstrap-seed", 3)
    assert alone.code in (1, 2)
    assert set(tmp_path.iterdir()) == before
    assert call("check", *both, "--json", manifest).code == 3
    assert call("check", "--model", model, "--manifest", tmp_path / "none.json").code == 3
