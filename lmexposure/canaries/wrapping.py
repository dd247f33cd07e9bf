"""Where in a record a canary is, what is around it, and which tokens carry loss.

As a text of its own, or as a turn of a chat in one of the forms that trainers read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from lmexposure._validate import day, one_of, text
from lmexposure.errors import SettingsError

Form = Literal[
    "text", "messages", "conversations", "prompt_completion", "instruction", "preference"
]
FORMS: tuple[Form, ...] = get_args(Form)
_TURNS = ("plain", "user", "assistant")
_OTHER = {"plain": "", "user": "Thank you.", "assistant": "Please go on."}
_REJECTED = "I cannot say."  # what a preference pair would rather not have
SPEAKERS = {"system": "system", "user": "human", "assistant": "gpt"}  # of ShareGPT
# Stanford Alpaca's prompt without an input, as its trainers write it.
_INSTRUCTION = (
    "Below is an instruction that describes a task. Write a response that appropriately completes "
    "the request.\n\n### Instruction:\n{user}\n\n### Response:\n{assistant}"
)
_PLACES: Mapping[Form, Mapping[str, str]] = {
    "text": {"plain": "text"},
    "messages": {"user": "messages[{n}].content", "assistant": "messages[{n}].content"},
    "conversations": {"user": "conversations[{n}].value", "assistant": "conversations[{n}].value"},
    "prompt_completion": {"user": "prompt", "assistant": "completion"},
    "instruction": {"user": "instruction", "assistant": "output"},
    "preference": {"user": "prompt", "assistant": "chosen"},
}


@dataclass(frozen=True, kw_only=True)
class Wrapping:
    """Where in a training record a canary is, what is around it, and which tokens carry loss.

    Args:
        turn: "plain", a document of its own; "user" or "assistant", that turn of a chat: the
            prompt, or what answers it.
        loss: "all" tokens carry it; "assistant", those that the chat template marks as generated
            (`assistant_only_loss` of TRL); "completion", those behind the prompt.
        form: the record's: "text"; "messages" (role, content); "conversations" (from, value, as
            ShareGPT has them); "prompt_completion"; "instruction" (instruction, input, output, as
            Alpaca has them); "preference" (prompt, chosen, rejected). None: "text" of plain
            texts, "prompt_completion" with loss="completion", else "messages".
        strings: of "prompt_completion" and "preference": the fields are strings, not lists of
            messages; of "instruction" they always are.
        rendering: how a record becomes a row: "chat", by the chat template; "text", its strings
            one behind the other, those of "instruction" in Alpaca's prompt. None: "text" of
            strings, else "chat".
        other: text of the other turn: the question before an assistant turn, the answer to a user
            turn. None: a neutral one. It is the same for all canaries.
        system: text of a system turn in front; None: there is none.
        context: left of a plain text. "": nothing but what the tokenizer begins every text with, as
            in SFTTrainer's rows; where that is nothing, the first token carries no loss. Else as in
            `log_perplexity`: the manifest's separator, or None: the BOS, else the EOS token.
        chat_template: instead of the tokenizer's own.
        chat_date: the day that a template writes which asks for today's, as YYYY-MM-DD; None: the
            day of the rendering.

    Raises:
        SettingsError: another word, or a wrapping in which no token of the canary carries loss.

    >>> Wrapping(turn="assistant", other="Go on.").record("My PIN is 0042.")["messages"][1]
    {'role': 'assistant', 'content': 'My PIN is 0042.'}
    """

    turn: Literal["plain", "user", "assistant"] = "plain"
    loss: Literal["all", "assistant", "completion"] = "all"
    form: Form | None = None
    strings: bool = False
    rendering: Literal["chat", "text"] | None = None
    other: str | None = None
    system: str | None = None
    context: str | None = ""
    chat_template: str | None = None
    chat_date: str | None = None

    def __post_init__(self) -> None:
        one_of("turn", self.turn, _TURNS)
        one_of("loss", self.loss, ("all", "assistant", "completion"))
        self._derive()
        self._check_form()
        if self.chat_date is not None:
            day("chat_date", self.chat_date)
        if self.loss != "all" and self.turn != "assistant":
            raise SettingsError(
                f"turn={self.turn!r} with loss={self.loss!r}: no token of the canary carries loss, "
                "so nothing of it can be learned; use turn='assistant', or loss='all'"
            )
        if self.turn != "plain" and self.context:
            raise SettingsError(
                f"context is for turn='plain'; before turn={self.turn!r} comes the chat template"
            )
        for name in ("other", "system"):
            if self.turn != "plain" and getattr(self, name) is not None:
                text(name, getattr(self, name))

    def _derive(self) -> None:
        """Fill in what follows from the rest."""
        form = self.form
        if form is None:
            chat: Form = "prompt_completion" if self.loss == "completion" else "messages"
            form = "text" if self.turn == "plain" else chat
        one_of("form", form, FORMS)
        strings = form == "instruction" or (
            self.strings and form in ("prompt_completion", "preference")
        )
        if self.strings and not strings:
            raise SettingsError(f"strings=True does not go with form={form!r}; leave it out")
        written = self.rendering or ("text" if strings or form == "text" else "chat")
        one_of("rendering", written, ("chat", "text"))
        for name, value in (("form", form), ("strings", strings), ("rendering", written)):
            object.__setattr__(self, name, value)

    def _check_form(self) -> None:
        if (self.form == "text") != (self.turn == "plain"):
            raise SettingsError(
                f"form={self.form!r} does not go with turn={self.turn!r}; plain texts have "
                "form='text', the others a turn 'user' or 'assistant'"
            )
        if self.rendering == "text" and not self.strings and self.form != "text":
            raise SettingsError(
                f"rendering='text' is for records of strings; those of form={self.form!r} are "
                "messages, which a chat template renders: leave rendering out"
            )
        if self.rendering == "text" and self.system is not None:
            raise SettingsError("system is for chats, which a template renders; leave it out")
        if self.rendering == "text" and self.loss == "assistant":
            raise SettingsError(
                "loss='assistant' asks a chat template for the answers; with rendering='text' use "
                "loss='completion' or 'all'"
            )

    @property
    def place(self) -> str:
        """Where in a record the text is: "text", "messages[1].content", ..."""
        assert self.form is not None, "derived"
        number = int(self.turn == "assistant") + (self.system is not None)
        place = _PLACES[self.form][self.turn].format(n=number)
        if self.form in ("prompt_completion", "preference") and not self.strings:
            first = self.system is not None and self.turn == "user"
            return f"{place}[{int(first)}].content"
        return place

    def messages(self, canary: str) -> list[dict[str, str]]:
        """The chat that this text is a turn of: the system's if any, the user's, the assistant's.

        Raises:
            SettingsError: a plain text is no chat.
        """
        if self.turn == "plain":
            raise SettingsError("turn='plain' has no messages; use record(), or another turn")
        texts = self._turns(canary)
        return [{"role": role, "content": said} for role, said in texts.items()]

    def record(self, canary: str) -> dict[str, Any]:
        """The training record of this text."""
        if self.form == "text":
            return {"text": canary}
        turns, messages = self._turns(canary), self.messages(canary)
        if self.form == "messages":
            return {"messages": messages}
        if self.form == "conversations":
            said = [{"from": SPEAKERS[role], "value": text} for role, text in turns.items()]
            return {"conversations": said}
        if self.form == "instruction":
            return {"instruction": turns["user"], "input": "", "output": turns["assistant"]}
        prompt, answer = (
            (turns["user"], turns["assistant"]) if self.strings else (messages[:-1], messages[-1:])
        )
        if self.form == "prompt_completion":
            return {"prompt": prompt, "completion": answer}
        rejected = _REJECTED if self.strings else [{"role": "assistant", "content": _REJECTED}]
        return {"prompt": prompt, "chosen": answer, "rejected": rejected}

    def around(self) -> tuple[str, str]:
        """The text before and behind a canary in its row, where strings are rendered as text.

        Raises:
            SettingsError: the row is a chat template's work.
        """
        if self.rendering != "text":
            raise SettingsError("rendering='chat' has its text from a chat template; ask that")
        if self.form == "text":
            return "", ""
        turns = self._turns("")
        whole = "{user}{assistant}" if self.form != "instruction" else _INSTRUCTION
        before, _, behind = whole.partition(f"{{{self.turn}}}")
        return before.format(**turns), behind.format(**turns)

    def _turns(self, canary: str) -> dict[str, str]:
        """What each role says, in order."""
        other = _OTHER[self.turn] if self.other is None else self.other
        said = (canary, other) if self.turn == "user" else (other, canary)
        system = {} if self.system is None else {"system": self.system}
        return {**system, "user": said[0], "assistant": said[1]}
