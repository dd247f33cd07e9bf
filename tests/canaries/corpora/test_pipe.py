"""From one stream to another, with and without a known number of documents."""

import io
from pathlib import Path

import pytest

from lmexposure.canaries import (
    Format,
    Manifest,
    Plan,
    insert_into_file,
    insert_into_pipe,
)
from lmexposure.canaries.corpora.layouts import layout_named
from lmexposure.errors import CorpusError, FileError

PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=3, repetitions=(1, 2), controls=2, seed=4)
TEXT = b"\xef\xbb\xbfone\r\n" + b"".join(b"line %d\n" % n for n in range(20)) + b"last"


def insert(data: bytes, layout: str = "lines", **options: object) -> tuple[bytes, Manifest]:
    out = io.BytesIO()
    manifest = insert_into_pipe(
        io.BytesIO(data),
        out,
        PLAN,
        shape=layout_named(layout),
        **options,  # type: ignore[arg-type]
    )
    return out.getvalue(), manifest


@pytest.mark.parametrize("documents", [None, 22])
def test_the_same_bytes_as_a_file(tmp_path: Path, documents: int | None) -> None:
    (tmp_path / "a.txt").write_bytes(TEXT)
    alone = insert_into_file(tmp_path / "a.txt", PLAN, tmp_path / "o.txt", layout="lines")
    data, manifest = insert(TEXT, documents=documents)
    assert data == (tmp_path / "o.txt").read_bytes()
    assert manifest.entries == alone.entries
    assert manifest.corpus.sha256_inserted == alone.corpus.sha256_inserted
    _, unchecked = insert(TEXT, documents=documents, verify=False)
    assert (unchecked.corpus.verified, unchecked.corpus.sha256) == (False, "")


@pytest.mark.parametrize("documents", [21, 23])
def test_a_wrong_number(documents: int) -> None:
    message = f"documents={documents}, but standard input had 22: what was written must be thrown"
    with pytest.raises(CorpusError, match=message):
        insert(TEXT, documents=documents)


def test_fills_already_there() -> None:
    data = TEXT + b"\nMy PIN is 0001\n"
    with pytest.raises(CorpusError, match=r"already held fills: pin 1 times \(line 23\): what was"):
        insert(data, documents=23)
    with pytest.raises(CorpusError, match=r"pin 1 times \(line 23\); choose another format"):
        insert(data)
    assert insert(data, existing="set_aside")[1].set_aside == {"pin": (1,)}
    with pytest.raises(CorpusError, match="needs a look at the whole corpus first: leave out doc"):
        insert(data, existing="set_aside", documents=23)


@pytest.mark.parametrize("documents", [None, 2])
def test_streams_that_cannot_be_used(documents: int | None) -> None:
    with pytest.raises(CorpusError, match="the corpus standard input is empty"):
        insert(b"", documents=documents)
    with pytest.raises(CorpusError, match="line 2 is not JSON"):
        insert(b'{"text": "a"}\n{"te', "jsonl", documents=documents)
    with pytest.raises(CorpusError, match="standard input is not UTF-8: bad byte 0xff at offset 2"):
        insert(b"a\n\xff\n", documents=documents)
    if documents is None:
        with pytest.raises(CorpusError, match="standard input holds only blank lines"):
            insert(b"\n\n")


@pytest.mark.parametrize("documents", [None, 22])
def test_a_full_disk(documents: int | None) -> None:
    message, shape = "cannot write the corpus: No space left on device; what", layout_named("lines")
    with Path("/dev/full").open("wb", buffering=0) as out, pytest.raises(FileError, match=message):
        insert_into_pipe(io.BytesIO(TEXT), out, PLAN, shape=shape, documents=documents)
