"""The engine: scan, draw, merge, cut, verify, whatever the parts come from."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmexposure.canaries import (
    FileCorpus,
    Format,
    Manifest,
    Plan,
    insert_files,
    layout_named,
)
from lmexposure.canaries.corpora.text import Block, layout_of
from lmexposure.canaries.fills import count_fills
from lmexposure.canaries.insertion import (
    About,
    Cut,
    Merge,
    Part,
    Placement,
    Scan,
    Taken,
    Verification,
    check_inserted,
    draw,
    manifest_of,
    same_hash,
    scan_corpus,
)
from lmexposure.errors import CorpusError, PlanError

FORMAT = Format(name="code", template="My code is {digits:6}.")


def plan(seed: int = 3, **more: object) -> Plan:
    settings = {"canaries": 3, "repetitions": (1, 4), "controls": 2, **more}
    return Plan(formats=(FORMAT,), seed=seed, **settings)  # type: ignore[arg-type]


TEXT = layout_of("lines", "text", {})
PIN = Format(name="pin", template="My PIN is {digits:4}")
SMALL = Plan(formats=(PIN,), canaries=1, repetitions=(2,), controls=1, seed=3)


def block(texts: Sequence[str], first: int = 1) -> Block:
    return Block(
        layout=TEXT, data="".join(f"{text}\n" for text in texts).encode(), first_line=first
    )


@given(st.integers(0, 40), st.integers(4, 60), st.lists(st.integers(0, 60), max_size=6))
def test_parts_together_are_the_whole(seed: int, documents: int, cuts: list[int]) -> None:
    texts = [f"document {i}" for i in range(documents)]
    entries = manifest_of(plan(seed), About("lines"), documents=documents).entries
    placement = Placement(entries)
    whole = Merge(placement).part(block(texts)).content
    edges = [0, *sorted(min(cut, documents) for cut in cuts), documents]
    merge, cut, parts, naive = Merge(placement), Cut(placement.inserted(), CorpusError), [], []
    for start, stop in itertools.pairwise(edges):
        part = block(texts[start:stop], start + 1)
        parts.append(merge.part(part))
        rest, hits = cut.part(parts[-1])
        assert rest.same(part)
        within = placement.within(start, stop)
        assert [canary for _, canary in hits] == [canary for _, canary in within]
        inserted = placement.inserted(start, stop)
        assert [canary for _, canary in inserted] == [canary for _, canary in within]
        counted = [c.id for number in range(start, stop) for c in placement.before(number)]
        assert [c.id for _, c in within] == counted
        for number in range(start, stop):
            naive += [c.text for c in placement.before(number)] + [texts[number]]
        numbers = dict(inserted)
        lines = parts[-1].content.decode().split("\n")
        assert all(lines[number] == canary.text for number, canary in numbers.items())
    cut.finish()
    assert b"".join(part.content for part in parts) == whole == block(naive).content
    assert (merge.size, merge.document, cut.removed) == (
        len(whole),
        documents,
        len(naive) - documents,
    )
    for one in merge.occurrences:
        place = whole[one.offset : one.offset + one.length].decode()
        assert place == next(c.text for c in entries if c.id == one.id) + "\n"


def test_the_manifest_knows_the_same_without_the_corpus(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(f"document {i}\n" for i in range(30)))
    read = insert_files(tmp_path / "a", tmp_path / "o", plan())
    unread = manifest_of(plan(), About("lines"), documents=30)
    assert unread.entries == read.entries
    assert (unread.corpus.sha256, unread.corpus.documents) == ("", 30)


def test_excluded_candidates_and_controls_go_nowhere() -> None:
    tossed = plan(inclusion_probability=0.5, inclusion_seed=11, canaries=8)
    manifest = manifest_of(tossed, About("texts"), documents=50)
    placed = [c for _, c in Placement(manifest.entries).within(0, 50)]
    assert {c.role for c in manifest.entries} == {"canary", "held_out", "control", "witness"}
    assert {c.role for c in placed} == {"canary", "witness"}
    assert len(placed) == sum(c.inserted for c in manifest.entries)


def test_too_few_documents() -> None:
    with pytest.raises(PlanError, match="repetitions=4 need as many documents"):
        manifest_of(plan(), About("texts"), documents=3)


def scanned(*files: Sequence[str]) -> Scan:
    scan = Scan((PIN,), several=len(files) > 1)
    for texts in files:
        part = block(texts)
        if scan.hashes is not None:
            scan.hashes.update(part.content)
        scan.add(part)
        scan.end_file()
    return scan


def test_a_scan_without_formats_only_counts(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"My PIN is 0001\n\0\n")
    scan = scan_corpus(FileCorpus([tmp_path / "a"], layout_named("lines")), ())
    assert (scan.documents, scan.fills, scan.sha256, scan.hashes) == (2, {}, "", None)


def test_fills_that_are_there_are_refused_or_set_aside() -> None:
    scan = scanned(["a", "My PIN is 0007"], ["My PIN is 1234", "b"])
    where = r"pin 2 times \(line, counted over all files, 2, 3\); choose another format, or set"
    with pytest.raises(CorpusError, match=where) as failure:
        draw(SMALL, scan, "refuse", place="line")
    assert "1234" not in str(failure.value)
    entries, aside = draw(SMALL, scan, "set_aside", place="line")
    assert aside == {"pin": (7, 1234)}
    assert not {one.index for one in entries} & {7, 1234}
    with pytest.raises(CorpusError, match="existing='keep' must be one of refuse, set_aside"):
        draw(SMALL, scan, "keep", place="line")  # type: ignore[arg-type]


TEXTS = ["a", "b", "My PIN is 0007", "c"]


def verified(
    parts: Sequence[Sequence[str]], manifest: Manifest, *, size: int | None = None
) -> None:
    """What was written, in these parts of one file, is TEXTS with the manifest's canaries."""
    scan, placement = scanned(TEXTS), Placement(manifest.entries)
    verification = Verification(scan, manifest.entries, placement)
    with same_hash(scan.sha256) as same:
        verification.source(Copy(parts), same, size=size)
    verification.finish(manifest.set_aside)


class Copy:
    """A source of these parts."""

    name = "the copy"

    def __init__(self, parts: Sequence[Sequence[str]]) -> None:
        self._parts = parts

    def parts(self, *, taken: Taken | None = None, known: bool = False) -> Iterator[Part]:
        for texts in self._parts:
            if taken is not None:
                taken(block(texts).content)
            yield block(texts)

    def guarded(self) -> AbstractContextManager[None]:
        return nullcontext()


@pytest.fixture
def inserted() -> tuple[list[str], Manifest]:
    manifest = manifest_of(SMALL, About("lines"), documents=4, set_aside={"pin": [7]})
    placement = Placement(manifest.entries)
    return [
        text
        for number, document in enumerate(TEXTS)
        for text in (*(c.text for c in placement.before(number)), document)
    ], manifest


def test_what_was_written_is_looked_at(inserted: tuple[list[str], Manifest]) -> None:
    texts, manifest = inserted
    verified([texts], manifest, size=len(block(texts).content))
    verified([[text] for text in texts], manifest)
    canary = manifest.entries[0]
    at = texts.index(canary.text)
    with pytest.raises(
        CorpusError, match="the copy is not what was inserted: it is shorter or lon"
    ):
        verified([texts], manifest, size=3)
    for wrong in (texts[:at] + texts[at + 1 :], texts[:at], [*texts[:at], "x", *texts[at:]]):
        with pytest.raises(
            CorpusError, match=r"not what was inserted: .*; the corpus changed mean"
        ):
            verified([wrong], manifest)
    for more in ("z", canary.text, manifest.entries[1].text, "My PIN is 9999"):
        with pytest.raises(CorpusError, match="it is shorter or longer") as failure:
            verified([[*texts, more]], manifest)
        assert canary.text not in str(failure.value)


def test_aligned_parts_are_compared_one_by_one(tmp_path: Path) -> None:
    """Of tables only the texts are hashed."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({"text": ["a", "b", "c"], "n": [1, 2, 3]})
    changed = table.set_column(1, "n", pa.array([1, 2, 4]))
    layout, sources = layout_named("parquet"), []
    for name, rows in {"before": table, "after": changed}.items():
        pq.write_table(rows, tmp_path / name)
        sources += FileCorpus([tmp_path / name], layout).sources
    scan = scan_corpus(FileCorpus([tmp_path / "before"], layout), (PIN,))
    for source, fine in zip(sources, (True, False), strict=True):
        check = Verification(scan, (), Placement(()))
        with layout.compared(sources[0].path) as same:
            if fine:
                check.source(source, same, size=3)
            else:
                with pytest.raises(CorpusError, match="between the canaries it is not what it was"):
                    check.source(source, same, size=3)


def test_inserted_means_inserted(inserted: tuple[list[str], Manifest]) -> None:
    """Every canary as often as planned, and no other fill at all."""
    texts, manifest = inserted
    canary, control = manifest.entries

    def check(texts: Sequence[str]) -> None:
        found = count_fills((PIN,), enumerate(texts, 1), whole_lines=False)
        check_inserted(manifest.entries, found, manifest.set_aside)

    check(texts)
    with pytest.raises(CorpusError, match=r"pin/x2/0000 is in the corpus 3 times instead of 2"):
        check([*texts, f"he said {canary.text}!"])
    with pytest.raises(CorpusError, match=r"pin/control/0000 is in the corpus 1 times instead"):
        check([*texts, control.text])
    stranger = PIN.text(manifest.references("pin", 1)[0])
    with pytest.raises(
        CorpusError, match=r"manifest does not have .* 1 times \(line or record 7\)"
    ):
        check([*texts, stranger])
    texts.remove(canary.text)
    with pytest.raises(CorpusError, match=r"pin/x2/0000 is in the corpus 1 times") as failure:
        check(texts)
    assert canary.text not in str(failure.value)
