"""A template and its parts: literal text, typed holes, the check digit; every mistake is named.

Every part has the same face:

* `size`: how many values; `write(value, before)`: the text of one, given the fill's text before it;
  `read(text, begin, at)`: every (end, value) that can be read at `at` of a fill begun at `begin`.
* `regex`: finds it; `characters`: all that it can hold;
  `may_be_blank`: it can be white space alone.
* an automaton that starts at node 0 and moves one character at a time: `options(node, due)`, the
  characters that may come; `step(node, character, due)`, the node reached, or None; `ends(node)`,
  the part may be over; `goes_on(node)`, it may continue. `due` is the check digit that the text so
  far asks for.
"""

# ruff: noqa: D102 (the methods of every part are explained once, above)

import re
import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from lmexposure.errors import FormatError

# (Luhn sum if the last digit is doubled, Luhn sum if it is not), both modulo 10. Which of the two
# will count is open until the check digit comes, so both travel along.
LuhnSums = tuple[int, int]
NO_DIGITS: LuhnSums = (0, 0)


def luhn_sums(sums: LuhnSums, character: str) -> LuhnSums:
    """The sums after one more character; anything but 0-9 is skipped."""
    if character not in "0123456789":
        return sums
    digit = int(character)
    doubled = 2 * digit - 9 * (digit > 4)
    return (sums[1] + doubled) % 10, (sums[0] + digit) % 10


def luhn_digit(sums: LuhnSums) -> str:
    """The check digit that would be right after this text."""
    return str(-sums[0] % 10)


def check_digit(text: str) -> str:
    """The Luhn check digit over all digits (0-9) of `text`; other characters are skipped.

    Source: ISO/IEC 7812-1, annex B (H. P. Luhn, US patent 2,950,048).

    >>> check_digit("7992 7398 71")
    '3'
    """
    sums = NO_DIGITS
    for character in text:
        sums = luhn_sums(sums, character)
    return luhn_digit(sums)


ALPHABETS = {
    "digits": string.digits,
    "lower": string.ascii_lowercase,
    "upper": string.ascii_uppercase,
    "alnum": string.ascii_lowercase + string.digits,
    "hex": string.digits + "abcdef",
    "printable": "".join(map(chr, range(ord("!"), ord("~") + 1))),
}


@dataclass(frozen=True)
class Characters:
    """`width` characters, each free in the alphabet; the first is the most significant."""

    alphabet: str
    width: int
    is_hole: ClassVar[bool] = True
    is_free: ClassVar[bool] = True
    may_be_blank: ClassVar[bool] = False

    @property
    def size(self) -> int:
        return int(len(self.alphabet) ** self.width)

    @property
    def regex(self) -> str:
        return f"[{re.escape(self.alphabet)}]{{{self.width}}}"

    @property
    def characters(self) -> str:
        return self.alphabet

    def left(self, known: str) -> int:
        return int(len(self.alphabet) ** (self.width - len(known)))

    @cached_property
    def _place(self) -> dict[str, int]:
        return {character: place for place, character in enumerate(self.alphabet)}

    def write(self, value: int, before: str) -> str:
        characters = []
        for _ in range(self.width):
            value, place = divmod(value, len(self.alphabet))
            characters.append(self.alphabet[place])
        return "".join(reversed(characters))

    def read(self, text: str, begin: int, at: int) -> Iterator[tuple[int, int]]:
        end = at + self.width
        if end > len(text):
            return
        value = 0
        for character in text[at:end]:
            place = self._place.get(character)
            if place is None:
                return
            value = value * len(self.alphabet) + place
        yield end, value

    def options(self, node: int, due: str) -> str:
        return self.alphabet

    def step(self, node: int, character: str, due: str) -> int | None:
        return node + 1 if character in self._place else None

    def ends(self, node: int) -> bool:
        return node == self.width

    def goes_on(self, node: int) -> bool:
        return node < self.width


@dataclass(frozen=True)
class Choice:
    """One entry of a named list, in the list's order."""

    name: str
    entries: tuple[str, ...]
    is_hole: ClassVar[bool] = True
    is_free: ClassVar[bool] = True

    @property
    def size(self) -> int:
        return len(self.entries)

    @property
    def regex(self) -> str:
        longest_first = sorted(self.entries, key=len, reverse=True)
        return f"(?:{'|'.join(map(re.escape, longest_first))})"

    @property
    def characters(self) -> str:
        return "".join(self.entries)

    def left(self, known: str) -> int:
        return sum(entry.startswith(known) for entry in self.entries)

    @property
    def may_be_blank(self) -> bool:
        return not all(entry.strip() for entry in self.entries)

    @cached_property
    def _place(self) -> dict[str, int]:
        return {entry: place for place, entry in enumerate(self.entries)}

    @cached_property
    def _lengths(self) -> tuple[int, ...]:
        return tuple(sorted({len(entry) for entry in self.entries}))

    @cached_property
    def _trie(self) -> tuple[list[dict[str, int]], set[int]]:
        """Children by node, and the nodes at which an entry ends."""
        children: list[dict[str, int]] = [{}]
        ends = set()
        for entry in self.entries:
            node = 0
            for character in entry:
                if character not in children[node]:
                    children[node][character] = len(children)
                    children.append({})
                node = children[node][character]
            ends.add(node)
        return children, ends

    @property
    def is_prefix_free(self) -> bool:
        """No entry begins another, so that a reader always knows where one ends."""
        return not any(self.goes_on(node) for node in self._trie[1])

    def write(self, value: int, before: str) -> str:
        return self.entries[value]

    def read(self, text: str, begin: int, at: int) -> Iterator[tuple[int, int]]:
        for length in self._lengths:
            place = self._place.get(text[at : at + length])
            if place is not None and at + length <= len(text):
                yield at + length, place

    def options(self, node: int, due: str) -> str:
        return "".join(self._trie[0][node])

    def step(self, node: int, character: str, due: str) -> int | None:
        return self._trie[0][node].get(character)

    def ends(self, node: int) -> bool:
        return node in self._trie[1]

    def goes_on(self, node: int) -> bool:
        return bool(self._trie[0][node])


class Literal(Choice):
    """Text that is in every fill: the only entry of a list."""

    is_hole: ClassVar[bool] = False
    is_free: ClassVar[bool] = False

    @property
    def text(self) -> str:
        return self.entries[0]


@dataclass(frozen=True)
class CheckDigit:
    """The Luhn check digit over all digits before it in the fill."""

    is_hole: ClassVar[bool] = True
    is_free: ClassVar[bool] = False
    size: ClassVar[int] = 1
    regex: ClassVar[str] = "[0-9]"
    characters: ClassVar[str] = string.digits
    may_be_blank: ClassVar[bool] = False

    def write(self, value: int, before: str) -> str:
        return check_digit(before)

    def read(self, text: str, begin: int, at: int) -> Iterator[tuple[int, int]]:
        if text[at : at + 1] == check_digit(text[begin:at]):
            yield at + 1, 0

    def options(self, node: int, due: str) -> str:
        return due

    def step(self, node: int, character: str, due: str) -> int | None:
        return 1 if character == due else None

    def ends(self, node: int) -> bool:
        return node == 1

    def goes_on(self, node: int) -> bool:
        return node == 0


Part = Characters | Choice | CheckDigit


WIDEST_HOLE = 1000
_KINDS = ", ".join(f"{{{kind}:n}}" for kind in ALPHABETS) + ", {choice:list}, {luhn}"


def parse_template(template: str, lists: Mapping[str, tuple[str, ...]]) -> tuple[Part, ...]:
    """Split a template into literal text and holes."""
    _check_text("template", template)
    parts: list[Part] = []
    try:
        pieces = list(string.Formatter().parse(template))
    except ValueError as failure:
        raise FormatError(
            f"template {template!r}: {failure}; double a brace to mean it literally"
        ) from None
    for literal, kind, given, conversion in pieces:
        if literal:  # doubled braces split what is one
            last = parts.pop() if parts and isinstance(parts[-1], Literal) else None
            before = last.text if isinstance(last, Literal) else ""
            parts.append(Literal("", (before + literal,)))
        if kind is None:
            continue
        detail = given or ""
        if any(isinstance(part, CheckDigit) for part in parts):
            raise FormatError(
                f"the hole {_shown(kind, detail)} comes after {{luhn}}, whose digit would not "
                "cover it; make {luhn} the last hole"
            )
        if conversion:
            raise FormatError(f"the hole {_shown(kind, detail)} has a conversion '!{conversion}'")
        parts.append(_hole(kind, detail, lists))
    _check_parts(template, parts, lists)
    return tuple(parts)


def clean_lists(lists: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Copy the lists of a format, each checked."""
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


def _check_parts(
    template: str, parts: Sequence[Part], lists: Mapping[str, tuple[str, ...]]
) -> None:
    if not any(part.is_free for part in parts):
        raise FormatError(f"template {template!r} has no hole that is free; add one of {_KINDS}")
    for place, part in enumerate(parts):
        digits = (
            set(free.characters) & set(string.digits) for free in parts[:place] if free.is_free
        )
        if isinstance(part, CheckDigit) and not any(digits):
            raise FormatError(
                "the hole {luhn} has no free digit before it; put {digits:n} before it"
            )
    if all(part.may_be_blank for part in parts):
        raise FormatError(f"template {template!r} can give a blank text; add a visible character")
    for name in lists.keys() - {
        part.name for part in parts if isinstance(part, Choice) and part.is_free
    }:
        raise FormatError(f"list {name!r} is in no hole; write {{choice:{name}}} or remove it")
