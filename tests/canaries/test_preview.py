"""What an insertion would do is what it does."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lmexposure.canaries import Format, Plan, copies, insert_files, layout_named, preview_insertion
from lmexposure.canaries.insertion import draw
from lmexposure.errors import CorpusError

PIN = Format(name="pin", template="My PIN is {digits:4}")
PLAN = Plan(formats=(PIN,), canaries=3, repetitions=(1, 2), controls=2, seed=4)
LINES = layout_named("lines")


TOSSED = replace(PLAN, inclusion_probability=0.5, inclusion_seed=7)


@pytest.mark.parametrize("plan", [PLAN, TOSSED], ids=["all", "coins"])
def test_a_preview_writes_nothing_and_is_exact(tmp_path: Path, plan: Plan) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_bytes(b"a\r\nMy PIN is 1234\nb")
    found = preview_insertion([corpus], plan, layout=LINES, existing="set_aside")
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
        preview_insertion([corpus], PLAN, layout=LINES)
