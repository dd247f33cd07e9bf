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


COINS = ("--format", "pin", "--repetitions", "1,3", "--controls", "2", "--candidates", "9")


def test_coins(call: Call, corpus: Path, tmp_path: Path) -> None:
    outcome = call("insert", corpus, "--out", tmp_path / "o", *COINS, "--coins", "0.5")
    assert outcome.code == 0
    manifest = Manifest.read(tmp_path / "o" / "manifest.json")
    inserted = [c for c in manifest.canaries if c.role == "canary"]
    assert f"{sum(c.repetitions for c in inserted)} documents inserted" in outcome.out
    assert f"coins     {len(inserted)} of 18 candidates inserted\n" in outcome.out
    dry = call("insert", corpus, "--out", tmp_path / "p", *COINS, "--coins", "0.5", "--dry-run")
    assert f"excluded by coins    {18 - len(inserted)} candidates" in dry.out
    assert "excluded" not in call("insert", corpus, "--out", tmp_path / "p", *PLAN, "--dry-run").out


def test_coins_that_insert_nothing_say_so(call: Call, corpus: Path, tmp_path: Path) -> None:
    outcome = call("insert", corpus, "--out", tmp_path / "o", *COINS, "--coins", "1e-12")
    assert outcome.code == 0
    assert "0 of 18 candidates inserted: nothing to find in a model" in outcome.out
    assert (tmp_path / "o" / "corpus" / "corpus.txt").read_bytes() == corpus.read_bytes()


def test_file_and_flags_together_may_say_what_coins_need(
    call: Call, corpus: Path, tmp_path: Path
) -> None:
    path = tmp_path / "s.toml"
    path.write_text('formats = ["pin"]\ncoins = 0.5\nrepetitions = [2]\ntraining = {epochs = 2}\n')
    out = tmp_path / "o"
    assert call("insert", corpus, "--out", out, "--settings", path, "--candidates", "6").code == 0
    assert Manifest.read(out / "manifest.json").plan.canaries == 6
    path.write_text("training = 3\n")
    outcome = call("insert", corpus, "--out", out, "--settings", path)
    assert (outcome.code, "training=3 must be a table" in outcome.err) == (3, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--coins", "0.5"), "coins=0.5 needs candidates"),
        (("--candidates", "5"), "candidates=5 needs coins"),
        (("--coins", "0.5", "--candidates", "5", "--canaries", "2"), "give candidates instead"),
        (("--coins", "1", "--candidates", "5"), "coins=1.0 must lie strictly between 0 and 1"),
        (("--coins", "nan", "--candidates", "5"), "coins=nan must lie strictly"),
        (("--coins", "heads", "--candidates", "5"), "coins='heads' must be 'fixed' or a prob"),
    ],
)
def test_coins_that_are_refused(
    call: Call, corpus: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    outcome = call("insert", corpus, "--out", tmp_path / "o", "--format", "pin", *arguments)
    assert outcome.code == 3
    assert message in outcome.err
    assert not (tmp_path / "o").exists()
