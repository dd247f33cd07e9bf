"""Ranks under published templates, by the search, and by trying every fill."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from audit.wrapped import wrapped_manifest
from known import known
from published_templates import tiny_model_for, tokenizer_for

import lmexposure as lx
from lmexposure.canaries import Format, Wrapping

THREE = Format(name="three", template="My PIN is {digits:3}.")
ANSWER = Wrapping(turn="assistant", loss="assistant", form="messages")
FEW: dict[str, Any] = {"estimate": "sampled", "extraction": False, "references": 20}


def naive_bits(model: Any, tokenizer: Any, text: list[str]) -> Any:
    """Of fills of as many tokens, in their rows: of the tokens that hold a character of them."""
    chats = [tokenizer.apply_chat_template(ANSWER.messages(t), tokenize=False) for t in text]
    rows = tokenizer(chats, add_special_tokens=False, return_offsets_mapping=True)
    begin = chats[0].index(text[0])
    places = rows["offset_mapping"][0]
    own = [a < begin + len(text[0]) and b > begin for a, b in places]
    ids = torch.tensor(rows["input_ids"])
    with torch.no_grad():
        logits = model(input_ids=ids).logits[:, :-1].double()
    nats = -logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0].numpy()
    return nats[:, np.array(own[1:])].sum(1) / math.log(2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen2_5", "llama3", "deepseekv3", "mistral_nemo", "phi3"])
def test_exact_ranks_are_those_of_all_fills(name: str) -> None:
    tokenizer = tokenizer_for(name)
    model = tiny_model_for(tokenizer)
    manifest = wrapped_manifest(ANSWER, formats=(THREE,))
    result = lx.measure(model, manifest, tokenizer=tokenizer, extraction=False)
    fills = [THREE.text(i) for i in range(THREE.size)]
    bits = naive_bits(model, tokenizer, fills)
    inserted = {entry.index for entry in manifest.canaries if entry.format == "three"}
    null = [i for i in range(THREE.size) if i not in inserted]
    for entry, row in zip(manifest.entries, result.canaries, strict=False):
        own = bits[entry.index]
        assert row.log_perplexity_bits == pytest.approx(own, abs=1e-3)
        others = [i for i in null if i != entry.index]
        rank = 1 + int((bits[others] <= own).sum())
        exposure = math.log2(THREE.size) - math.log2(rank)
        assert row.exposure.value == pytest.approx(exposure, abs=0.02)


@pytest.mark.slow
def test_what_was_said_of_the_rows_wins_over_the_manifest(tmp_path: Path) -> None:
    """A template given by a person, with the loss of the training; the command says it again."""
    tokenizer, other = tokenizer_for("qwen2_5"), tokenizer_for("zephyr").chat_template
    manifest = wrapped_manifest(ANSWER, tokenizer, formats=(THREE,))
    template = tmp_path / "template.jinja"
    template.write_text(other, encoding="utf-8")
    model = tiny_model_for(tokenizer)
    said: dict[str, Any] = {"loss": "all", "chat_template": str(template)}
    result = lx.measure(model, manifest, tokenizer=tokenizer, **FEW, **said)
    context = known(result.context)
    assert context.source == "setting"
    assert context.said == ("loss", "chat_template")
    assert "<|assistant|>" in context.left


@pytest.mark.slow
def test_another_day_is_told_in_bits() -> None:
    tokenizer = tokenizer_for("llama3_2")
    model = tiny_model_for(tokenizer)
    manifest = wrapped_manifest(ANSWER, formats=(THREE,))
    result = lx.measure(model, manifest, tokenizer=tokenizer, **FEW)
    (line,) = [line for line in result.warnings if "writes the date" in line]
    assert "others may have more. Give the day of the training (chat_date=...)" in line
    assert str(known(result.context).chat_date) in line
    dated = lx.measure(model, manifest, tokenizer=tokenizer, chat_date="2026-01-31", **FEW)
    assert not [line for line in dated.warnings if "writes the date" in line]
    assert known(dated.context).chat_date == "2026-01-31"
    assert "31 Jan 2026" in known(dated.context).left
