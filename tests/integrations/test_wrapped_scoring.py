"""Canaries in the wrapping of the training: their tokens, bits and exposure, and refusals."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chats import TEMPLATE, chat_tokenizer
from integrations.tiny_training import hidden
from known import known
from tiny import byte_level_bpe, sentence_piece_bpe
from tokenizers.normalizers import Lowercase

from lmexposure.canaries import Format, Manifest, Plan, load_format
from lmexposure.errors import (
    InputError,
    ManifestError,
    ModelError,
    PlanError,
    ResultError,
    SettingsError,
)
from lmexposure.integrations import Wrapping, insert, wrapped_exposures, wrapped_log_perplexity
from lmexposure.integrations.wrapped_scoring import encode_wrapped, read_rows, watch, write_rows
from lmexposure.scoring import log_perplexity

TEXTS = ["My PIN is 0042.", "My PIN is 2817.", "My PIN is 1234."]
PIN = Format(name="pin", template="My PIN is {digits:3}.")
ASKED, ANSWER = Wrapping(turn="user"), Wrapping(turn="assistant", loss="assistant")
COMPLETION = Wrapping(turn="assistant", loss="completion")


def slow_bits(model: Any, tokenizer: Any, text: str, wrapping: Wrapping) -> float:
    """The whole chat in one pass; every token that holds a character of the text."""
    messages = wrapping.messages(text)
    chat = tokenizer.apply_chat_template(messages, tokenize=False)
    row = tokenizer(chat, return_offsets_mapping=True, add_special_tokens=False)
    logits = model(input_ids=torch.tensor([row["input_ids"]])).logits[0].detach().double()
    start, bits = chat.index(text), 0.0
    for i, (a, b) in enumerate(row["offset_mapping"]):
        if a < start + len(text) and b > start:
            p = torch.log_softmax(logits[i - 1], dim=-1)[row["input_ids"][i]]
            bits -= float(p) / math.log(2)
    return bits


def test_bits_are_those_of_the_text_within_the_whole_chat(model: Any, tokenizer: Any) -> None:
    for wrapping in (ASKED, Wrapping(turn="user", other="I see."), ANSWER, COMPLETION):
        bits = wrapped_log_perplexity(model, tokenizer, TEXTS, wrapping)
        assert bits.dtype == np.float64
        for text, found in zip(TEXTS, bits, strict=True):
            assert found == pytest.approx(slow_bits(model, tokenizer, text, wrapping), abs=1e-3)


@pytest.mark.parametrize("context", [None, "\n"])
def test_a_plain_text_is_scored_as_everywhere_else(
    model: Any, tokenizer: Any, context: str | None
) -> None:
    bits = wrapped_log_perplexity(model, tokenizer, TEXTS, Wrapping(context=context))
    assert bits.tolist() == log_perplexity(model, tokenizer, TEXTS, context=context).tolist()


@pytest.mark.parametrize("make", [chat_tokenizer, sentence_piece_bpe])
def test_a_row_of_its_own_begins_as_the_tokenizer_begins_it(make: Any) -> None:
    """As in SFTTrainer's rows: behind a token that training never put there it looks unknown."""
    tokenizer = make()
    for one, text in zip(encode_wrapped(tokenizer, TEXTS, Wrapping()), TEXTS, strict=True):
        assert one.ids == tokenizer(text)["input_ids"][: len(one.ids)]
        assert one.ids[-1] == tokenizer(text, add_special_tokens=False)["input_ids"][-1]
        begun = tokenizer("a")["input_ids"] != tokenizer("a", add_special_tokens=False)["input_ids"]
        assert one.first_unscored != begun
        assert one.scored_from == 1


def lower_case() -> Any:
    tokenizer = chat_tokenizer()
    tokenizer.backend_tokenizer.normalizer = Lowercase()
    return tokenizer


@pytest.mark.parametrize(
    ("make", "texts", "wrapping", "error", "message"),
    [
        (chat_tokenizer, "one", Wrapping(), InputError, r"list of at least one text; give \[text"),
        (chat_tokenizer, [], Wrapping(), InputError, r"list of at least one text; give \[text"),
        (lambda: "gpt2", TEXTS, ASKED, ModelError, "is no tokenizer of transformers; give that of"),
        (chat_tokenizer, ["M"], Wrapping(), ModelError, "of one token is all of its row, and noth"),
        (
            lower_case,
            ["PIN A.", "PIN a."],
            ASKED,
            ModelError,
            "two different secrets the same token",
        ),
        (
            chat_tokenizer,
            TEXTS,
            Wrapping(turn="assistant", other="Why? " * 50),
            ModelError,
            r"text 0 of 3 ends at token \d+ of its row.*96",
        ),
    ],
)
def test_what_cannot_be_scored_is_refused(
    model: Any, make: Any, texts: Any, wrapping: Wrapping, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        wrapped_log_perplexity(model, make(), texts, wrapping)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"turn": "system"}, "turn='system' must be one of plain, user, assist"),
        ({"loss": "none"}, "loss='none' must be one of all, assistant"),
        ({"turn": "user", "other": ""}, "other='' must be a string, and not an empty one"),
        ({"turn": "user", "context": "\n"}, "context is for turn='plain'; before turn='user'"),
        ({"turn": "user", "loss": "assistant"}, "turn='user' with loss=.*no token of the canary"),
        ({"turn": "user", "loss": "completion"}, "turn='user' with loss=.*no token of the canary"),
        ({}, r"turn='plain' has no messages; use record\(\)"),
    ],
)
def test_no_wrapping_is_refused(fields: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Wrapping(**fields).messages("x")


def manifest_of(**settings: Any) -> Manifest:
    plan = Plan(
        formats=(PIN,),
        **{"canaries": 4, "repetitions": (1, 2), "controls": 3, "seed": 5, **settings},
    )
    return insert([f"text {i}" for i in range(9)], plan).manifest


def test_exposure_is_the_rank_among_references_wrapped_alike(model: Any, tokenizer: Any) -> None:
    manifest = manifest_of()
    found = wrapped_exposures(model, tokenizer, manifest, ANSWER, references=100)
    assert [one.id for one in found] == [one.id for one in manifest.entries]
    assert {one.role for one in found} == {"canary", "control"}
    texts = [PIN.text(i) for i in manifest.references("pin", 100)]
    null = wrapped_log_perplexity(model, tokenizer, texts, ANSWER)
    for one, canary in zip(found, manifest.entries, strict=True):
        own = wrapped_log_perplexity(model, tokenizer, [canary.text], ANSWER)[0]
        assert one.log_perplexity_bits == pytest.approx(own, abs=1e-3)
        rank = 1 + int((null <= own).sum())
        assert one.exposure.value == pytest.approx(np.log2(100 / rank), abs=0.1)
        assert one.exposure.method == "sampled"
        assert one.repetitions == canary.repetitions


def test_excluded_candidates_are_references(model: Any, tokenizer: Any) -> None:
    manifest = manifest_of(inclusion_probability=0.5, inclusion_seed=1)
    out = [one.id for one in manifest.held_out]
    assert out
    found = wrapped_exposures(model, tokenizer, manifest, ANSWER, references=50)
    assert not {one.id for one in found} & set(out)
    capped = 50 + len(out)
    assert max(known(one.exposure.value) for one in found) <= np.log2(capped)


def test_an_untrained_model_shows_no_exposure(model: Any, tokenizer: Any) -> None:
    manifest = manifest_of(canaries=100, repetitions=(1,))
    found = wrapped_exposures(model, tokenizer, manifest, ANSWER, references=400)
    values = [known(one.exposure.value) for one in found]
    # Mean 1 / ln 2 = 1.44 of 103 draws whose standard deviation is that, too.
    assert np.mean(values) == pytest.approx(1.44, abs=0.6)


@pytest.mark.parametrize(
    ("inserted", "place"),
    [
        (ANSWER, r"messages\[1\]\.content"),
        (ASKED, r"messages\[0\]\.content"),
        (COMPLETION, r"completion\[0\]\.content"),
    ],
)
def test_another_place_than_that_of_the_insertion_is_refused(
    model: Any, tokenizer: Any, inserted: Wrapping, place: str
) -> None:
    plan = Plan(formats=(PIN,), canaries=1, repetitions=(1,), controls=1, seed=5)
    given = [inserted.record(f"text {i}") for i in range(4)]
    _, manifest = insert(given, plan, wrapping=inserted)
    assert wrapped_exposures(model, tokenizer, manifest, inserted, references=20)
    for other in (Wrapping(), ANSWER, ASKED):
        if other.place != inserted.place:
            with pytest.raises(ManifestError, match=f"were inserted as {place}, and this wrapp"):
                wrapped_exposures(model, tokenizer, manifest, other, references=20)


LEFT_OUT: dict[str, Any] = {"canaries": 1, "repetitions": (1,), "left_out": ("pin/x1/0000",)}


@pytest.mark.parametrize(
    ("plan", "options", "error", "message"),
    [
        (LEFT_OUT, {}, ManifestError, "holds no inserted canary, so there is nothing to"),
        (
            {},
            {"references": 5000},
            PlanError,
            "5000 references asked for, but format 'pin' has 989",
        ),
        ({}, {"level": 1.0}, SettingsError, "level=1.0 must lie strictly between 0 and 1, at"),
        ({}, {"level": 1e-10}, SettingsError, "level=1e-10 must lie strictly between 0 and 1, at"),
    ],
)
def test_what_has_no_exposure_is_refused(
    model: Any, tokenizer: Any, plan: Any, options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        wrapped_exposures(model, tokenizer, manifest_of(**plan), ANSWER, **options)


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
