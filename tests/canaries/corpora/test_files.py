"""Which files a corpus is, what a document is in them, and packed ones that are not whole."""

import gzip
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lmexposure.canaries import (
    LAYOUTS,
    FileCorpus,
    Format,
    Plan,
    corpus_files,
    guess_layout,
    insert_files,
    layout_for,
    layout_named,
    load_format,
)
from lmexposure.canaries.corpora.files import open_content, packed_writer
from lmexposure.canaries.insertion import scan_corpus
from lmexposure.errors import CorpusError

PIN = Format(name="pin", template="My PIN is {digits:4}")
LINES = layout_named("lines")


def test_files_are_sorted_and_patterns_are_looked_up(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "[c].txt", "a.txt.canaries.json", "below/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    names = [path.name for path in corpus_files([tmp_path / "*.txt"])]
    assert names == ["[c].txt", "a.txt", "b.txt"]
    assert corpus_files([tmp_path / "[c].txt"]) == [tmp_path / "[c].txt"]
    assert len(corpus_files([str(tmp_path / "**" / "*")])) == 5  # and the directory


def test_layouts_go_by_the_suffix() -> None:
    records = ("a.JSONL", "a.ndjson", "a.jsonl.GZ", "x/a.jsonl.gz", "a.jsonl.ZST")
    texts = ("a.txt", "a", "a.txt.zst", ".gz", "a.jsonl.zip", "jsonl.gz")
    assert {guess_layout(name) for name in records} == {"jsonl"}
    assert {guess_layout(name) for name in texts} == {"lines"}
    assert guess_layout("a/B.PARQUET") == "parquet"
    assert layout_for([Path("a.jsonl"), Path("b.ndjson.gz")], None, "text").name == "jsonl"
    assert layout_for([Path("a.jsonl"), Path("b.txt")], "lines", "text").name == "lines"
    with pytest.raises(CorpusError, match="of different layouts: jsonl, lines; give one kind"):
        layout_for([Path("a.jsonl"), Path("b.txt")], None, "text")
    separators = {name: layout_named(name).separator for name in LAYOUTS}
    assert separators.pop("lines") == "\n"
    assert separators.pop("paragraphs") == "\n\n"
    assert set(separators.values()) == {None}


def test_refused_layouts() -> None:
    with pytest.raises(CorpusError, match="layout='csv' must be one of lines, paragraphs, jsonl"):
        layout_named("csv")
    with pytest.raises(CorpusError, match=r"fields=\['a'\] go with layout 'jsonl', not 'lines'"):
        layout_named("lines", fields={"a": 1})
    with pytest.raises(CorpusError, match="fields must leave out the text field 'text'"):
        layout_named("jsonl", fields={"text": "x"})
    with pytest.raises(CorpusError, match=r"fields=\['a'\] must be JSON values"):
        layout_named("jsonl", fields={"a": {1}})


def test_a_pipe_is_refused_and_told_the_way() -> None:
    reader, writer = os.pipe()
    with open(reader, "rb"), open(writer, "wb"):
        name = Path(f"/dev/fd/{reader}")
        if not name.exists():
            pytest.skip("no /dev/fd here")
        with pytest.raises(CorpusError, match=r"is a pipe, and would be read twice; .* input: -"):
            FileCorpus([name], LINES)


def test_the_first_line_end_may_come_late(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "b").write_bytes(b"two\r\nthree\r\n")
    corpus = FileCorpus([tmp_path / "a", tmp_path / "b"], LINES)
    scan_corpus(corpus, ())
    assert corpus.first_end == b"\r\n"
    (part,) = corpus.sources[0].parts()
    assert part.merged([(0, "canary")]).part.content == b"canary\r\none"
    alone = FileCorpus([tmp_path / "a"], LINES)
    scan_corpus(alone, ())
    (part,) = alone.sources[0].parts()
    assert part.merged([(0, "canary")]).part.content == b"canary\none"


@pytest.mark.parametrize("verify", [True, False])
def test_an_empty_file_among_others_is_named(tmp_path: Path, verify: bool) -> None:
    (tmp_path / "a").write_bytes(b"one\n")
    (tmp_path / "b").touch()
    with pytest.raises(CorpusError, match=r"the corpus .*/b is empty; give a file with text in it"):
        scan_corpus(FileCorpus([tmp_path / "a", tmp_path / "b"], LINES), (PIN,) if verify else ())


def test_blank_files_among_others_are_taken(tmp_path: Path) -> None:
    for name, text in {"a": "\n", "b": "one\n", "c": " \n\n"}.items():
        (tmp_path / name).write_text(text)
    paths = corpus_files([tmp_path / "*"])
    scan = scan_corpus(FileCorpus(paths, layout_named("paragraphs")), (PIN,))
    assert (scan.documents, len(scan.hashes.files if scan.hashes else [])) == (1, 3)
    with pytest.raises(CorpusError, match="the corpus of 2 files holds only blank lines; give a"):
        scan_corpus(FileCorpus([paths[0], paths[2]], LINES), (PIN,))


def test_a_file_that_grows_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one\n")
    (source,) = FileCorpus([path], LINES).sources

    with (
        pytest.raises(CorpusError, match=r"the corpus .*/a changed while it was read; try again"),
        source.guarded(),
    ):
        for _ in source.parts():
            path.write_bytes(b"one\ntwo\n")


TEXT = b"".join(b"line %d of a corpus\n" % number for number in range(5000))
SEVERAL = Plan(formats=(load_format("pin"),), canaries=2, repetitions=(1, 3), controls=1, seed=1)


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
    for read in (lambda: content(path), lambda: insert_files(path, tmp_path / "o", SEVERAL)):
        with pytest.raises(CorpusError, match=r"is cut short or damaged: .*; take a whole copy"):
            read()
    assert sorted(tmp_path.iterdir()) == [path]
