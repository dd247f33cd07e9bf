"""What is around the fills of a format among the tokens of their rows, and where secrets begin.

Special tokens, and others that were added to a vocabulary, are found before anything is encoded, so
that no token reaches over them. What is between two of them is a segment: a fill, the text in front
of it (lead) and the text behind it (trail), which may share tokens with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lmexposure.canaries import Format
from lmexposure.core import Encoded
from lmexposure.errors import ModelError
from lmexposure.models import AnyContext, Context, encode_documents, encode_rows
from lmexposure.scoring.spelling import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The segment of each fill."""

    # front, behind: the text that is encoded together with each fill, of whole rows
    front: str
    behind: str = ""
    start: int  # how many tokens are in front of all that is encoded
    before: int  # how many tokens are before the segment, `start` among them
    # the text of the segment in front of each fill as the tokens spell it; None where they do not
    # spell the fills as they are
    lead: str | None
    trail: str = ""  # the text of the segment behind each fill, likewise
    # the tokens that end a segment; none are known of plain contexts
    barriers: frozenset[int] = frozenset()


def surroundings(
    tokenizer: Any,
    vocabulary: Vocabulary,
    texts: Sequence[str],
    rows: Sequence[list[int]],
    *,
    context: AnyContext,
) -> Surroundings:
    """What is around some fills."""
    if isinstance(context, Context):
        return _in_rows(tokenizer, vocabulary, texts, context)
    front = context if context and _plain(tokenizer, context) else ""
    before = len(encode_documents(tokenizer, [""], context=context)[0]) - len(
        _plain(tokenizer, front)
    )
    leads = {
        _front_of(vocabulary.spelled(row[before:]), text)
        for row, text in zip(rows, texts, strict=True)
    }
    lead = leads.pop() if len(leads) == 1 else None
    return Surroundings(front=front, start=before, before=before, lead=lead)


def _in_rows(
    tokenizer: Any, vocabulary: Vocabulary, texts: Sequence[str], context: Context
) -> Surroundings:
    rows = encode_rows(tokenizer, texts, context)
    backend = tokenizer.backend_tokenizer
    barriers = frozenset(backend.get_added_tokens_decoder())
    whole = context.before + texts[0] + context.behind
    offsets = backend.encode(whole, add_special_tokens=False).offsets
    start = len(rows[0].ids) - len(offsets)
    befores, leads, trail = set(), set(), context.behind
    for number, (row, text) in enumerate(zip(rows, texts, strict=True)):
        inside = (i for i in range(row.first - 1, start - 1, -1) if row.ids[i] in barriers)
        before = next(inside, start - 1) + 1
        end = next((i for i in range(row.stop, len(row.ids)) if row.ids[i] in barriers), None)
        if number == 0 and end is not None:
            trail = context.behind[: offsets[end - start][0] - len(context.before + text)]
        befores.add(before)
        leads.add(_front_of(vocabulary.spelled(row.ids[before:end]), text + trail))
    alike = len(befores) == len(leads) == 1
    return Surroundings(
        front=context.before,
        behind=context.behind,
        start=start,
        before=min(befores),
        lead=leads.pop() if alike else None,
        trail=trail,
        barriers=barriers,
    )


def _plain(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def _front_of(spelled: bytes | None, text: str) -> str | None:
    """What a spelled row holds before its text."""
    if spelled is None or not spelled.endswith(text.encode()):
        return None
    try:
        return spelled[: len(spelled) - len(text.encode())].decode()
    except UnicodeDecodeError:
        return None


def literal_tokens(
    tokenizer: Any, literal: str, row: Sequence[int], around: Surroundings, *, context: AnyContext
) -> list[int]:
    """The format's text before its first hole in context, with nothing behind it."""
    if not isinstance(context, Context):
        return encode_documents(tokenizer, [literal], context=context)[0]
    encoding = tokenizer.backend_tokenizer.encode(around.front + literal, add_special_tokens=False)
    return [*row[: around.start], *encoding.ids]


def shared_tokens(rows: Sequence[list[int]]) -> list[int]:
    """The longest prefix that all rows share and that leaves each of them at least one token."""
    # Whatever the least and the greatest row share, all rows between them share as well.
    least, greatest = min(rows), max(rows)
    most = min(len(row) for row in rows) - 1
    same = (i for i in range(most) if least[i] != greatest[i])
    return least[: next(same, most)]


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """What all fills of a format begin with."""

    # the longest token prefix that these fills share and that lies before the secret; the context's
    # tokens and the start token belong to it
    ids: list[int]
    # how many characters of `lead` and text it spells; None where the tokens do not spell the texts
    # as they are (a tokenizer that lower-cases, for one), so that two fills may share one token
    # path
    characters: int | None
    scored: bool  # every token behind it is scored, so that nothing of the secret is left out
    # the text in front of each fill: the context; of a row, what is behind its last special token
    # before the fill, as the tokens spell it
    lead: str = ""
    trail: str = ""  # the text behind each fill in its row, up to the next special token


def find_beginning(
    tokenizer: Any,
    vocabulary: Vocabulary,
    texts: Sequence[str],
    encoded: Sequence[Encoded],
    *,
    context: AnyContext,
    literal: str,
) -> Beginning:
    """Find where the secrets of one format begin."""
    rows = [text.ids for text in encoded]
    if isinstance(context, Context):
        around = surroundings(tokenizer, vocabulary, texts, rows, context=context)
        alone = literal_tokens(tokenizer, literal, rows[0], around, context=context)
        ids, characters = _spelled_from(vocabulary, shared_tokens([*rows, [*alone, -1]]), around)
        lead, trail = around.lead or "", around.trail
    else:
        alone = encode_documents(tokenizer, [literal], context=context)[0]
        lead, trail = context or "", ""
        wholes = [(lead + text).encode() for text in texts]
        shared = shared_tokens([*rows, [*alone, -1]])
        ids, characters = _spelled_behind(vocabulary, shared, wholes, rows)
    return Beginning(
        ids=ids,
        characters=characters,
        scored=all(text.scored_from <= max(1, len(ids)) for text in encoded) and len(ids) > 0,
        lead=lead,
        trail=trail,
    )


def refuse_no_beginning(format: Format, ids: Sequence[int]) -> None:
    """Refuse secrets with no token in front of them: nothing predicts their first one."""
    if not ids:
        raise ModelError(
            f"format {format.name!r} begins with its secret and no token is in front of it "
            "in its row, so the model has nothing to begin from; put text before the first hole"
        )


def _spelled_from(
    vocabulary: Vocabulary, ids: list[int], around: Surroundings
) -> tuple[list[int], int | None]:
    """The shared tokens up to the end of a character, and how many they spell of the segment."""
    if around.lead is None or len(ids) < around.before:
        return ids, None
    while True:
        characters = _characters(vocabulary.spelled(ids[around.before :]) or b"")
        if characters is not None:
            return ids, characters
        ids = ids[:-1]  # it ends inside a character


def _spelled_behind(
    vocabulary: Vocabulary, ids: list[int], wholes: Sequence[bytes], rows: Sequence[list[int]]
) -> tuple[list[int], int | None]:
    """The same where only what is behind the shared tokens is known to be spelled as it is."""
    while True:
        offsets = {
            _spelled_before(vocabulary, whole, row[len(ids) :])
            for whole, row in zip(wholes, rows, strict=True)
        }
        offset = offsets.pop() if len(offsets) == 1 else None
        characters = None if offset is None else _characters(wholes[0][:offset])
        if offset is None or characters is not None:
            return ids, characters
        ids = ids[:-1]  # it ends inside a character


def _spelled_before(vocabulary: Vocabulary, whole: bytes, rest: list[int]) -> int | None:
    """How many bytes of `whole` come before its last tokens `rest`."""
    text = vocabulary.spelled(rest)
    return len(whole) - len(text) if text and whole.endswith(text) else None


def _characters(text: bytes) -> int | None:
    """How many characters these bytes are; None where they end inside one."""
    try:
        return len(text.decode())
    except UnicodeDecodeError:
        return None
