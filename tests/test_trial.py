"""What scripts/trial makes of its package and says of its trials, with nothing from outside."""

import importlib.util
import json
import zipfile
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import lmexposure as lx

SCRIPT = Path(__file__).parent.parent / "scripts" / "trial"
SHORT, LONG = "It is a machine.", "It is a machine. " * 20
FILE = f"""
conversations:
- - What is it?
  - {SHORT}
  - A thing.
  - {LONG}
- - What is it?
  - A thing.
- - Who?
  -
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    loader = SourceFileLoader("trial", str(SCRIPT))
    spec = importlib.util.spec_from_loader("trial", loader)
    assert spec is not None
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def made_wheel(script: Any, place: Path, licence: str) -> Path:
    about = f"chatterbot_corpus-{script.VERSION}.dist-info"
    wheel = place / "made.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        said = f"Name: {script.PACKAGE}\nVersion: {script.VERSION}\nClassifier: {licence}\n"
        file.writestr(f"{about}/METADATA", f"Metadata-Version: 2.2\n{said}")
        file.writestr("chatterbot_corpus/data/english/one.yml", FILE)
        file.writestr("chatterbot_corpus/data/german/one.yml", FILE.replace("What", "Was"))
    return wheel


def test_each_short_answer_is_a_chat_and_none_comes_twice(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "download", lambda at: made_wheel(script, at, script.LICENCE))
    assert script.write_chats(tmp_path / "chats.jsonl") == 2
    lines = (tmp_path / "chats.jsonl").read_text().splitlines()
    turns = [[turn["content"] for turn in json.loads(line)["messages"]] for line in lines]
    assert turns == [["What is it?", SHORT], ["What is it?", "A thing."]]
    assert [path.name for path in tmp_path.iterdir()] == ["chats.jsonl"]


def test_another_licence_is_not_taken(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "download", lambda at: made_wheel(script, at, "License :: Other"))
    with pytest.raises(SystemExit, match=r"licence \['License :: Other'\], not 1\.3\.3 and Lic"):
        script.write_chats(tmp_path / "chats.jsonl")
    assert not list(tmp_path.iterdir())


def test_what_is_in_the_directory_stays(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").write_text("mine")
    monkeypatch.setattr("sys.argv", ["trial", "model", str(tmp_path)])
    with pytest.raises(SystemExit, match="is not empty; give a new directory"):
        script.main()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_copies_that_no_row_holds_whole_are_lost(script: Any, tmp_path: Path) -> None:
    pin = lx.Format(name="pin", template="My PIN is {digits:4}")
    plan = lx.Plan(formats=(pin,), canaries=1, repetitions=(1, 3), controls=1, seed=1)
    _, manifest = lx.insert([f"text {number}" for number in range(50)], plan)
    manifest.write(tmp_path / "manifest.json")
    texts = [e.text for e in manifest.entries for _ in range(e.inserted)]
    trainer = SimpleNamespace(processing_class=SimpleNamespace(decode=str), train_dataset={})
    trainer.train_dataset["input_ids"] = [f"a {text} b" for text in texts]
    assert script.copies_lost(trainer, tmp_path) == 0
    trainer.train_dataset["input_ids"] = [" and ".join(texts[1:]), texts[0][:-1]]
    assert script.copies_lost(trainer, tmp_path) == 1


def test_the_table_has_the_trials_that_were_measured(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    once = {"canaries": 8, "median_bits": 1.5, "p": 0.25, "found": [0, 1]}
    classes = {"0": once | {"canaries": 32}, "1": once}
    measured = {"minutes": {"train": 10.0, "measure": 2.51}, "outcome": "leak"}
    measured |= {"processor_minutes": {"train": 9.5}}
    often = {"way": "trl", "seed": 2, "classes": classes | {"16": once | {"found": [7, 8]}}}
    low = {"way": "run", "seed": 3, "low": True, "classes": classes}
    trials = {"lost": {"way": "lost", "seed": 1}, "trl": measured | often, "low": measured | low}
    for name, trial in trials.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "trial.json").write_text(json.dumps(trial))
    places = [str(tmp_path / name) for name in trials]
    monkeypatch.setattr("sys.argv", ["trial", "--table", *places])
    script.main()
    head, rule, *rows = capsys.readouterr().out.splitlines()
    assert head.count("|") == rule.count("|") == rows[0].count("|")
    ending = "0 of 8, 1 of 8 | 1.5 | 0.25 | 0 of 32, 1 of 32 | 1.5 | 0.25 | leak |"
    assert rows == [
        f"| trl, seed 2 | 10.0, 9.5 | 12.5 | 7 of 8, 8 of 8 | 1.5 | {ending}",
        f"| run, seed 3, --low | 10.0, 9.5 | 12.5 | none | none | {ending}",
    ]


@pytest.mark.parametrize("content", [None, "{", "[]", '"text"', "7"])
def test_a_directory_of_no_trial_is_named(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    (tmp_path / "result").mkdir()
    (tmp_path / "result" / "mine.txt").write_text("mine")
    if content is not None:
        (tmp_path / "trial.json").write_text(content)
    for words in (["--table", str(tmp_path)], ["model", str(tmp_path), "--again"]):
        monkeypatch.setattr("sys.argv", ["trial", *words])
        if content == "[]" and "--table" in words:  # a trial without figures
            script.main()
            continue
        with pytest.raises(SystemExit, match=r"trial: .*trial\.json"):
            script.main()
    assert (tmp_path / "result" / "mine.txt").read_text() == "mine"
