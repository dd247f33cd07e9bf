"""A corpus on standard input: what each command makes of it, and what it refuses."""

import errno
import gzip
import io
import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from cli.conftest import FEW, QUICK, Call, Outcome
from corpora import write_corpus

from lmexposure._files import sha256_file
from lmexposure.canaries import Manifest
from lmexposure.studies import Result, RunRecord
from lmexposure.studies.exposure.facts import command_of

PLAN = (*FEW, "--seed", 0)
TRAINING = ("--set", "layers=1", "--set", "units=16", "--epochs", 1)
SMALL = (*TRAINING, *QUICK)


def stream(data: bytes = b"") -> io.TextIOWrapper:
    """Standard input or output, whose bytes can be given and taken."""
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", write_through=True)


class Piped(NamedTuple):
    """What came of a call, and the bytes on its standard output."""

    outcome: Outcome
    written: bytes


Pipe = Callable[..., Piped]


@pytest.fixture
def pipe(call: Call, monkeypatch: pytest.MonkeyPatch) -> Pipe:
    """Give a command with these bytes on its standard input."""

    def piped(data: bytes, *words: object) -> Piped:
        written = io.BytesIO()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", stream(data))
            patch.setattr(sys, "stdout", io.TextIOWrapper(written, write_through=True))
            return Piped(call(*words), written.getvalue())

    return piped


@pytest.fixture
def text() -> bytes:
    return write_corpus(Path("corpus.txt"), 200).read_bytes()


def test_there_and_back(call: Call, pipe: Pipe, text: bytes) -> None:
    out, corpus = Path("o"), Path("corpus.txt")
    inserted = pipe(text, "insert", "-", "--out", out, *PLAN)
    inserted.outcome.done()
    assert [path.name for path in out.glob("[!.]*")] == ["manifest.json"]
    call.done("insert", corpus, "--out", "f", *PLAN)
    assert inserted.written == Path("f/corpus/corpus.txt").read_bytes()
    words: tuple[object, ...] = ("verify", "-", out / "manifest.json")
    pipe(inserted.written, *words).outcome.done()
    assert pipe(text, *words).outcome.code == 2
    words = ("remove", "-", out / "manifest.json", "--out", "back")
    short = pipe(inserted.written[:-40], *words)
    assert (short.outcome.code, Path("back").exists()) == (3, False)
    assert "the corpus changed since insertion; give the copy" in short.outcome.err
    pipe(inserted.written, *words).outcome.done()
    assert Path("back/standard_input").read_bytes() == text
    pipe(inserted.written, *words).outcome.refused(
        "standard_input is there already; choose another --out"
    )


@pytest.mark.parametrize("number", [None, 200, 201])
def test_the_number_of_documents_is_that_of_the_pipe(
    call: Call, pipe: Pipe, text: bytes, number: int | None
) -> None:
    call.done("insert", "corpus.txt", "--out", "f", *PLAN)
    flags, right = () if number is None else ("--documents", number), number != 201
    outcome, written = pipe(text, "insert", "-", "--out", "o", *PLAN, *flags)
    assert outcome.code == (0 if right else 3)
    alone = Path("f/corpus/corpus.txt").read_bytes()
    assert written == alone or not right
    assert ("manifest" in outcome.err) is right
    assert Path("o/manifest.json").exists() is right
    assert right or "--documents 201, but the corpus has 200" in outcome.err


def test_a_corpus_of_no_use_is_not_kept(pipe: Pipe) -> None:
    for data in (b"", b"\n \n", b"caf\xe9\n", b"My PIN is 0042\n" * 9):
        for command in ("insert", "run"):
            refused = pipe(data, command, "-", "--out", "o", *PLAN)
            assert (refused.outcome.code, Path("o").exists()) == (3, False)


def test_records_through_a_pipe_need_a_layout(pipe: Pipe) -> None:
    """As lines, canaries would go bare among the records."""
    data, out = b"".join(b'{"text": "row %d"}\n' % n for n in range(60)), Path("o")
    for command in ("insert", "run"):
        refused = pipe(data, command, "-", "--out", out, *PLAN)
        assert (refused.outcome.code, refused.written, out.exists()) == (3, b"", False)
        assert "the corpus standard input is JSON; if it has a record a line" in refused.outcome.err
    inserted = pipe(data, "insert", "-", "--layout", "jsonl", "--out", out, *PLAN)
    inserted.outcome.done()
    assert all(json.loads(line) for line in inserted.written.splitlines())
    pipe(inserted.written, "verify", "-", out / "manifest.json").outcome.done()


def test_texts_that_begin_with_a_bracket_are_lines(pipe: Pipe) -> None:
    for number, start in enumerate((b"[1] The first note.", b"{A set} of words", b"{'a': 1}")):
        data = b"".join(start + b" %d\n" % n for n in range(60))
        pipe(data, "insert", "-", "--out", number, *PLAN).outcome.done()


def test_a_disk_that_refuses_leaves_nothing(
    pipe: Pipe, text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for command in ("insert", "run"):
        with monkeypatch.context() as patch:
            patch.setattr("lmexposure.canaries.documents.shutil.copyfileobj", full)
            refused = pipe(text, command, "-", "--out", "o", *PLAN).outcome
        assert (refused.code, "No space left" in refused.err) == (3, True), refused.err
        assert not Path("o").exists()


def test_what_cannot_come_through_a_pipe(
    call: Call, pipe: Pipe, text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = ("--out", "o")
    call.done("insert", "corpus.txt", "--out", "i", *PLAN)
    manifest = Path("i/manifest.json")
    said = "standard input must be open; give a file"
    Path("mine").mkdir()
    Path("mine/photo.jpg").write_bytes(b"")
    pipe(text, "run", "-", "--out", "mine", *PLAN).outcome.refused(
        "holds 'photo.jpg' and no run.json"
    )
    pipe(text, "run", "-", "--out", "i", *PLAN).outcome.refused(
        "manifest.json is there already; choose another dir"
    )
    monkeypatch.setenv("WORLD_SIZE", "2")
    pipe(text, "train", "-", *out).outcome.refused("standard input goes to one process of several")
    monkeypatch.setattr(sys, "stdin", None)
    for command in ("insert", "run", "train"):
        call(command, "-", *out).refused(said)
    call("verify", "-", manifest).refused(said)
    call("remove", "-", manifest, *out).refused(said)
    monkeypatch.delenv("WORLD_SIZE")
    monkeypatch.setattr(sys, "stdin", stream(text))
    monkeypatch.setattr(sys, "stdout", None)
    call("insert", "-", *out, *PLAN).refused("standard output must be open")


@pytest.mark.slow
def test_a_run_keeps_what_it_read(call: Call, pipe: Pipe, text: bytes) -> None:
    pipe(text, "run", "-", "--out", "r", *PLAN, *SMALL).outcome.done()
    assert RunRecord.read("r/run.json").corpus == "source/standard_input"
    assert Path("r/source/standard_input").read_bytes() == text
    assert Path("r/source/standard_input").stat().st_mode & 0o777 == 0o600
    result = sha256_file(Path("r/result.json"))
    for given in (b"", text):
        again = pipe(given, "run", "-", "--out", "r", *PLAN, *SMALL)
        assert (again.outcome.code, sha256_file(Path("r/result.json"))) == (0, result)
    pipe(text[:100], "run", "-", "--out", "r", *PLAN, *SMALL).outcome.refused(
        "is the copy of another standard input"
    )
    pipe(text, "insert", "-", "--out", "r", *PLAN).outcome.refused("manifest.json is there already")
    assert "lmexposure run r/source/standard_input --out r-again" in command_of(
        Result.read("r").files
    )


@pytest.mark.slow
def test_a_run_of_many_packed_files_and_its_command(
    call: Call, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    Path("a b").mkdir()
    Path("c").mkdir()
    Path("a b/2.gz").write_bytes(gzip.compress(text[:3000]))
    Path("c/1.gz").write_bytes(gzip.compress(text[3000:]))  # copies sort in another order
    corpus = ("a b/*.gz", "c/1.gz")
    run, copy = ("run", *corpus, "--out", "r", *PLAN, *SMALL), Path("r/corpus/1.gz")
    call.done(*run)
    assert "is not what insertion wrote" not in caplog.text
    before, whole = copy.stat().st_mtime_ns, copy.read_bytes()
    call.done(*run)
    assert copy.stat().st_mtime_ns == before
    assert "damaged" not in caplog.text
    Path("r/corpus/README.md").write_text("mine")
    call.done(*run)
    assert copy.stat().st_mtime_ns == before
    Path("r/corpus/README.md").unlink()
    copy.write_bytes(whole[:50])
    call.done(*run)
    assert copy.read_bytes() == whole
    assert "r/corpus/1.gz is damaged, or was changed" in caplog.text
    said = command_of(Result.read("r").files)
    assert "lmexposure run 'a b/*.gz' c/1.gz --out r-again" in said
    made, copied, words = (part.split("lmexposure")[-1] for part in said.split("&&"))
    Path("r-again").mkdir()
    Path("r-again/manifest.json").write_bytes(Path("r/manifest.json").read_bytes())
    assert (made.split()[0], copied.split()[0]) == ("mkdir", "cp")
    call.done(*shlex.split(words.replace("SEED", "0")))
    assert sha256_file(Path("r-again/scores.parquet")) == sha256_file(Path("r/scores.parquet"))
    changed = call("run", "c/1.gz", "--out", "r", *PLAN, *SMALL)
    changed.refused("r holds a manifest of another corpus; choose another")


def test_training_on_a_pipe_is_training_on_the_file(
    call: Call, pipe: Pipe, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    out, manifest = Path("i"), ("--manifest", "i/manifest.json")
    for number in range(3):
        Path(f"{number}.txt").write_bytes(text)
    call.done("insert", "?.txt", "--out", out, *PLAN)
    call.done("train", f"{out}/corpus/*", *manifest, "--out", "t", *TRAINING)
    joined = b"".join((out / "corpus" / f"{number}.txt").read_bytes() for number in range(3))
    pipe(joined, "train", "-", *manifest, "--out", "p", *TRAINING).outcome.done()
    assert "not what insertion wrote" not in caplog.text
    weights = [Path(place, "model", "model.safetensors") for place in ("t", "p")]
    assert sha256_file(weights[0]) == sha256_file(weights[1])


def test_a_file_that_is_there_is_not_replaced(call: Call, text: bytes) -> None:
    out = Path("i")
    call.done("insert", "corpus.txt", "--out", out, *PLAN)
    words = ("remove", out / "corpus" / "corpus.txt", out / "manifest.json", "--file")
    Path("mine.txt").write_text("mine")
    Path("link").symlink_to("mine.txt")
    for there in ("mine.txt", "link"):
        call(*words, there).refused(f"{there} is there already; choose another")
    assert Path("mine.txt").read_text() == "mine"
    assert Manifest.read(out / "manifest.json").corpus.documents > 0
