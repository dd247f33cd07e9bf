"""The texts that are watched, their order, and the rows of exposure.jsonl."""

import json
from pathlib import Path
from typing import Any

import pytest
from chats import TEMPLATE
from integrations.tiny_training import hidden
from tiny import byte_level_bpe

from lmexposure.canaries import Plan, load_format
from lmexposure.errors import ManifestError, ResultError
from lmexposure.integrations import Wrapping, insert
from lmexposure.integrations.wrapped_scoring import read_rows, watch, write_rows

WINDOW = 96  # tokens


def test_candidates_that_their_coins_kept_out_are_not_watched() -> None:
    _, manifest = hidden(canaries=8, inclusion_probability=0.5, inclusion_seed=3)
    tokenizer = byte_level_bpe()
    found = watch(manifest, tokenizer, WINDOW, references=64)
    roles = {c.role for _, c in found.owners if c}
    assert roles == {"canary", "control"}


def test_canaries_in_chats_are_not_watched_as_plain_text() -> None:
    chats = [{"messages": Wrapping(turn="assistant").messages(f"text {n}")} for n in range(30)]
    plan = Plan(formats=(load_format("pin"),), canaries=2, repetitions=(1,), controls=1, seed=3)
    wrapping = Wrapping(turn="assistant")
    _, manifest = insert(chats, plan, wrapping=wrapping)
    tokenizer = byte_level_bpe()
    with pytest.raises(ManifestError, match=r"scores them as text, .* give the wrapping of insert"):
        watch(manifest, tokenizer, WINDOW, references=100, wrapping=Wrapping())
    tokenizer.chat_template = TEMPLATE
    found = watch(manifest, tokenizer, WINDOW, references=100)  # as the manifest says
    assert tokenizer.decode(found.encoded[0].ids).startswith("<|user|>")


def test_rows_up_to_the_step_come_back(tmp_path: Path) -> None:
    path = tmp_path / "exposure.jsonl"
    rows: list[dict[str, Any]] = [{"step": step, "exposure": {}} for step in (2, 4, 6)]
    write_rows(path, rows)
    assert read_rows(path, until=4) == rows[:2]
    assert read_rows(path, until=0) == []
    assert read_rows(tmp_path / "none.jsonl", until=4) == []


@pytest.mark.parametrize("text", ["not json", json.dumps([1]), json.dumps({"epoch": 1})])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "exposure.jsonl"
    path.write_text(text)
    with pytest.raises(ResultError, match=r"cannot read .*; move it away"):
        read_rows(path, until=3)
