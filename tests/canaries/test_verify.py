"""A corpus that is not as its manifest says."""

from pathlib import Path

import pytest

from lmexposure.canaries import (
    Format,
    Manifest,
    Plan,
    insert_into_file,
    insert_into_texts,
    verify_file,
    verify_texts,
)
from lmexposure.errors import CorpusError

PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=1, repetitions=(2,), controls=1, seed=3)


@pytest.fixture
def inserted() -> tuple[list[str], Manifest]:
    return insert_into_texts(["a", "b", "c"], PLAN)


def test_a_canary_too_often_or_too_rarely(inserted: tuple[list[str], Manifest]) -> None:
    texts, manifest = inserted
    canary = manifest.entries[0]
    verify_texts(texts, manifest)
    with pytest.raises(CorpusError, match="pin/x2/0000 stands 3 times in the corpus instead of 2"):
        verify_texts([*texts, f"he said {canary.text}!"], manifest)
    texts.remove(canary.text)
    with pytest.raises(CorpusError, match="pin/x2/0000 stands 1 times") as caught:
        verify_texts(texts, manifest)
    assert canary.text not in str(caught.value)


def test_a_control_in_the_corpus(inserted: tuple[list[str], Manifest]) -> None:
    texts, manifest = inserted
    with pytest.raises(CorpusError, match="pin/control/0000 stands 1 times in the corpus instead"):
        verify_texts([*texts, manifest.entries[1].text], manifest)


def test_a_strange_fill(inserted: tuple[list[str], Manifest]) -> None:
    texts, manifest = inserted
    stranger = PIN.text(manifest.references("pin", 1)[0])
    with pytest.raises(CorpusError, match=r"not of the manifest .* 1 times \(line or record 6\)"):
        verify_texts([*texts, stranger], manifest)


def test_a_file(tmp_path: Path) -> None:
    source, out = tmp_path / "corpus.txt", tmp_path / "out.txt"
    source.write_bytes(b"one\ntwo\nthree\n")
    manifest = insert_into_file(source, PLAN, out, layout="lines")
    verify_file(out, manifest)
    with pytest.raises(CorpusError, match="pin/x2/0000 stands 0 times"):
        verify_file(source, manifest)
    with out.open("ab") as stream:
        stream.write(PIN.text(manifest.references("pin", 1)[0]).encode())
    with pytest.raises(CorpusError, match=r"1 times \(line or record 6\)"):
        verify_file(out, manifest)
