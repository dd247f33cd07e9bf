"""The way back from a corpus with canaries; what was done to it is counted, and refused."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_corpora import PIN, Written, parquet_bytes, row_groups

import lmexposure as lx
from lmexposure import insert, remove
from lmexposure.canaries import CorpusCount, Manifest, Plan, insert_files, layout_named
from lmexposure.canaries.corpora.files import sidecar_path
from lmexposure.canaries.verification import count_files, remove_from_files
from lmexposure.errors import CorpusError, FileError

PLAN = Plan(formats=(PIN,), canaries=3, repetitions=(1, 2), controls=2, seed=4, witness=False)
LINES = st.sampled_from([b"word", "né".encode(), b"", b" ", b"lone\rreturn"])
CORPORA = st.builds(
    lambda bom, lines, last: (
        b"\xef\xbb\xbf" * bom + b"one\n\ntwo\n" + b"".join(a + b for a, b in lines) + last
    ),
    st.booleans(),
    st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n"])), max_size=12),
    st.sampled_from([b"", b"no final line end"]),
)


@given(CORPORA, st.sampled_from(["lines", "paragraphs"]))
@settings(max_examples=60)
def test_the_bytes_come_back(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, layout: str
) -> None:
    here = tmp_path_factory.mktemp("random")
    (here / "corpus.txt").write_bytes(data)
    manifest = insert_files(here / "corpus.txt", here / "with", PLAN, layout=layout)
    written = here / "with" / "corpus" / "corpus.txt"
    removal = remove_from_files([written], manifest, here / "without")
    assert (here / "without").read_bytes() == data
    assert (removal.documents, removal.checked) == (9, True)


def records(count: int) -> bytes:
    return b"".join(b'{"n": %d, "text": "line %d"}\n' % (n, n) for n in range(count))


def shards(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"part-{n}.txt" for n in range(3)]
    for n, path in enumerate(paths):
        path.write_bytes(b"".join(b"shard %d line %d\n" % (n, m) for m in range(20)))
    return paths


@pytest.mark.parametrize("with_sidecars", [True, False])
def test_files_come_back(tmp_path: Path, with_sidecars: bool) -> None:
    sources = shards(tmp_path)
    manifest = insert_files(sources, tmp_path / "with", PLAN)
    written = [tmp_path / "with" / "corpus" / path.name for path in sources]
    if not with_sidecars:
        for path in written:
            sidecar_path(path).unlink()
    removal = remove_from_files(
        [tmp_path / "with" / "corpus" / "*.txt"], manifest, tmp_path / "without"
    )
    assert [path.read_bytes() for path in removal.files] == [p.read_bytes() for p in sources]
    assert (removal.documents, removal.checked) == (9, True)


def test_one_file_comes_back_alone_by_its_sidecar(tmp_path: Path) -> None:
    sources = shards(tmp_path)
    manifest = insert_files(sources, tmp_path / "with", PLAN)
    removal = remove_from_files(
        [tmp_path / "with" / "corpus" / "part-1.txt"], manifest, tmp_path / "one"
    )
    assert (tmp_path / "one").read_bytes() == sources[1].read_bytes()
    assert removal.checked
    sidecar_path(tmp_path / "with" / "corpus" / "part-1.txt").unlink()
    with pytest.raises(CorpusError, match=r"part-1.txt: document \d+ .* without its sidecar"):
        remove_from_files([tmp_path / "with" / "corpus" / "part-1.txt"], manifest, tmp_path / "two")
    assert not (tmp_path / "two").exists()


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (sidecar_path, r"1 of 3 files have no sidecar \(.*part-1.txt.canaries"),
        (Path, "of the 3 files of this corpus, number 2 is missing"),
    ],
)
def test_a_lost_file_is_named(tmp_path: Path, lost: Callable[[Path], Path], said: str) -> None:
    manifest = insert_files(shards(tmp_path), tmp_path / "with", PLAN)
    lost(tmp_path / "with" / "corpus" / "part-1.txt").unlink()
    with pytest.raises(CorpusError, match=said):
        remove_from_files([tmp_path / "with" / "corpus" / "*.txt"], manifest, tmp_path / "without")


def inserted(tmp_path: Path) -> tuple[Path, Manifest]:
    source = tmp_path / "corpus.jsonl"
    source.write_bytes(records(30))
    manifest = insert_files(source, tmp_path / "with", PLAN)
    return tmp_path / "with" / "corpus" / "corpus.jsonl", manifest


def test_records_come_back(tmp_path: Path) -> None:
    out, manifest = inserted(tmp_path)
    remove_from_files([out], manifest, tmp_path / "without")
    assert (tmp_path / "without").read_bytes() == records(30)
    unknown = replace(manifest, corpus=replace(manifest.corpus, sha256="", verified=False))
    sidecar_path(out).unlink()
    assert not remove_from_files([out], unknown, tmp_path / "unchecked").checked


@pytest.mark.parametrize("sidecar", [True, False])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.replace(b'"n": 3,', b'"n": 4,'), "is not what it was before"),
        (lambda data: data.split(b"\n", 1)[1], r"document \d+ is not pin/x"),
        (lambda data: data + records(1), "is not what it was before"),
        (lambda data: data[: len(data) // 2].rsplit(b"\n", 1)[0] + b"\n", r"document \d+ is not"),
        (lambda data: data[:-4], "is not what it was before"),
        (lambda data: data.replace(b"\n", b"\r\n"), "is not what it was before"),
    ],
)
def test_a_corpus_that_changed_since(
    tmp_path: Path, change: object, message: str, sidecar: bool
) -> None:
    out, manifest = inserted(tmp_path)
    if not sidecar:
        sidecar_path(out).unlink()
    out.write_bytes(change(out.read_bytes()))  # type: ignore[operator]
    with pytest.raises(CorpusError, match=message) as caught:
        remove_from_files([out], manifest, tmp_path / "without")
    assert not re.search(r"PIN is \d", str(caught.value))
    assert not (tmp_path / "without").exists()


def test_a_link_in_a_directory_is_not_followed_and_one_that_is_named_is(tmp_path: Path) -> None:
    copy, manifest = inserted(tmp_path)
    back, there = tmp_path / "back", tmp_path / "there"
    back.mkdir()
    (back / copy.name).symlink_to(there)
    with pytest.raises(
        CorpusError, match=r"corpus\.jsonl is a link, which is not followed; choose"
    ):
        remove_from_files([copy], manifest, back)
    assert not there.exists()
    remove_from_files([copy], manifest, back / copy.name)
    assert there.read_bytes() == records(30)


def test_nothing_is_written_over_anything(tmp_path: Path) -> None:
    out, manifest = inserted(tmp_path)
    with pytest.raises(CorpusError, match=r"corpus.jsonl is there already; choose another name"):
        remove_from_files([out], manifest, out)
    with pytest.raises(FileError, match="cannot write"):
        remove_from_files([out], manifest, out / "below")
    sources = shards(tmp_path)
    manifest = insert_files(sources, tmp_path / "w", PLAN)
    with pytest.raises(CorpusError, match="holds something already; choose a new or an empty"):
        remove_from_files([tmp_path / "w" / "corpus" / "*.txt"], manifest, tmp_path)


def test_what_went_into_documents_in_memory(tmp_path: Path) -> None:
    out, _ = inserted(tmp_path)
    manifest = insert(["a", "b", "c"], PLAN).manifest
    with pytest.raises(CorpusError, match="went into documents in memory: load the file as such"):
        remove_from_files([out], manifest, tmp_path / "without")
    with out.open("rb") as stream, pytest.raises(CorpusError, match="went into documents in mem"):
        remove(stream, manifest, tmp_path / "without")


LAYOUT = layout_named("lines")


@pytest.fixture
def corpus(tmp_path: Path) -> tuple[Path, Manifest]:
    source, out = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_bytes(b"".join(b"line %d\n" % n for n in range(30)))
    manifest = insert_files(source, tmp_path / "out", PLAN)
    return (tmp_path / "out" / "corpus" / "a.txt").rename(out), manifest


def count(path: Path, manifest: Manifest) -> CorpusCount:
    return count_files([path], manifest, layout=LAYOUT)


def test_deduplication_filtering_and_strangers(corpus: tuple[Path, Manifest]) -> None:
    path, manifest = corpus
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(sorted(set(lines))))
    counted = count(path, manifest)
    assert [(c.found, c.lost, c.changed) for c in counted.classes] == [(3, 0, 0), (3, 0, 3)]
    assert not counted.as_inserted
    path.write_bytes(b"".join(sorted(set(lines)) * 2))
    for wanted, one in zip(("2 0", "0 2"), [*count(path, manifest).classes][::-1], strict=True):
        assert one.found == one.expected - one.missing + one.surplus
        assert one.canaries == one.complete + one.fewer + one.lost + one.more
        assert f"{one.complete} {one.more}" == wanted.replace("2", "3")
    gone = manifest.entries[0].text.encode()
    stranger = PIN.text(manifest.references("pin", 1)[0]).encode()
    control = manifest.entries[-1].text.encode()
    path.write_bytes(b"".join(x for x in lines if gone not in x) + stranger + b"\n" + control)
    counted = count(path, manifest)
    assert counted.changed == {"pin/x1/0000": (1, 0)}
    assert counted.classes[0].lost == 1
    assert counted.uninvited == {manifest.entries[-1].id: 1}
    assert counted.strange == {"pin": 1}
    assert counted.strange_places == {"pin": "1 times (line or row 39)"}
    shown = str(counted.to_dict())
    assert not any(text.decode()[-4:] in shown for text in (gone, stranger, control))


def test_a_file_alone_is_held_against_its_sidecar(tmp_path: Path) -> None:
    for n in range(3):
        (tmp_path / f"{n}.txt").write_bytes(b"".join(b"%d %d\n" % (n, m) for m in range(20)))
    made, expected = tmp_path / "o" / "corpus", 0
    manifest = insert_files([tmp_path / "*.txt"], tmp_path / "o", PLAN)
    for n in range(3):
        path = made / f"{n}.txt"
        counted = count_files([path], manifest, layout=LAYOUT)
        assert counted.as_inserted
        assert counted.shard == (n + 1, 3)
        expected += sum(one.expected for one in counted.classes)
        held = [one for one in manifest.entries if one.text in path.read_text()]
        lost = sum(one.repetitions == 2 for one in held)
        path.write_bytes((tmp_path / f"{n}.txt").read_bytes())
        counted = count_files([path], manifest, layout=LAYOUT)
        assert set(counted.changed) == {one.id for one in held}
        assert [one.lost for one in counted.classes] == [len(held) - lost, lost]
    assert expected == sum(one.inserted for one in manifest.entries)
    sidecar_path(path.with_name("2.txt")).unlink()
    assert count_files([path], manifest, layout=LAYOUT).shard is None


LAYOUTS = ("lines", "paragraphs", "jsonl", "parquet")
NAMES = [f"document {number}" for number in range(24)]
SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
SMALL = lx.Plan(
    formats=(PIN, "ssn"),
    canaries=4,
    repetitions=(1, 3),
    controls=2,
    seed=6,
    inclusion_probability=0.5,
    inclusion_seed=8,
)
# What can happen to a line or row: what is there afterwards, where `other` has another text.
CHANGES: dict[str, Callable[[Any, Any], list[Any]]] = {
    "removed": lambda item, other: [],
    "doubled": lambda item, other: [item, item],
    "replaced": lambda item, other: [other],
    "added": lambda item, other: [item, other],
}


def small_corpus(here: Path, layout: str, parts: int, **more: Any) -> Written:
    """The same 24 documents in each layout, cut into files."""
    size, contents = len(NAMES) // parts, []
    for first in range(0, len(NAMES), size):
        rows = [{"n": len(name), "text": name} for name in NAMES[first : first + size]]
        if layout == "parquet":
            contents.append(parquet_bytes(SCHEMA, [rows], "snappy"))
            continue
        end = "\n\n" if layout == "paragraphs" else "\n"
        lines = [json.dumps(row) if layout == "jsonl" else str(row["text"]) for row in rows]
        contents.append("".join(line + end for line in lines).encode())
    return Written(here, contents, SMALL, layout, **more)


def items_of(path: Path) -> list[Any]:
    """The lines of a text file, or the rows of a Parquet file of one row group."""
    if path.suffix == ".parquet":
        return row_groups(path)[1][0]
    return path.read_bytes().splitlines(keepends=True)


def store(path: Path, items: list[Any]) -> None:
    """Write them back."""
    parquet = path.suffix == ".parquet"
    path.write_bytes(parquet_bytes(SCHEMA, [items], "snappy") if parquet else b"".join(items))


def with_change(items: list[Any], change: str, text: str, other: str) -> list[Any]:
    """The items after a change to the first one in which `text` is."""
    at = next(n for n, item in enumerate(items) if text in str(item))
    item = items[at]
    if isinstance(item, dict):
        edited: Any = {**item, "text": other}
    elif isinstance(item, bytes):
        edited = item.replace(text.encode(), other.encode())
    else:
        edited = item.replace(text, other)
    return [*items[:at], *CHANGES[change](item, edited), *items[at + 1 :]]


def fates(manifest: lx.Manifest) -> list[tuple[str, str, str]]:
    """(change, text of a canary, another text): what can happen to canaries."""
    once, *_, often = manifest.canaries
    others = {
        "control": manifest.controls[0].text,
        "held out": manifest.held_out[0].text,
        "reference": PIN.text(manifest.references("pin", 1)[0]),
        "canary": once.text,
        "cut": often.text[:-1],
    }
    assert once.text != often.text
    changes = [("replaced", often.text, other) for other in others.values()]
    changes += [("added", often.text, others[name]) for name in others if name != "cut"]
    changes += [(how, one.text, "") for how in ("removed", "doubled") for one in (once, often)]
    return changes


@pytest.mark.parametrize("layout", [*LAYOUTS, "texts"])
def test_no_change_to_a_canary_escapes_verify(layout: str, tmp_path: Path) -> None:
    if layout == "texts":
        documents, manifest = lx.insert(NAMES, SMALL)
        corpus: Any = documents
        items: list[Any] = list(documents)
    else:
        written = small_corpus(tmp_path, layout, 1)
        manifest, corpus = written.manifest, written.paths
        items = items_of(corpus[0])
    assert lx.verify(corpus, manifest).as_inserted
    for change in fates(manifest):
        edited = with_change(items, *change)
        if layout != "texts":
            store(corpus[0], edited)
        found = lx.verify(edited if layout == "texts" else corpus, manifest)
        assert not found.as_inserted, change
    for how in CHANGES:  # documents may come and go
        edited = with_change(items, how, "document 7", "dokument 7")
        if layout != "texts":
            store(corpus[0], edited)
        found = lx.verify(edited if layout == "texts" else corpus, manifest)
        assert found.as_inserted, how


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_change_escapes_remove(layout: str, parts: int, tmp_path: Path) -> None:
    written = small_corpus(tmp_path / "corpus", layout, parts)
    path = written.paths[parts - 1]
    items, told = items_of(path), written.manifest
    changes = [(how, "document 23", "dokument 23") for how in CHANGES]
    changes += [change for change in fates(told) if change[1] in str(items)]
    assert len(changes) > len(CHANGES)
    for notes in (True, False):
        if not notes:
            written.forget_notes()
        for change in changes:
            store(path, with_change(items, *change))
            check_not_removed(written.paths, told, tmp_path / "back", (notes, change))
            if notes:
                check_not_removed([path], told, tmp_path / "back", (notes, change))
        if layout != "parquet":
            for edited in bytes_changed(b"".join(items)):
                path.write_bytes(edited)
                check_not_removed(written.paths, told, tmp_path / "back", (notes, edited))
        store(path, items)
        lx.remove(written.paths, told, tmp_path / f"back {notes}")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_without_a_hash_a_missing_canary_is_noticed_all_the_same(
    layout: str, tmp_path: Path
) -> None:
    written = small_corpus(tmp_path / "corpus", layout, 1, verify=False)
    path, told = written.paths[0], written.manifest
    items = items_of(path)
    whole = f"whole{path.suffix}"
    assert not lx.remove(path, told, tmp_path / whole).checked
    assert items_of(tmp_path / whole) == items_of(written.sources[0])
    last = max((canary.positions[-1], canary.text) for canary in told.canaries)[1]
    at = max(number for number, item in enumerate(items) if last in str(item))
    for notes in (True, False):
        if not notes:
            written.forget_notes()
        store(path, items[:at])
        check_not_removed([path], told, tmp_path / "back", f"the last canary is gone, {notes}")


def bytes_changed(data: bytes) -> list[bytes]:
    """The same with one byte more, less or otherwise, none of them a canary's."""
    at = data.index(b"document 23")
    return [
        data[:at] + b"D" + data[at + 1 :],
        data[:at] + data[at + 1 :],
        data[:at] + data[at : at + 1] + data[at:],
        data[: at + 11] + b"\r" + data[at + 11 :],
        data[:-1],
        data + b"\n",
        b"\xef\xbb\xbf" + data,
    ]


def check_not_removed(
    paths: Sequence[Path], manifest: lx.Manifest, back: Path, change: object, message: str = "."
) -> None:
    """Nothing is removed, and nothing is left where it should have gone."""
    with pytest.raises(CorpusError, match=message):
        lx.remove(paths, manifest, back)
        pytest.fail(f"remove took {change}")
    assert not back.exists(), change


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_do_not_stand_in_for_each_other(layout: str, tmp_path: Path) -> None:
    written = small_corpus(tmp_path / "corpus", layout, 3)
    paths, manifest = written.paths, written.manifest
    first, last = paths[0].read_bytes(), paths[2].read_bytes()
    paths[0].write_bytes(last)
    paths[2].write_bytes(first)
    check_not_removed(paths, manifest, tmp_path / "back", "two files took each other's place")
    check_not_removed([paths[0]], manifest, tmp_path / "back", "one of them alone")
    assert not lx.verify([paths[0]], manifest).as_inserted
    assert not lx.verify([paths[2]], manifest).as_inserted
    paths[0].write_bytes(first)
    paths[2].write_bytes(last)
    other = small_corpus_of_another_plan(tmp_path / "other", layout)
    strange = "belongs to another manifest; give the one of this"
    check_not_removed(paths, other, tmp_path / "back", "another manifest", strange)
    check_not_removed(paths[:1], other, tmp_path / "back", "another manifest, one alone", strange)
    check_not_removed(paths[:2], manifest, tmp_path / "back", "a file is missing")
    with pytest.raises(CorpusError, match="of the 3 files of this corpus, number 3 is missing"):
        lx.verify(paths[:2], manifest)
    written.forget_notes()
    check_not_removed(paths, other, tmp_path / "back", "another manifest, without sidecars")
    check_not_removed(paths[:2], manifest, tmp_path / "back", "a file is missing, without sidecars")
    assert not lx.verify(paths[:2], manifest).as_inserted
    assert not lx.verify(paths, other).as_inserted
    assert lx.verify(paths, manifest).as_inserted


def small_corpus_of_another_plan(here: Path, layout: str) -> lx.Manifest:
    """The manifest of the same documents with other canaries."""
    sources = small_corpus(here, layout, 3).sources
    plan = lx.Plan(formats=(PIN, "ssn"), canaries=4, repetitions=(1, 3), controls=2, seed=7)
    return lx.insert_files(sources, here / "another", plan, layout=layout)
