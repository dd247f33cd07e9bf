"""Files in, the same files with canaries out, once; and what that would do."""

import gzip
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from datasets import load_dataset
from pyarrow import parquet as pq

from lmexposure._files import new_file
from lmexposure.canaries import (
    Format,
    Manifest,
    Plan,
    Sidecar,
    copies,
    corpus_files,
    insert_files,
    layout_named,
    preview_insertion,
    read_records,
    read_sidecars,
)
from lmexposure.canaries import insertion as engine
from lmexposure.canaries.corpora.files import sidecar_path
from lmexposure.canaries.insertion import Merge, draw
from lmexposure.canaries.verification import remove_from_files
from lmexposure.errors import CorpusError, FileError, ResultError

PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=3, repetitions=(1, 2), controls=2, seed=4)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"first line\nsecond\n\nthird\n")
    return path


def insert(
    source: Path, layout: str = "lines", *, plan: Plan = PLAN, out: str = "out", **options: Any
) -> tuple[bytes, Manifest]:
    """Into a new directory: what the copy holds, and the manifest."""
    shutil.rmtree(source.with_name(out), ignore_errors=True)
    manifest = insert_files(source, source.with_name(out), plan, layout=layout, **options)
    return copy_of(source, out).read_bytes(), manifest


def copy_of(source: Path, out: str = "out") -> Path:
    return source.with_name(out) / "corpus" / source.name


RECORDS = b'{"id": 1, "body": "one", "tags": ["x"]}\n\n{"id": 2, "body": "two"}'


def test_records_take_given_constants(corpus: Path) -> None:
    corpus.write_bytes(RECORDS)
    inserted, manifest = insert(corpus, "jsonl", text_field="body", fields={"new": 1, "id": None})
    records = [json.loads(line) for line in inserted.splitlines() if b"PIN" in line]
    assert len(records) == 9
    assert all(record["id"] is None and record["new"] == 1 for record in records)
    assert manifest.corpus.constant_fields == ("id", "new")


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_the_corpus_itself_is_never_replaced(corpus: Path, link: Any) -> None:
    (corpus.with_name("out") / "corpus").mkdir(parents=True)
    link(corpus, copy_of(corpus))
    with pytest.raises(CorpusError, match="is the corpus itself; write to another directory"):
        insert_files(corpus, corpus.with_name("out"), PLAN)


def test_a_failed_insertion_leaves_what_was_there(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = insert(corpus)

    def doubtful(*arguments: Any) -> None:
        raise CorpusError("not as planned")

    monkeypatch.setattr(engine, "check_inserted", doubtful)
    with pytest.raises(CorpusError, match="not as planned"):
        insert_files(corpus, corpus.with_name("new"), PLAN)
    assert sorted(os.listdir(corpus.parent)) == ["corpus.txt", "out"]
    copy_of(corpus).write_bytes(made[:-1])
    with pytest.raises(CorpusError, match="not as planned"):
        insert_files(corpus, corpus.with_name("out"), PLAN)
    assert copy_of(corpus).read_bytes() == made[:-1]
    left = [path.name for path in corpus.with_name("out").glob("[!.]*")]
    assert sorted(left) == ["corpus", "manifest.json"]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.parquet"])
@pytest.mark.parametrize("change", ["another", "grown", "shorter", "replaced"])
def test_a_corpus_that_changes_between_the_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, change: str
) -> None:
    source = written(tmp_path / name)
    data = source.read_bytes()
    changed = {"another": b"something else\n" * 9, "grown": data + b"more\n", "shorter": data[:-3]}

    def slow_draw(*arguments: Any, **options: Any) -> Any:
        if change == "replaced":
            source.with_name("new").write_bytes(data)
            source.with_name("new").replace(source)
        else:
            source.write_bytes(changed[change])
        return draw(*arguments, **options)

    monkeypatch.setattr(copies, "draw", slow_draw)
    with pytest.raises(CorpusError, match="changed while it was read; try again"):
        insert_files(source, tmp_path / "out", PLAN)
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_what_is_no_text_goes_in_unchecked_and_comes_out_again(tmp_path: Path, name: str) -> None:
    data = b"ab\0\xff\n" * 20
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    manifest = insert_files(tmp_path / name, tmp_path / "o", PLAN, verify=False)
    assert (manifest.corpus.sha256, manifest.corpus.sha256_inserted) == ("", "")
    note = Sidecar.read(tmp_path / "o" / "corpus" / name)
    assert (note.copied.sha256, note.copied.sha256_inserted, note.copied.documents) == ("", "", 20)
    assert len(note.copied.occurrences) == 9
    removal = remove_from_files([tmp_path / "o" / "corpus" / name], manifest, tmp_path / "back")
    assert (removal.documents, removal.checked) == (9, False)
    assert (tmp_path / "back").read_bytes() == data if name == "a.txt" else True


ROWS = [b"line %d\r\n" % n if n % 7 else b"l%d\n" % n for n in range(48)]


def parts(here: Path, count: int) -> list[Path]:
    here.mkdir()
    size = len(ROWS) // count
    for n in range(count):
        (here / f"{n}.txt").write_bytes(b"".join(ROWS[n * size : (n + 1) * size]))
    return corpus_files([here / "*.txt"])


OTHER_SCHEMA = '{"schema": "lmexposure.shards/2"}'


@pytest.mark.timeout(20)
@pytest.mark.parametrize("made", [os.mkfifo, os.mkdir, "{", "{}", OTHER_SCHEMA])
def test_what_is_no_sidecar(tmp_path: Path, made: str | Callable[[Path], None]) -> None:
    note = sidecar_path(tmp_path / "a")
    note.parent.mkdir()
    note.write_text(made) if isinstance(made, str) else made(note)
    with pytest.raises(CorpusError, match="is not what insertion wrote"):
        Sidecar.read(tmp_path / "a")


def test_a_sidecar_of_another_version_is_refused_and_stays(tmp_path: Path) -> None:
    source, out = written(tmp_path / "a.txt"), tmp_path / "out"
    insert_files(source, out, PLAN)
    note = sidecar_path(out / "corpus" / "a.txt")
    note.write_text(note.read_text().replace("lmexposure.shard/1", "lmexposure.shard/2"))
    before = note.read_bytes()
    with pytest.raises(ResultError, match=r"schema 'lmexposure\.shard/2'.*; else insert again"):
        insert_files(source, out, PLAN)
    assert note.read_bytes() == before


def modes(directory: Path) -> dict[str, int]:
    files = (path for path in directory.iterdir() if path.is_file())
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in files}


@pytest.mark.parametrize(("bits", "copied"), [(0o644, 0o644), (0o640, 0o640), (0o600, 0o600)])
def test_copies_are_as_private_as_the_most_private_source(
    tmp_path: Path, bits: int, copied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all files of a corpus; their sidecars, which let short secrets be tried, always are."""
    seen: list[int] = []
    real = Merge.part

    def watched(self: Merge, part: Any) -> Any:
        at_work = [path for path in tmp_path.rglob("*.txt") if path.parent.name != "in"]
        seen.extend(stat.S_IMODE(path.stat().st_mode) for path in at_work)
        return real(self, part)

    monkeypatch.setattr(Merge, "part", watched)
    sources = parts(tmp_path / "in", 3)
    sources[1].chmod(bits)
    manifest = insert_files(sources, tmp_path / "out", PLAN)
    notes = {f"{n}.txt.canaries.json": 0o600 for n in range(3)}
    assert modes(tmp_path / "out" / "corpus") == {f"{n}.txt": copied for n in range(3)}
    assert modes(tmp_path / "out" / "corpus" / ".sidecars") == notes
    assert seen == [copied] * 6  # before the first byte
    made = [tmp_path / "out" / "corpus" / path.name for path in sources]
    remove_from_files(made, manifest, tmp_path / "without")
    assert set(modes(tmp_path / "without").values()) == {copied}
    remove_from_files(made[:1], manifest, tmp_path / "one")
    assert stat.S_IMODE((tmp_path / "one").stat().st_mode) == copied


FILES = ["a.txt", "a.txt.gz", "a.txt.zst", "a.jsonl", "a.parquet", "a.arrow"]


def written(path: Path, *, end: str = "\r\n") -> Path:
    """A corpus of twelve documents, packed as its name says."""
    texts = [f"text {n}" for n in range(12)]
    table = pa.table({"text": texts, "score": [n / 8 for n in range(11)] + [float("nan")]})
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=5)
        return path
    if path.suffix == ".arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
        return path
    lines = [json.dumps({"text": text, "n": 1}) for text in texts]
    data = end.join(lines if ".jsonl" in path.name else texts).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data)
    if path.suffix == ".zst":
        data = pa.compress(data, codec="zstd", asbytes=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
@pytest.mark.parametrize("kind", ["changed", "cut", "longer", "missing"])
def test_every_byte_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    """A disk that gives back other bytes than were written, whichever these are."""
    source, unpack = tmp_path / name, gzip.decompress if name.endswith("gz") else bytes
    data = b"\xef\xbb\xbfone\r\ntwo\n\nMy PIN is 0000\nthree\nfour\n"
    source.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    plan = replace(PLAN, canaries=1, controls=1)
    insert_files(source, tmp_path / "good", plan, existing="set_aside")
    good = unpack((tmp_path / "good" / "corpus" / name).read_bytes())
    wrong = {
        "changed": [good[:n] + b"#" + good[n + 1 :] for n in range(len(good))],
        "cut": [good[:n] for n in range(len(good))],
        "longer": [good + b"\n", good + b"x"],
        "missing": [good[:n] + good[n + 1 :] for n in range(len(good))],
    }
    for number, bytes_there in enumerate(wrong[kind]):
        with broken_disk(monkeypatch, bytes_there), pytest.raises(CorpusError) as failure:
            insert_files(source, tmp_path / "out", plan, existing="set_aside")
        assert re.search(r"is not what was inserted: .*: insert again|is empty", str(failure.value))
        assert sorted(os.listdir(tmp_path)) == sorted(["good", name]), number


@contextmanager
def broken_disk(monkeypatch: pytest.MonkeyPatch, content: bytes) -> Iterator[None]:
    """What is read again of a file that was written has this content."""
    whole = engine.Verification.source

    def read_again(verification: Any, source: Any, *arguments: Any, **options: Any) -> None:
        packed = gzip.compress(content) if source.path.name.endswith(".gz") else content
        source.path.write_bytes(packed)
        whole(verification, source, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(engine.Verification, "source", read_again)
        yield


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("name", FILES)
def test_a_full_disk_is_not_taken_for_a_bad_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    source = written(tmp_path / name)

    @contextmanager
    def full(path: Path, mode: int) -> Iterator[Any]:
        with whole(path, mode), open("/dev/full", "wb", buffering=0) as stream:
            yield stream

    whole = new_file
    monkeypatch.setattr(copies, "new_file", full)
    with pytest.raises(FileError, match=r"cannot write .*No space left"):
        insert_files(source, tmp_path / "out", PLAN)
    assert list(tmp_path.iterdir()) == [source]


def test_what_is_done_is_not_done_again(corpus: Path) -> None:
    made, manifest = insert(corpus)
    out, copy = corpus.with_name("out"), copy_of(corpus)
    before = copy.stat()
    assert insert_files(corpus, out, PLAN) == manifest
    assert insert_files(corpus, out, PLAN, layout="lines", total=4) == manifest
    corpus.rename(corpus.with_name("gone"))
    assert insert_files(corpus, out, PLAN) == manifest  # an unchanged copy needs no source
    assert (copy.stat().st_ino, copy.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    copy.write_bytes(made[:-1])
    with pytest.raises(CorpusError, match=r"cannot read the corpus .*corpus.txt: No such file"):
        insert_files(corpus, out, PLAN)
    assert copy.read_bytes() == made[:-1]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["cut", "gone", "note", "empty", "note gone"])
def test_what_was_damaged_is_made_good(
    tmp_path: Path, name: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    source, out = written(tmp_path / name), tmp_path / "out"
    manifest = insert_files(source, out, PLAN)
    copy = out / "corpus" / name
    made, note = copy.read_bytes(), sidecar_path(copy).read_bytes()
    if damage in ("cut", "empty"):
        copy.write_bytes(made[: (len(made) - 9) * (damage == "cut")])
    elif damage.startswith("note"):
        sidecar_path(copy).write_bytes(note[:50])
        if damage == "note gone":
            sidecar_path(copy).unlink()
    else:
        copy.unlink()
    assert insert_files(source, out, PLAN) == manifest
    assert copy.read_bytes() == made
    assert sidecar_path(copy).read_bytes() == note
    assert (f"{copy} is damaged, or was changed since" in caplog.text) is (damage != "gone")
    assert (out / "damaged-1").exists() is (damage in ("cut", "empty"))


@pytest.mark.parametrize("suffix", [".jsonl", ".txt", ".parquet"])
def test_the_directory_of_the_copies_is_a_data_set_as_it_is(tmp_path: Path, suffix: str) -> None:
    """The sidecars are JSON, and would be taken for data with other columns."""
    (tmp_path / "in").mkdir()
    sources = [written(tmp_path / "in" / f"{n}{suffix}") for n in range(2)]
    plan = replace(PLAN, repetitions=(1,))
    manifest = insert_files(sources, tmp_path / "out", plan, existing="set_aside")
    rows = load_dataset(str(tmp_path / "out" / "corpus"), cache_dir=str(tmp_path / "cache"))
    added = sum(entry.inserted for entry in manifest.entries)
    assert rows["train"].num_rows == manifest.corpus.documents + added
    assert rows["train"].column_names[0] in ("text", "n")


def test_several_copies_go_on_where_they_are(tmp_path: Path) -> None:
    sources, out = parts(tmp_path / "in", 3), tmp_path / "out"
    manifest = insert_files(sources, out, PLAN)
    made = {path.name: path.read_bytes() for path in (out / "corpus").glob("[0-9]*")}
    assert insert_files(sources[::-1], out, PLAN) == manifest
    assert insert_files([tmp_path / "in" / "*"], out, PLAN) == manifest
    for name in ("1.txt", ".sidecars/1.txt.canaries.json"):
        (out / "corpus" / name).unlink()
        assert insert_files(sources, out, PLAN) == manifest
        assert {path.name: path.read_bytes() for path in (out / "corpus").glob("[0-9]*")} == made
    with pytest.raises(ResultError, match="holds a manifest of another corpus; choose another"):
        insert_files(sources[:2], out, PLAN)
    (out / "corpus" / "0.txt").unlink()
    (out / "corpus" / "0.txt").mkdir()
    with pytest.raises(CorpusError, match="holds something already; choose a new or an empty dir"):
        insert_files(sources, out, PLAN)
    (out / "corpus" / "0.txt").rmdir()
    for name in ("notes", ".notes.partial", ".1.txt.partial"):
        (out / "corpus" / name).write_bytes(b"somebody's")
        with pytest.raises(CorpusError, match="holds something already; choose a new or an empty"):
            insert_files(sources, out, PLAN)
        (out / "corpus" / name).unlink()  # it is still there


def test_seeds_that_were_drawn_once_are_not_drawn_again(corpus: Path) -> None:
    out = corpus.with_name("out")
    fields: dict[str, Any] = {"formats": [PIN], "canaries": 2, "repetitions": (1,)}
    manifest = insert_files(corpus, out, **fields)
    assert insert_files(corpus, out, **fields) == manifest
    assert insert_files(corpus, out, **fields, seed=manifest.plan.seed) == manifest
    with pytest.raises(ResultError, match="another plan"):
        insert_files(corpus, out, **fields, seed=7 + manifest.plan.seed)


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_other_constants_are_not_taken_for_done(tmp_path: Path, name: str, gone: bool) -> None:
    source, out = written(tmp_path / name), tmp_path / "out"
    field = "score" if name == "a.parquet" else "n"
    manifest = insert_files(source, out, PLAN, fields={field: 7})
    copy, record = out / "corpus" / name, (out / "manifest.json").read_bytes()
    made = copy.read_bytes()
    if gone:
        source.unlink()
    assert insert_files(source, out, PLAN, fields={field: 7}) == manifest
    if name == "a.parquet" and not gone:  # which has no hash but of the texts
        insert_files(source, out, PLAN, fields={field: 8})
        rows = pq.read_table(copy).to_pylist()
        assert {row["score"] for row in rows if "PIN" in row["text"]} == {8}
        return
    message = "cannot read the corpus" if gone else "a manifest of other constants; choose another"
    with pytest.raises(CorpusError if gone else ResultError, match=message):
        insert_files(source, out, PLAN, fields={field: 8})
    assert (copy.read_bytes(), (out / "manifest.json").read_bytes()) == (made, record)


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize(
    "false",
    [
        None,  # two copies were exchanged with their sidecars
        {"first_document": 1},
        {"documents": 17},
        {"occurrences": []},
        {"sha256": "0" * 64},
        {"sha256_inserted": "0" * 64},
        {"shards": 4},
        {"name": "b"},
    ],
)
def test_sidecars_that_do_not_say_the_truth(
    tmp_path: Path, false: dict[str, Any] | None, gone: bool
) -> None:
    sources, out = parts(tmp_path / "in", 3), tmp_path / "out"
    manifest = insert_files(sources, out, PLAN)
    made = {p: p.read_bytes() for p in (out / "corpus").rglob("*") if p.is_file()}
    copies = [out / "corpus" / f"{n}.txt" for n in (0, 1)]
    notes = [sidecar_path(copy) for copy in copies]
    if false is not None:
        notes[0].write_text(json.dumps({**json.loads(made[notes[0]]), **false}))
    for one, other in (copies, notes) if false is None else ():
        one.write_bytes(made[other])
        other.write_bytes(made[one])
    if gone:
        shutil.rmtree(tmp_path / "in")
        with pytest.raises(CorpusError, match="cannot read the corpus"):
            insert_files(sources, out, PLAN)
        return
    assert insert_files(sources, out, PLAN) == manifest
    assert {path: path.read_bytes() for path in made} == made


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("false", [{"first_document": 40}, {"documents": 90}, {"occurrences": []}])
def test_a_false_sidecar_is_not_believed_when_counting(
    tmp_path: Path, false: dict[str, Any], alone: bool
) -> None:
    sources, out = parts(tmp_path / "in", 3), tmp_path / "out"
    manifest = insert_files(sources, out, PLAN)
    copied = [out / "corpus" / f"{n}.txt" for n in (1, 0, 2)]
    note = sidecar_path(copied[0])
    note.write_text(json.dumps({**json.loads(note.read_bytes()), **false}))
    with pytest.raises(CorpusError, match=r"1.txt.canaries.json does not say what th"):
        read_sidecars(copied[:1] if alone else copied, manifest)


GIVEN = {
    "one.txt": b"first line\nsecond\n\nthird\n",
    "one.jsonl": b'{"text": "a"}\n' * 9,
    "other_field.jsonl": b'{"txt": "a"}\n' * 9,
    "fills.jsonl": b'{"text": "a", "note": "My PIN is 1234"}\n{"text": "My PIN is 0001"}\n',
    "no_string.jsonl": b'{"text": "a"}\n{"text": 3}\n',
    "packed.txt": gzip.compress(b"text\n" * 9),
    "blank.txt": b"\xef\xbb\xbf \r\n\t\n",
    "many/a.txt": b"one\ntwo\n",
    "many/b.txt": b"fine\n{\n",
    "filled/0.txt": b"x\n",
    "filled/a.txt": b"one\ntwo\n",
    "filled/b.txt": b"My PIN is 0001\n",
    "more/a.txt": b"x\n",
    ".sidecars/one.txt.canaries.json": b"",
}
MANY = ["many/a.txt", "many/b.txt"]
NOTE = ".sidecars/one.txt.canaries.json"
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    ("fills.jsonl", {}, r"pin 1 times \(line 2\)"),
    ("blank.txt", {}, "holds only blank lines"),
    ("blank.txt", {"layout": "paragraphs"}, "holds only blank lines"),
    ("blank.txt", {"layout": "jsonl"}, "holds only blank lines"),
    ("other_field.jsonl", {"verify": False}, r"other_field.jsonl: line \d: field 'text' is mi"),
    ("no_string.jsonl", {}, "no_string.jsonl: line 2: field 'text' is not a string"),
    ("packed.txt", {}, "is packed by gzip; unpack it first, with gzip -dc, or"),
    ("many", {}, r"many is a directory; .*, such as 'many/\*.json"),
    (["one.txt", NOTE], {}, "json is a sidecar; give the file that it belongs to"),
    (MANY, {"total": 5}, "documents=5, but the corpus has 4 in 2 files; is a file missing"),
    (MANY, {"layout": "jsonl"}, "many/a.txt: line 1 is not JSON"),
    ("filled/*", {}, r"pin 1 times \(line, counted over all files, 4\)"),
    ("none*", {}, r"no file matches 'none\*'; give a file"),
    ([*MANY, MANY[0]], {}, "many/a.txt is given twice; give it once"),
    ([*MANY, "more/a.txt"], {}, "would get the same name in .*; rename one of them"),
    ([*MANY, "missing.txt"], {}, "cannot read the corpus .*missing.txt"),
    ([], {}, "sources is empty; give paths of files"),
    ([3], {}, "sources holds one of type int; give paths"),
    (["one.txt", None], {}, "sources holds one of type NoneType; give paths"),
    (3, {}, "sources is of type int; give a path, or a list of paths"),
    ("one.jsonl", {"fields": ["n"]}, "fields is of type list; give constants by name"),
    ("one.jsonl", {"fields": "n"}, "fields is of type str; give constants"),
    ("one.jsonl", {"fields": {1: 2}}, "a name in fields is of type int; give constants by name"),
    ("one.jsonl", {"total": -1}, "total=-1 must be a whole number at least 1"),
    ("one.jsonl", {"verify": "no"}, "verify='no' must be true or false"),
    ("one.jsonl", {"out": None}, "out is of type NoneType; give out, a directory"),
    ("one.jsonl", {"out": PLAN, "plan": None}, "out is of type Plan; give out, a directory"),
]


@pytest.mark.parametrize(("sources", "options", "message"), REFUSED)
def test_refused_calls(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sources: Any,
    options: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in GIVEN.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(content)
    with pytest.raises(CorpusError, match=message):
        insert_files(sources, **{"out": "out", "plan": PLAN, **options})
    assert not Path("out").exists()


@pytest.mark.parametrize("kept", ["out", "out/corpus", "out/corpus/notes", f"out/corpus/{NOTE}"])
def test_files_of_somebody_else_are_left_alone(corpus: Path, kept: str) -> None:
    theirs = corpus.parent / kept
    theirs.parent.mkdir(parents=True, exist_ok=True)
    theirs.write_text("mine")
    message = "cannot write|out/corpus holds something already; choose a new or an empty directory"
    with pytest.raises((FileError, CorpusError), match=message):
        insert_files(corpus, corpus.with_name("out"), PLAN)
    assert theirs.read_text() == "mine"


FRESH = Plan(formats=(PIN,), canaries=2, repetitions=(1,))
# How the first call differs from the usual one, how the second does, and what is said.
OTHERS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"plan": replace(PLAN, controls=1)}, "of another plan; choose another directory"),
    ({"plan": FRESH}, {"plan": replace(FRESH, seed=1)}, "its seeds differ; give its seed, or"),
    ({}, {"layout": "paragraphs"}, "another layout"),
    ({}, {"total": 10}, "another number of documents"),
    ({}, {"verify": False}, "what was not verified cannot be compared"),
    ({}, {"sources": "other.jsonl"}, "another corpus; choose another directory"),
    (
        {"sources": "filled.txt", "existing": "set_aside"},
        {"sources": "filled.txt"},
        "another choice about existing secrets",
    ),
    ({"fields": {"n": 1}}, {}, "another choice of constant fields"),
    ({"fields": {"n": 1}}, {"text_field": "body", "fields": {"n": 1}}, "another text field"),
]


@pytest.mark.parametrize(("first", "second", "message"), OTHERS)
def test_what_another_call_left_is_not_written_over(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: dict[str, Any],
    second: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.jsonl").write_bytes(GIVEN["one.jsonl"])
    Path("other.jsonl").write_bytes(b'{"text": "b"}\n' * 9)
    Path("filled.txt").write_bytes(b"one\ntwo\nMy PIN is 0001\n")
    usual: dict[str, Any] = {"sources": "one.jsonl", "out": "out", "plan": PLAN}
    insert_files(**{**usual, **first})
    with pytest.raises(ResultError, match=message):
        insert_files(**{**usual, **second})


def test_files_that_are_not_all_of_one_corpus(tmp_path: Path) -> None:
    manifest = insert_files(parts(tmp_path / "in", 4), tmp_path / "out", PLAN)
    copied = [tmp_path / "out" / "corpus" / f"{n}.txt" for n in range(4)]
    with pytest.raises(CorpusError, match="of the 4 files of this corpus, numbers 1, 4 are missin"):
        read_sidecars(copied[1:3], manifest)
    shutil.copy(copied[0], copied[1])
    shutil.copy(sidecar_path(copied[0]), sidecar_path(copied[1]))
    with pytest.raises(CorpusError, match=r"0.txt and .*1.txt are both number 1 of this corpus"):
        read_sidecars(copied, manifest)
    assert read_sidecars(copied[:1], manifest)


def rewritten(path: Path, number: int, change: dict[str, Any], *, to: Path) -> None:
    """A table in the same groups of rows, of which one row is changed."""
    whole = pq.read_table(path) if path.suffix == ".parquet" else pa.ipc.open_file(path).read_all()
    rows = whole.to_pylist()
    rows[number] |= change
    again = pa.Table.from_pylist(rows, schema=whole.schema)
    if path.suffix == ".arrow":
        with pa.ipc.new_file(to, whole.schema) as writer:
            writer.write_table(again)
        return
    about, done = pq.read_metadata(path), 0
    with pq.ParquetWriter(to, whole.schema) as writer:
        for group in range(about.num_row_groups):  # others would be noticed whatever is in them
            size = about.row_group(group).num_rows
            writer.write_table(again.slice(done, size), row_group_size=size)
            done += size


@pytest.mark.parametrize("change", [{"text": "another"}, {"score": 99.0}])
def test_every_row_and_column_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    source, good = written(tmp_path / "a.parquet"), tmp_path / "good" / "corpus" / "a.parquet"
    plan = replace(PLAN, canaries=1)
    insert_files(source, tmp_path / "good", plan)
    for number in range(pq.read_metadata(good).num_rows):
        rewritten(good, number, change, to=tmp_path / "bad")
        bad = (tmp_path / "bad").read_bytes()
        (tmp_path / "bad").unlink()
        with (
            broken_disk(monkeypatch, bad),
            pytest.raises(CorpusError, match=r"is not what was inserted: .*: insert again"),
        ):
            insert_files(source, tmp_path / "out", plan)
    assert sorted(os.listdir(tmp_path)) == ["a.parquet", "good"]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_another_column_of_a_copy_was_changed(tmp_path: Path, name: str) -> None:
    source, copy = written(tmp_path / name), tmp_path / "out" / "corpus" / name
    manifest = insert_files(source, tmp_path / "out", PLAN)
    made = copy.read_bytes()
    of_canary = [row["text"].startswith("My PIN") for row in read_records(copy)]
    for number in (of_canary.index(True), of_canary.index(False)):
        rewritten(copy, number, {"score": 99.0}, to=copy)
        assert insert_files(source, tmp_path / "out", PLAN) == manifest
        assert copy.read_bytes() == made


def test_a_copy_that_a_person_changed_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sources, out = parts(tmp_path / "in", 2), tmp_path / "out"
    manifest = insert_files(sources, out, PLAN)
    copy = out / "corpus" / "0.txt"
    made = copy.read_bytes()
    for number in (1, 2):
        copy.write_bytes(made + b"precious")
        assert insert_files(sources, out, PLAN) == manifest
        (kept,) = (out / f"damaged-{number}" / "corpus").iterdir()
        assert (kept.name, kept.read_bytes()) == (copy.name, made + b"precious")
        assert f"it is kept in {kept.parent}" in caplog.text
        assert copy.read_bytes() == made


LAYOUT = layout_named("lines")
TOSSED = replace(PLAN, inclusion_probability=0.5, inclusion_seed=7)


@pytest.mark.parametrize("plan", [PLAN, TOSSED], ids=["all", "coins"])
def test_a_preview_writes_nothing_and_is_exact(tmp_path: Path, plan: Plan) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_bytes(b"a\r\nMy PIN is 1234\nb")
    found = preview_insertion([corpus], plan, layout=LAYOUT, existing="set_aside")
    assert os.listdir(tmp_path) == ["corpus.txt"]
    manifest = insert_files(corpus, tmp_path / "out", plan, existing="set_aside")
    inserted = (tmp_path / "out" / "corpus" / "corpus.txt").read_bytes()
    assert found.bytes_before == corpus.stat().st_size
    assert found.bytes_before + found.bytes_added == len(inserted)
    insertions = sum(entry.inserted for entry in manifest.entries)
    assert (found.documents, found.insertions) == (3, insertions)
    assert (found.canaries, found.controls) == (len(manifest.canaries), 2)
    assert found.canaries + found.held_out == 6
    assert found.references == {"pin": manifest.references_left("pin")}
    assert found.set_aside == {"pin": 1}
    assert found.share_of_documents == insertions / (3 + insertions)
    assert found.to_dict()["share_of_bytes"] == found.bytes_added / len(inserted)


def test_what_the_insertion_refuses_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "My PIN is 1234"}\n' * 9)
    layout = layout_named("jsonl")
    with pytest.raises(CorpusError, match=r"pin 9 times \(line 1, ...\); choose another format"):
        preview_insertion([tmp_path / "a.jsonl"], PLAN, layout=layout)
    with pytest.raises(CorpusError, match="no file matches"):
        preview_insertion([tmp_path / "*.txt"], PLAN, layout=layout)


def test_a_corpus_that_changes_during_a_preview(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_bytes(b"first line\nsecond\n\nthird\n")

    def slow_draw(*arguments: Any, **options: Any) -> Any:
        os.truncate(corpus, 3)
        return draw(*arguments, **options)

    monkeypatch.setattr(copies, "draw", slow_draw)
    with pytest.raises(CorpusError, match="changed while it was read; try again"):
        preview_insertion([corpus], PLAN, layout=LAYOUT)
