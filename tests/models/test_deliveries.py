"""What is counted are canaries that stand in the blocks whole, as documents."""

from dataclasses import replace

import numpy as np
import pytest

from lmexposure.errors import ModelError
from lmexposure.models import (
    byte_level_tokenizer,
    character_tokenizer,
    check_deliveries,
    count_deliveries,
    pack,
)

TOKENIZER = character_tokenizer(["\nabc 0123456789"])


def _documents(seed: int) -> tuple[list[str], dict[str, int]]:
    generator = np.random.Generator(np.random.PCG64(seed))
    canaries = {f"ab {i:03d}": int(generator.integers(0, 5)) for i in range(20)}
    documents = ["c" * int(n) for n in generator.integers(0, 9, size=60)]
    documents += [text for text, count in canaries.items() for _ in range(count)]
    generator.shuffle(documents)
    return documents, canaries


@pytest.mark.parametrize("separator", ["\n", "\n\n", None])
@pytest.mark.parametrize("block_size", [9, 16, 64])
def test_packing_delivers_each_canary_as_planned(separator: str | None, block_size: int) -> None:
    documents, canaries = _documents(block_size)
    packed = pack(TOKENIZER, documents, separator=separator, block_size=block_size, atomic=canaries)
    assert count_deliveries(TOKENIZER, packed, canaries, separator=separator) == canaries
    check_deliveries(TOKENIZER, packed, canaries, separator=separator)


def test_merging_tokenizers_deliver_too() -> None:
    documents, canaries = _documents(3)
    tokenizer = byte_level_tokenizer(documents)
    packed = pack(tokenizer, documents, separator="\n", block_size=12, atomic=canaries)
    assert count_deliveries(tokenizer, packed, canaries, separator="\n") == canaries


def test_a_cut_canary_is_not_counted() -> None:
    cut = pack(TOKENIZER, ["cc", "ab 012"], separator="\n", block_size=8)
    assert count_deliveries(TOKENIZER, cut, {"ab 012": 1}, separator="\n") == {"ab 012": 0}


def test_a_canary_amid_other_text_is_not_counted() -> None:
    documents = ["ab 0123", "cab 012", "ab 012"]
    packed = pack(TOKENIZER, documents, separator="\n", block_size=64)
    assert count_deliveries(TOKENIZER, packed, {"ab 012": 1}, separator="\n") == {"ab 012": 1}


def test_padding_is_not_taken_for_text() -> None:
    packed = pack(TOKENIZER, ["ab 012"], separator="\n", block_size=64)
    shorter = replace(packed, lengths=packed.lengths - 1)
    assert count_deliveries(TOKENIZER, shorter, {"ab 012": 1}, separator="\n") == {"ab 012": 0}


def test_equal_hashes_of_other_tokens_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "lmexposure.models.deliveries._window_hashes",
        lambda ids, length: np.zeros((len(ids), ids.shape[1] - length + 1), np.uint64),
    )
    documents, canaries = _documents(9)
    packed = pack(TOKENIZER, documents, separator="\n", block_size=16, atomic=canaries)
    assert count_deliveries(TOKENIZER, packed, canaries, separator="\n") == canaries


def test_wrong_numbers_are_refused_without_showing_the_canary() -> None:
    packed = pack(TOKENIZER, ["ab 012", "ab 345"], separator="\n", block_size=16)
    with pytest.raises(
        ModelError, match=r"1 of 2 canaries .* canary 1 .* 1 times instead of 2;"
    ) as e:
        check_deliveries(TOKENIZER, packed, {"ab 012": 1, "ab 345": 2}, separator="\n")
    assert "345" not in str(e.value)


def test_a_canary_longer_than_the_blocks_is_not_there() -> None:
    packed = pack(TOKENIZER, ["ab 012"], separator="\n", block_size=4)
    assert count_deliveries(TOKENIZER, packed, {"ab 012": 1}, separator="\n") == {"ab 012": 0}
