"""How a text becomes tokens behind its left context: one rule for training and for scoring.

Where a chat's template does not mark its answers: one begins where the generation prompt ends that
the template puts behind the turns before, and ends with what the template writes to close the turn:
all that the model has to say itself. Mostly both show as beginnings of the whole rendering. Where a
template writes the past otherwise than the present (thoughts dropped, another end of the last
turn), a probe in the place of a turn's text shows what comes right behind it.
"""

import copy
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import AutoConfig, AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase

from lmexposure._files import content_hash
from lmexposure._saved_models import hub_answers
from lmexposure.core import Encoded
from lmexposure.errors import ModelError

_NO_LIMIT = 10**6  # tokens; a tokenizer that knows no limit says more
# Behind the tokens of an encoder-decoder's source in a row: the number of no token.
SOURCE_ENDS = 1 << 30
_MOST_BYTES = 4  # of a character in UTF-8: a context has at most this many tokens for each


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """The row of a training that a text is in: what is before it and behind it."""

    # tokens in front of all; None: the start token of `encode_documents`
    start: tuple[int, ...] | None = None
    # text in front, encoded together with what follows; special tokens that it spells are read as
    # such, as in a chat template's rendering
    before: str = ""
    # text that follows, encoded together with what is before it; its tokens are not scored, but for
    # one that also holds a character of the text
    behind: str = ""
    # how many tokens of the text itself carry no loss, the first ones; they are not scored
    unscored: int = 0


# What is left of a text: a separator, None for the tokenizer's start token, or a whole row.
AnyContext = str | Context | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """The tokens of a text in its row, and which of them hold a character of it."""

    ids: list[int]  # of the whole row
    # first, stop: ids[first:stop] hold a character of the text; at its edges they may hold some of
    # what is before and behind
    first: int
    stop: int


def encode_in_context(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    *,
    context: AnyContext,
    max_length: int | None = None,
) -> list[Encoded]:
    """Encode each text as a whole behind the context, up to its last character."""
    _refuse_dropped(tokenizer, texts)
    if isinstance(context, Context):
        return _encode_in_rows(tokenizer, texts, context, max_length)
    rows = encode_documents(tokenizer, texts, context=context)
    start, context_ids = _beginning(tokenizer, context)
    head, unknown = start + context_ids, tokenizer.unk_token_id
    encoded = []
    spelled: dict[tuple[int, ...], int] = {}
    for number, (text, ids) in enumerate(zip(texts, rows, strict=True)):
        known = shared(head, ids)
        if context and known < len(head):
            beginning = tuple(ids[: len(start) + _MOST_BYTES * len(context)])
            if beginning not in spelled:
                spelled[beginning] = _tokens_within(tokenizer, beginning, context, len(start))
            known = max(known, spelled[beginning])
        if len(ids) <= max(known, 1):
            raise ModelError(
                f"text {number} of {len(texts)} has no token to score; leave empty texts out, and "
                "give a context where the tokenizer has neither a BOS nor an EOS token"
            )
        if unknown is not None and unknown in ids[len(start) :]:
            place = ids[len(start) :].index(unknown)
            raise _unknown(tokenizer, text, place, f"text {number} of {len(texts)}")
        if max_length is not None and len(ids) > max_length:
            raise ModelError(
                f"text {number} of {len(texts)} has {len(ids)} tokens with its context, but the "
                f"model's context window holds {max_length}; use a shorter format or another model"
            )
        encoded.append(Encoded(ids=ids, scored_from=max(known, 1), first_unscored=not known))
    return encoded


def _encode_in_rows(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    context: Context,
    max_length: int | None,
) -> list[Encoded]:
    """As `encode_in_context`, in a whole row."""
    unknown, encoded = tokenizer.unk_token_id, []
    for number, (text, row) in enumerate(
        zip(texts, encode_rows(tokenizer, texts, context), strict=True)
    ):
        name = f"text {number} of {len(texts)}"
        scored_from = max(row.first, 1) + context.unscored
        if row.stop <= scored_from:
            raise ModelError(
                f"{name} has no token to score in its row; use a longer format, or a row in which "
                "its tokens carry loss"
            )
        own = row.ids[row.first : row.stop]
        if unknown is not None and unknown in own:
            raise _unknown(tokenizer, text, own.index(unknown), name)
        if max_length is not None and row.stop > max_length:
            raise ModelError(
                f"{name} ends at token {row.stop} of its row, but the model's context window holds "
                f"{max_length}; use a shorter format, a shorter other or system turn, or another "
                "model"
            )
        encoded.append(
            Encoded(ids=row.ids[: row.stop], scored_from=scored_from, first_unscored=row.first == 0)
        )
    return encoded


def encode_rows(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], context: Context
) -> list[Row]:
    """The tokens of each text in its row, as the training has them."""
    encodings = _with_places(tokenizer, [context.before + text + context.behind for text in texts])
    if context.start is None:
        start = _beginning(tokenizer, context.before or None)[0]
    else:
        start = list(context.start)
    rows, begin = [], len(context.before)
    for number, (text, encoding) in enumerate(zip(texts, encodings, strict=True)):
        end = begin + len(text)
        own = [i for i, (a, b) in enumerate(encoding.offsets) if a < end and b > begin]
        if not own:
            raise ModelError(
                f"text {number} of {len(texts)} has no token in its row; leave empty texts out"
            )
        ids = start + encoding.ids
        rows.append(Row(ids=ids, first=len(start) + own[0], stop=len(start) + own[-1] + 1))
    return rows


@dataclass(frozen=True, kw_only=True, eq=False)
class Placed:
    """A document as tokens, each with the characters that it spells."""

    ids: list[int]  # of the start token, the context and the text
    first: int  # ids[first:] hold a character of the text
    # first character of each of these, and the one behind its last, in the text, shape (len(ids) -
    # first, 2)
    places: NDArray[np.int64]


def place_documents(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, context: str | None
) -> list[Placed]:
    """Encode documents as `encode_documents` does, and say where in the text each token is."""
    start, context_ids = _beginning(tokenizer, context)
    lead = context if context_ids and context else ""
    found = []
    for encoding in _with_places(tokenizer, [lead + text for text in texts]):
        places = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2) - len(lead)
        inside = np.flatnonzero(places[:, 1] > 0)
        first = int(inside[0]) if inside.size else len(places)
        found.append(
            Placed(
                ids=start + encoding.ids,
                first=len(start) + first,
                places=np.maximum(places[first:], 0),
            )
        )
    return found


def check_fast(tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a tokenizer that is not backed by the library tokenizers."""
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(
            "the tokenizer does not say at which characters its tokens begin; load the fast one "
            "(AutoTokenizer does)"
        )


def _with_places(tokenizer: Any, texts: Sequence[str]) -> Sequence[Any]:
    """The texts encoded, with the characters of each token, and without special tokens."""
    check_fast(tokenizer)
    # This call also switches truncation and padding off and sets how special tokens are read.
    tokenizer("a", add_special_tokens=False, verbose=False)
    found: Sequence[Any] = tokenizer.backend_tokenizer.encode_batch(
        list(texts), add_special_tokens=False
    )
    return found


def secret_tokens(
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    mask: Sequence[bool],
    tokens: Encoded,
    *,
    context: AnyContext,
) -> NDArray[np.bool_]:
    """Which of a text's scored tokens reach from the first character of its secret to the last.

    Args:
        tokenizer: that encoded it.
        text: a canary, whole.
        mask: for each character whether it is secret, at least one of them; see `Format.free_mask`.
        tokens: what `encode_in_context` made of the text.
        context: that it did so in.

    Returns:
        shape (T,), of the T tokens from `tokens.scored_from` on.
    """
    first = mask.index(True)
    last = len(mask) - tuple(reversed(mask)).index(True)
    row = context if isinstance(context, Context) else Context(before=context or "")
    before, behind = row.before + text[:first], text[last:] + row.behind
    secret = Context(start=(), before=before, behind=behind)
    (whole,) = encode_rows(tokenizer, [text[first:last]], secret)
    # What is in front of the row is the same number of tokens, whatever they are.
    (own,) = encode_rows(tokenizer, [text], Context(start=(), before=row.before, behind=row.behind))
    shift = len(tokens.ids) - own.stop
    places = np.arange(tokens.scored_from, len(tokens.ids)) - shift
    found: NDArray[np.bool_] = (places >= whole.first) & (places < whole.stop)
    return found


def encode_documents(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], *, context: AnyContext
) -> list[list[int]]:
    """Encode documents as `encode_in_context` does, without its refusals: for ordinary text."""
    if isinstance(context, Context):
        return [row.ids[: row.stop] for row in encode_rows(tokenizer, texts, context)]
    start, context_ids = _beginning(tokenizer, context)
    lead = context if context_ids and context else ""
    rows = _encode(tokenizer, [lead + text for text in texts])
    return [start + row for row in rows] if start else rows


def context_window(config: PretrainedConfig) -> int | None:
    """Most tokens that a model reads at once, beyond which many err in silence; None: no limit."""
    limit = getattr(config.get_text_config(), "max_position_embeddings", None)
    return int(limit) if limit else None


def _encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """Tokens of each text alone, without special tokens."""
    if not texts:
        return []
    # This call also switches truncation and padding off and sets how special tokens are read.
    first: list[int] = tokenizer(texts[0], add_special_tokens=False, verbose=False)["input_ids"]
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        batch = backend.encode_batch_fast(list(texts), add_special_tokens=False)
        if batch[0].ids == first:  # a subclass may do more than its backend
            return [encoding.ids for encoding in batch]
    rows: list[list[int]] = tokenizer(list(texts), add_special_tokens=False, verbose=False)[
        "input_ids"
    ]
    return rows


def _beginning(
    tokenizer: PreTrainedTokenizerBase, context: str | None
) -> tuple[list[int], list[int]]:
    """The start token, if any, and the tokens of the context alone."""
    if decoder_start(tokenizer) is not None:
        raise needs_source()
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    context_ids = _encode(tokenizer, [context])[0] if context else []
    with_special: list[int] = tokenizer("a")["input_ids"]
    adds_bos = bos is not None and with_special[:1] == [bos]
    if adds_bos or (not context_ids and bos is not None):
        return [bos], context_ids
    if not context_ids and eos is not None:
        return [eos], context_ids
    return [], context_ids


def reads_source(name: str, tokenizer: Any, config: Any) -> Any:
    """A tokenizer whose rows are those of an encoder-decoder; the given one stays as it is."""
    start = getattr(config, "decoder_start_token_id", None)
    for what, number in (("decoder_start_token_id", start), ("EOS token", tokenizer.eos_token_id)):
        if number is None:
            raise ModelError(
                f"model {name!r} is an encoder-decoder without {what}, so that it is not known "
                "how its texts begin and end; set decoder_start_token_id in config.json, and "
                "eos_token of the tokenizer, to those of the training"
            )
    tokenizer = copy.copy(tokenizer)
    tokenizer.starts_decoder = start
    return tokenizer


def decoder_start(tokenizer: Any) -> int | None:
    """What the decoder of an encoder-decoder begins with; None: it is a tokenizer of another."""
    start: int | None = getattr(tokenizer, "starts_decoder", None)
    return start


def needs_source() -> ModelError:
    """Of what an encoder-decoder is asked for without a source."""
    return ModelError(
        "an encoder-decoder needs a source for each text, which only records of two strings give "
        "(prompt_field, completion_field), with canaries as the answers (turn='assistant')"
    )


def shared(first: Sequence[Any], second: Sequence[Any]) -> int:
    """How long the common beginning of two sequences is."""
    differs = (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    return next(differs, min(len(first), len(second)))


def _refuse_dropped(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> None:
    """A tokenizer without an unknown token may drop what it does not know without a word."""
    visible = sorted({character for text in texts for character in text if not character.isspace()})
    for character, ids in zip(visible, _encode(tokenizer, visible), strict=True):
        if not ids:
            raise ModelError(
                f"the tokenizer drops a character of the texts (Unicode category "
                f"{unicodedata.category(character)}) without a word; use a format whose characters "
                "it knows, or train the tokenizer on a corpus that holds them"
            )


def _tokens_within(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], context: str, start: int
) -> int:
    """How many leading tokens spell a beginning of the context, the start tokens included."""
    for end in range(len(ids), start, -1):
        text = tokenizer.decode(ids[start:end], clean_up_tokenization_spaces=False)
        if text and context.startswith(text):
            return end
    return 0


def _unknown(tokenizer: PreTrainedTokenizerBase, text: str, place: int, name: str) -> ModelError:
    """Say where the text meets an unknown token, without saying what it is."""
    unknown = tokenizer.unk_token_id
    # GPT-2 calls its end-of-text token "unknown" too: only text that spells it out gets it.
    places = [i for i, single in enumerate(_encode(tokenizer, list(text))) if unknown in single]
    where = f"token {place}"
    if places:
        category = unicodedata.category(text[places[0]])
        where = f"character {places[0]} of {len(text)} (Unicode category {category})"
    return ModelError(
        f"{name}: the tokenizer has no token for {where}; use a format whose characters it "
        "knows, or train the tokenizer on a corpus that holds them"
    )


def tokenizer_named(name: str | Path, *, offline: bool = False, revision: str | None = None) -> Any:
    """The tokenizer of a training, by its directory or hub name."""
    try:
        if not offline and not Path(name).exists():  # the hub's own client tries for a minute
            offline = not hub_answers(str(name), revision)
        options = {"local_files_only": offline, "revision": revision or "main"}
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False, **options)
    except Exception as failure:  # whatever damaged files ran into
        said = str(failure).strip().split("\n")[0] or type(failure).__name__
        raise ModelError(
            f"cannot load a tokenizer from {str(name)!r}: {said}; give the directory or hub name "
            "of the model that is trained"
        ) from failure
    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False, **options)
    except (OSError, ValueError, KeyError):  # there may be no model beside it
        return tokenizer
    return reads_source(str(name), tokenizer, config) if config.is_encoder_decoder else tokenizer


def window_of(tokenizer: Any) -> int | None:
    """How many tokens the model of a tokenizer reads, as the two say; None: no limit is known."""
    said, place = [tokenizer.model_max_length], Path(tokenizer.name_or_path)
    if (place / "config.json").is_file():
        # Of a model that this transformers does not know, the tokenizer's word has to do.
        with suppress(OSError, ValueError, KeyError):
            offline = {"local_files_only": True, "trust_remote_code": False}
            said.append(context_window(AutoConfig.from_pretrained(place, **offline)))
    known = [limit for limit in said if isinstance(limit, int) and 0 < limit < _NO_LIMIT]
    return min(known, default=None)


def is_usable_tokenizer(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a tokenizer reads text at all."""
    try:
        return bool(tokenizer("a", add_special_tokens=False)["input_ids"])
    except Exception:  # what is raised differs from one tokenizer class to the next
        return False


def is_tokenizer(value: Any) -> bool:
    """Whether it is a tokenizer of transformers."""
    return isinstance(value, PreTrainedTokenizerBase)


def tokenizer_sha256(tokenizer: PreTrainedTokenizerBase) -> str:
    """SHA-256 of a tokenizer's vocabulary: each token with its number, in canonical JSON."""
    return content_hash(tokenizer.get_vocab())


_PRIVATE = range(0xF8FF, 0xDFFF, -1)  # of no script: shown where a text is, and nowhere else

Message = Mapping[str, Any]
# Of turns, and whether the generation prompt follows; a ModelError where the template refuses.
Render = Callable[[Sequence[Message], bool], str]


def answer_spans(
    chat: Sequence[Message], render: Render, *, eos: str = ""
) -> tuple[str, list[tuple[int, int]]]:
    """The rendering of a chat, and the first and last character, exclusive, of what is answered."""
    whole = render(chat, False)
    rendered = _Rendered(tuple(chat), render, whole, eos, probe_beside(whole))
    spans = [rendered.answer(i) for i, turn in enumerate(chat) if turn["role"] == "assistant"]
    for i, turn in enumerate(chat):
        if turn["role"] == "tool":  # some templates write it into the answer that called it
            spans = [part for span in spans for part in rendered.outside(i, span)]
    return whole, spans


def probe_beside(*texts: str) -> str:
    """A character that none of these texts holds, to be found again in a rendering."""
    return next(c for c in map(chr, _PRIVATE) if not any(c in text for text in texts))


@dataclass(frozen=True)
class _Rendered:
    """A chat, and what its template makes of it and of its parts."""

    chat: tuple[Message, ...]
    render: Render
    whole: str
    eos: str
    probe: str

    def answer(self, i: int) -> tuple[int, int]:
        """Where turn i begins and ends."""
        begin = self._begin(i)
        return begin, self._end(i, begin)

    def outside(self, i: int, span: tuple[int, int]) -> list[tuple[int, int]]:
        """The parts of a span that hold nothing of turn i's text."""
        before, there, behind = self.render(self._probed(i), False).partition(self.probe)
        if not (there and self.whole.startswith(before) and self.whole.endswith(behind)):
            return [span]
        own = len(before), len(self.whole) - len(behind)
        parts = [(span[0], min(span[1], own[0])), (max(span[0], own[1]), span[1])]
        return [(first, last) for first, last in parts if first < last]

    def _begin(self, i: int) -> int:
        """Where the generation prompt in front of turn i ends."""
        prompt = self._part(self.chat[:i], prompt=True)
        if prompt is not None and self.whole.startswith(prompt):
            return len(prompt)
        if i == 0:  # a template that begins with no answer: all in front of the text is its own
            return shared(self.render(self._probed(0), False).partition(self.probe)[0], self.whole)
        behind, asked = self._behind(i - 1), self._behind(i - 1, stop=i, prompt=True)
        if behind is None or asked is None or not self.whole.endswith(behind):
            raise _unclear(i, "begins")
        return len(self.whole) - len(behind) + shared(asked, behind)

    def _end(self, i: int, begin: int) -> int:
        """Where what closes turn i ends; it may be within a token, which then is of the next."""
        last = i + 1 == len(self.chat)
        until = self.whole if last else self._part(self.chat[: i + 1])
        if until is not None and self.whole.startswith(until):
            return len(until)
        behind = self._behind(i)
        if behind is None and until is not None:  # a call alone, whose text is not shown
            alike = self.whole[begin : shared(until, self.whole)]
            if self.eos and self.eos in alike:
                return begin + self._closed(alike)
        if behind is None or not self.whole.endswith(behind):
            raise _unclear(i, "ends")
        ends = self._behind(i, stop=i + 1), self._behind_without_prompt(i)
        closing = [end for end in ends if end is not None]
        lengths = [len(end) for end in closing if behind.startswith(end)]
        lengths += [self._closed(behind[: shared(end, behind)]) for end in closing]
        if not lengths:
            raise _unclear(i, "ends")
        return len(self.whole) - len(behind) + lengths[0]

    def _closed(self, text: str) -> int:
        """How much of this closes a turn: until the EOS token and the blanks behind it, or all."""
        until, found, rest = text.partition(self.eos) if self.eos else (text, "", "")
        return len(until + found) + len(rest) - len(rest.lstrip()) if found else len(text)

    def _behind(self, i: int, *, stop: int | None = None, prompt: bool = False) -> str | None:
        """What follows the text of turn i in chat[:stop]; None where it does not show."""
        rendered = self._part(self._probed(i)[:stop], prompt=prompt) or ""
        return rendered.rpartition(self.probe)[2] if self.probe in rendered else None

    def _behind_without_prompt(self, i: int) -> str | None:
        """What follows turn i where another answer is asked for, less the generation prompt."""
        asked = self._behind(i, stop=i + 1, prompt=True)
        bare, before = self._part(self.chat[:i]), self._part(self.chat[:i], prompt=True)
        if not (asked and bare and before and before.startswith(bare)):
            return None
        prompt = before[len(bare) :]
        return asked.removesuffix(prompt) if prompt and asked.endswith(prompt) else None

    def _probed(self, i: int) -> list[Message]:
        """The chat with the probe in the place of turn i's text."""
        turn = self.chat[i]
        parts = isinstance(turn.get("content"), list | tuple)
        said = [{"type": "text", "text": self.probe}] if parts else self.probe
        return [*self.chat[:i], {**turn, "content": said}, *self.chat[i + 1 :]]

    def _part(self, turns: Sequence[Message], *, prompt: bool = False) -> str | None:
        """A rendering of a part of the chat; None where the template refuses it."""
        try:
            return self.render(turns, prompt)
        except ModelError:
            return None


def _unclear(i: int, what: str) -> ModelError:
    return ModelError(
        f"turn {i + 1}: the chat template does not show where this answer {what}; give loss='all', "
        "or a template that marks its answers with {% generation %}"
    )
