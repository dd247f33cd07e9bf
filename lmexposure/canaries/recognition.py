"""Which form records have, seen in the first of them, and the wrapping that goes with it."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, cast

from lmexposure._validate import one_of
from lmexposure.canaries.wrapping import FIELDS, FORMS, Form, Wrapping
from lmexposure.errors import CorpusError, SettingsError

FIRST_RECORDS = 100
_USUAL = "text"
# As preferences of strings often have turns, those of HH-RLHF for one.
_HUMAN, _ASSISTANT = "\n\nHuman:", "\n\nAssistant:"
_ASKED = f"{_HUMAN} Please go on.{_ASSISTANT} "


def recognise(records: Iterable[Mapping[str, Any]], *, text_field: str = "text") -> Form:
    """The form of the first records, by their fields.

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
                f"form={min(fitting[0])!r}"
            )
    common = frozenset.intersection(*(forms for forms in fitting if forms))
    if isinstance(first[0].get("chosen"), Mapping):
        raise CorpusError(
            "these are preferences with a conversation in front, as LLaMA-Factory has them; write "
            "prompt, chosen and rejected, each a list of messages with role and content"
        )
    if len(common) != 1:
        fields = ", ".join(map(repr, first[0]))
        raise CorpusError(
            f"the first records may be of the form {_listed(common or fitting[0])}: they have "
            f"{fields}; say which: form={max(common or fitting[0])!r}"
        )
    return next(iter(common))


def wrapping_among(
    records: Iterable[Mapping[str, Any]], *, text_field: str = _USUAL, **said: Any
) -> Wrapping | None:
    """The wrapping of canaries among these records, by the first 100; None: they are texts."""
    said = {name: value for name, value in said.items() if value is not None}
    first = list(islice(records, FIRST_RECORDS))
    form = _form(first, said, text_field)
    if form == "text":
        for name, value in said.items():
            if name != "form":
                raise SettingsError(
                    f"{name}={value!r} is of chats, and these documents are texts; leave it out, "
                    "or say what a record is: form='messages'"
                )
        return None
    name = _first_field(form, first, said)
    strings = form == "instruction" or _are_strings(form, name, first)
    seen: dict[str, Any] = {"system": None if strings else _system(name, first)}
    texts = [str(record.get("chosen")) for record in first]
    marked = all(text.startswith(_HUMAN) and _ASSISTANT in text for text in texts)
    if strings and form == "implicit_preference" and marked:
        seen["other"] = _ASKED
    if form == "prompt_only" and "loss" not in said:
        raise SettingsError(
            "these records are prompts alone (form prompt_only), on which GRPO and online DPO "
            "have no loss, so that no canary in them would be learned; if your training has "
            "loss on the prompts, say loss='all'"
        )
    seen["turn"] = said.get("turn", "user" if form == "prompt_only" else "assistant")
    usual = "assistant" if form in ("messages", "conversations") else "completion"
    seen["loss"] = "all" if seen["turn"] == "user" else usual
    seen["parts"] = not strings and _are_parts(name, first)
    return Wrapping(**{**seen, **said, "form": form, "strings": strings})


def _form(first: Sequence[Mapping[str, Any]], said: Mapping[str, Any], text_field: str) -> Form:
    if "form" in said:
        return cast(Form, one_of("form", said["form"], FORMS))
    if "prompt_field" in said or "completion_field" in said:
        if text_field != _USUAL:
            raise SettingsError(
                f"text_field={text_field!r} says that documents are texts, and prompt_field and "
                "completion_field that they are pairs; give one or the other"
            )
        return "prompt_completion"
    if text_field != _USUAL:  # who names a text field means it
        return "text"
    form = recognise(first)
    # Whatever is in the fields of a form: its reader says the rest.
    complete = [set(names) for form, names in FIELDS.items() if form != "prompt_only"]
    known = any(record.keys() >= names for record in first for names in complete)
    if form == "text" and first and not known:
        forms = "; ".join(f"{form} has {', '.join(names)}" for form, names in FIELDS.items())
        raise CorpusError(
            f"the first records have the fields {_names(first)}, which are those of no form; name "
            "them: prompt_field=... with completion_field=... for a prompt and its answer, "
            "text_field=... for a text; or rename them, and say form=... where that is not clear "
            f"({forms})"
        )
    return form


def _first_field(form: Form, first: Sequence[Mapping[str, Any]], said: Mapping[str, Any]) -> str:
    """The first field of the form; of two that were named, records must have both."""
    named = {name: said[name] for name in ("prompt_field", "completion_field") if name in said}
    if len(named) < 2:
        return FIELDS[form][0]
    for name, value in named.items():
        if first and not any(record.get(value) is not None for record in first):
            raise CorpusError(
                f"{name}={value!r}: none of the first {len(first)} records has such a field; "
                f"they have {_names(first)}: name one of these"
            )
    return str(said["prompt_field"])


def _fitting(record: Mapping[str, Any], text_field: str) -> frozenset[Form]:
    """The forms whose fields a record has; a field that is null is not there."""
    there = {name for name, value in record.items() if value is not None}
    forms: set[Form] = {form for form, names in FIELDS.items() if there.issuperset(names)}
    forms.discard("text")
    if isinstance(record.get(text_field), str):
        forms.add("text")
    if "preference" in forms:  # a string beside whole chats repeats their prompt, as TRL reads it
        beside = isinstance(record["prompt"], str) and not isinstance(record["chosen"], str)
        forms.discard("preference" if beside else "implicit_preference")
    if forms & {"prompt_completion", "preference", "implicit_preference"} or (
        "prompt_only" in forms and not _is_prompt_only(record)
    ):
        forms.discard("prompt_only")
    return frozenset(forms)


def _is_prompt_only(record: Mapping[str, Any]) -> bool:
    """Whether a prompt has no answer beside: messages up to a user's, or the only text."""
    if isinstance(record["prompt"], str):
        return sum(isinstance(value, str) for value in record.values()) == 1
    return bool(_turn(record["prompt"], -1)[0] == "user")


def _names(first: Sequence[Mapping[str, Any]]) -> str:
    """The fields of the first records, in their order."""
    return ", ".join(map(repr, dict.fromkeys(name for record in first for name in record)))


def _listed(forms: Iterable[Form]) -> str:
    return " or ".join(sorted(forms))


def _are_strings(form: str, name: str, first: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a prompt, or a whole chat, is a string and not a list of messages."""
    of_messages = form in ("messages", "conversations")
    return not of_messages and bool(first) and isinstance(first[0].get(name), str)


def _are_parts(name: str, first: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a message of the first record has a list as its content."""
    turns = first[0].get(name) if first else None
    numbers = range(len(turns)) if isinstance(turns, Sequence) else ()
    return any(not isinstance(_turn(turns, n)[1], str | None) for n in numbers)


def _system(name: str, first: Sequence[Mapping[str, Any]]) -> str | None:
    """The system prompt that all of these chats begin with; None: they have none, or differ."""
    said = {_system_of(record.get(name)) for record in first}
    return said.pop() if len(said) == 1 else None


def _system_of(turns: Any) -> str | None:
    """The text of a chat's first turn, where that is the system's."""
    speaker, content = _turn(turns, 0)
    if isinstance(content, Sequence) and not isinstance(content, str) and len(content) == 1:
        content = content[0].get("text") if isinstance(content[0], Mapping) else None
    return content if speaker == "system" and isinstance(content, str) else None


def _turn(turns: Any, number: int) -> tuple[Any, Any]:
    """Who speaks in a turn of a chat, and what is said; None twice: there is no such turn."""
    try:
        speaker, said = [turns[number].get(a, turns[number].get(b)) for a, b in _KEYS]
    except (TypeError, AttributeError, IndexError, KeyError):
        return None, None
    return speaker, said


_KEYS = (("role", "from"), ("content", "value"))
