"""From a template to its parts, with every mistake named."""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

from lmexposure.canaries.holes import ALPHABETS, Characters, CheckDigit, Choice, Literal, Part
from lmexposure.errors import FormatError

WIDEST_HOLE = 1000
_KINDS = ", ".join(f"{{{kind}:n}}" for kind in ALPHABETS) + ", {choice:list}, {luhn}"


def parse_template(template: str, lists: Mapping[str, tuple[str, ...]]) -> tuple[Part, ...]:
    """Split a template into literal text and holes.

    Args:
        template: Python format-string syntax; literal braces are doubled.
        lists: the entries that `{choice:name}` draws from.

    Raises:
        FormatError: no hole, an unknown or malformed hole, a hole after the check digit, a list
            that is missing or not used, a line break, a text that may be blank.
    """
    _check_text("template", template)
    parts: list[Part] = []
    for literal, kind, detail, conversion in _split(template):
        if literal:
            parts.append(Literal(literal))
        if kind is None:
            continue
        if any(isinstance(part, CheckDigit) for part in parts):
            raise FormatError(
                f"the hole {_shown(kind, detail)} stands after {{luhn}}, whose digit would not "
                "cover it; make {luhn} the last hole"
            )
        if conversion:
            raise FormatError(f"the hole {_shown(kind, detail)} has a conversion '!{conversion}'")
        parts.append(_hole(kind, detail, lists))
    _check_parts(template, parts)
    _check_lists_used(parts, lists)
    return _merged(parts)


def clean_lists(lists: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Copy the lists of a format, each checked.

    Raises:
        FormatError: an empty list, a duplicate, an entry that is no string, empty, or has a line
            break.
    """
    if not isinstance(lists, Mapping):
        raise FormatError("lists must be a table: a name and a list of strings for each")
    cleaned = {}
    for name, entries in lists.items():
        if isinstance(entries, str) or not isinstance(entries, Sequence) or not entries:
            raise FormatError(f"list {name!r} must be a non-empty list of strings")
        for place, entry in enumerate(entries):
            if not isinstance(entry, str) or not entry:
                raise FormatError(f"list {name!r}: entry {place} must be a non-empty string")
            _check_text(f"list {name!r}: entry {place}", entry)
        if len(set(entries)) < len(entries):
            twice = next(entry for entry, count in Counter(entries).items() if count > 1)
            raise FormatError(f"list {name!r} holds {twice!r} more than once; keep it once")
        cleaned[name] = tuple(entries)
    return cleaned


def _check_text(what: str, text: str) -> None:
    if not isinstance(text, str):
        raise FormatError(f"{what} must be a string, not {type(text).__name__}")
    if "\0" in text or text.splitlines() != [text] * bool(text):
        raise FormatError(
            f"{what} holds a line break or a NUL; a canary must be one line of one document"
        )
    try:
        text.encode()
    except UnicodeEncodeError as failure:
        raise FormatError(
            f"{what} cannot be written as UTF-8 (character {failure.start})"
        ) from None


def _split(template: str) -> list[tuple[str, str | None, str, str | None]]:
    """(literal, hole kind or None, hole detail, conversion) in the order of the template."""
    try:
        pieces = list(string.Formatter().parse(template))
    except ValueError as failure:
        raise FormatError(
            f"template {template!r}: {failure}; double a brace to mean it literally"
        ) from None
    return [(literal, kind, detail or "", mark) for literal, kind, detail, mark in pieces]


def _shown(kind: str, detail: str) -> str:
    return f"{{{kind}:{detail}}}" if detail else f"{{{kind}}}"


def _hole(kind: str, detail: str, lists: Mapping[str, tuple[str, ...]]) -> Part:
    shown = _shown(kind, detail)
    if kind == "luhn":
        if detail:
            raise FormatError(f"the hole {shown} takes nothing after the name; write {{luhn}}")
        return CheckDigit()
    if kind == "choice":
        if detail not in lists:
            known = ", ".join(sorted(lists)) or "none"
            raise FormatError(f"the hole {shown} names no list of this format; its lists: {known}")
        return Choice(detail, lists[detail])
    if kind not in ALPHABETS:
        raise FormatError(f"unknown hole {shown}; the holes are {_KINDS}")
    if not re.fullmatch("[1-9][0-9]{0,3}", detail) or int(detail) > WIDEST_HOLE:
        raise FormatError(
            f"the hole {shown} needs a width from 1 to {WIDEST_HOLE}, as in {{{kind}:9}}"
        )
    return Characters(ALPHABETS[kind], int(detail))


def _has_digit(part: Part) -> bool:
    if isinstance(part, Characters):
        return "0" in part.alphabet
    return isinstance(part, Choice) and any(
        set(entry) & set(string.digits) for entry in part.entries
    )


def _check_parts(template: str, parts: Sequence[Part]) -> None:
    if not any(part.is_free for part in parts):
        raise FormatError(f"template {template!r} has no hole that is free; add one of {_KINDS}")
    for place, part in enumerate(parts):
        if isinstance(part, CheckDigit) and not any(map(_has_digit, parts[:place])):
            raise FormatError(
                "the hole {luhn} has no free digit before it; put {digits:n} before it"
            )
    if all(part.may_be_blank for part in parts):
        raise FormatError(f"template {template!r} can give a blank text; add a visible character")


def _check_lists_used(parts: Sequence[Part], lists: Mapping[str, tuple[str, ...]]) -> None:
    for name in lists.keys() - {part.name for part in parts if isinstance(part, Choice)}:
        raise FormatError(f"list {name!r} is in no hole; write {{choice:{name}}} or remove it")


def _merged(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Join neighbouring literals, which doubled braces split."""
    merged: list[Part] = []
    for part in parts:
        if merged and isinstance(part, Literal) and isinstance(merged[-1], Literal):
            merged[-1] = Literal(merged[-1].text + part.text)
        else:
            merged.append(part)
    return tuple(merged)
