"""Where the token space of a format begins: what its fills share, read from their encodings."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lmexposure.canaries import Format
from lmexposure.models import (
    encode_documents,
    encode_in_context,
)
from lmexposure.scoring.space.prefix import shared_tokens
from lmexposure.scoring.space.vocabulary import Vocabulary

# Tokens of the shared prefix that are read again, for fills that begin otherwise than all sampled.
_STEPS_BACK = 4


@dataclass(frozen=True, kw_only=True)
class Ground:
    """A format under a tokenizer, and a sample of its fills.

    Attributes:
        tokenizer, vocabulary, format, context: as given to `token_space`.
        rows: encodings of sampled fills, the first and the last among them.
        ids: where the space is read from: a few tokens before the end of what all `rows` share.
        before: how many of `ids` are the start token, which spells nothing.
        lead: what stands before each fill as the tokens spell it; None where they do not spell the
            fills as they are.
        begun: characters of lead and fill that `ids` spell.
    """

    tokenizer: Any
    vocabulary: Vocabulary
    format: Format
    context: str | None
    rows: list[list[int]]
    ids: list[int]
    before: int
    lead: str | None
    begun: int

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The fills' encodings in context."""
        return encode_documents(self.tokenizer, texts, context=self.context)

    def index(self, row: Sequence[int]) -> int:
        """The fill that a whole encoding spells."""
        if self.lead is None:
            return self._indices[tuple(row)]
        spelled = self.vocabulary.spelled(row[self.before :]) or b""
        return self.format.index(spelled.decode()[len(self.lead) :])

    @cached_property
    def _indices(self) -> dict[tuple[int, ...], int]:
        """Fills by their encodings, where these do not spell them: only small spaces come here."""
        rows = self.encode([self.format.text(index) for index in range(self.format.size)])
        return {tuple(row): index for index, row in enumerate(rows)}

    @property
    def real_lead(self) -> str:
        """What stands before each fill when it is encoded."""
        return real_lead(self.tokenizer, self.context)


def real_lead(tokenizer: Any, context: str | None) -> str:
    """The context, if it gives any token."""
    return context if context and _plain(tokenizer, context) else ""


def survey(
    tokenizer: Any,
    vocabulary: Vocabulary,
    format: Format,
    *,
    context: str | None,
    sample: int,
    seed: int,
) -> Ground:
    """Encode a sample of the fills and see what they share.

    Raises:
        ModelError: see `encode_in_context`.
    """
    drawn = format.sample(min(sample, format.size), seed=seed)
    indices = sorted({0, format.size - 1, *drawn})
    texts = [format.text(index) for index in indices]
    rows = [one.ids for one in encode_in_context(tokenizer, texts, context=context)]
    literal = encode_documents(tokenizer, [format.prefix], context=context)[0]
    shared = shared_tokens([*rows, [*literal, -1]])
    lead_ids = encode_documents(tokenizer, [""], context=context)[0]
    before = len(lead_ids) - len(_plain(tokenizer, real_lead(tokenizer, context)))
    leads = {
        _lead(vocabulary.spelled(row[before:]), text) for row, text in zip(rows, texts, strict=True)
    }
    lead = leads.pop() if len(leads) == 1 else None
    end, begun = len(shared), 0
    if lead is not None:
        end, begun = _back(vocabulary, shared, before, whole=lead + texts[0])
    return Ground(
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        format=format,
        context=context,
        rows=rows,
        ids=shared[:end],
        before=before,
        lead=lead,
        begun=begun,
    )


def _plain(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def _lead(spelled: bytes | None, text: str) -> str | None:
    """What a spelled row holds before its text."""
    if spelled is None or not spelled.endswith(text.encode()):
        return None
    try:
        return spelled[: len(spelled) - len(text.encode())].decode()
    except UnicodeDecodeError:
        return None


def _back(vocabulary: Vocabulary, shared: list[int], before: int, *, whole: str) -> tuple[int, int]:
    """A few tokens back to the end of a character: how many tokens, and characters, remain."""
    end = max(min(before, len(shared)), len(shared) - _STEPS_BACK)
    while True:
        spelled = vocabulary.spelled(shared[before:end]) or b""
        for begun in range(len(whole) + 1):
            size = len(whole[:begun].encode())
            if size == len(spelled):
                return end, begun
            if size > len(spelled):
                break
        end -= 1
