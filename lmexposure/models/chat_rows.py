"""Which row of tokens a chat, a prompt with its answer or an instruction becomes in a training.

As TRL's SFTTrainer makes them: a chat by the template; strings one behind the other, ended by the
EOS token. `row_context` is the same row around a canary, for scoring.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure._files import sha256_bytes
from lmexposure.canaries import Wrapping
from lmexposure.errors import CorpusError, InputError, ModelError
from lmexposure.models.encoding import (
    SOURCE_ENDS,
    Context,
    Row,
    answer_spans,
    check_fast,
    decoder_start,
    encode_rows,
    needs_source,
    probe_beside,
    shared,
)

_AT_ONCE = 1_000  # records
_PROBE = probe_beside()
_SENTENCE = 20  # characters: fewer of a template's own may be a part of a text
_SHOWN = 40  # characters of a chat in a message
_MARKS = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")
# What of a template is not carried out: comments, and text that is left as it is.
_INERT = re.compile(r"\{#.*?#\}|\{%[-+]?\s*raw\s.*?\{%[-+]?\s*endraw\s*[-+]?%\}", re.DOTALL)
_IS_DEFINED = re.compile(r"strftime_now\s+is\s+(not\s+)?defined")
_TODAY = "strftime_now"  # what templates ask for the date
_ASKS_DATE = re.compile(_TODAY + r"""\s*\(\s*(?:format\s*=\s*)?(?:'([^'\\]*)'|"([^"\\]*)")\s*\)""")
# What those who share chats call who speaks, and what a template calls them.
_ROLES = {
    **{name: name for name in ("system", "user", "assistant", "tool", "developer")},
    "human": "user",
    **dict.fromkeys(("gpt", "chatgpt", "bing", "bard", "function_call"), "assistant"),
    **dict.fromkeys(("function", "observation", "function_response"), "tool"),
    "model": "assistant",
}
# Stanford Alpaca's prompt with an input, as its trainers write it.
_WITH_INPUT = (
    "Below is an instruction that describes a task, paired with an input that provides further "
    "context. Write a response that appropriately completes the request.\n\n### Instruction:\n"
    "{instruction}\n\n### Input:\n{input}\n\n### Response:\n"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingRow:
    """A record as a training has it."""

    ids: list[int]  # its tokens
    carried: NDArray[np.bool_]  # which of them carry loss, shape (T,); nothing predicts the first
    owner: str | None = None  # whose it is, where a promise is made to users; None: it is by itself
    number: int = 0  # of the record in the corpus, from 1; 0 where it is not known


def row_context(tokenizer: Any, wrapping: Wrapping, texts: Sequence[str]) -> Context:
    """The row around a canary, by a wrapping and the tokenizer of the training."""
    if isinstance(texts, str) or not texts:
        raise InputError("texts must be a list of at least one text; give [text] for a single one")
    if wrapping.rendering == "chat":
        check_template(tokenizer, wrapping)
        before, behind = _around_in_chat(tokenizer, wrapping, texts)
        context = Context(start=(), before=before, behind=behind)
    elif wrapping.form == "text" and wrapping.context != "":
        return Context(before=wrapping.context or "")
    else:
        before, behind = wrapping.around()
        closing = str(tokenizer.eos_token or "")
        end = "" if (behind or texts[0]).endswith(closing) else closing
        start = begins_with(tokenizer)
        if decoder_start(tokenizer) is not None:
            start, before = [*_source_rows(tokenizer, [before], wrapping)[0], *start], ""
        context = Context(start=tuple(start), before=before, behind=behind + end)
    return replace(context, unscored=_without_loss(tokenizer, wrapping, texts, context))


def template_record(tokenizer: Any, wrapping: Wrapping) -> Wrapping:
    """What a manifest says of a wrapping and of the tokenizer of the training."""
    template, special = None, tuple(map(str, tokenizer.all_special_tokens))
    if wrapping.rendering == "chat":
        check_template(tokenizer, wrapping)
        template = template_sha256(tokenizer, wrapping)
    return replace(wrapping, template_sha256=template, special_tokens=special)


def template_sha256(tokenizer: Any, wrapping: Wrapping) -> str:
    """The hash of the chat template that renders the records."""
    return sha256_bytes(tokenizer.get_chat_template(wrapping.chat_template).encode())


def training_rows(
    tokenizer: Any, records: Sequence[Mapping[str, Any]], wrapping: Wrapping
) -> Iterator[TrainingRow]:
    """The rows of records, in order, and which of their tokens carry loss."""
    if wrapping.rendering == "chat":
        check_template(tokenizer, wrapping)
    for first in range(0, len(records), _AT_ONCE):
        some = list(enumerate(records[first : first + _AT_ONCE], first + 1))
        if wrapping.rendering == "text":
            pairs = [_strings(number, record, wrapping) for number, record in some]
            yield from _text_rows(tokenizer, pairs, wrapping)
        else:
            yield from _records_rows(tokenizer, some, wrapping)


def record_text(number: int, record: Mapping[str, Any], wrapping: Wrapping) -> str:
    """What is said in a record, to be measured and searched."""
    if wrapping.rendering == "text":
        return "\n".join(_strings(number, record, wrapping))
    contents = [turn.get("content") for turn in _messages(number, record, wrapping)]
    parts = [part for own in contents for part in (own if isinstance(own, list) else [own])]
    said = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    return "\n".join(text for text in said if isinstance(text, str))


def check_template(tokenizer: Any, wrapping: Wrapping) -> None:
    """Refuse a tokenizer that cannot wrap a text in a chat."""
    if decoder_start(tokenizer) is not None:
        raise needs_source()
    try:
        tokenizer.get_chat_template(wrapping.chat_template)
    except ValueError:  # none, or several of which none is the usual one
        raise ModelError(
            f"turn={wrapping.turn!r} needs a chat template and the tokenizer has none; give "
            "chat_template, or set tokenizer.chat_template to that of the training (in a saved "
            "tokenizer it is the file chat_template.jinja)"
        ) from None
    check_fast(tokenizer)
    template = tokenizer.get_chat_template(wrapping.chat_template)
    if _TODAY in _IS_DEFINED.sub("", _ASKS_DATE.sub("", _INERT.sub("", template))):
        raise ModelError(
            "the chat template asks for today's date in a way that cannot be told another day; put "
            "the date of the training in the place of strftime_now(...)"
        )


def dated(tokenizer: Any, wrapping: Wrapping) -> Wrapping:
    """The wrapping with the day of its rows, its own or today; None where none is written."""
    chats = set[str]()
    if wrapping.rendering == "chat":
        check_template(tokenizer, wrapping)
        if _TODAY in tokenizer.get_chat_template(wrapping.chat_template):
            days = [replace(wrapping, chat_date=day) for day in ("2001-02-03", "2004-05-06")]
            chats = {_rendered(tokenizer, of_day.messages("text"), of_day) for of_day in days}
    day = wrapping.chat_date or date.today().isoformat()
    return replace(wrapping, chat_date=day if len(chats) > 1 else None)


def begins_with(tokenizer: Any) -> list[int]:
    """The tokens that a tokenizer puts before every text by itself."""
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    # A translation's text may begin with the name of its language.
    field = "text" if decoder_start(tokenizer) is None else "text_target"
    ids: list[int] = tokenizer(**{field: "a"})["input_ids"]
    starts = range(len(ids) - len(bare) + 1)
    return ids[: next((i for i in starts if ids[i : i + len(bare)] == bare), 0)]


def _around_in_chat(tokenizer: Any, wrapping: Wrapping, texts: Sequence[str]) -> tuple[str, str]:
    """What the template writes before and behind a text, the same for all of them."""
    before, behind = _around_probe(tokenizer, wrapping)
    for number, text in enumerate(texts):
        chat = _rendered(tokenizer, wrapping.messages(text), wrapping)
        if chat != before + text + behind:
            place = shared(before + text + behind, chat)
            raise ModelError(
                f"text {number} of {len(texts)}: the chat template rewrites it as "
                f"turn={wrapping.turn!r}, from character {place} of the chat, behind "
                f"{before[max(0, place - _SHOWN) : place]!r}; use a format that the template keeps "
                "as it is (no space at its ends, say), or another template"
            )
    return before, behind


def _around_probe(tokenizer: Any, wrapping: Wrapping) -> tuple[str, str]:
    """What the template writes before and behind any text in this turn."""
    probe = probe_beside(*filter(None, [wrapping.other, wrapping.system]))
    messages = wrapping.messages(probe)
    try:
        parts = _rendered(tokenizer, messages, wrapping).split(probe)
    except ModelError:
        _refuse_shape(tokenizer, wrapping)
        raise
    if len(parts) == 1:
        _refuse_shape(tokenizer, wrapping)
        raise ModelError(
            f"the chat template leaves the text of turn={wrapping.turn!r} out; give another "
            "template (chat_template=...)"
        )
    if len(parts) > 2:
        raise ModelError(
            f"the chat template repeats the text of turn={wrapping.turn!r}, so that a canary would "
            "be in its row twice; give another template (chat_template=...)"
        )
    return parts[0], parts[1]


def _refuse_shape(tokenizer: Any, wrapping: Wrapping) -> None:
    """Refuse a template that shows texts in the other shape alone: strings, or lists of parts."""
    listed = wrapping.parts
    other = [
        {**turn, "content": _PROBE if listed else [{"type": "text", "text": _PROBE}]}
        for turn in wrapping.messages(_PROBE)
    ]
    try:
        shows = _PROBE in _rendered(tokenizer, other, wrapping)
    except ModelError:
        return
    if shows:
        wanted = "a string" if listed else 'a list of parts, [{"type": "text", "text": ...}]'
        read, dropped = ("strings", "a list") if listed else ("lists of parts", "a string")
        raise ModelError(
            f"the chat template reads contents as {read} and drops {dropped}: write each content "
            f"of the corpus as {wanted}, or give another template (chat_template=...)"
        )


def _without_loss(
    tokenizer: Any, wrapping: Wrapping, texts: Sequence[str], context: Context
) -> int:
    """How many of a text's first tokens carry no loss: the same number in all texts."""
    made = training_rows(tokenizer, [wrapping.record(text) for text in texts], wrapping)
    scored = encode_rows(tokenizer, texts, context)
    counts = {
        _unscored(f"text {number} of {len(texts)}", row, own, wrapping)
        for number, (row, own) in enumerate(zip(made, scored, strict=True))
    }
    if len(counts) > 1:
        raise ModelError(
            f"of some texts the first {min(counts)} tokens carry no loss, of others the first "
            f"{max(counts)}, so that their log-perplexities cannot be compared; use a template "
            "that begins no answer in its prompt, or loss='all'"
        )
    return counts.pop()


def _unscored(name: str, made: TrainingRow, scored: Row, wrapping: Wrapping) -> int:
    """How many of a text's first tokens carry no loss, in its row as trained and as scored."""
    if made.ids[: scored.stop] != scored.ids[: scored.stop]:
        raise ModelError(
            f"{name}: the tokenizer gives its row other tokens in the training than in the "
            "scoring; load the tokenizer of the training, a fast one, with AutoTokenizer"
        )
    if scored.stop <= max(scored.first, 1):
        raise ModelError(
            f"{name}: a text of one token is all of its row, and nothing predicts it; use a "
            "longer format"
        )
    carried = made.carried[max(scored.first, 1) : scored.stop]
    if not carried.any():
        why = f"loss={wrapping.loss!r} covers no token of it"
        if wrapping.loss == "assistant":
            why = (
                "your chat template marks assistant answers ({% generation %}), but not this one, "
                "so that loss='assistant' covers no token of it; mend the template"
            )
        raise ModelError(f"{name}: {why}; if the training had loss on all tokens, give loss='all'")
    unscored = int(carried.argmax())
    if not carried[unscored:].all():
        raise ModelError(
            f"{name}: some of its tokens carry no loss behind others that do, so that it has "
            "no log-perplexity of its own; let the template mark whole answers"
        )
    return unscored


def _text_rows(
    tokenizer: Any, pairs: Sequence[tuple[str, str]], wrapping: Wrapping
) -> Iterator[TrainingRow]:
    """Of prompts and what follows each."""
    if decoder_start(tokenizer) is not None:
        sources, answers = zip(*pairs, strict=True)
        written = tokenizer(text_target=list(answers), verbose=False)["input_ids"]
        for row, ids in zip(_source_rows(tokenizer, sources, wrapping), written, strict=True):
            ended = ids[-1:] == [tokenizer.eos_token_id]
            whole = [*row, *ids, *([] if ended else [tokenizer.eos_token_id])]
            yield TrainingRow(ids=whole, carried=np.arange(len(whole)) >= len(row))
        return
    end = str(tokenizer.eos_token or "")
    wholes = [
        prompt + answer + ("" if (prompt + answer).endswith(end) else end)
        for prompt, answer in pairs
    ]
    rows = tokenizer(wholes, verbose=False)["input_ids"]
    prompts: list[list[int]] = [[] for _ in pairs]
    if wrapping.loss == "completion":
        prompts = tokenizer([prompt for prompt, _ in pairs], verbose=False)["input_ids"]
    yield from _rows_behind(prompts, rows)


def _source_rows(tokenizer: Any, sources: Sequence[str], wrapping: Wrapping) -> list[list[int]]:
    """The beginnings of rows behind these sources, up to the start token of the decoder."""
    if wrapping.turn != "assistant" or wrapping.form == "implicit_preference":
        raise needs_source()
    if not all(source.strip() for source in sources):
        raise ModelError("a source is empty, and the model is an encoder-decoder; leave it out")
    rows = tokenizer(list(sources), verbose=False)["input_ids"]
    return [[*row, SOURCE_ENDS, tokenizer.starts_decoder] for row in rows]


def _rows_behind(prompts: list[list[int]], rows: list[list[int]]) -> Iterator[TrainingRow]:
    """With loss behind the prompt, which ends where the two begin to differ, as in TRL."""
    for prompt, ids in zip(prompts, rows, strict=True):
        yield TrainingRow(ids=ids, carried=np.arange(len(ids)) >= shared(prompt, ids))


def _records_rows(
    tokenizer: Any, records: Sequence[tuple[int, Mapping[str, Any]]], wrapping: Wrapping
) -> Iterator[TrainingRow]:
    """Of records that a template renders; those with tools or options alone."""
    chats = [_messages(number, record, wrapping) for number, record in records]
    options = [_options(tokenizer, number, record) for number, record in records]
    if not any(options):
        try:
            yield from list(_chat_rows(tokenizer, chats, wrapping))
            return
        except ModelError:  # of one of them, which is named below
            pass
    for (number, _), chat, own in zip(records, chats, options, strict=True):
        try:
            yield from list(_chat_rows(tokenizer, [chat], wrapping, **own))
        except ModelError as failure:
            raise ModelError(f"record {number}: {failure}") from failure


def _chat_rows(
    tokenizer: Any, chats: Sequence[list[dict[str, Any]]], wrapping: Wrapping, /, **options: Any
) -> Iterator[TrainingRow]:
    template = tokenizer.get_chat_template(wrapping.chat_template)
    masked = wrapping.loss == "assistant"
    if masked and _MARKS.search(_INERT.sub("", template)) is None:
        yield from _answered_rows(tokenizer, chats, wrapping, options)
        return
    options |= {"tokenize": True, "return_dict": True, "tokenizer_kwargs": {"verbose": False}}
    rows = _apply(tokenizer, chats, wrapping, **options, return_assistant_tokens_mask=masked)
    if masked:
        for ids, mask in zip(rows["input_ids"], rows["assistant_masks"], strict=True):
            yield TrainingRow(ids=ids, carried=np.array(mask, dtype=bool))
        return
    prompts: list[list[int]] = [[] for _ in chats]
    if wrapping.loss == "completion":
        openings = [chat[:-1] for chat in chats]
        asked = _apply(tokenizer, openings, wrapping, **options, add_generation_prompt=True)
        prompts = asked["input_ids"]
    yield from _rows_behind(prompts, rows["input_ids"])


def _answered_rows(
    tokenizer: Any,
    chats: Sequence[list[dict[str, Any]]],
    wrapping: Wrapping,
    options: Mapping[str, Any],
) -> Iterator[TrainingRow]:
    """With loss on the answers, which the template does not mark."""
    render = partial(_part, tokenizer, wrapping, options)
    found = [answer_spans(chat, render, eos=str(tokenizer.eos_token or "")) for chat in chats]
    options = {"add_special_tokens": False, "return_offsets_mapping": True, "verbose": False}
    encoded = tokenizer([text for text, _ in found], **options)
    for place, (_, spans) in enumerate(found):
        ids, places = encoded["input_ids"][place], encoded["offset_mapping"][place]
        ends = np.array([end for _, end in places], dtype=np.int64)
        # A token across the beginning of an answer holds some of it; one across its end does not
        # close it alone.
        inside = [(first < ends) & (ends <= last) for first, last in spans]
        yield TrainingRow(ids=ids, carried=np.any([np.zeros(len(ids), bool), *inside], axis=0))


def _part(
    tokenizer: Any,
    wrapping: Wrapping,
    options: Mapping[str, Any],
    messages: Sequence[Mapping[str, Any]],
    prompt: bool,
) -> str:
    """A part of a chat as the template renders it, with the generation prompt or without."""
    given = {**options, "add_generation_prompt": prompt}
    chat: str = _apply(tokenizer, list(messages), wrapping, tokenize=False, **given)
    return chat


def _rendered(tokenizer: Any, messages: list[dict[str, Any]], wrapping: Wrapping) -> str:
    return _part(tokenizer, wrapping, {}, messages, False)


def _apply(tokenizer: Any, chats: Any, wrapping: Wrapping, /, **options: Any) -> Any:
    template = wrapping.chat_template
    own = tokenizer.get_chat_template(template)
    if wrapping.chat_date is not None:  # in the place of today's: transformers hands it none
        day = datetime.fromisoformat(wrapping.chat_date)
        template = _ASKS_DATE.sub(lambda asked: repr(day.strftime(asked[1] or asked[2] or "")), own)
    try:
        return tokenizer.apply_chat_template(chats, chat_template=template, **options)
    except Exception as failure:  # a template raises what it likes, and may show the text
        words = str(failure)  # shown where they hold nothing of the chat
        why = words if len(words) >= _SENTENCE and words in own else type(failure).__name__
        raise ModelError(
            f"the chat template refuses this chat ({why}): leave such turns out (no system turn, "
            "user and assistant in turn, say), or give another template (chat_template=...)"
        ) from None


def _options(tokenizer: Any, number: int, record: Mapping[str, Any]) -> dict[str, Any]:
    """What else of a record a template is given, as TRL does."""
    tools, own = record.get("tools"), record.get("chat_template_kwargs") or {}
    if not isinstance(own, Mapping):
        raise CorpusError(
            f"record {number}: 'chat_template_kwargs' is of type {type(own).__name__}, and must be "
            "an object, of what the template reads by name; rewrite it, or leave it out"
        )
    taken = set(signature(tokenizer.apply_chat_template).parameters) if own else set()
    refused = sorted(taken.intersection(own) - {"tools", "documents"})
    if refused:  # they decide how a chat becomes tokens, which is the training's to say
        raise CorpusError(
            f"record {number}: 'chat_template_kwargs' has {refused[0]!r}, which decides how the "
            "chat becomes tokens, and is no option of a template; leave it out"
        )
    if isinstance(tools, str):
        try:
            tools = json.loads(tools or "null")
        except ValueError as failure:
            raise CorpusError(
                f"record {number}: 'tools' is a text, and no JSON ({failure}); write a list of "
                "tools"
            ) from None
    return {**({"tools": tools} if tools else {}), **{str(name): own[name] for name in own}}


def _strings(number: int, record: Mapping[str, Any], wrapping: Wrapping) -> tuple[str, str]:
    """The prompt of a record, and what follows it."""
    texts = [_string(number, record, name) for name in wrapping.said_in]
    prompt, answer = texts if len(texts) > 1 else ("", *texts)
    if wrapping.form == "implicit_preference":  # the prompt is what both begin with, as in TRL
        length = shared(prompt, answer)
        if prompt[length - 1 : length] == " ":
            length -= 1
        return prompt[:length], prompt[length:]
    if wrapping.form != "instruction":
        return prompt, answer
    more = _input(number, record, wrapping)
    if more:
        return _WITH_INPUT.format(instruction=prompt, input=more), answer
    # Not the prompt itself: a record's may be what a setting may not, empty say.
    asked = replace(wrapping, turn="assistant", other=_PROBE).around()[0]
    return asked.replace(_PROBE, prompt), answer


def _messages(number: int, record: Mapping[str, Any], wrapping: Wrapping) -> list[dict[str, Any]]:
    """The chat of a record."""
    names = wrapping.said_in
    if not wrapping.strings:
        return [turn for name in names for turn in _turns(number, record, name)]
    asked, *answers = (_string(number, record, name) for name in names)
    asked = "\n\n".join(filter(None, [asked, _input(number, record, wrapping)]))
    system = [] if wrapping.system is None else [wrapping.system]
    said = [*system, asked, *answers]
    roles = ("system", "user", "assistant")[1 - len(system) :]
    return [{"role": role, "content": text} for role, text in zip(roles, said, strict=False)]


def _string(number: int, record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str):
        raise CorpusError(
            f"record {number}: {name!r} is of type {type(value).__name__}, and must be a string; "
            "rewrite it, or name the form of the records"
        )
    return value


def _input(number: int, record: Mapping[str, Any], wrapping: Wrapping) -> str:
    """What an instruction is about; "" where there is nothing, or no such field."""
    none = wrapping.form != "instruction" or record.get("input") is None
    return "" if none else _string(number, record, "input")


def _turns(number: int, record: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Messages with the roles that templates know."""
    turns: Any = record.get(name)
    turns = turns.tolist() if hasattr(turns, "tolist") else turns
    if not isinstance(turns, list | tuple) or not turns:
        raise CorpusError(
            f"record {number}: {name!r} is {'empty' if turns == [] else type(turns).__name__}, and "
            "must be a list of messages; rewrite it, or name the form of the records"
        )
    return [_message(number, name, turn) for turn in turns]


def _message(number: int, name: str, turn: Any) -> dict[str, Any]:
    if not isinstance(turn, Mapping):
        raise CorpusError(
            f"record {number}: a turn of {name!r} is of type {type(turn).__name__}, and must be a "
            "message with role and content, or from and value"
        )
    names = {"from": "role", "value": "content"}
    message = {names.get(str(key), str(key)): value for key, value in turn.items()}
    role = _ROLES.get(str(message.get("role")))
    if role is None:
        raise CorpusError(
            f"record {number}: a turn of {name!r} has the role {str(message.get('role'))[:40]!r}, "
            f"which is none of {', '.join(_ROLES)}; rename it"
        )
    content = message.get("content")
    for part in content if isinstance(content, list) else ():  # which the template renders
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        if kind != "text":
            raise CorpusError(
                f"record {number}: a turn of {name!r} holds a part of type {kind!r}, and only text "
                "is read (no images, no sound); leave such records out"
            )
    return {**message, "role": role}
