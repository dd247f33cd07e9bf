"""What a training will make of the records of chats, looked at before it takes its hours.

What the template refuses, drops or rewrites, and what does not fit the model, is better known at
the insertion than after the training. Which rows a foreign trainer really makes, its own rows say
(`verify --rows`).
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from os.path import commonprefix
from typing import Any

from lmexposure._files import is_utf8
from lmexposure._style import count
from lmexposure.canaries import Format, Manifest, Wrapping
from lmexposure.errors import ModelError
from lmexposure.models import (
    dated,
    encode_in_context,
    encode_rows,
    row_context,
    training_rows,
    window_of,
)
from lmexposure.studies import RowsRecord

_FILLS = 20  # of each format
_RECORDS = 100  # of the corpus
_SHOWN = 60  # characters of a row in a message


@dataclass(frozen=True, kw_only=True)
class RowsAhead:
    """What was seen of the rows to come."""

    tokens: int  # at which a canary ends in its row, at most
    loss: str  # of the wrapping
    unscored: int  # how many first tokens of a canary carry no loss, at most
    records: int  # of the corpus that were rendered
    without_loss: int  # how many of these carry none
    longest: int  # tokens of their longest row
    chat_date: str | None  # the day that the template writes; None: it writes none

    def __str__(self) -> str:
        partly = f" but the first {count(self.unscored, 'token')}" if self.unscored else ""
        text = (
            f"a canary ends at token {self.tokens} of its row at most, with loss on all of "
            f"its tokens{partly} (loss={self.loss})"
        )
        if self.records:
            text += (
                f"; the first {count(self.records, 'record')} have up to {self.longest:,} tokens"
            )
        if self.without_loss:
            text += f", and {self.without_loss:,} of them carry no loss"
        if self.chat_date is not None:
            text += f"; the template writes the date, here {self.chat_date}"
        return text


def rows_ahead(
    tokenizer: Any,
    wrapping: Wrapping,
    formats: Iterable[Format],
    records: Iterable[Mapping[str, Any]],
) -> RowsAhead:
    """Look at the rows that a training will make of some canaries and of the first records."""
    of_day = dated(tokenizer, wrapping)
    ends, unscored = zip(*_canaries(tokenizer, of_day, formats), strict=True)
    first = list(takewhile(_is_text, islice(records, _RECORDS)))
    rows = list(training_rows(tokenizer, first, of_day))
    return RowsAhead(
        tokens=max(ends),
        loss=wrapping.loss,
        unscored=max(unscored),
        records=len(rows),
        without_loss=sum(not row.carried[1:].any() for row in rows),
        longest=max((len(row.ids) for row in rows), default=0),
        chat_date=of_day.chat_date,
    )


def _canaries(
    tokenizer: Any, wrapping: Wrapping, formats: Iterable[Format]
) -> Iterator[tuple[int, int]]:
    """Of each format, where its canaries end in their rows, and what of them carries no loss."""
    window = window_of(tokenizer)
    for form in formats:
        number = min(_FILLS, form.size)
        texts = [form.text(i * form.size // number) for i in range(number)]  # from all over R
        try:
            context = row_context(tokenizer, wrapping, texts)
            encode_in_context(tokenizer, texts, context=context, max_length=window)
        except ModelError as failure:
            raise ModelError(f"format {form.name!r}: {failure}") from failure
        stops = [row.stop for row in encode_rows(tokenizer, texts, context)]
        yield max(stops), context.unscored


def _is_text(record: Mapping[str, Any]) -> bool:
    """Whether a record holds no half of a character, which insertion names better."""
    return is_utf8(json.dumps(record, ensure_ascii=False, default=str))


def template_difference(rows: RowsRecord, manifest: Manifest, tokenizer: Any) -> str | None:
    """Where the rows of a training leave the chat template of a tokenizer first; None: nowhere."""
    wrapping = manifest.wrapping
    if rows.start is None or wrapping is None or wrapping.rendering != "chat":
        return None
    try:
        texts = [entry.text for entry in manifest.entries[:1]]
        context = row_context(tokenizer, replace(dated(tokenizer, wrapping), loss="all"), texts)
    except ModelError as failure:
        return str(failure)
    found = tokenizer.decode(list(rows.start)) + rows.before
    ends = [found[::-1], context.before[::-1]]
    shared = len(commonprefix(ends))  # noqa: RUF071 (characters)
    if shared < min(len(found), len(context.before)):  # packed rows may not show all in front
        return _unlike(
            "in front of", found[: len(found) - shared], context.before[: -shared or None]
        )
    ends = [rows.behind, context.behind]  # of the first no more is known than encoding needs
    shared = len(commonprefix(ends))  # noqa: RUF071 (characters)
    if shared < len(rows.behind) and (shared < len(context.behind) or not rows.packed):
        return _unlike("behind", *(text[shared:][::-1] for text in ends))
    return None


def _unlike(where: str, found: str, rendered: str) -> str:
    """The ends of two texts that differ there; what is behind a canary comes turned around."""
    order = -1 if where == "behind" else 1
    shown = [repr(text[-_SHOWN:][::order]) if text else "nothing" for text in (found, rendered)]
    return f"{where} each canary the rows have {shown[0]}, and the chat template {shown[1]}"
