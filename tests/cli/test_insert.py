import os
from pathlib import Path

import pytest
from cli.conftest import Call
from corpora import write_corpus

from lmexposure.canaries import Manifest

PLAN = ("--format", "pin", "--canaries", "2", "--repetitions", "1,3", "--controls", "2")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus.txt", 60)


def test_writes_corpus_and_manifest(call: Call, corpus: Path, tmp_path: Path) -> None:
    outcome = call("insert", corpus, "--out", tmp_path / "o", *PLAN)
    assert outcome.code == 0
    assert "8 documents inserted" in outcome.out
    manifest = Manifest.read(tmp_path / "o" / "manifest.json")
    assert [c.repetitions for c in manifest.canaries] == [1, 1, 3, 3, 0, 0]
    assert not any(c.text in outcome.out for c in manifest.canaries)


def test_a_dry_run_says_what_would_be_done(call: Call, corpus: Path, tmp_path: Path) -> None:
    outcome = call("insert", corpus, "--out", tmp_path / "o", *PLAN, "--dry-run")
    assert outcome.code == 0
    assert "would insert         8 documents, 120 bytes" in outcome.out
    assert not (tmp_path / "o").exists()


def test_flags_win_over_the_settings_file(call: Call, corpus: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('formats = ["pin"]\ncanaries = 5\nrepetitions = [2]\ncontrols = 1\n')
    out = tmp_path / "o"
    assert call("insert", corpus, "--out", out, "--settings", path, "--canaries", "1").code == 0
    assert [c.repetitions for c in Manifest.read(out / "manifest.json").canaries] == [2, 0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "corpus.txt"),
        (b"", "empty"),
        (b"\n\n", "blank"),
        (b"text\0text\n" * 50, "NUL|binary"),
        (b"good line\n" * 40 + b"caf\xe9\n", "bad byte 0xe9 at offset 403"),
        (b"one line\n", "repeat at most 1"),
        (b"a line\n" * 40 + b"My PIN is 0042\n", "line 41"),
    ],
)
def test_bad_corpora_are_refused_with_the_reason(
    call: Call, corpus: Path, tmp_path: Path, content: bytes | None, message: str
) -> None:
    corpus.unlink()
    if content is not None:
        corpus.write_bytes(content)
    outcome = call("insert", corpus, "--out", tmp_path / "o", *PLAN)
    assert outcome.code == 3
    assert any(part in outcome.err for part in message.split("|")), outcome.err
    assert not (tmp_path / "o" / "manifest.json").exists()
    assert "0042" not in outcome.err
    leftovers = list((tmp_path / "o").rglob("*")) if (tmp_path / "o").exists() else []
    assert not [p for p in leftovers if p.is_file()]


def test_set_aside_goes_on(call: Call, corpus: Path, tmp_path: Path) -> None:
    with corpus.open("a") as stream:
        stream.write("My PIN is 0042\n")
    outcome = call("insert", corpus, "--out", tmp_path / "o", *PLAN, "--existing", "set_aside")
    assert outcome.code == 0
    assert "set aside 1 fills of pin" in outcome.out
    manifest = Manifest.read(tmp_path / "o" / "manifest.json")
    assert manifest.set_aside == {"pin": (42,)}


def test_bad_numbers_are_refused(call: Call, corpus: Path, tmp_path: Path) -> None:
    outcome = call("insert", corpus, "--out", tmp_path / "o", "--repetitions", "1;4")
    assert outcome.code == 3
    assert "--repetitions='1;4' must be whole numbers separated by commas" in outcome.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_directory_is_refused(call: Call, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "o").mkdir(mode=0o500)
    outcome = call("insert", corpus, "--out", tmp_path / "o", *PLAN)
    assert outcome.code == 3
    assert "choose a" in outcome.err
