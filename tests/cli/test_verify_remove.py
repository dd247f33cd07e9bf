"""`verify` and `remove`, as people type them; `insert` for anything but one text file."""

import gzip
import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cli.conftest import FEW, Call
from datasets import Dataset
from hashes import sha256_tree

from lmexposure.canaries import Canary, Manifest, Plan, insert_files, load_format
from lmexposure.cli.corpora import _shown
from lmexposure.integrations import Wrapping, insert, prepared_directory
from lmexposure.models import byte_level_tokenizer
from lmexposure.studies import RowsRecord

DATA = Path(__file__).parents[1] / "prepared"
PLAN = (*FEW, "--seed", 0)


@pytest.fixture
def inserted(call: Call, corpus: Path) -> tuple[Path, Path]:
    """What `insert` made of the corpus, and its manifest."""
    out = Path("o")
    call.done("insert", corpus, "--out", out, *PLAN)
    return out / "corpus" / "corpus.txt", out / "manifest.json"


def test_there_and_back(call: Call, corpus: Path, inserted: tuple[Path, Path]) -> None:
    call("verify", *inserted).done(out="all is there as it was inserted")
    call("remove", *inserted, "--out", "back").done(out=f"({8 + 7} documents taken out)")
    assert Path("back/corpus.txt").read_bytes() == corpus.read_bytes()


def test_after_deduplication(call: Call, inserted: tuple[Path, Path]) -> None:
    path, manifest = inserted
    path.write_bytes(b"".join(sorted(set(path.read_bytes().splitlines(keepends=True)))))
    outcome = call("verify", path, manifest)
    assert outcome.code == 2
    assert "pin/x3/0000 (1 of 3), pin/x3/0001 (1 of 3)" in outcome.out
    once, thrice = (line.split() for line in outcome.out.splitlines()[1:3])
    # repetitions; expected, missing, surplus, found; canaries, all copies, fewer, none, more
    assert " ".join(once) == "pin 1 2 0 0 2 2 2 0 0 0"
    assert " ".join(thrice) == "pin 3 6 4 0 2 2 0 2 0 0"
    assert "copies found = expected - missing + surplus; canaries = all copies" in outcome.out
    assert "NOT as it was inserted" in outcome.out
    texts = [one.text for one in Manifest.read(manifest).entries]
    assert not any(text in outcome.out for text in texts)
    call("remove", path, manifest, "--out", "back").refused("the corpus changed since insertion")


def test_many_packed_files(call: Call) -> None:
    for n in range(3):
        lines = b"".join(b"file %d line %d\n" % (n, m) for m in range(30))
        Path(f"{n}.txt.gz").write_bytes(gzip.compress(lines))
    out, pattern = Path("o"), Path("*.gz")
    outcome = call("insert", pattern, "--out", out, *PLAN, "--documents", "90")
    outcome.done(out=f"({8 + 11} documents inserted)")
    written = out / "corpus" / "*.gz"
    call.done("verify", written, out / "manifest.json")
    call.done("remove", written, out / "manifest.json", "--out", "back")
    for n in range(3):
        sides = [gzip.decompress((d / f"{n}.txt.gz").read_bytes()) for d in (Path(), Path("back"))]
        assert sides[0] == sides[1]
    before = sha256_tree(out)
    again = call("insert", pattern, "--out", out, *PLAN)
    assert (again.code, sha256_tree(out)) == (0, before)
    other = call("insert", pattern, "--out", out, *PLAN, "--controls", "3")
    other.refused("holds a manifest of another plan; choose")
    Path("x.jsonl").write_text('{"text": "a"}\n')
    mixed = call("insert", pattern, "x.jsonl", "--out", "p", *PLAN)
    mixed.refused("of different layouts: jsonl, lines")
    dry = call.done("insert", pattern, "--out", "p", *PLAN, "--dry-run")
    assert dry.out.splitlines()[0].split() == ["documents", "90"]
    assert "would insert         19 documents" in dry.out
    stdin = call("insert", "-", "--out", "p", *PLAN, "--dry-run")
    stdin.refused("--dry-run reads files, not standard input")


def test_without_verification(call: Call, corpus: Path) -> None:
    out = Path("o")
    outcome = call("insert", corpus, "--out", out, *PLAN, "--no-verify")
    outcome.done(err="not verified: the corpus was not searched for secrets")
    assert not Manifest.read(out / "manifest.json").corpus.verified
    path = out / "corpus" / "corpus.txt"
    removed = call("remove", path, out / "manifest.json", "--out", "back")
    removed.done(err="not checked: the manifest holds no hash")


def test_what_was_removed_goes_through_links_and_to_standard_output(
    call: Call, corpus: Path, inserted: tuple[Path, Path]
) -> None:
    path, manifest = inserted
    Path("link").symlink_to("back")
    call.done("remove", path, manifest, "--file", "link")
    assert Path("link").is_symlink()
    assert Path("back").read_bytes() == corpus.read_bytes()
    words = [sys.executable, "-m", "lmexposure", "remove", str(path), str(manifest)]
    done = subprocess.run([*words, "--file", "-"], capture_output=True, check=True)
    assert done.stdout == corpus.read_bytes()
    assert b"(15 documents taken out)" in done.stderr


def test_what_was_removed_takes_the_place_of_nothing(
    call: Call, corpus: Path, inserted: tuple[Path, Path]
) -> None:
    path, manifest = inserted
    Path("again").symlink_to(path)
    weights = manifest.parent / "model" / "model.safetensors"
    weights.parent.mkdir()
    weights.write_bytes(b"weights")
    Path("weights").symlink_to(weights)
    kept = (path, manifest, weights)
    before = [file.read_bytes() for file in kept]
    out, file = ("--out", "x"), ("--file", "y")
    result = manifest.with_name("result.json")
    for words, message in (
        *(
            (("--file", there), "is a file of the run")
            for there in (Path("again"), weights, Path("weights"), result)
        ),
        (("--file", manifest), "is the manifest itself"),
        (("--file", "."), "is a directory; name a file"),
        (("--file", "new/"), "is a directory; name a file"),
        ((), "give either --out, a directory, or --file"),
        ((*out, *file), "give either --out, a directory, or --file"),
    ):
        call("remove", path, manifest, *words).refused(message)
    assert [file.read_bytes() for file in kept] == before
    assert not Path("new").exists()
    two = call("remove", path, corpus, manifest, *file)
    two.refused("is one file, and the corpus has 2; give --out")


def test_wrong_usage(call: Call, inserted: tuple[Path, Path]) -> None:
    call("verify", ".", inserted[1]).refused("a tokenizer goes with the directory")
    call("verify", ".", inserted[1], "--tokenizer", "none").refused("cannot load a tokenizer from")


def test_a_manifest_in_another_place(call: Call, corpus: Path, inserted: tuple[Path, Path]) -> None:
    (lines, manifest), to = inserted, ("--out", "new")
    swapped = f"{manifest} is a manifest, and {{}} is none; give the {{}} first, then the manifest"
    for words, last, what in (
        (("remove", manifest, lines, *to), lines, "corpus"),
        (("remove", manifest, lines, corpus, *to), corpus, "corpus"),
        (("verify", manifest, lines), lines, "corpus"),
        (("measure", manifest, ".", *to), ".", "model"),
    ):
        call(*words).refused(swapped.format(last, what))
    alone = "alone is there of corpus and manifest, in this order."
    call("verify", manifest).refused(f"Missing argument 'corpus'. '{manifest}' {alone}")
    out = manifest.parent
    call.done("verify", lines, out)  # its directory will do
    call.done("remove", lines, out, "--out", "again")
    call("verify", lines, lines.parent).refused("Is a directory; give the file that insertion")


def test_a_tokenised_data_set(call: Call, corpus: Path) -> None:
    out = Path("o")
    call("insert", corpus, "--out", out, "--no-witness", *PLAN)
    lines = (out / "corpus" / "corpus.txt").read_text().splitlines()
    tokenizer = byte_level_tokenizer(lines)
    tokenizer.save_pretrained(Path("tokenizer"))
    rows = tokenizer([line + tokenizer.eos_token for line in lines])["input_ids"]
    stream = [token for row in rows for token in row]
    blocks = [stream[start : start + 40] for start in range(0, len(stream), 40)]
    once = [row for number, row in enumerate(rows) if row not in rows[:number]]
    for name, ids in (("whole", rows), ("once", once), ("blocks", blocks)):
        Dataset.from_dict({"input_ids": ids}).save_to_disk(Path(name))
        outcome = call("verify", Path(name), out / "manifest.json", "--tokenizer", "tokenizer")
        read = [tokenizer.decode(row) for row in ids]
        held = [sum(row.count(one.text) for row in read) for one in known(out)]
        assert (held == [one.inserted for one in known(out)]) == (name == "whole")
        assert outcome.code == (0 if name == "whole" else 2), outcome.err
        assert ("cut at the border of two pieces" in outcome.out) == (name == "blocks")
        assert not any(one.text in outcome.out for one in known(out))


def known(out: Path) -> tuple[Canary, ...]:
    return Manifest.read(out / "manifest.json").entries


def test_one_file_of_several(call: Call) -> None:
    for n in range(3):
        Path(f"{n}.txt").write_text("".join(f"file {n} line {m}\n" for m in range(30)))
    out = Path("o")
    call("insert", "*.txt", "--out", out, *PLAN)
    outcome = call("verify", out / "corpus" / "1.txt", out / "manifest.json")
    outcome.done(out="file 2 of 3, compared with what")
    two = [out / "corpus" / f"{n}.txt" for n in range(2)]
    call("verify", *two, out / "manifest.json").refused("of the 3 files of this corpus, number 3")


def test_chats_in_records(call: Call) -> None:
    wrapping = Wrapping(turn="user")
    plan = Plan(formats=(load_format("pin"),), canaries=1, repetitions=(2,), controls=1, seed=1)
    questions = [wrapping.record(f"question {n}") for n in range(9)]
    chats, manifest = insert(questions, plan, wrapping=wrapping)
    manifest.write(Path("manifest.json"))
    rows = [{**one, "whole": str(one["messages"])} for one in chats]
    path = Path("chats.jsonl")
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    outcome = call("verify", path, "manifest.json")
    assert (outcome.code, "copies found" in outcome.out) == (2, True)  # each text is there twice
    call("verify", path, "manifest.json", "--text-field", "whole").done(out="all is there")
    path.write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    call("verify", path, "manifest.json").done(out="all is there")
    assert "[default: the manifest's, else text]" in " ".join(call("verify", "--help").out.split())


def test_of_tables_the_texts_are_checked(call: Call) -> None:
    source, out = Path("a.parquet"), Path("out")
    Dataset.from_dict({"text": [f"text {n}" for n in range(40)]}).to_parquet(source)
    insert_files(source, out, formats=["pin"], canaries=2, repetitions=(1,))
    copy = out / "corpus" / "a.parquet"
    removed = call("remove", copy, out / "manifest.json", "--out", "back")
    assert "checked   the texts' SHA-256 is that before insertion" in removed.out


@pytest.fixture
def tokenised(inserted: tuple[Path, Path]) -> Path:
    """A directory with o/manifest.json, tokenizer, and rows that end with the EOS token."""
    lines = inserted[0].read_text().splitlines()
    tokenizer = byte_level_tokenizer(lines)
    tokenizer.save_pretrained(Path("tokenizer"))
    ended = [line + tokenizer.eos_token for line in lines]
    for name, texts in (("whole", ended), ("cut", [line[:11] for line in lines])):
        ids = tokenizer(texts)["input_ids"]
        Dataset.from_dict({"input_ids": ids}).save_to_disk(Path(name))
    return Path()


def test_rows_are_looked_at_and_written_down(call: Call, tokenised: Path) -> None:
    manifest = tokenised / "o" / "manifest.json"
    given = ("--tokenizer", tokenised / "tokenizer", "--rows")
    outcome = call.done("verify", tokenised / "whole", manifest, *given)
    assert "in front of each canary: nothing" in outcome.out
    assert "8 of 8 copies are in that row" in outcome.out
    assert "delivered as planned" in outcome.out
    path = manifest.with_name("rows.json")
    record = RowsRecord.read(path)
    assert (record.start, record.found) == ((), 8)
    assert record.manifest_sha256 == Manifest.read(manifest).sha256
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    outcome = call("verify", tokenised / "cut", manifest, *given)
    assert outcome.code == 2
    assert "NOT delivered as planned" in outcome.out
    assert "copies are cut, by truncation" in outcome.out
    for entry in Manifest.read(manifest).entries:
        assert entry.text not in outcome.out + path.read_text()


def test_what_is_left_out_of_a_long_context_is_shown_as_dots() -> None:
    assert _shown("") == "nothing"
    assert _shown("<s>\n", last=True) == r"'<s>\n'"
    assert _shown("a" * 200 + "b", last=True) == f"... '{'a' * 159}b'"
    assert _shown("b" + "a" * 200) == f"'b{'a' * 159}' ..."


def test_rows_are_rows_of_tokens(call: Call, tokenised: Path) -> None:
    manifest = tokenised / "o" / "manifest.json"
    tokenizer = ("--tokenizer", tokenised / "tokenizer")
    for name, flags, message in (
        ("whole", (), "--rows reads rows of tokens"),
        ("whole", (*tokenizer, "--layout", "lin"), "neither --layout nor --text-field"),
        ("corpus.txt", tokenizer, "is no directory of a saved tokenised data"),
    ):
        call("verify", tokenised / name, manifest, "--rows", *flags).refused(message)


def test_prepared_data_one_level_down(call: Call) -> None:
    prepared = Path("last_run_prepared")
    shutil.copytree(DATA / "axolotl/plain", prepared)
    shutil.copytree(DATA / "canaried", Path("canaried"))
    given = (Path("canaried/manifest.json"), "--rows", "--tokenizer", DATA / "tokenizer")
    outcome = call("verify", prepared, *given)
    outcome.done(out="delivered as planned")
    assert outcome.out.startswith(f"data  {prepared_directory(prepared)}\n")
    Path("empty").mkdir()
    outcome = call("verify", "empty", *given)
    outcome.refused("Axolotl's dataset_prepared_path, or LLaMA-Factory's tokenized_path")
