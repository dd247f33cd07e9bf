"""What a record of a chat must be, so that a canary's record is trained on as the others are."""

from collections.abc import Iterator, Mapping
from typing import Any

from lmexposure.canaries.wrapping import SPEAKERS, Wrapping
from lmexposure.errors import CorpusError

# Fields that say how a chat is rendered; canaries' records leave them empty.
CHANGING = ("tools", "chat_template_kwargs")
_IMAGES = ("images", "image")
_CALLS = ("tool_calls", "function_call")
_OF_TOOLS = ("tool", "function", "function_call", "observation", "function_response")
_OPTIONAL = "input"  # of an instruction; it may be empty


def check_chat(
    where: str, row: Mapping[str, Any], wrapping: Wrapping, *, constants: Mapping[str, Any]
) -> None:
    """Refuse a record among which those of canaries would be of another kind, or trained otherwise.

    Records with tools, their calls and their answers are as good as others: those of canaries have
    none.

    Args:
        where: what messages call it: "line 3".
        row: with all fields that the wrapping writes.
        wrapping: of the canaries.
        constants: fields of the canaries' records that were given.

    Raises:
        CorpusError: strings in place of messages, or the other way; contents that are lists in
            place of strings, or the other way; images, an unknown role or an empty turn; constants
            that change how the canaries' records are rendered.
    """
    written = {name: value for name, value in wrapping.record("").items() if name in row}
    for name, value in written.items():
        _check_type(where, name, row[name], wants_text=isinstance(value, str))
    if wrapping.form == "text":
        return
    _check_rendering(where, row, constants)
    for name, value in written.items():
        if not isinstance(value, str):
            _check_turns(f"{where}: {name!r}", row[name], wrapping)
        elif name != _OPTIONAL and not row[name].strip():
            raise CorpusError(_empty(f"{where}: {name!r}"))


def _check_type(where: str, name: str, value: Any, *, wants_text: bool) -> None:
    """Refuse a string where the wrapping writes messages, or the other way."""
    if isinstance(value, str) == wants_text and not isinstance(value, int | float | None):
        return
    raise CorpusError(
        f"{where}: {name!r} is of type {type(value).__name__}, and must be "
        f"{'a string' if wants_text else 'a list of messages'}, as this wrapping writes; choose "
        "another wrapping, or rewrite it"
    )


def _check_rendering(where: str, row: Mapping[str, Any], constants: Mapping[str, Any]) -> None:
    """Refuse fields by which the canaries' records would be rendered otherwise than scored."""
    changing = [name for name in CHANGING if _holds(constants.get(name))]
    if changing:
        raise CorpusError(
            f"{changing[0]!r} is given to the canaries' records, by which they would be rendered "
            "otherwise than they are scored; leave it out of fields"
        )
    images = [name for name in _IMAGES if _holds(row.get(name))]
    if images:
        raise CorpusError(_of_images(f"{where} has {images[0]!r}:"))


def _check_turns(where: str, value: Any, wrapping: Wrapping) -> None:
    """Refuse messages that are not what trainers read."""
    shared = wrapping.form == "conversations"
    speaker, said = ("from", "value") if shared else ("role", "content")
    roles = tuple(SPEAKERS.values() if shared else SPEAKERS)
    turns = list(_turns(value))
    if not turns:
        raise CorpusError(f"{where} has no turns; leave such records out")
    for number, turn in enumerate(turns, 1):
        place = f"{where}, turn {number}"
        calls = isinstance(turn, Mapping) and any(_holds(turn.get(name)) for name in _CALLS)
        if not isinstance(turn, Mapping) or speaker not in turn or not (calls or said in turn):
            has = ", ".join(map(repr, turn)) if isinstance(turn, Mapping) else type(turn).__name__
            raise CorpusError(
                f"{place} must have {speaker!r} and {said!r}; it has {has or 'none'}: rename them, "
                "or choose another form"
            )
        if calls or turn[speaker] in _OF_TOOLS:
            continue  # a call of a tool, or its answer, may say nothing else
        _check_role(place, turn[speaker], roles)
        _check_content(f"{place}: {said!r}", turn[said], parts=wrapping.parts)


def _check_role(where: str, role: Any, roles: tuple[str, ...]) -> None:
    if role not in roles:
        shown = repr(role) if isinstance(role, str) else f"of type {type(role).__name__}"
        raise CorpusError(
            f"{where}: the role {shown} is unknown; the roles here are {', '.join(roles)}: rename "
            "it, or leave such records out"
        )


def _check_content(where: str, content: Any, *, parts: bool) -> None:
    """Refuse a content that is not of the kind that canaries' records have; `parts`: a list."""
    found = list(_turns(content))
    kinds = [str(part.get("type")) for part in found if isinstance(part, Mapping)]
    images = [kind for kind in kinds if "image" in kind]
    if images:
        raise CorpusError(_of_images(f"{where} holds a part of type {images[0]!r}:"))
    if isinstance(content, str) == parts or not (kinds or isinstance(content, str)):
        what = "a list of parts" if kinds else f"of type {type(content).__name__}"
        what = "a string" if isinstance(content, str) else what
        wanted = "a list of parts" if parts else "a string"
        alike = "write all contents alike" if parts else "write its text as a string"
        raise CorpusError(f"{where} is {what}, and must be {wanted}; {alike}")
    texts = [part.get("text") if isinstance(part, Mapping) else None for part in found]
    if parts and (set(kinds) != {"text"} or not all(isinstance(text, str) for text in texts)):
        raise CorpusError(
            f"{where} holds a part that is no text, such as {{'type': 'text', 'text': ...}}; leave "
            "such records out"
        )
    said = "".join(map(str, texts)) if parts else content
    if not said.strip():
        raise CorpusError(_empty(where))


def _empty(where: str) -> str:
    return f"{where} is empty; leave out such records, or such turns"


def _of_images(what: str) -> str:
    return f"{what} images are not measured, text is; leave such records out"


def _holds(value: Any) -> bool:
    """Whether a field is more than null or empty; of an array, too."""
    if value is None:
        return False
    return bool(len(value)) if hasattr(value, "__len__") else bool(value)


def _turns(value: Any) -> Iterator[Any]:
    """The items of a list, also of an array or what datasets gives for a list."""
    if isinstance(value, str | Mapping) or not hasattr(value, "__iter__"):
        return
    yield from value
