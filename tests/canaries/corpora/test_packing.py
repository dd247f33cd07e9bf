"""Packed files: what they say, and what is said when they are not whole."""

import gzip
import io
import subprocess
import sys
from pathlib import Path

import pytest

from lmexposure.canaries import Plan, insert_files, load_format
from lmexposure.canaries.corpora.files import open_content, packed_writer
from lmexposure.errors import CorpusError

TEXT = b"".join(b"line %d of a corpus\n" % number for number in range(5000))
PLAN = Plan(formats=(load_format("pin"),), canaries=2, repetitions=(1, 3), controls=1, seed=1)


def packed(path: Path, data: bytes = TEXT) -> Path:
    with path.open("wb") as stream, packed_writer(stream, path) as write:
        write(data)
    return path


def content(path: Path) -> bytes:
    with open_content(path) as stream:
        return stream.read()


def test_what_is_packed_is_what_others_unpack(tmp_path: Path) -> None:
    assert gzip.decompress(packed(tmp_path / "a.gz").read_bytes()) == TEXT
    with pytest.raises(CorpusError, match=r"cannot read the corpus .*No such file"):
        content(tmp_path / "none.gz")


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.zst", "A.GZ"])
def test_there_and_back(tmp_path: Path, name: str) -> None:
    path = packed(tmp_path / name)
    assert content(path) == TEXT
    again = packed(tmp_path / f"b{path.suffix}")
    assert again.read_bytes() == path.read_bytes()  # no name and no date in it


def test_frames_one_after_another(tmp_path: Path) -> None:
    for suffix in (".gz", ".zst"):
        path = packed(tmp_path / f"a{suffix}")
        path.write_bytes(path.read_bytes() * 3)
        assert content(path) == TEXT * 3


def test_frames_to_be_skipped(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zst")
    note = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes"
    path.write_bytes(note + path.read_bytes() + note)
    assert content(path) == TEXT


def test_what_the_disk_says_is_told_apart_from_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed(tmp_path / "a.zst")

    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("builtins.open", lambda *a, **k: Broken())
    with pytest.raises(CorpusError, match=r"cannot read the corpus .*Input/output error"):
        content(path)


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_little_that_unpacks_to_much_takes_little_memory(tmp_path: Path, suffix: str) -> None:
    """100 MB in one line, of which a process holds no more than a line may have, read twice."""
    path = tmp_path / f"bomb.txt{suffix}"
    with path.open("wb") as stream, packed_writer(stream, path) as write:
        write(b"fine\n")
        for _ in range(100):
            write(b"x" * (1 << 20))
    read = (
        "import resource, sys, numpy, pyarrow, pyarrow.compute\n"
        "from lmexposure.canaries.corpora.files import open_content\n"
        "from lmexposure.canaries import read_documents\n"
        "used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10\n"
        "before = used()\n"
        "with open_content(sys.argv[1]) as stream:\n"
        "    while stream.read(1 << 18): pass\n"
        "print(used() - before)\n"
        "try: list(read_documents(sys.argv[1], layout='lines'))\n"
        "except Exception as failure: print(failure)\n"
        "print(used() - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", read, str(path)], capture_output=True, text=True, check=True
    )
    unpacking, message, reading = done.stdout.splitlines()
    assert "has a line of more than 64 MiB, from byte offset 5 on; break it into" in message
    assert int(unpacking) < 40
    assert int(reading) < 180


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("left", [0.5, 0.999, None])
def test_a_file_that_is_cut_short_or_something_else(
    tmp_path: Path, suffix: str, left: float | None
) -> None:
    path = packed(tmp_path / f"a{suffix}")
    data = path.read_bytes()
    path.write_bytes(TEXT if left is None else data[: int(len(data) * left)])
    for read in (lambda: content(path), lambda: insert_files(path, tmp_path / "o", PLAN)):
        with pytest.raises(CorpusError, match=r"is cut short or damaged: .*; take a whole copy"):
            read()
    assert sorted(tmp_path.iterdir()) == [path]
