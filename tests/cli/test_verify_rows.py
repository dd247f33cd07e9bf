"""`lmexposure verify --rows`: how a tokenised data set delivers the canaries, for `measure`."""

import shutil
import stat
from pathlib import Path

import pytest
from cli.conftest import Call
from corpora import write_corpus
from datasets import Dataset

from lmexposure.canaries import Manifest
from lmexposure.cli.corpora import _shown
from lmexposure.integrations import prepared_directory
from lmexposure.models import byte_level_tokenizer
from lmexposure.studies import RowsRecord

DATA = Path(__file__).parents[1] / "prepared"
PLAN = (
    *("--format", "pin", "--canaries", "2", "--repetitions", "1,3", "--controls", "2"),
    *("--seed", "0"),
)


@pytest.fixture
def tokenised(call: Call, tmp_path: Path) -> Path:
    """A directory with out/manifest.json, tokenizer, and rows that end with the EOS token."""
    corpus = write_corpus(tmp_path / "corpus.txt", 60)
    call("insert", corpus, "--out", tmp_path / "out", *PLAN)
    lines = (tmp_path / "out" / "corpus" / "corpus.txt").read_text().splitlines()
    tokenizer = byte_level_tokenizer(lines)
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    ended = [line + tokenizer.eos_token for line in lines]
    for name, texts in (("whole", ended), ("cut", [line[:11] for line in lines])):
        ids = tokenizer(texts)["input_ids"]
        Dataset.from_dict({"input_ids": ids}).save_to_disk(tmp_path / name)
    return tmp_path


def test_rows_are_looked_at_and_written_down(call: Call, tokenised: Path) -> None:
    manifest = tokenised / "out" / "manifest.json"
    given = ("--tokenizer", tokenised / "tokenizer", "--rows")
    outcome = call.done("verify", tokenised / "whole", manifest, *given)
    assert "in front of each canary: nothing" in outcome.out
    assert "8 of 8 occurrences are in that row" in outcome.out
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
    manifest = tokenised / "out" / "manifest.json"
    tokenizer = ("--tokenizer", tokenised / "tokenizer")
    for name, flags, message in (
        ("whole", (), "--rows reads rows of tokens"),
        ("whole", (*tokenizer, "--layout", "lin"), "neither --layout nor --text-field"),
        ("corpus.txt", tokenizer, "is no directory of a saved tokenised data"),
    ):
        call("verify", tokenised / name, manifest, "--rows", *flags).refused(message)


def test_prepared_data_one_level_down(call: Call, tmp_path: Path) -> None:
    prepared = tmp_path / "last_run_prepared"
    shutil.copytree(DATA / "axolotl/plain", prepared)
    shutil.copytree(DATA / "canaried", tmp_path / "canaried")
    given = (tmp_path / "canaried/manifest.json", "--rows", "--tokenizer", DATA / "tokenizer")
    outcome = call("verify", prepared, *given)
    outcome.done(out="delivered as planned")
    assert outcome.out.startswith(f"data  {prepared_directory(prepared)}\n")
    (tmp_path / "empty").mkdir()
    outcome = call("verify", tmp_path / "empty", *given)
    outcome.refused("Axolotl's dataset_prepared_path, or LLaMA-Factory's tokenized_path")
