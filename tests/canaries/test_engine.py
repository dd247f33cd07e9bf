"""The engine: scan, draw, merge, cut, verify, whatever the parts come from."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmexposure.canaries import CorpusRecord, FileCorpus, Format, Manifest, Plan, layout_named
from lmexposure.canaries.corpora.text import Block, layout_of
from lmexposure.canaries.fills import count_fills
from lmexposure.canaries.insertion import (
    Cut,
    Merge,
    Placement,
    check_inserted,
    manifest_of,
    scan_corpus,
)
from lmexposure.canaries.row_schema import RowSchema
from lmexposure.errors import CorpusError

FORMAT = Format(name="code", template="My code is {digits:6}.")


def plan(seed: int = 3, **more: object) -> Plan:
    settings = {"canaries": 3, "repetitions": (1, 4), "controls": 2, **more}
    return Plan(formats=(FORMAT,), seed=seed, **settings)  # type: ignore[arg-type]


TEXT = layout_of("lines", RowSchema())
PIN = Format(name="pin", template="My PIN is {digits:4}")
SMALL = Plan(formats=(PIN,), canaries=1, repetitions=(2,), controls=1, seed=3)


def block(texts: Sequence[str], first: int = 1) -> Block:
    return Block(
        layout=TEXT, data="".join(f"{text}\n" for text in texts).encode(), first_line=first
    )


@given(st.integers(0, 40), st.integers(4, 60), st.lists(st.integers(0, 60), max_size=6))
def test_parts_together_are_the_whole(seed: int, documents: int, cuts: list[int]) -> None:
    texts = [f"document {i}" for i in range(documents)]
    entries = manifest_of(plan(seed), CorpusRecord(layout="lines"), documents=documents).entries
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


def test_a_scan_without_formats_only_counts(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"My PIN is 0001\n\0\n")
    scan = scan_corpus(FileCorpus([tmp_path / "a"], layout_named("lines")), ())
    assert (scan.documents, scan.fills, scan.hashes) == (2, {}, None)


TEXTS = ["a", "b", "My PIN is 0007", "c"]


@pytest.fixture
def inserted() -> tuple[list[str], Manifest]:
    manifest = manifest_of(SMALL, CorpusRecord(layout="lines"), documents=4, set_aside={"pin": [7]})
    placement = Placement(manifest.entries)
    return [
        text
        for number, document in enumerate(TEXTS)
        for text in (*(c.text for c in placement.before(number)), document)
    ], manifest


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
