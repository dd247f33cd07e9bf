import json
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from cli.conftest import Call
from corpora import write_corpus

from lmexposure.audit import MeasureSettings, RunSettings, demo_settings
from lmexposure.studies import Result
from lmexposure.studies.exposure.facts import command_of

SMALL = ("--set", "layers=1", "--set", "units=16", "--epochs", "1")
PLAN = ("--format", "pin", "--canaries", "2", "--repetitions", "1,20", "--controls", "4")
QUICK = (
    "--references",
    "300",
    "--set",
    "revealed=1",
    "--set",
    "budget_steps=20000",
    "--set",
    "draws=1000",
)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus.txt", 200)


@pytest.mark.slow
def test_insert_train_measure_by_hand_is_run(
    call: Call, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call.done("insert", corpus, "--out", tmp_path / "i", *PLAN)
    manifest = tmp_path / "i" / "manifest.json"
    inserted = tmp_path / "i" / "corpus" / "corpus.txt"
    trained = call.done("train", inserted, "--manifest", manifest, "--out", tmp_path / "t", *SMALL)
    assert "bits per token" in trained.out
    model = tmp_path / "t" / "model"
    call.done("measure", model, manifest, "--out", tmp_path / "m", *QUICK)
    # Where the manifest is, a run draws no secrets of its own: so a report says to do it again.
    (tmp_path / "r").mkdir()
    shutil.copy(manifest, tmp_path / "r" / "manifest.json")
    call.done("run", corpus, "--out", tmp_path / "r", *PLAN, *SMALL, *QUICK)
    by_hand = json.loads((tmp_path / "m" / "result.json").read_text())
    at_once = json.loads((tmp_path / "r" / "result.json").read_text())
    assert by_hand["canaries"] == at_once["canaries"]
    assert by_hand["summary"] == at_once["summary"]
    # The model's training.json says that it was trained on this manifest.
    assert (
        by_hand["model"]["validation"]["delivered"] == at_once["model"]["validation"]["delivered"]
    )
    for one in (by_hand, at_once):
        assert one["privacy"]["notes"][0].startswith("training packs documents")
    # The report's commands, from the directory that they name, after a move: the same numbers.
    moved = tmp_path / "an other place"
    moved.mkdir()
    monkeypatch.chdir(moved)
    shutil.move(tmp_path / "r", moved / "my run")
    shutil.move(tmp_path / "m", moved / "m")
    shutil.copy(corpus, moved)
    for name, place in (("my run", at_once), ("m", by_hand)):
        words = shlex.split(
            command_of(Result.read(moved / name).files).replace("MANIFEST", str(manifest))
        )
        while "&&" in words:
            end = words.index("&&")
            subprocess.run(words[:end], check=True)
            words = words[end + 1 :]
        call.done(*words[1:])
        again = json.loads((moved / f"{name}-again" / "result.json").read_text())
        assert {**again, "model": None} == {**place, "model": None}


def test_a_training_that_teaches_nothing_says_so(call: Call, corpus: Path, tmp_path: Path) -> None:
    outcome = call.done(
        "train", corpus, "--out", tmp_path / "t", *SMALL, "--learning-rate", "1e-12"
    )
    assert "the model did not learn" in outcome.err


@pytest.mark.slow
def test_demo_runs_on_the_text_of_this_python(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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

    def settings(*, quick: bool) -> RunSettings:
        looks.append(quick)
        return small

    monkeypatch.setattr("lmexposure.audit.demo_settings", settings)
    outcome = call.done("demo", "--out", tmp_path / "demo", "--epochs", "1")
    assert "Exposure in bits, random_number" in outcome.out
    assert (tmp_path / "demo" / "result.json").exists()
    assert looks == [False]


@pytest.mark.slow
def test_the_first_command_of_the_readme_ends_in_its_leak(call: Call, tmp_path: Path) -> None:
    """In full, as a newcomer runs it: half a minute."""
    seen = call("demo", "--quick", "--out", tmp_path / "demo")
    seen.done(out="\nLeaks: a secret inserted 16 times is found")
    assert call("check", tmp_path / "demo").code == 1


@pytest.mark.slow
def test_run_takes_coins(call: Call, corpus: Path, tmp_path: Path) -> None:
    coins = ("--format", "pin", "--repetitions", "20", "--controls", "4", "--canaries", "12")
    probability = ("--inclusion-probability", "0.5")
    outcome = call.done(
        "run", corpus, "--out", tmp_path / "r", *coins, *probability, *SMALL, *QUICK
    )
    assert "a perfect attack on 12 candidates shows epsilon of at most 0.0" in outcome.out
    assert "coin_seed" not in (tmp_path / "r" / "run.json").read_text()
    roles = [
        c["role"] for c in json.loads((tmp_path / "r" / "result.json").read_text())["canaries"]
    ]
    drawn = json.loads((tmp_path / "r" / "manifest.json").read_text())["entries"]
    assert 0 < roles.count("canary") == sum(c["role"] == "canary" for c in drawn) < 12
