"""Where the answers of a chat are in its rendering, for templates that do not mark them.

An answer begins where the generation prompt ends that the template puts behind the turns before,
and ends with what the template writes to close the turn: all that the model has to say itself.
Mostly both show as beginnings of the whole rendering. Where a template writes the past otherwise
than the present (thoughts dropped, another end of the last turn), a probe in the place of a turn's
text shows what comes right behind it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lmexposure.errors import ModelError
from lmexposure.models.encoding import shared

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
