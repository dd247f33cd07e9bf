from typing import Any

import pytest
from tiny import byte_level_bpe, characters, sentence_piece_bpe, word_piece

from lmexposure.canaries import Format
from lmexposure.scoring import (
    Vocabulary,
)
from lmexposure.scoring.space.ground import Ground, survey

PIN = Format(name="pin", template="number is {digits:3}")


def ground(tokenizer: Any, context: str | None, form: Format = PIN) -> Ground:
    vocabulary = Vocabulary(tokenizer)
    return survey(tokenizer, vocabulary, form, context=context, sample=20, seed=0)


@pytest.mark.parametrize(
    ("make", "context", "lead", "before"),
    [
        (characters, "\n", "\n", 0),
        (characters, None, "", 1),
        (byte_level_bpe, "\n", "\n", 0),
        (sentence_piece_bpe, None, " ", 1),  # the mark of a first word
        (word_piece, "random", " random", 0),
    ],
)
def test_what_stands_before_each_fill(
    make: Any, context: str | None, lead: str, before: int
) -> None:
    tokenizer = make()
    found = ground(tokenizer, context)
    assert (found.lead, found.before) == (lead, before)
    spelled = found.vocabulary.spelled(found.ids[before:])
    assert spelled == (lead + PIN.prefix)[: found.begun].encode()
    assert all(row[: len(found.ids)] == found.ids for row in found.rows)
    assert len(found.rows) >= 20
    assert {found.index(found.encode([PIN.text(i)])[0]) for i in (0, 7, 999)} == {0, 7, 999}


def test_fills_that_the_tokens_do_not_spell_are_looked_up() -> None:
    form = Format(name="pin", template="My PIN is {digits:2}")
    found = ground(word_piece(), "random", form)
    assert found.lead is None
    assert [found.index(found.encode([form.text(i)])[0]) for i in (0, 99)] == [0, 99]


def test_it_begins_at_the_end_of_a_character() -> None:
    form = Format(name="w", template="{choice:w}", lists={"w": ["éé1", "éê2", "éë3"]})
    found = ground(byte_level_bpe(), "é", form)
    assert "éé"[: found.begun].encode() == found.vocabulary.spelled(found.ids[found.before :])
