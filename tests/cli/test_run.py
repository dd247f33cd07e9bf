"""`run`, by hand and at once, and of canaries whose texts are chosen; `train`; `demo`."""

import json
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from cli.conftest import PLAN, QUICK, Call
from corpora import sentences, write_corpus

from lmexposure.audit import MeasureSettings, RunSettings, demo_settings
from lmexposure.canaries import Manifest
from lmexposure.studies import Result
from lmexposure.studies.exposure.facts import command_of

SMALL = ("--set", "layers=1", "--set", "units=16", "--epochs", "1")


@pytest.fixture
def corpus() -> Path:
    return write_corpus(Path("corpus.txt"), 200)


@pytest.mark.slow
def test_insert_train_measure_by_hand_is_run(
    call: Call, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call.done("insert", corpus, "--out", "i", *PLAN)
    manifest = Path("i/manifest.json").absolute()
    trained = call(*("train", "i/corpus/corpus.txt", "--manifest", manifest, "--out", "t"), *SMALL)
    trained.done(out="bits per token")
    call.done("measure", Path("t/model").absolute(), manifest, "--out", "m", *QUICK)
    # Where the manifest is, a run draws no secrets of its own: so a report says to do it again.
    Path("r").mkdir()
    shutil.copy(manifest, Path("r/manifest.json"))
    call.done("run", corpus, "--out", "r", *PLAN, *SMALL, *QUICK)
    by_hand, at_once = (json.loads(Path(home, "result.json").read_text()) for home in ("m", "r"))
    assert by_hand["canaries"] == at_once["canaries"]
    assert by_hand["summary"] == at_once["summary"]
    # The model's training.json says that it was trained on this manifest.
    one, other = (record["model"]["validation"] for record in (by_hand, at_once))
    assert one["delivered"] == other["delivered"]
    for record in (by_hand, at_once):
        assert record["privacy"]["notes"][0].startswith("training packs documents")
    # The report's commands, from the directory that they name, after a move: the same numbers.
    moved = Path("an other place")
    moved.mkdir()
    shutil.move("r", moved / "my run")
    shutil.move("m", moved / "m")
    shutil.copy(corpus, moved)
    monkeypatch.chdir(moved)
    for name, place in (("my run", at_once), ("m", by_hand)):
        again = command_of(Result.read(name).files)
        words = shlex.split(again.replace("MANIFEST", str(manifest)))
        while "&&" in words:
            end = words.index("&&")
            subprocess.run(words[:end], check=True)
            words = words[end + 1 :]
        call.done(*words[1:])
        found = json.loads(Path(f"{name}-again/result.json").read_text())
        assert {**found, "model": None} == {**place, "model": None}


def test_a_training_that_teaches_nothing_says_so(call: Call, corpus: Path) -> None:
    outcome = call.done("train", corpus, "--out", "t", *SMALL, "--learning-rate", "1e-12")
    assert "the model did not learn" in outcome.err


@pytest.mark.slow
def test_demo_runs_on_the_text_of_this_python(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real command, on the first lines of the real text."""
    import sys
    import types

    real = __import__("pydoc_data.topics", fromlist=["topics"]).topics
    short = types.ModuleType("pydoc_data.topics")
    short.topics = {"with": real["with"]}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", short)
    # Of a model that learned nothing a rank takes the whole budget; that is tested elsewhere.
    measuring = MeasureSettings(references=300, draws=500, budget_steps=500, guesses=20)
    small, looks = replace(demo_settings(), measure=measuring), []

    def settings(*, clean: bool) -> RunSettings:
        looks.append(clean)
        return small

    monkeypatch.setattr("lmexposure.audit.demo_settings", settings)
    call("demo", "--out", "demo", "--epochs", "1").done(out="\nrandom_number  16×  ")
    assert Path("demo/result.json").exists()
    assert looks == [False]


@pytest.mark.slow
def test_the_first_command_of_the_readme_ends_in_its_leak(call: Call) -> None:
    """In full, as a newcomer runs it: half a minute."""
    seen = call("demo", "--effort", "quick", "--out", "demo")
    seen.done(out="\n  A secret inserted 16 times is found")
    assert call("check", "demo").code == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "code", "word"), [((), 1, "Leaks"), (("--clean",), 0, "No leak found")]
)
def test_people_see_the_gate_fire_and_pass(
    call: Call, flags: tuple[str, ...], code: int, word: str
) -> None:
    """Both models were trained on the canaries: what passes is not that they were left out."""
    call.done("demo", *flags, "--out", "demo")
    seen = call("check", "demo", "--json", "v.json")
    assert (seen.code, seen.out.startswith(word)) == (code, True)
    checks = {check["key"]: check for check in json.loads(Path("v.json").read_text())["checks"]}
    assert checks["accept_unseen_training"]["outcome"] == "pass"
    assert "it knows the witnesses" in checks["accept_unseen_training"]["reason"]
    manifest = Manifest.read(Path("demo/manifest.json"))
    corpus = "".join(path.read_text() for path in Path("demo/corpus").glob("*.txt"))
    assert all(corpus.count(c.text) == c.repetitions for c in manifest.canaries)


def test_a_quick_demo_that_passes_is_refused(call: Call) -> None:
    call("demo", "--clean", "--effort", "quick").refused(
        "--effort quick passes no gate, and --clean shows what"
    )
    assert not Path("runs").exists()


@pytest.mark.slow
def test_run_takes_coins(call: Call, corpus: Path) -> None:
    coins = ("--format", "pin", "--repetitions", "20", "--controls", "4", "--canaries", "12")
    probability = ("--inclusion-probability", "0.5")
    outcome = call.done("run", corpus, "--out", "r", *coins, *probability, *SMALL, *QUICK)
    assert "a perfect attack on 12 candidates shows epsilon of at most 0.0" in outcome.out
    assert "coin_seed" not in Path("r/run.json").read_text()
    roles = [c["role"] for c in json.loads(Path("r/result.json").read_text())["canaries"]]
    drawn = json.loads(Path("r/manifest.json").read_text())["entries"]
    assert 0 < roles.count("canary") == sum(c["role"] == "canary" for c in drawn) < 12


LOOK = ("--effort", "quick", "--set", "references=60", "--estimate", "sampled")
TRAINING = ("--set", "layers=1", "--set", "units=16", "--epochs", 1, "--seed", 1)
TOSSED = ("--inclusion-probability", 0.5, "--canaries", 30, "--repetitions", 1, "--controls", 4)


@pytest.fixture
def text_corpus() -> Path:
    path = Path("text_corpus.txt")
    path.write_text("\n".join(sentences(400)) + "\n", encoding="utf-8")
    Path("texts.txt").write_text("\n".join(f"qx{number:04d}zw" for number in range(40)))
    return path


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ("--kind", "uniform", "--kind", "new_token"),
            "the kind new_token is judged by coins alone: give --inclusion-probability 0.5 and "
            "--canaries, or use a sweep",
        ),
        (("--texts", "texts.txt"), "the kind texts is judged by coins alone: give --inclusion"),
        (
            ("--kind", "texts", "--texts", "texts.txt", *TOSSED),
            "lacks 'uniform', whose canaries alone have ranks and exposures; add it, or",
        ),
        (("--texts", "none.txt", *TOSSED), "cannot read none.txt: No such file or directory; give"),
        (("--texts", ".", *TOSSED), ". is a directory; give a text file, one text a line"),
    ],
)
def test_kinds_that_one_training_cannot_judge_are_refused(
    call: Call, text_corpus: Path, flags: tuple[object, ...], message: str
) -> None:
    call("run", text_corpus, "--out", "r", *flags).refused(message)
    assert not Path("r/manifest.json").exists()


@pytest.mark.slow
def test_a_run_judges_the_texts_of_a_file_by_their_coins(call: Call, text_corpus: Path) -> None:
    run = ("run", text_corpus, "--out", "r", "--texts", "texts.txt", *TOSSED, "--format", "pin")
    seen = call(*run, *TRAINING, *LOOK, "--full")
    assert seen.code in (0, 1, 4), seen.err
    result = Result.read("r/result.json")
    (row,) = result.kinds
    assert (row.group, row.canaries + row.held_out) == ("texts/x1", 30)
    assert "Other kinds of canaries" in seen.out
    assert "so they have no rank and no exposure" in " ".join(seen.out.split())
    assert "Other kinds of canaries" in Path("r/report.html").read_text(encoding="utf-8")
    again = call("measure", "r/model", "r/manifest.json", "--out", "m", "--full", *LOOK)
    assert again.code in (0, 1, 4), again.err
    assert "texts/x1" in again.out
    # The file is a part of the run: with another one it does not go on.
    assert "SHA-256" in Manifest.read("r/manifest.json").formats["texts"].source
    with Path("texts.txt").open("a") as file:
        file.write("\nanother text")
    changed = call(*run, *TRAINING, *LOOK)
    changed.refused("--texts texts.txt has changed since canaries were chosen from it; put")
    assert Result.read("r/result.json") == result
