"""Texts in bytes: what each token spells, and a format byte by byte.

All in bytes of UTF-8: a token of a byte-level tokenizer may end inside a character.
"""

import json
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from lmexposure.canaries import Language

State = TypeVar("State", bound=Hashable)
FALLBACK = 256  # added to the byte of a fallback token; see Vocabulary.trie
_UNDECIDED = "�"  # a token that ends inside a character decodes to this
_BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")


@dataclass(slots=True)
class ByteNode:
    """A node of the trie of token surfaces: the tokens that end here, and where to go on."""

    tokens: list[int] = field(default_factory=list)
    children: dict[int, "ByteNode"] = field(default_factory=dict)


class Vocabulary:
    """The surface of every ordinary token: the bytes that it adds inside a running text."""

    def __init__(self, tokenizer: Any) -> None:
        special = set(tokenizer.all_special_ids)
        names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        byte_level = "ByteLevel" in json.dumps(backend_settings(tokenizer).get("decoder"))
        alphabet = _byte_alphabet() if byte_level else None
        # bytes of each token, by its id
        self.surfaces: list[bytes | None] = [
            None if token in special else _surface(name, text, alphabet)
            for token, (name, text) in enumerate(
                zip(names, _decoded(tokenizer, len(names)), strict=True)
            )
        ]
        # the tokens that stand for one byte of a character that has no token of its own, as
        # SentencePiece's `<0x41>` does
        self.fallback = frozenset(
            token
            for token, name in enumerate(names)
            if not byte_level
            and _BYTE_TOKEN.fullmatch(name or "")
            and len(self.surfaces[token] or b"") == 1
        )
        self._root = self._trie(frozenset())

    @cached_property
    def trie(self) -> ByteNode:
        """The trie of the surfaces, where those of fallback tokens are `FALLBACK` + byte."""
        return self._trie(self.fallback) if self.fallback else self._root

    def _trie(self, apart: frozenset[int]) -> ByteNode:
        root = ByteNode()
        for token, surface in enumerate(self.surfaces):
            if not surface:
                continue
            node = root
            for byte in surface:
                symbol = FALLBACK + byte if token in apart else byte
                node = node.children.setdefault(symbol, ByteNode())
            node.tokens.append(token)
        return root

    def surface(self, token: int) -> bytes:
        """The bytes that a token adds; none for one that has no surface."""
        return self.surfaces[token] or b""

    def spelled(self, ids: Sequence[int]) -> bytes | None:
        """The bytes that these tokens add one after the other; None if one has no surface."""
        parts = [self.surfaces[i] for i in ids]
        known = [part for part in parts if part is not None]
        return b"".join(known) if len(known) == len(parts) else None

    def continuations(
        self, state: State, advance: Callable[[State, int], State | None]
    ) -> list[tuple[int, State]]:
        """All tokens that a matcher accepts in `state`, each with the state behind it."""
        return sorted(self._accepted(state, advance), key=lambda pair: pair[0])

    def follows(self, state: State, advance: Callable[[State, int], State | None]) -> bool:
        """Whether any token is accepted in `state`; arguments as for `continuations`."""
        return next(self._accepted(state, advance), None) is not None

    def _accepted(
        self, state: State, advance: Callable[[State, int], State | None]
    ) -> Iterator[tuple[int, State]]:
        open_nodes: list[tuple[ByteNode, State]] = [(self._root, state)]
        while open_nodes:
            node, here = open_nodes.pop()
            for token in node.tokens:
                yield token, here
            for byte, child in node.children.items():
                there = advance(here, byte)
                if there is not None:
                    open_nodes.append((child, there))


def backend_settings(tokenizer: Any) -> dict[str, Any]:
    """What tokenizer.json says of a fast tokenizer; nothing for one without a backend."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    settings: dict[str, Any] = json.loads(backend.to_str()) if backend is not None else {}
    return settings


def _decoded(tokenizer: Any, size: int) -> list[str | None]:
    """What each token adds to a text that is under way; None where it changes what came before."""
    anchor = tokenizer.encode("a", add_special_tokens=False)[-1:]
    options = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
    base = tokenizer.decode(anchor, **options)
    texts = tokenizer.batch_decode([[*anchor, token] for token in range(size)], **options)
    return [text[len(base) :] if text.startswith(base) else None for text in texts]


def _surface(name: str | None, text: str | None, alphabet: dict[str, int] | None) -> bytes | None:
    """The bytes of a token: of its decoded text, or of its name where that is torn."""
    if text is None or name is None:
        return None
    if _UNDECIDED not in text or text == name:
        return text.encode()
    if alphabet is not None:
        bytes_of_name = [alphabet.get(character) for character in name]
        known = [byte for byte in bytes_of_name if byte is not None]
        return bytes(known) if len(known) == len(bytes_of_name) else None
    byte = _BYTE_TOKEN.fullmatch(name)
    return bytes([int(byte[1], 16)]) if byte else None


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's character for every byte: printable Latin-1 stands for itself, the rest from 256."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted(set(range(256)) - set(printable))
    return {chr(byte): byte for byte in printable} | {
        chr(256 + place): byte for place, byte in enumerate(others)
    }


class ByteLanguage:
    r"""The texts of a format behind a known text and in front of another, as bytes of UTF-8.

    >>> from lmexposure.canaries import Format
    >>> form = Format(name="w", template="{choice:w}", lists={"w": ["é", "ê"]})
    >>> texts = ByteLanguage(form.language, known=b"a")
    >>> state = texts.read(texts.start, b"a\xc3")
    >>> [hex(byte) for byte in sorted(texts.moves(state))]
    ['0xa9', '0xaa']
    """

    start = 0

    def __init__(self, language: Language, *, known: bytes = b"", trail: bytes = b"") -> None:
        self._language, self._trail = language, trail
        # (known bytes still to come, state of the format, bytes of a character that has begun,
        # bytes of the trail that were read)
        first = (known, language.start, b"", 0)
        self._numbers = {first: 0}
        self._keys = [first]
        self._moves: list[dict[int, int] | None] = [None]

    def moves(self, state: int) -> dict[int, int]:
        """The bytes that may come next, each with the state behind it."""
        found = self._moves[state]
        if found is None:
            found = self._moves[state] = self._find(*self._keys[state])
        return found

    def advance(self, state: int, byte: int) -> int | None:
        """The state behind one more byte, or None when no fill goes on so."""
        return self.moves(state).get(byte)

    def read(self, state: int, text: bytes) -> int | None:
        """The state behind more bytes, or None when no fill goes on so."""
        for byte in text:
            there = self.moves(state).get(byte)
            if there is None:
                return None
            state = there
        return state

    def complete(self, state: int) -> bool:
        """Whether what was read holds a whole fill."""
        known, inner, begun, _ = self._keys[state]
        return not known and not begun and self._language.complete(inner)

    def beyond(self, state: int) -> int:
        """How many of the bytes that were read are of the trail."""
        return self._keys[state][3]

    def _find(self, known: bytes, inner: int, begun: bytes, beyond: int) -> dict[int, int]:
        if known:
            return {known[0]: self._number(known[1:], inner, b"", 0)}
        found: dict[int, int] = {}
        for character in "" if beyond else self._language.next_characters(inner):
            code = character.encode()
            if not code.startswith(begun):
                continue
            rest = code[len(begun) :]
            if len(rest) > 1:
                found[rest[0]] = self._number(b"", inner, begun + rest[:1], 0)
            else:
                there = self._language.advance(inner, character)
                assert there is not None, "the language offers what it accepts"
                found[rest[0]] = self._number(b"", there, b"", 0)
        if not begun and beyond < len(self._trail) and self._language.complete(inner):
            byte = self._trail[beyond]
            found.setdefault(byte, self._number(b"", inner, b"", beyond + 1))
        return found

    def _number(self, known: bytes, inner: int, begun: bytes, beyond: int) -> int:
        key = (known, inner, begun, beyond)
        if key not in self._numbers:
            self._numbers[key] = len(self._keys)
            self._keys.append(key)
            self._moves.append(None)
        return self._numbers[key]
