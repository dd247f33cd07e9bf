"""What is wrong with what was given is said in a sentence, and is never a traceback."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Call
from made_results import small_manifest

PLAN = ("--format", "pin", "--canaries", "2", "--repetitions", "1,2", "--controls", "2")
LONG = "x" * 300


def test_a_nul_on_the_command_line(call: Call) -> None:
    call("check", "a\0b").refused(r"'a\x00b' holds a NUL")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("measure m --out o", "'manifest'. 'm' alone is there of model and manifest, in this"),
        ("remove a.txt", "'manifest'. 'a.txt' alone is there of corpus and manifest, in this"),
        ("verify", "'corpus'."),
        ("verbatim m --out o", "'corpus'."),
        ("identifiers --format pin --out o", "'model'."),
    ],
)
def test_the_argument_that_is_missing(call: Call, words: str, message: str) -> None:
    """Of names and a last one, Typer gives a single word to the last."""
    call(*words.split()).refused(f"Missing argument {message}")


def test_a_name_that_no_disk_takes(call: Call, tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("line\n" * 30)
    for words in (
        ("insert", tmp_path / "c.txt", "--out", tmp_path / LONG, *PLAN),
        ("insert", tmp_path / LONG, "--out", tmp_path / "o"),
        ("check", tmp_path / LONG),
        ("compare", tmp_path / LONG, tmp_path),
        ("measure", LONG, tmp_path / LONG, "--out", tmp_path / "o"),
    ):
        outcome = call(*words)
        outcome.refused("name")
        assert "longer than the disk takes" in outcome.err or "File name too long" in outcome.err


def test_a_sidecar_of_other_types(call: Call, tmp_path: Path) -> None:
    for n in range(2):
        (tmp_path / f"{n}.txt").write_text(f"file {n}\n" * 40)
    out, manifest = tmp_path / "o", tmp_path / "o" / "manifest.json"
    # With a fresh seed all of them may go into the other file.
    call.done("insert", tmp_path / "*.txt", "--out", out, *PLAN, "--seed", "1")
    note = out / "corpus" / ".sidecars" / "0.txt.canaries.json"
    values = json.loads(note.read_bytes())
    one = values["occurrences"][0]
    changes: list[dict[str, Any]] = [
        {"shard": "1"},
        {"shard": 3},
        {"shards": None},
        {"manifest_sha256": None},
        {"occurrences": None},
        {"occurrences": [1]},
        {"occurrences": [{}]},
        {"occurrences": [one | {"document": "0"}]},
        {"occurrences": [one | {"offset": 10**30}]},
        {"documents": "40"},
        {"first_document": -5},
        {"sha256": 5},
        {"name": 3},
        {"more": 1},
    ]
    texts = ["null", "[]", "3", '"x"', "{}", "[" * 100_000, '{"schema":' + "9" * 5000 + "}"]
    for text in [*texts, *(json.dumps(values | change) for change in changes)]:
        note.write_text(text)
        call("verify", out / "corpus" / "*.txt", manifest).refused("is not what insertion wrote")
    note.write_text(json.dumps(values | {"shards": 10**12}))
    outcome = call("remove", out / "corpus" / "*.txt", manifest, "--out", tmp_path / "back")
    outcome.refused("of the 1000000000000 files of this corpus, numbers 3, 4, 5")
    shutil.rmtree(out)


def test_a_settings_file_without_an_end(call: Call) -> None:
    said = r"/dev/zero is no settings file: it is longer than 4 MiB"
    call("check", "run", "--settings", "/dev/zero").refused(said)


def test_a_damaged_look_is_found_before_the_measuring(call: Call, tmp_path: Path) -> None:
    """The page of a measurement shows the look at memorised text beside it."""
    small_manifest().write(tmp_path / "manifest.json")
    (tmp_path / "out" / "verbatim").mkdir(parents=True)
    (tmp_path / "out" / "verbatim" / "verbatim.json").write_text("{}")
    words = ("measure", "no/model", tmp_path / "manifest.json", "--out", tmp_path / "out")
    call(*words).refused("verbatim/verbatim.json has schema None")
