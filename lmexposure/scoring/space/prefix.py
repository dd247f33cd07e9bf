"""Where secrets begin: the tokens that the fills of a format share, in context."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lmexposure.models import (
    Encoded,
    encode_documents,
)
from lmexposure.scoring.space.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """What all fills of a format begin with.

    Attributes:
        ids: the longest token prefix that these fills share and that lies before the secret; the
            context's tokens and the start token belong to it.
        characters: how many characters of context and text it spells; None where the tokens do
            not spell the texts as they are (a tokenizer that lower-cases, for one), so that two
            fills may share one token path.
        scored: every token behind it is scored, so that nothing of the secret is left out.
    """

    ids: list[int]
    characters: int | None
    scored: bool


def find_beginning(
    tokenizer: Any,
    vocabulary: Vocabulary,
    texts: Sequence[str],
    encoded: Sequence[Encoded],
    *,
    context: str | None,
    literal: str,
) -> Beginning:
    """Find where the secrets of one format begin.

    Args:
        tokenizer: the tokenizer that encoded the fills.
        vocabulary: what its tokens spell.
        texts: fills of one format; the more of them, the surer that no other fill begins
            otherwise.
        encoded: the same in context.
        context: their left context.
        literal: the format's text before its first hole. Without it, a handful of fills could
            share a character of the secret by chance.
    """
    before = encode_documents(tokenizer, [literal], context=context)[0]
    ids = shared_tokens([*(one.ids for one in encoded), [*before, -1]])
    wholes = [((context or "") + text).encode() for text in texts]
    while True:
        offsets = {
            _spelled_before(vocabulary, whole, one.ids[len(ids) :])
            for whole, one in zip(wholes, encoded, strict=True)
        }
        offset = offsets.pop() if len(offsets) == 1 else None
        characters = None if offset is None else _characters(wholes[0][:offset])
        if offset is None or characters is not None:
            break
        ids = ids[:-1]  # it ends inside a character
    return Beginning(
        ids=ids,
        characters=characters,
        scored=all(one.scored_from <= max(1, len(ids)) for one in encoded) and len(ids) > 0,
    )


def shared_tokens(rows: Sequence[list[int]]) -> list[int]:
    """The longest prefix that all rows share and that leaves each of them at least one token."""
    # Whatever the least and the greatest row share, all rows between them share as well.
    least, greatest = min(rows), max(rows)
    most = min(len(row) for row in rows) - 1
    same = (i for i in range(most) if least[i] != greatest[i])
    return least[: next(same, most)]


def _spelled_before(vocabulary: Vocabulary, whole: bytes, rest: list[int]) -> int | None:
    """How many bytes of `whole` stand before its last tokens `rest`."""
    text = vocabulary.spelled(rest)
    return len(whole) - len(text) if text and whole.endswith(text) else None


def _characters(text: bytes) -> int | None:
    """How many characters these bytes are; None where they end inside one."""
    try:
        return len(text.decode())
    except UnicodeDecodeError:
        return None
