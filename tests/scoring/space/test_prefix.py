from typing import Any

import pytest
from tiny import byte_level_bpe, characters, word_piece

from lmexposure.models import encode_in_context
from lmexposure.scoring import (
    Beginning,
    Vocabulary,
    find_beginning,
)
from lmexposure.scoring.space.prefix import shared_tokens


def beginning(tokenizer: Any, texts: list[str], literal: str, context: str | None) -> Beginning:
    encoded = encode_in_context(tokenizer, texts, context=context)
    vocabulary = Vocabulary(tokenizer)
    return find_beginning(tokenizer, vocabulary, texts, encoded, context=context, literal=literal)


def test_a_character_of_the_secret_that_all_share_by_chance_is_not_the_prefix() -> None:
    tokenizer = characters()
    found = beginning(tokenizer, ["My PIN is 2817", "My PIN is 2890"], "My PIN is ", "\n")
    assert tokenizer.decode(found.ids) == "\nMy PIN is "
    assert (found.characters, found.scored) == (11, True)


def test_a_space_that_merges_with_some_secrets_is_left_to_the_secret() -> None:
    tokenizer = byte_level_bpe()
    found = beginning(tokenizer, ["My PIN is 28", "My PIN is 90"], "My PIN is ", "\n")
    assert tokenizer.decode(found.ids) == "\nMy PIN is"
    assert found.characters == 10


def test_a_tokenizer_that_changes_the_text_is_found_out() -> None:
    found = beginning(word_piece(), ["my PIN", "my NUMBER"], "my ", "random")
    assert found.characters is None


def test_a_secret_that_begins_unscored_is_found_out() -> None:
    tokenizer = characters()
    tokenizer.eos_token = None
    assert not beginning(tokenizer, ["281", "042"], "", None).scored
    assert beginning(tokenizer, ["My 281", "My 042"], "My ", None).scored


@pytest.mark.parametrize(
    ("rows", "shared"),
    [
        ([[1, 2, 3], [1, 2, 4]], [1, 2]),
        ([[1, 2, 3]], [1, 2]),
        ([[1, 2], [1, 2, 3]], [1]),
        ([[1, 2, 9], [1, 3, 0], [1, 2, 8]], [1]),
        ([[5], [6]], []),
    ],
)
def test_shared_tokens_leave_each_row_one(rows: list[list[int]], shared: list[int]) -> None:
    assert shared_tokens(rows) == shared
