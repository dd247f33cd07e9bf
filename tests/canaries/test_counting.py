"""What is left of the canaries after something was done to their corpus."""

from collections.abc import Callable
from pathlib import Path

import pytest
from datasets import Dataset, DatasetDict

from lmexposure.canaries import (
    CanaryFormat,
    CorpusCount,
    Manifest,
    Plan,
    count_files,
    insert_into_file,
    insert_into_files,
    shape_named,
)
from lmexposure.canaries.tokenised import count_tokenised, saved_tokens
from lmexposure.errors import CorpusError

PIN = CanaryFormat(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=3, repetitions=(1, 2), controls=2, seed=4)


@pytest.fixture
def corpus(tmp_path: Path) -> tuple[Path, Manifest]:
    source, out = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_bytes(b"".join(b"line %d\n" % n for n in range(30)))
    return out, insert_into_file(source, PLAN, out, layout="lines")


def count(path: Path, manifest: Manifest) -> CorpusCount:
    return count_files([path], manifest, shape=shape_named("lines"))


def test_all_is_there(corpus: tuple[Path, Manifest]) -> None:
    counted = count(*corpus)
    assert counted.as_inserted
    assert [(c.expected, c.found, c.lost, c.changed) for c in counted.classes] == [
        (3, 3, 0, 0),
        (6, 6, 0, 0),
    ]


def test_deduplication_filtering_and_strangers(corpus: tuple[Path, Manifest]) -> None:
    path, manifest = corpus
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(sorted(set(lines))))
    counted = count(path, manifest)
    assert [(c.found, c.lost, c.changed) for c in counted.classes] == [(3, 0, 0), (3, 0, 3)]
    assert not counted.as_inserted
    gone = manifest.canaries[0].text.encode()
    stranger = PIN.text(manifest.references("pin", 1)[0]).encode()
    control = manifest.canaries[-1].text.encode()
    path.write_bytes(b"".join(x for x in lines if gone not in x) + stranger + b"\n" + control)
    counted = count(path, manifest)
    assert counted.changed == {"pin/x1/0000": (1, 0)}
    assert counted.classes[0].lost == 1
    assert counted.uninvited == {manifest.canaries[-1].id: 1}
    assert counted.strange == {"pin": 1}
    assert counted.strange_places == {"pin": "1 times (line or row 39)"}
    shown = str(counted.to_dict())
    assert not any(text.decode()[-4:] in shown for text in (gone, stranger, control))


def test_a_missing_file_and_a_foreign_sidecar(tmp_path: Path) -> None:
    for n in range(3):
        (tmp_path / f"{n}.txt").write_bytes(b"".join(b"%d %d\n" % (n, m) for m in range(20)))
    shape, pattern = shape_named("lines"), tmp_path / "o" / "*.txt"
    manifest = insert_into_files([tmp_path / "*.txt"], PLAN, tmp_path / "o", shape=shape)
    assert count_files([pattern], manifest, shape=shape).as_inserted
    other = insert_into_files(
        [tmp_path / "*.txt"], PLAN.without("pin/x1/0000"), tmp_path / "p", shape=shape
    )
    with pytest.raises(CorpusError, match="belongs to another manifest; give the one of this"):
        count_files([pattern], other, shape=shape)
    (tmp_path / "o" / "2.txt").unlink()
    with pytest.raises(CorpusError, match="of the 3 files of this corpus, number 3 is missing"):
        count_files([pattern], manifest, shape=shape)


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
    ],
)
def test_data_sets_without_tokens(
    tmp_path: Path, save: Callable[[Path], object], message: str
) -> None:
    save(tmp_path / "d")
    with pytest.raises(CorpusError, match=message):
        saved_tokens(tmp_path / "d")
