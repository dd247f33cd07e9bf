"""Canaries in a tokenised data set: whole, cut, and what is no such data set."""

from collections.abc import Callable
from pathlib import Path

import pytest
from datasets import Dataset, DatasetDict

from lmexposure.canaries import Format, Manifest, Plan, insert_files
from lmexposure.errors import CorpusError
from lmexposure.integrations.tokenised import count_tokenised, saved_tokens

PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=3, repetitions=(1, 2), controls=2, seed=4)


@pytest.fixture
def corpus(tmp_path: Path) -> tuple[Path, Manifest]:
    source, out = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_bytes(b"".join(b"line %d\n" % n for n in range(30)))
    manifest = insert_files(source, tmp_path / "out", PLAN)
    return (tmp_path / "out" / "corpus" / "a.txt").rename(out), manifest


def letters(ids: object) -> str:
    return "".join(map(chr, ids))  # type: ignore[call-overload]


def test_tokens(corpus: tuple[Path, Manifest], tmp_path: Path) -> None:
    path, manifest = corpus
    ids = [ord(character) for character in path.read_text()]
    one = count_tokenised([ids], manifest, decode=letters)
    assert one.as_inserted
    pieces = [ids[start : start + 50] for start in range(0, len(ids), 50)]
    Dataset.from_dict({"input_ids": pieces}).save_to_disk(tmp_path / "d")
    counted = count_tokenised(saved_tokens(tmp_path / "d"), manifest, decode=letters)
    found = sum(c.found for c in counted.classes)
    assert (found + sum(counted.cut.values()), bool(counted.cut)) == (9, True)
    assert not counted.as_inserted


@pytest.mark.parametrize(
    ("save", "message"),
    [
        (lambda path: None, "cannot read the data set"),
        (lambda path: Dataset.from_dict({"text": ["a"]}).save_to_disk(path), "no column 'input_i"),
        (
            lambda path: DatasetDict(test=Dataset.from_dict({"text": ["a"]})).save_to_disk(path),
            "no 'train' split; .* has test",
        ),
        (
            lambda path: Dataset.from_dict({"input_ids": ["ab"]}).save_to_disk(path),
            "column 'input_ids' of .* is of type string, and tokens are lists of whole numbers",
        ),
        (
            lambda path: Dataset.from_dict({"input_ids": [[[1]]]}).save_to_disk(path),
            "is of type list<.*and tokens are lists of whole numbers; tokenise it first",
        ),
        (
            lambda path: Dataset.from_dict({"input_ids": []}).save_to_disk(path),
            "cannot read the data set .*; give a directory of save_to_disk with rows",
        ),
    ],
)
def test_data_sets_without_tokens(
    tmp_path: Path, save: Callable[[Path], object], message: str
) -> None:
    save(tmp_path / "d")
    with pytest.raises(CorpusError, match=message):
        saved_tokens(tmp_path / "d")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            None,
            "row 2 holds no list of tokens, and a row is a list of numbers from 0; leave it out",
        ),
        ([7, -1], "row 2 holds the token -1, and a row is a list of numbers from 0"),
    ],
)
def test_rows_without_tokens(corpus: tuple[Path, Manifest], row: object, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        count_tokenised([[77], row], corpus[1], decode=letters)  # type: ignore[list-item]
