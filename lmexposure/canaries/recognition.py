"""Which form records have, seen in the first of them, and the wrapping that goes with it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, cast

from lmexposure._validate import one_of
from lmexposure.canaries.wrapping import FORMS, Form, Wrapping
from lmexposure.errors import CorpusError, SettingsError

FIRST_RECORDS = 100
_USUAL = "text"
# What each form must have; "text" has the text field.
_FIELDS: Mapping[Form, tuple[str, ...]] = {
    "messages": ("messages",),
    "conversations": ("conversations",),
    "prompt_completion": ("prompt", "completion"),
    "instruction": ("instruction", "output"),
    "preference": ("prompt", "chosen", "rejected"),
}
_SAID = "form={0!r}, on the command line --form {0}"


def recognise(records: Iterable[Mapping[str, Any]], *, text_field: str = "text") -> Form:
    """The form of the first records, by their fields.

    Args:
        records: of a corpus; the first 100 are looked at.
        text_field: the field that a text would be in.

    Returns:
        one of `FORMS`; "text" also where the first record is of no form. What a record of no form
        lacks, its reader says.

    Raises:
        CorpusError: they are of several forms at once, or differ.

    >>> recognise([{"instruction": "Add.", "input": "1 2", "output": "3"}])
    'instruction'
    """
    first = list(islice(records, FIRST_RECORDS))
    fitting = [_fitting(record, text_field) for record in first]
    if not fitting or not fitting[0]:
        return "text"
    for number, forms in enumerate(fitting, 1):
        if forms and not forms & fitting[0]:
            raise CorpusError(
                f"record 1 is of the form {_listed(fitting[0])}, and record {number} is "
                f"{_listed(forms)}: give records of a single form, or say it: "
                f"{_SAID.format(min(fitting[0]))}"
            )
    common = frozenset.intersection(*(forms for forms in fitting if forms))
    if len(common) != 1:
        fields = ", ".join(map(repr, first[0]))
        raise CorpusError(
            f"the first records may be of the form {_listed(common or fitting[0])}: they have "
            f"{fields}; say which: {_SAID.format('text')}"
        )
    return next(iter(common))


@dataclass(frozen=True, kw_only=True)
class WrappingChoice:
    """What was said of a wrapping; what was not follows from the first records.

    Attributes:
        form, turn, loss, rendering, other, system, chat_date: as of `Wrapping`; None: not said.
        text_field: the field that holds a text; another than the usual says that records are texts.
    """

    form: str | None = None
    turn: str | None = None
    loss: str | None = None
    rendering: str | None = None
    other: str | None = None
    system: str | None = None
    chat_date: str | None = None
    text_field: str = _USUAL

    def wrapping(self, records: Iterable[Mapping[str, Any]]) -> Wrapping | None:
        """The wrapping of canaries among these records; None: they are texts.

        Args:
            records: of the corpus; the first 100 are looked at.

        Raises:
            CorpusError: as `recognise`.
            SettingsError: what was said does not go together, or with texts.
        """
        first = list(islice(records, FIRST_RECORDS))
        form = self._form(first)
        if form == "text":
            self._refuse_for_texts()
            return None
        turn = cast(Literal["user", "assistant"], self.turn or "assistant")
        usual = "assistant" if form in ("messages", "conversations") else "completion"
        loss = self.loss or ("all" if turn == "user" else usual)
        strings = form == "instruction" or _are_strings(form, first)
        return Wrapping(
            turn=turn,
            loss=cast(Any, loss),
            form=form,
            strings=strings,
            rendering=cast(Any, self.rendering),
            other=self.other,
            system=_system(form, first) if self.system is None and not strings else self.system,
            chat_date=self.chat_date,
        )

    def _form(self, first: Sequence[Mapping[str, Any]]) -> Form:
        if self.form is not None:
            one_of("form", self.form, FORMS)
            return cast(Form, self.form)
        if self.text_field != _USUAL:  # who names a text field means it
            return "text"
        return recognise(first)

    def _refuse_for_texts(self) -> None:
        for name in ("turn", "loss", "rendering", "other", "system", "chat_date"):
            if getattr(self, name) is not None:
                raise SettingsError(
                    f"{name}={getattr(self, name)!r} is of chats, and these documents are texts; "
                    f"leave it out, or say what a record is: {_SAID.format('messages')}"
                )


def _fitting(record: Mapping[str, Any], text_field: str) -> frozenset[Form]:
    """The forms whose fields a record has; a field that is null is not there."""
    there = {name for name, value in record.items() if value is not None}
    forms: set[Form] = {form for form, names in _FIELDS.items() if there.issuperset(names)}
    if isinstance(record.get(text_field), str):
        forms.add("text")
    return frozenset(forms)


def _listed(forms: Iterable[Form]) -> str:
    return " or ".join(sorted(forms))


def _are_strings(form: str, first: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a prompt is a string and not a list of messages."""
    return (
        form in ("prompt_completion", "preference")
        and bool(first)
        and isinstance(first[0].get("prompt"), str)
    )


def _system(form: str, first: Sequence[Mapping[str, Any]]) -> str | None:
    """The system prompt that all of these chats begin with; None: they have none, or differ."""
    field = form if form in ("messages", "conversations") else "prompt"
    said = {_system_of(record.get(field)) for record in first}
    return said.pop() if len(said) == 1 else None


def _system_of(turns: Any) -> str | None:
    """The text of a chat's first turn, where that is the system's."""
    try:
        speaker, text = [turns[0].get(a, turns[0].get(b)) for a, b in _KEYS]
    except (TypeError, AttributeError, IndexError, KeyError):
        return None
    return text if speaker == "system" and isinstance(text, str) else None


_KEYS = (("role", "from"), ("content", "value"))
