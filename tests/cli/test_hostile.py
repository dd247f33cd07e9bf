"""What is wrong is said in a sentence; what would take over a terminal is spelled out."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import FEW, Call
from corpora import write_corpus
from made_results import small_manifest

from lmexposure.cli import console

LONG = "x" * 300


def test_a_nul_on_the_command_line(call: Call) -> None:
    call("check", "a\0b").refused(r"'a\x00b' holds a NUL")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("remove a.txt", "'manifest'. 'a.txt' alone is there of corpus and manifest, in this"),
        ("verify", "'corpus'."),
        ("verbatim m --out o", "'corpus'."),
        ("identifiers --format pin --out o", "'model'."),
    ],
)
def test_the_argument_that_is_missing(call: Call, words: str, message: str) -> None:
    """Of names and a last one, Typer gives a single word to the last."""
    call(*words.split()).refused(f"Missing argument {message}")


def test_a_name_that_no_disk_takes(call: Call) -> None:
    Path("c.txt").write_text("line\n" * 30)
    for words in (
        ("insert", "c.txt", "--out", LONG, *FEW),
        ("insert", LONG, "--out", "o"),
        ("check", LONG),
        ("compare", LONG, "."),
        ("measure", LONG, LONG, "--out", "o"),
    ):
        outcome = call(*words)
        outcome.refused("")
        assert "longer than the disk takes" in outcome.err or "File name too long" in outcome.err


def test_a_sidecar_of_other_types(call: Call) -> None:
    for n in range(2):
        Path(f"{n}.txt").write_text(f"file {n}\n" * 40)
    out, manifest = Path("o"), Path("o/manifest.json")
    # With a fresh seed all of them may go into the other file.
    call.done("insert", "*.txt", "--out", out, *FEW, "--seed", "1")
    note = out / "corpus" / ".sidecars" / "0.txt.canaries.json"
    values = json.loads(note.read_bytes())
    one = values["occurrences"][0]
    changes: list[dict[str, Any]] = [
        *({"shard": "1"}, {"shard": 3}, {"shards": None}, {"manifest_sha256": None}),
        *({"occurrences": None}, {"occurrences": [1]}, {"occurrences": [{}]}),
        {"occurrences": [one | {"document": "0"}]},
        {"occurrences": [one | {"offset": 10**30}]},
        *({"documents": "40"}, {"first_document": -5}, {"sha256": 5}, {"name": 3}, {"more": 1}),
    ]
    texts = ["null", "[]", "3", '"x"', "{}", "[" * 100_000, '{"schema":' + "9" * 5000 + "}"]
    for text in [*texts, *(json.dumps(values | change) for change in changes)]:
        note.write_text(text)
        call("verify", out / "corpus" / "*.txt", manifest).refused("is not what insertion wrote")
    note.write_text(json.dumps(values | {"shards": 10**12}))
    outcome = call("remove", out / "corpus" / "*.txt", manifest, "--out", "back")
    outcome.refused("of the 1000000000000 files of this corpus, numbers 3, 4, 5")
    shutil.rmtree(out)


def test_a_settings_file_without_an_end(call: Call) -> None:
    said = r"/dev/zero is no settings file: it is longer than 4 MiB"
    call("check", "run", "--settings", "/dev/zero").refused(said)


def test_a_damaged_look_is_found_before_the_measuring(call: Call) -> None:
    """The page of a measurement shows the look at memorised text beside it."""
    small_manifest().write(Path("manifest.json"))
    Path("out/verbatim").mkdir(parents=True)
    Path("out/verbatim/verbatim.json").write_text("{}")
    seen = call("measure", "no/model", "manifest.json", "--out", "out")
    seen.refused("verbatim/verbatim.json has schema None")


# Colours, a title, a C1 control, a bell, a turned line, a width of nothing, markup, line ends.
HOSTILE = "\x1b[31m\x1b]0;t\x07\x9b2J\u202ea\u200b[red]\r\nerror: x"
ESCAPED = json.dumps(HOSTILE.replace("\r\n", ""))  # TOML reads this too


@pytest.fixture
def hostile() -> None:
    """Hostile files; commands are called beside them."""
    Path(f"{HOSTILE}.txt").write_text("a line\n" * 40)
    template = f'template = "Code {{digits:5}}"\ndescription = {ESCAPED}\nsource = {ESCAPED}\n'
    Path(f"{HOSTILE}.toml").write_text(f'name = "f"\n{template}')
    Path("name.toml").write_text(f"name = {ESCAPED}\n{template}")
    Path("torn.toml").write_text(f"name = {HOSTILE}")
    Path("settings.toml").write_text(f"{ESCAPED} = 1\n")
    Path("a.jsonl").write_text(json.dumps({HOSTILE: "x"}) + "\n")
    Path("m.json").write_text(json.dumps({"schema": HOSTILE}))
    Path(HOSTILE).mkdir()
    Path(HOSTILE, "result.json").write_text(json.dumps({"schema": HOSTILE}))


TEXT, FORMAT = f"{HOSTILE}.txt", f"{HOSTILE}.toml"
CALLS: list[tuple[str, ...]] = [
    *(("formats", "check", name) for name in (FORMAT, "name.toml", "torn.toml")),
    *(("formats", "show", name) for name in (FORMAT, HOSTILE)),
    ("insert", TEXT, "--out", f"{HOSTILE}.out", "--format", FORMAT),
    ("insert", HOSTILE, "--out", "o"),
    ("insert", f"{HOSTILE}*?", "--out", "o"),
    ("insert", "a.jsonl", "--out", "o"),
    ("insert", "a.jsonl", "--out", "o", "--text-field", HOSTILE),
    ("insert", TEXT, "--out", "o", "--settings", "settings.toml"),
    *(
        ("insert", TEXT, "--out", "o", f"--{flag}", HOSTILE)
        for flag in ("settings", "layout", "repetitions", "seed")
    ),
    ("insert", TEXT, "--out", "o", f"--{HOSTILE}"),
    (HOSTILE,),
    ("formats", "show", HOSTILE, HOSTILE),
    ("verify", TEXT, "m.json"),
    ("remove", TEXT, HOSTILE, "--out", "o"),
    *(("report", HOSTILE), ("check", HOSTILE), ("compare", HOSTILE, HOSTILE), ("epsilon", TEXT)),
    ("train", TEXT, "--out", "o", "--model", HOSTILE, "--offline"),
]


@pytest.mark.usefixtures("hostile")
def test_nothing_from_outside_reaches_the_terminal_as_it_is(call: Call) -> None:
    for arguments in CALLS:
        outcome = call(*arguments)
        seen = outcome.out + outcome.err
        assert all(one.isprintable() for one in seen.replace("\n", "")), arguments
        assert not any(line.startswith("error: x") for line in seen.splitlines()), arguments
        assert "unexpected failure" not in seen, arguments


def test_a_traceback_is_harmless_too(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr("lmexposure.audit.corpus.plan_of", fail)
    seen = call("--debug", "insert", "a", "--out", "b").err
    assert "Traceback" in seen
    assert "unexpected failure: RuntimeError" in seen
    assert all(one.isprintable() for one in seen.replace("\n", ""))


def test_a_bar_has_no_markup_and_no_controls(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "dumb")
    with console.progress_bars() as bars:
        assert bars.drawn
        bars.show(f"scoring {HOSTILE}", 1, 2, HOSTILE)
        bars.say(HOSTILE)
    console.print_table([HOSTILE], [[HOSTILE]])
    console.say(HOSTILE, aside=True)
    seen = capsys.readouterr()
    for part in (HOSTILE[:4], "\x07", "\x9b", "\u202e"):
        assert part not in seen.out + seen.err
    assert "[red]" in seen.out


@pytest.mark.skipif(sys.platform != "linux", reason="other disks refuse such names")
def test_a_name_that_is_not_utf8_is_refused_by_name(call: Call) -> None:
    name = os.fsdecode(b"caf\xe9.txt")
    place = Path(os.fsdecode(b"\xe9"))
    place.mkdir()
    for corpus in (Path(name), place / "corpus.txt"):
        write_corpus(corpus, 500)
    hidden = place / "corpus.txt"
    for words in (("insert", name), ("insert", "*.txt"), ("run", name), ("run", hidden)):
        outcome = call(*words, "--out", "o", "--canaries", "1")
        outcome.refused("\\udce9")
        assert "is not UTF-8, as " in outcome.err
        assert not Path("o/manifest.json").exists()
    written = place / "o"
    call.done("insert", place / "corpus.txt", "--out", written, "--canaries", "1")
    copy, manifest = written / "corpus" / "corpus.txt", written / "manifest.json"
    moved = copy.rename(copy.with_name(name))
    call.done("verify", moved, manifest)
    call.done("remove", moved, manifest, "--file", "back.txt")
