"""Where in a record a canary is, what is around it, and which tokens carry loss."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from lmexposure._types import LATER, UNWRITTEN, Checked, Rows, Sha256
from lmexposure._validate import day, one_of, text
from lmexposure.errors import SettingsError

Form = Literal[
    "text",
    "messages",
    "conversations",
    "prompt_completion",
    "instruction",
    "preference",
    "implicit_preference",
    "prompt_only",
]
FORMS: tuple[Form, ...] = get_args(Form)
# The fields that a record of each form has: a chat as a whole, or a prompt and what follows it.
FIELDS: Mapping[Form, tuple[str, ...]] = {
    "text": ("text",),
    "messages": ("messages",),
    "conversations": ("conversations",),
    "prompt_completion": ("prompt", "completion"),
    "instruction": ("instruction", "output"),
    "preference": ("prompt", "chosen", "rejected"),
    "implicit_preference": ("chosen", "rejected"),
    "prompt_only": ("prompt",),
}
_WHOLE = ("messages", "conversations", "implicit_preference")  # a chat in the first field
_EITHER = ("prompt_completion", "preference", "implicit_preference", "prompt_only")
_TURNS = ("plain", "user", "assistant")
_OTHER = {"plain": "", "user": "Thank you.", "assistant": "Please go on."}
# What a preference pair would rather not have; the other where a canary begins as it does, for what
# two strings begin with is their prompt.
_REJECTED = ("I cannot say.", "No answer.")
SPEAKERS = {"system": "system", "user": "human", "assistant": "gpt"}  # of ShareGPT
# Stanford Alpaca's prompt without an input, as its trainers write it.
_INSTRUCTION = (
    "Below is an instruction that describes a task. Write a response that appropriately completes "
    "the request.\n\n### Instruction:\n{user}\n\n### Response:\n{assistant}"
)


@dataclass(frozen=True, kw_only=True)
class Wrapping(Checked):
    """Where in a training record a canary is, what is around it, and which tokens carry loss.

    Raises:
        SettingsError: another word, or a wrapping in which no token of the canary carries loss.

    >>> Wrapping(turn="assistant", other="Go on.").record("My PIN is 0042.")["messages"][1]
    {'role': 'assistant', 'content': 'My PIN is 0042.'}
    """

    form: Form | None = None
    """The record's: "text"; "messages" (role, content); "conversations" (from, value, as ShareGPT
    has them); "prompt_completion"; "instruction" (instruction, input, output, as Alpaca has them);
    "preference" (prompt, chosen, rejected); "implicit_preference" (chosen, rejected, each with the
    prompt within); "prompt_only" (prompt). None: "text" of plain texts, "prompt_completion" with a
    field for each or with loss="completion", else "messages".
    """
    turn: Literal["plain", "user", "assistant"] = "plain"
    """"plain", a document of its own; "user" or "assistant", that turn of a chat: the prompt, or
    what answers it.
    """
    loss: Literal["all", "assistant", "completion"] = "all"
    """"all" tokens carry it; "assistant", those that the chat template marks as generated
    (`assistant_only_loss` of TRL); "completion", those behind the prompt.
    """
    strings: bool = False
    """Of "prompt_completion", "prompt_only" and preferences: the fields are strings, not lists of
    messages; of "instruction" they always are.
    """
    prompt_field: str | None = field(default=None, metadata=LATER)
    """What "prompt_completion" calls its two fields; None: so."""
    completion_field: str | None = field(default=None, metadata=LATER)
    """What "prompt_completion" calls its two fields; None: so."""
    parts: bool = field(default=False, metadata=LATER)
    """The contents of messages are lists of a part, {"type": "text", "text": ...}, as records of
    models that see have them.
    """
    rendering: Literal["chat", "text"] | None = None
    """How a record becomes a row: "chat", by the chat template; "text", its strings one behind the
    other, those of "instruction" in Alpaca's prompt. None: "text" of strings, else "chat".
    """
    other: str | None = None
    """Text of the other turn: the question before an assistant turn, the answer to a user turn.
    None: a neutral one. It is the same for all canaries. Of an implicit preference of strings, all
    that is before the canary in its string; None: nothing.
    """
    system: str | None = None
    """Text of a system turn in front; None: there is none."""
    chat_date: str | None = field(default=None, metadata=LATER)
    """The day that a template writes which asks for today's, as YYYY-MM-DD; None: the day of the
    rendering.
    """
    template_sha256: Sha256 | None = None
    """In a manifest, of the chat template that the training will use; None: it is not known."""
    special_tokens: Rows[str] | None = None
    """In a manifest, of the training's tokenizer, as text; None: they are not known."""
    context: str | None = field(default="", metadata=UNWRITTEN)
    """Left of a plain text. "": nothing but what the tokenizer begins every text with, as in
    SFTTrainer's rows; where that is nothing, the first token carries no loss. Else as in
    `log_perplexity`: the manifest's separator, or None: the BOS, else the EOS token.
    """
    chat_template: str | None = field(default=None, metadata=UNWRITTEN)
    """Instead of the tokenizer's own."""

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
            pair = self.loss == "completion" or self.prompt_field is not None
            chat: Form = "prompt_completion" if pair else "messages"
            form = "text" if self.turn == "plain" else chat
        one_of("form", form, FORMS)
        strings = form == "instruction" or (self.strings and form in _EITHER)
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
        self._check_fields()
        turns = {"implicit_preference": "assistant", "prompt_only": "user"}
        if self.form in turns and self.turn != turns[self.form]:
            raise SettingsError(
                f"turn={self.turn!r} does not go with form={self.form!r}, whose canaries are the "
                f"turn {turns[self.form]!r}"
            )
        if self.form == "prompt_only" and self.other is not None:
            raise SettingsError("other: form='prompt_only' has no other turn; leave it out")
        if self.rendering == "chat" and self.strings and self.form == "implicit_preference":
            raise SettingsError(
                "rendering='chat' does not go with an implicit preference of strings, which hold "
                "the prompt as text; leave rendering out"
            )
        if self.parts and (self.strings or self.form in ("text", "conversations")):
            raise SettingsError(
                f"parts=True is for lists of messages with a content; form={self.form!r} has none "
                "here: leave it out"
            )
        if self.rendering == "text" and not self.strings and self.form != "text":
            raise SettingsError(
                f"rendering='text' is for records of strings; those of form={self.form!r} are "
                "messages, of which a chat template makes texts: leave rendering out"
            )
        if self.rendering == "text" and self.system is not None:
            raise SettingsError(
                "system is for chats, of which a template makes texts; leave it out"
            )
        if self.rendering == "text" and self.loss == "assistant":
            raise SettingsError(
                "loss='assistant' asks a chat template for the answers: say rendering='chat' "
                "if one made these strings, else loss='completion' or loss='all'"
            )

    def _check_fields(self) -> None:
        """Refuse one name without the other, names of other forms, and one name for both."""
        named = {"prompt_field": self.prompt_field, "completion_field": self.completion_field}
        given = {name: text(name, value) for name, value in named.items() if value is not None}
        if len(given) == 1:
            there, value = next(iter(given.items()))
            missing = next(name for name in named if name != there)
            raise SettingsError(f"{there}={value!r} goes with a {missing}; give both")
        if given and self.form != "prompt_completion":
            raise SettingsError(
                f"prompt_field and completion_field are of form='prompt_completion', and this is "
                f"form={self.form!r}; leave them out, or the form"
            )
        if given and self.prompt_field == self.completion_field:
            raise SettingsError(
                f"prompt_field and completion_field are both {self.prompt_field!r}; give two fields"
            )

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of a record that are written, those of the prompt first."""
        if self.prompt_field is not None and self.completion_field is not None:
            return self.prompt_field, self.completion_field
        assert self.form is not None, "derived"
        return FIELDS[self.form]

    @property
    def said_in(self) -> tuple[str, ...]:
        """The fields that its row is made of: a chat, or a prompt and what follows it."""
        return self.fields[: 1 if self.form in _WHOLE and not self.strings else 2]

    @property
    def steps(self) -> tuple[str | int, ...]:
        """The fields and numbers that lead to the string with the text in a record."""
        ahead, answer = int(self.system is not None), int(self.turn == "assistant")
        whole = self.form in _WHOLE
        name = self.fields[0 if whole else answer]
        if self.strings or self.form == "text":
            return (name,)
        number = ahead + answer if whole else ahead * (1 - answer)
        said = "value" if self.form == "conversations" else "content"
        return (name, number, said, *((0, "text") if self.parts else ()))

    @property
    def place(self) -> str:
        """Where in a record the text is: "text", "messages[1].content", ..."""
        name, *more = self.steps
        return str(name) + "".join(
            f"[{step}]" if isinstance(step, int) else f".{step}" for step in more
        )

    @property
    def asked(self) -> str:
        """What an assistant's turn answers."""
        return _OTHER["assistant"] if self.other is None else self.other

    @property
    def before(self) -> str:
        """What the string at that place begins with, in front of the text."""
        return (self.other or "") if self.form == "implicit_preference" and self.strings else ""

    def messages(self, canary: str) -> list[dict[str, Any]]:
        """The chat that this text is a turn of, with the system's turn, if any, in front."""
        if self.turn == "plain":
            raise SettingsError("turn='plain' has no messages; use record(), or another turn")
        return [self._message(role, said) for role, said in self._turns(canary).items()]

    def _message(self, role: str, said: str) -> dict[str, Any]:
        return {"role": role, "content": [{"type": "text", "text": said}] if self.parts else said}

    def record(self, canary: str) -> dict[str, Any]:
        """The training record of this text."""
        return dict(zip(self.fields, self._values(canary), strict=True)) | (
            {"input": ""} if self.form == "instruction" else {}
        )

    def _values(self, canary: str) -> tuple[Any, ...]:
        """What is in each field."""
        if self.form == "text":
            return (canary,)
        turns, messages = self._turns(canary), self.messages(canary)
        if self.form == "messages":
            return (messages,)
        if self.form == "conversations":
            return ([{"from": SPEAKERS[role], "value": said} for role, said in turns.items()],)
        rejected = _REJECTED[canary[:1] == _REJECTED[0][0]]
        if self.form == "implicit_preference":
            if self.strings:
                return self.before + canary, self.before + rejected
            return messages, [*messages[:-1], self._message("assistant", rejected)]
        if self.form == "prompt_only":
            return (canary,) if self.strings else (messages,)
        pair = (
            (turns["user"], turns["assistant"]) if self.strings else (messages[:-1], messages[-1:])
        )
        if self.form != "preference":
            return pair
        return *pair, _REJECTED[0] if self.strings else [self._message("assistant", _REJECTED[0])]

    def around(self) -> tuple[str, str]:
        """The text before and behind a canary in its row, where strings are rendered as text."""
        if self.rendering != "text":
            raise SettingsError("rendering='chat' has its text from a chat template; ask that")
        if self.form == "text":
            return "", ""
        if self.form in ("implicit_preference", "prompt_only"):
            return self.before, ""
        turns = self._turns("")
        whole = "{user}{assistant}" if self.form != "instruction" else _INSTRUCTION
        before, _, behind = whole.partition(f"{{{self.turn}}}")
        return before.format(**turns), behind.format(**turns)

    def _turns(self, canary: str) -> dict[str, str]:
        """What each role says, in order."""
        other = _OTHER[self.turn] if self.other is None else self.other
        said = (canary, other) if self.turn == "user" else (other, canary)
        system = {} if self.system is None else {"system": self.system}
        answer = {} if self.form == "prompt_only" else {"assistant": said[1]}
        return {**system, "user": said[0], **answer}
