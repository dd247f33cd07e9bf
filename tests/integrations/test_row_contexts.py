"""How rows deliver canaries: the context found is the one in which a naive reader finds them."""

from typing import Any

import numpy as np
import pytest
from chats import chat_tokenizer
from scoring.chat_rows import made
from tiny import byte_level_bpe, sentence_piece_bpe

from lmexposure.canaries import Format, Manifest, Plan
from lmexposure.errors import CorpusError, InputError, SettingsError
from lmexposure.integrations import Wrapping, delivered_rows, insert, verify
from lmexposure.models import Context, encode_rows, row_context, tokenizer_sha256, training_rows
from lmexposure.studies import RowsRecord

PIN = Format(name="pin", template="My PIN is {digits:4}.")
PLAN = Plan(formats=(PIN,), canaries=3, repetitions=(1, 4), controls=2, seed=2)


def hidden(wrapping: Wrapping) -> tuple[list[dict[str, Any]], Manifest]:
    given = [wrapping.record("Some text. " * (1 + i % 6)) for i in range(20)]
    records, manifest = insert(given, PLAN, wrapping=wrapping)
    return records, manifest


def plain(make: Any) -> tuple[Any, list[list[int]], Manifest]:
    tokenizer = make()
    texts, manifest = insert([f"PIN number {i} is 28" * (1 + i % 3) for i in range(20)], PLAN)
    return tokenizer, [tokenizer(text)["input_ids"] for text in texts], manifest


def context_of(found: RowsRecord) -> Context:
    assert found.start is not None
    return Context(
        start=found.start, before=found.before, behind=found.behind, unscored=found.unscored
    )


@pytest.mark.parametrize("make", [byte_level_bpe, sentence_piece_bpe, chat_tokenizer])
def test_texts_in_rows_of_their_own(make: Any) -> None:
    tokenizer, rows, manifest = plain(make)
    found = delivered_rows([{"input_ids": ids} for ids in rows], manifest, tokenizer)
    assert found.as_planned
    assert not found.packed
    assert (found.found, found.agreeing, found.loss) == (15, 15, "all")
    assert found.tokenizer_sha256 == tokenizer_sha256(tokenizer)
    texts = [entry.text for entry in manifest.canaries]
    own = [row.ids[: row.stop] for row in encode_rows(tokenizer, texts, context_of(found))]
    assert own == [tokenizer(text)["input_ids"] for text in texts]
    assert [each.whole for each in found.classes] == [3, 12, 0]


def test_texts_packed_behind_the_end_of_others() -> None:
    tokenizer, rows, manifest = plain(byte_level_bpe)
    end = tokenizer.eos_token_id
    stream = [token for ids in rows for token in [*ids, end]]
    found = delivered_rows([stream], manifest, tokenizer)
    assert found.packed
    assert found.as_planned
    assert found.agreeing == 14  # nothing is in front of the first
    assert (found.start, found.before) == ((end,), "")
    assert found.behind == tokenizer.eos_token
    lengths = [len(ids) + 1 for ids in rows]
    bordered = delivered_rows([{"input_ids": stream, "seq_lengths": lengths}], manifest, tokenizer)
    assert bordered.packed
    assert (bordered.start, bordered.before) == ((), "")


def test_rows_without_anything_in_common_have_no_context() -> None:
    tokenizer, rows, manifest = plain(byte_level_bpe)
    letters = tokenizer("ABCDEFGHIJKLMNOPQRSTUVWXYZ" * 2)["input_ids"]
    own = [[letters[i % 26], *ids] for i, ids in enumerate(rows)]
    found = delivered_rows(own, manifest, tokenizer)
    assert found.start is None
    assert found.found == 15
    assert any("say what is left of each when you measure" in w for w in found.warnings)


def test_rows_of_another_context_than_most_are_counted() -> None:
    tokenizer, rows, manifest = plain(byte_level_bpe)
    marked = [i for i, ids in enumerate(rows) if tokenizer.decode(ids).startswith("My PIN")]
    for i in marked[:3]:
        rows[i] = [*tokenizer("PIN:")["input_ids"], *rows[i]]
    found = delivered_rows(rows, manifest, tokenizer)
    assert (found.agreeing, found.found) == (12, 15)
    assert sum(each.otherwise for each in found.classes) == 3
    assert any(line.startswith("3 of 15 copies are in other rows") for line in found.warnings)


@pytest.mark.parametrize(
    ("wrapping", "loss"),
    [
        (Wrapping(turn="user", system="Be brief."), "all"),
        (Wrapping(turn="assistant", loss="assistant", form="conversations"), "assistant"),
        (Wrapping(turn="assistant", loss="completion", form="instruction"), "completion"),
        (Wrapping(turn="user", form="instruction"), "all"),
        (Wrapping(turn="assistant", form="prompt_completion", strings=True), "all"),
        (Wrapping(turn="assistant", loss="completion", form="preference"), "completion"),
    ],
)
def test_chats_are_found_in_their_template(wrapping: Wrapping, loss: str) -> None:
    tokenizer = chat_tokenizer()
    records, manifest = hidden(wrapping)
    rows = [
        {"input_ids": row.ids, "labels": np.where(row.carried, row.ids, -100).tolist()}
        for row in training_rows(tokenizer, records, wrapping)
    ]
    found = delivered_rows(rows, manifest, tokenizer)
    assert found.as_planned
    assert found.loss == loss
    texts = [entry.text for entry in manifest.entries]
    wanted = encode_rows(tokenizer, texts, row_context(tokenizer, wrapping, texts))
    own = encode_rows(tokenizer, texts, context_of(found))
    assert [row.ids[: row.stop] for row in own] == [row.ids[: row.stop] for row in wanted]


def test_splits_and_masked_ends_of_documents_are_read_as_they_are_meant() -> None:
    tokenizer, rows, manifest = plain(byte_level_bpe)
    end = tokenizer.eos_token_id
    stream = [token for ids in rows for token in [*ids, end]]
    labels = [-100 if token == end else token for token in stream]  # a collator's, of padding
    found = delivered_rows(
        {"train": [{"input_ids": stream, "labels": labels}]}, manifest, tokenizer
    )
    assert (found.loss, found.start) == ("all", (end,))


def test_masks_that_a_trainer_will_fold_in_are_folded_in() -> None:
    tokenizer, rows, manifest = plain(byte_level_bpe)
    own = [{"input_ids": ids, "completion_mask": [0, *[1] * (len(ids) - 1)]} for ids in rows]
    assert delivered_rows(own, manifest, tokenizer).found == 15
    none = [{"input_ids": ids, "assistant_masks": [0] * len(ids)} for ids in rows]
    assert delivered_rows(none, manifest, tokenizer).found == 0


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([], CorpusError, "there is no row of tokens; give the rows"),
        ([{"text": "x"}], CorpusError, "no 'input_ids'; a row has text: tokenise the data"),
        ([[7], ["a"]], CorpusError, "row 2 holds no list of tokens, and a row is a list of"),
        ([{"input_ids": [1, 2], "labels": [1]}], InputError, "labels and input_ids have different"),
    ],
)
def test_what_holds_no_rows_is_refused(rows: Any, error: type[Exception], message: str) -> None:
    tokenizer, _, manifest = plain(byte_level_bpe)
    with pytest.raises(error, match=message):
        delivered_rows(rows, manifest, tokenizer)


def test_verify_takes_rows_in_memory() -> None:
    tokenizer, rows, manifest = plain(byte_level_bpe)
    found = verify(rows, manifest, tokenizer=tokenizer, rows=True)
    assert found == delivered_rows(rows, manifest, tokenizer)
    with pytest.raises(SettingsError, match="rows=True reads rows of tokens, which have no layout"):
        verify(rows, manifest, tokenizer=None, rows=True)


def test_a_tokenizer_that_does_not_say_where_its_tokens_are_gives_counts_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizer, rows, manifest = plain(byte_level_bpe)
    monkeypatch.setattr(type(tokenizer), "is_fast", False)
    found = delivered_rows(rows, manifest, tokenizer)
    assert (found.start, found.found, found.agreeing) == (None, 15, 0)
    assert [each.whole for each in found.classes] == [3, 12, 0]


@pytest.mark.parametrize("name", ["uneven", "sentence piece"])
def test_tokens_that_some_canaries_share_with_what_is_behind(name: str) -> None:
    """Canaries of either kind are in one row, and so is every fill that was never inserted."""
    chat, tokenizer, _ = made(name)
    plan = Plan(formats=(chat.form,), canaries=12, repetitions=(1, 2), controls=2, seed=2)
    manifest = insert([f"text {i}" for i in range(30)], plan).manifest
    fills = [chat.form.text(index) for index in range(1000)]
    rows = [
        tokenizer(chat.rendered(tokenizer, text), add_special_tokens=False)["input_ids"]
        for text in fills
    ]
    trained = [rows[each.index] for each in manifest.canaries for _ in range(each.repetitions)]
    found = delivered_rows([{"input_ids": ids} for ids in trained], manifest, tokenizer)
    assert (found.found, found.agreeing, found.warnings) == (36, 36, ())
    encoded = encode_rows(tokenizer, fills, context_of(found))
    assert [row.ids[: row.stop] for row in encoded] == [
        ids[: row.stop] for row, ids in zip(encoded, rows, strict=True)
    ]
