"""Blocks hold every token in order, and no canary is cut."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmexposure.errors import CorpusError, ModelError
from lmexposure.models import (
    IGNORED,
    Packed,
    byte_level_tokenizer,
    character_tokenizer,
    pack,
)

TOKENIZER = character_tokenizer(["\nabcdefgh0123456789"])


def _text(packed: Packed) -> list[str]:
    """Each block's text, padding left out."""
    return [
        TOKENIZER.decode(row[:length].tolist())
        for row, length in zip(packed.ids, packed.lengths, strict=True)
    ]


def test_ordinary_documents_are_cut_where_blocks_end() -> None:
    packed = pack(TOKENIZER, ["abc", "", "defgh"], separator="\n", block_size=4)
    assert _text(packed) == ["\nabc", "\n\nde", "fgh"]
    assert packed.lengths.tolist() == [4, 4, 3]
    assert packed.tokens == 11


def test_a_canary_moves_to_the_next_block_rather_than_be_cut() -> None:
    packed = pack(TOKENIZER, ["ab", "0123", "cd"], separator="\n", block_size=6, atomic={"0123"})
    assert _text(packed) == ["\nab", "\n0123\n", "cd"]


def test_a_canary_that_fits_exactly_stays() -> None:
    packed = pack(TOKENIZER, ["a", "01", "b"], separator="\n", block_size=5, atomic=["01"])
    assert _text(packed) == ["\na\n01", "\nb"]


def test_records_begin_with_the_end_of_text_token() -> None:
    packed = pack(TOKENIZER, ["ab", "c"], separator=None, block_size=8)
    end = TOKENIZER.eos_token_id
    assert packed.ids[0, :5].tolist() == [
        end,
        *TOKENIZER.encode("ab"),
        end,
        TOKENIZER.encode("c")[0],
    ]
    assert packed.openers == {end}


def test_labels_are_the_next_tokens_and_nothing_at_padding() -> None:
    packed = pack(TOKENIZER, ["abc", "d"], separator="\n", block_size=4)
    expected = packed.ids[:, 1:].tolist()
    expected[1][1:] = [IGNORED, IGNORED]
    assert packed.labels().tolist() == expected


def _naive(documents: list[str], atomic: set[str], block_size: int) -> list[str]:
    """Packing by hand, one character at a time."""
    blocks = [""]
    for document in documents:
        text = "\n" + document
        if document in atomic and len(blocks[-1]) + len(text) > block_size:
            blocks.append("")
        for character in text:
            if len(blocks[-1]) == block_size:
                blocks.append("")
            blocks[-1] += character
    return blocks


@given(
    st.lists(st.sampled_from(["", "a", "bcd", "efghabcdefgh", "01", "23456", "789"]), min_size=1),
    st.integers(min_value=6, max_value=17),
)
def test_packing_equals_packing_by_hand(documents: list[str], block_size: int) -> None:
    atomic = {"01", "23456", "789"}
    packed = pack(TOKENIZER, documents, separator="\n", block_size=block_size, atomic=atomic)
    assert _text(packed) == _naive(documents, atomic, block_size)


def test_many_documents_are_encoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [f"{i}" for i in range(100)]
    whole = pack(TOKENIZER, documents, separator="\n", block_size=16)
    monkeypatch.setattr("lmexposure.models.packing._DOCUMENTS_AT_ONCE", 7)
    parts = pack(TOKENIZER, documents, separator="\n", block_size=16)
    assert np.array_equal(whole.ids, parts.ids)


def test_unknown_characters_of_ordinary_documents_are_no_reason_to_stop() -> None:
    packed = pack(TOKENIZER, ["aZb"], separator="\n", block_size=4)
    assert packed.ids[0, 2] == TOKENIZER.unk_token_id


def test_a_canary_longer_than_a_block_is_refused() -> None:
    with pytest.raises(ModelError, match=r"canary 1 of 2 has 6 tokens .* block_size=5; it must"):
        pack(TOKENIZER, ["a"], separator="\n", block_size=5, atomic=["01234", "0"])


def test_a_canary_with_an_unknown_character_is_refused() -> None:
    with pytest.raises(ModelError, match="the tokenizer has no token for character 1 of 2"):
        pack(TOKENIZER, ["a"], separator="\n", block_size=5, atomic=["0Z"])


def test_documents_without_tokens_are_refused() -> None:
    with pytest.raises(CorpusError, match="the documents have no tokens at all; give a corpus"):
        pack(TOKENIZER, [], separator="\n", block_size=5)


def test_an_empty_record_without_any_start_token_takes_no_room() -> None:
    bare = byte_level_tokenizer(["ab"])
    bare.eos_token = None
    packed = pack(bare, ["", "ab", "", "cd"], separator=None, block_size=8, atomic=["cd"])
    assert bare.decode(packed.ids[0, : packed.lengths[0]].tolist()) == "abcd"
