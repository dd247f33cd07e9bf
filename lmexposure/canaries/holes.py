"""What a template is made of: literal text, typed holes, the check digit.

Every part has the same face:

* `size`: how many values; `write(value, before)`: the text of one, given the fill's text before it;
  `read(text, begin, at)`: every (end, value) that can be read at `at` of a fill begun at `begin`.
* `regex`: finds it; `mask`: stands for it in tables; `may_be_blank`: it can be white space alone.
* an automaton that starts at node 0 and moves one character at a time: `options(node, due)`, the
  characters that may come; `step(node, character, due)`, the node reached, or None; `ends(node)`,
  the part may be over; `goes_on(node)`, it may continue. `due` is the check digit that the text so
  far asks for.
"""

import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from lmexposure.canaries.check_digit import check_digit

ALPHABETS = {
    "digits": string.digits,
    "lower": string.ascii_lowercase,
    "upper": string.ascii_uppercase,
    "alnum": string.ascii_lowercase + string.digits,
    "hex": string.digits + "abcdef",
    "printable": "".join(map(chr, range(ord("!"), ord("~") + 1))),
}


@dataclass(frozen=True)
class Literal:
    """Text that stands in every fill."""

    text: str
    is_hole: ClassVar[bool] = False
    is_free: ClassVar[bool] = False
    size: ClassVar[int] = 1

    @property
    def regex(self) -> str:
        return re.escape(self.text)

    @property
    def mask(self) -> str:
        return self.text

    @property
    def characters(self) -> str:
        return self.text

    @property
    def may_be_blank(self) -> bool:
        return not self.text.strip()

    def write(self, value: int, before: str) -> str:
        return self.text

    def read(self, text: str, begin: int, at: int) -> Iterator[tuple[int, int]]:
        if text.startswith(self.text, at):
            yield at + len(self.text), 0

    def options(self, node: int, due: str) -> str:
        return self.text[node]

    def step(self, node: int, character: str, due: str) -> int | None:
        return node + 1 if self.text[node] == character else None

    def ends(self, node: int) -> bool:
        return node == len(self.text)

    def goes_on(self, node: int) -> bool:
        return node < len(self.text)


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
    def mask(self) -> str:
        return "*" * self.width

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
    # Entries differ in length, so a mask of the true length would tell something.
    mask: ClassVar[str] = "***"

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


@dataclass(frozen=True)
class CheckDigit:
    """The Luhn check digit over all digits that stand before it in the fill."""

    is_hole: ClassVar[bool] = True
    is_free: ClassVar[bool] = False
    size: ClassVar[int] = 1
    regex: ClassVar[str] = "[0-9]"
    mask: ClassVar[str] = "*"
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


Part = Literal | Characters | Choice | CheckDigit
