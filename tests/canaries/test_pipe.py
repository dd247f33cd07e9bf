"""From one stream to another, with and without a known number of documents."""

import gzip
import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from lmexposure.canaries import Format, Manifest, Plan, Reading, insert_files, insert_through
from lmexposure.errors import CorpusError, FileError, ResultError

PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=3, repetitions=(1, 2), controls=2, seed=4)
TEXT = b"\xef\xbb\xbfone\r\n" + b"".join(b"line %d\n" % n for n in range(20)) + b"last"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def insert(data: bytes, out: Path, layout: str = "lines", **options: Any) -> tuple[bytes, Manifest]:
    """Into an empty directory."""
    shutil.rmtree(out, ignore_errors=True)
    target = io.BytesIO()
    reading = Reading(layout=layout, **options)
    manifest = insert_through(io.BytesIO(data), target, out, lambda before: PLAN, reading)
    assert Manifest.read(out / "manifest.json") == manifest
    return target.getvalue(), manifest


@pytest.mark.parametrize("documents", [None, 22])
def test_the_same_bytes_as_a_file(tmp_path: Path, out: Path, documents: int | None) -> None:
    (tmp_path / "a.txt").write_bytes(TEXT)
    alone = insert_files(tmp_path / "a.txt", tmp_path / "o", PLAN)
    data, manifest = insert(TEXT, out, total=documents)
    assert data == (tmp_path / "o" / "corpus" / "a.txt").read_bytes()
    assert manifest.entries == alone.entries
    assert manifest.corpus.sha256_inserted == alone.corpus.sha256_inserted
    _, unchecked = insert(TEXT, out, total=documents, verify=False)
    assert (unchecked.corpus.verified, unchecked.corpus.sha256) == (False, "")


WITH_FILL = TEXT + b"\nMy PIN is 0001\n"


@pytest.mark.parametrize("documents", [None, 23])
def test_fills_already_there_may_be_set_aside(out: Path, documents: int | None) -> None:
    _, manifest = insert(WITH_FILL, out, existing="set_aside", total=documents)
    assert manifest.set_aside == {"pin": (1,)}


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        (b"", {}, "the corpus standard input is empty"),
        (b"\n\n", {}, "standard input holds only blank lines"),
        (b'{"text": "a"}\n{"te', {"layout": "jsonl"}, "line 2 is not JSON"),
        (b"a\n\xff\n", {}, "standard input is not UTF-8: bad byte 0xff at offset 2"),
        (
            gzip.compress(TEXT, mtime=0),
            {},
            "standard input is packed by gzip; unpack it first, wi",
        ),
        *(
            (TEXT, {"total": total}, f"documents={total}, but the corpus has 22 in 1 files")
            for total in (21, 23)
        ),
        (WITH_FILL, {}, r"pin 1 times \(line 23\); choose another format"),
    ],
)
def test_streams_that_cannot_be_used(
    out: Path, data: bytes, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(CorpusError, match=said):
        insert(data, out, **options)


def test_a_full_disk(out: Path) -> None:
    message = "cannot write the corpus: No space left on device; what"
    with Path("/dev/full").open("wb", buffering=0) as full, pytest.raises(FileError, match=message):
        insert_through(io.BytesIO(TEXT), full, out, lambda before: PLAN, Reading())
    assert not (out / "manifest.json").exists()


def test_a_manifest_that_is_there_is_kept(out: Path) -> None:
    insert(TEXT, out)
    before = (out / "manifest.json").read_bytes()
    with pytest.raises(ResultError, match=r"manifest.json is there already; choose"):
        insert_through(io.BytesIO(TEXT), io.BytesIO(), out, lambda before: PLAN, Reading())
    assert (out / "manifest.json").read_bytes() == before


def test_nothing_is_left_of_the_stream(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = out.with_name("passing")
    home.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    insert(TEXT, out)
    with pytest.raises(CorpusError, match="bad byte"):
        insert(b"a\n\xff\n", out)
    assert list(home.iterdir()) == []
