"""Where the answers of a chat are in its rendering, for templates that do not mark them.

An answer begins where the generation prompt ends that the template puts behind the turns before,
and ends with what the template writes to close the turn: all that the model has to say itself.
Mostly both show as beginnings of the whole rendering. Where a template writes the past otherwise
than the present (thoughts dropped, another end of the last turn), a probe in the place of a turn's
text shows what comes right behind it.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from lmexposure.errors import ModelError

PROBE = "\ue000"  # of no script: a template shows it where it shows a text, and nowhere else

Message = Mapping[str, Any]
# Of turns, and whether the generation prompt follows; a ModelError where the template refuses.
Render = Callable[[Sequence[Message], bool], str]


def answer_spans(
    chat: Sequence[Message], render: Render, *, eos: str = ""
) -> tuple[str, list[tuple[int, int]]]:
    """The rendering of a chat, and the first and last character, exclusive, of what is answered.

    `eos`, the text of the EOS token, closes a turn where nothing else tells.

    Raises:
        ModelError: the template refuses the chat, or an answer cannot be told from what is around
            it; the message names the turn, from 1.
    """
    whole = render(chat, False)
    spans = []
    for i, turn in enumerate(chat):
        if turn["role"] == "assistant":
            begin = _begin(chat, i, whole, render)
            spans.append((begin, _end(chat, i, begin, whole, render, eos)))
    for i, turn in enumerate(chat):
        if turn["role"] == "tool":  # some templates write it into the answer that called it
            spans = [part for span in spans for part in _outside(chat, i, whole, span, render)]
    return whole, spans


def shared(first: Sequence[Any], second: Sequence[Any]) -> int:
    """How long the common beginning of two sequences is."""
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def probed(turn: Message) -> Message:
    """The turn with the probe in the place of its text."""
    parts = isinstance(turn.get("content"), list | tuple)
    return {**turn, "content": [{"type": "text", "text": PROBE}] if parts else PROBE}


def _begin(chat: Sequence[Message], i: int, whole: str, render: Render) -> int:
    """Where the generation prompt in front of turn i ends."""
    prompt = _or_none(render, chat[:i], True)
    if prompt is not None and whole.startswith(prompt):
        return len(prompt)
    if i == 0:  # a template that begins with no answer: all in front of the text is its own
        before = render([probed(chat[0]), *chat[1:]], False).partition(PROBE)[0]
        return shared(before, whole)
    behind = _behind(chat, i - 1, len(chat), render, prompt=False)
    asked = _behind(chat, i - 1, i, render, prompt=True)
    if behind is None or asked is None or not whole.endswith(behind):
        raise _unclear(i, "begins")
    return len(whole) - len(behind) + shared(asked, behind)


def _end(chat: Sequence[Message], i: int, begin: int, whole: str, render: Render, eos: str) -> int:
    """Where what closes turn i ends; it may be within a token, which then is of the next turn."""
    until = whole if i + 1 == len(chat) else _or_none(render, chat[: i + 1], False)
    if until is not None and whole.startswith(until):
        return len(until)
    behind = _behind(chat, i, len(chat), render, prompt=False)
    if behind is None and until is not None:  # a call alone, whose text is not shown
        alike = whole[begin : shared(until, whole)]
        if eos and eos in alike:
            return begin + _closed(alike, eos)
    if behind is None or not whole.endswith(behind):
        raise _unclear(i, "ends")
    ends = [
        _behind(chat, i, i + 1, render, prompt=False),
        _without(_behind(chat, i, i + 1, render, prompt=True), _prompt(chat, i, render)),
    ]
    closing = [end for end in ends if end is not None]
    lengths = [len(end) for end in closing if behind.startswith(end)]
    lengths += [_closed(behind[: shared(end, behind)], eos) for end in closing]
    if not lengths:
        raise _unclear(i, "ends")
    return len(whole) - len(behind) + lengths[0]


def _closed(text: str, eos: str) -> int:
    """How much of this closes a turn: up to the EOS token and the blanks behind it, else all."""
    until, found, rest = text.partition(eos) if eos else (text, "", "")
    return len(until + found) + len(rest) - len(rest.lstrip()) if found else len(text)


def _outside(
    chat: Sequence[Message], i: int, whole: str, span: tuple[int, int], render: Render
) -> list[tuple[int, int]]:
    """The parts of a span that hold nothing of turn i's text."""
    before, there, behind = render([*chat[:i], probed(chat[i]), *chat[i + 1 :]], False).partition(
        PROBE
    )
    if not (there and whole.startswith(before) and whole.endswith(behind)):
        return [span]
    own = len(before), len(whole) - len(behind)
    parts = [(span[0], min(span[1], own[0])), (max(span[0], own[1]), span[1])]
    return [(first, last) for first, last in parts if first < last]


def _behind(
    chat: Sequence[Message], i: int, stop: int, render: Render, *, prompt: bool
) -> str | None:
    """What follows the text of turn i in chat[:stop]; None where it does not show."""
    turns = [*chat[:i], probed(chat[i]), *chat[i + 1 : stop]]
    rendered = _or_none(render, turns, prompt)
    return rendered.rpartition(PROBE)[2] if rendered is not None and PROBE in rendered else None


def _prompt(chat: Sequence[Message], i: int, render: Render) -> str | None:
    """The generation prompt by itself."""
    bare, asked = _or_none(render, chat[:i], False), _or_none(render, chat[:i], True)
    return asked[len(bare) :] if bare and asked and asked.startswith(bare) else None


def _without(text: str | None, end: str | None) -> str | None:
    return text.removesuffix(end) if text and end and text.endswith(end) else None


def _or_none(render: Render, turns: Sequence[Message], prompt: bool) -> str | None:
    """A rendering of a part of a chat, which a template may refuse."""
    try:
        return render(turns, prompt)
    except ModelError:
        return None


def _unclear(i: int, what: str) -> ModelError:
    return ModelError(
        f"turn {i + 1}: the chat template does not show where this answer {what}; give loss='all', "
        "or a template that marks its answers with {% generation %}"
    )
