"""The way back from a corpus with canaries, and what is left of them after something was done."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmexposure import insert, remove
from lmexposure.canaries import CorpusCount, Format, Manifest, Plan, insert_files, layout_named
from lmexposure.canaries.removal import remove_from_files
from lmexposure.canaries.sidecars import sidecar_path
from lmexposure.canaries.verification import count_files
from lmexposure.errors import CorpusError, FileError

PIN = Format(name="pin", template="My PIN is {digits:4}")
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


def test_what_cannot_be_checked_is_not_called_checked(tmp_path: Path) -> None:
    out, manifest = inserted(tmp_path)
    unknown = replace(manifest, corpus=replace(manifest.corpus, sha256="", verified=False))
    sidecar_path(out).unlink()
    assert not remove_from_files([out], unknown, tmp_path / "without").checked


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
