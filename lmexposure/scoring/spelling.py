"""What each token spells, a format byte by byte, and its fills cut into a tokenizer's pieces.

All in bytes of UTF-8: a token of a byte-level tokenizer may end inside a character. Before it
merges, a tokenizer cuts a text into pieces: words, groups of digits. No token crosses a cut. Where
the cuts fall is asked of the tokenizer itself, once for each place in the format, piece so far and
kind of character.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from lmexposure.canaries import Format, Language

State = TypeVar("State", bound=Hashable)
FALLBACK = 256  # added to the byte of a fallback token; see Vocabulary.trie
_UNDECIDED = "�"  # a token that ends inside a character decodes to this
_BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")
_MEMORY = 3  # characters of a piece that may decide where it ends
_MOST_STATES = 100_000


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


class CutsDepend(Exception):  # noqa: N818  it ends an attempt, not the program
    """Where the cuts fall cannot be decided from the left."""


@dataclass(frozen=True, kw_only=True)
class Texts:
    """How the tokenizer meets the fills."""

    format: Format  # the canary format
    lead: str  # the text in front of each fill, as the tokens spell it
    trail: str = ""  # the text behind each fill; where there is any, no fill begins another
    begun: int  # characters of lead and fill that all fills share and that are read already
    unknown: frozenset[str]  # characters that are spelled in fallback bytes
    # a fill's text -> the byte offsets in lead, fill and trail where a piece begins
    cuts: Callable[[str], frozenset[int]]


@dataclass
class Pieces:
    """An automaton over bytes that has no cycle; each fill is one path through it."""

    # for each state, byte -> (state behind it, whether a piece begins with this byte); a byte of a
    # character that is spelled in fallback bytes has `FALLBACK` added
    moves: list[dict[int, tuple[int, bool]]] = field(default_factory=list)
    complete: list[bool] = field(default_factory=list)  # for each state, whether a path ends there
    # for each state, whether a fill has ended there or before, and none goes on
    beyond: list[bool] = field(default_factory=list)
    start: int = 0  # the first state
    # fills that were asked for, one at least for each move
    examples: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, texts: Texts) -> "Pieces":
        """Read all fills."""
        reader = _Reader(texts)
        reader.read()
        ends = list(zip(reader.complete, reader.beyond, strict=True))
        moves, kept, start = _minimal(reader.moves, ends)
        complete, beyond = ([pair[i] for pair in kept] for i in (0, 1))
        return cls(moves, complete, beyond, start, reader.examples)


@dataclass(frozen=True, slots=True)
class _Place:
    """A raw state, and one text that leads there."""

    left: str  # of the lead
    state: int  # of the format
    memory: tuple[str, ...]  # kinds of the last characters of the piece so far
    tail: str  # the last two characters where one is an apostrophe, of this piece or the one before
    text: str  # of the fill so far
    cuts: frozenset[int]
    beyond: int = 0  # characters of the trail so far


class _Reader:
    """Reads the texts of a format from the left, a character at a time."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._language = texts.format.language
        self._rests: dict[int, str] = {}
        self._known: dict[tuple[int, int, tuple[str, ...], str, int, str], bool] = {}
        self.moves: list[dict[int, tuple[int, bool]]] = []
        self.complete: list[bool] = []
        self.beyond: list[bool] = []
        self._numbers: dict[tuple[int, int, tuple[str, ...], str, int], int] = {}
        self._todo: list[tuple[int, _Place]] = []
        self.examples: list[str] = []

    def read(self) -> None:
        """Fill `moves` and `complete`; the first state is 0."""
        self._number(self._first())
        while self._todo:
            number, place = self._todo.pop()
            if self.complete[number] and self.beyond[number]:
                continue
            for kind, state, characters in self._options(place):
                there, cut = self._step(place, kind, state, characters[0])
                behind = self._number(there)
                for character in characters:
                    self._link(number, behind, character, cut)
            if len(self.moves) > _MOST_STATES:
                raise CutsDepend("the format has too many different beginnings")

    def _first(self) -> _Place:
        lead, begun = self._texts.lead, self._texts.begun
        text = self._texts.format.text(0)
        inside = text[: max(0, begun - len(lead))]
        state = self._language.advance(self._language.start, inside)
        assert state is not None, "a text's beginning is viable"
        read = (lead + text)[:begun].encode()
        cuts = frozenset(cut for cut in self._texts.cuts(text) if cut < len(read))
        memory: tuple[str, ...] = ()
        for character in read[max(cuts, default=0) :].decode():
            memory = _remembered(memory, _kind("", character))
        return _Place(lead[begun:], state, memory, _tail(read.decode()), inside, cuts)

    def _number(self, place: _Place) -> int:
        key = (len(place.left), place.state, place.memory, place.tail, place.beyond)
        if key not in self._numbers:
            over = not place.left and self._language.complete(place.state)
            trail = self._texts.trail
            # Of a piece that begins behind the fill nothing changes the fill's own tokens.
            ends = over and (not trail[place.beyond :] or self._step(place, *self._next(place))[1])
            self._numbers[key] = self._add(ends=ends, beyond=over and bool(trail))
            self._todo.append((self._numbers[key], place))
        return self._numbers[key]

    def _add(self, *, ends: bool, beyond: bool) -> int:
        self.moves.append({})
        self.complete.append(ends)
        self.beyond.append(beyond)
        return len(self.moves) - 1

    def _next(self, place: _Place) -> tuple[str, int, str]:
        """The trail's next character: its kind, the state behind it, the character."""
        character = self._texts.trail[place.beyond]
        return _kind(place.tail, character), place.state, character

    def _options(self, place: _Place) -> list[tuple[str, int, list[str]]]:
        """The characters that may come, together where they are of a kind and lead to one state."""
        if place.left:
            return [(_kind(place.tail, place.left[0]), place.state, [place.left[0]])]
        if self._texts.trail and self._language.complete(place.state):
            kind, state, character = self._next(place)
            return [(kind, state, [character])]
        found: dict[tuple[str, int], list[str]] = {}
        for character in self._language.next_characters(place.state):
            reached = self._language.advance(place.state, character)
            assert reached is not None, "the language offers what it accepts"
            found.setdefault((_kind(place.tail, character), reached), []).append(character)
        return [(kind, state, characters) for (kind, state), characters in found.items()]

    def _step(self, place: _Place, kind: str, state: int, character: str) -> tuple[_Place, bool]:
        """The place behind one more character, and whether a piece begins with it."""
        trailing = bool(self._texts.trail) and not place.left
        trailing = trailing and self._language.complete(place.state)
        text = place.text if place.left or trailing else place.text + character
        lead, trail = self._texts.lead, self._texts.trail[: place.beyond]
        offset = len((lead[: len(lead) - len(place.left)] + place.text + trail).encode())
        key = (len(place.left), place.state, place.memory, place.tail, place.beyond, kind)
        if key not in self._known:
            self._known[key] = self._ask(place, text, state, offset)
        cut = self._known[key]
        memory = _remembered(() if cut else place.memory, kind)
        cuts = place.cuts | {offset} if cut else place.cuts
        tail = _tail(place.tail + character) if place.tail or character == "'" else ""
        beyond = place.beyond + trailing
        return _Place(place.left[1:], state, memory, tail, text, cuts, beyond), cut

    def _ask(self, place: _Place, text: str, state: int, offset: int) -> bool:
        fill = text + completion(self._texts.format, state, self._rests)
        cuts = self._texts.cuts(fill)
        if not place.beyond:
            self.examples.append(fill)
        if frozenset(cut for cut in cuts if cut < offset) != place.cuts:
            raise CutsDepend("where a piece ends depends on what comes later in the text")
        return offset in cuts

    def _link(self, number: int, behind: int, character: str, cut: bool) -> None:
        """Write a character's bytes as moves; characters that begin alike share the first ones."""
        shift = FALLBACK if character in self._texts.unknown else 0
        symbols = [shift + byte for byte in character.encode()]
        beyond = self.beyond[number]
        for symbol in symbols[:-1]:
            if symbol not in self.moves[number]:
                self.moves[number][symbol] = (self._add(ends=False, beyond=beyond), cut)
            number, known = self.moves[number][symbol]
            if known != cut:
                raise CutsDepend("two characters that begin with one byte are cut differently")
            cut = False
        self.moves[number][symbols[-1]] = (behind, cut)


def _kind(tail: str, character: str) -> str:
    """What tokenizers cut by; near an apostrophe a letter may be the end of "it's" or "we'll"."""
    category = unicodedata.category(character)
    return character if tail or category[0] not in "LMN" else category


def _tail(text: str) -> str:
    return text[-2:] if "'" in text[-2:] else ""


def _remembered(memory: tuple[str, ...], kind: str) -> tuple[str, ...]:
    """The last few kinds of a piece, and whether there were more."""
    # Which sign it was has mattered already, but for these.
    mark = kind if len(kind) > 1 or kind.isalnum() or kind in "' _" else "!"
    longer = (*memory, mark)
    return longer if len(longer) <= _MEMORY else ("+", *longer[-_MEMORY:])


def completion(format: Format, state: int, known: dict[int, str]) -> str:
    """Characters that make a fill of what leads to a state of the format; kept in `known`."""
    language = format.language
    path = []
    while state not in known and not language.complete(state):
        path.append((state, language.next_characters(state)[0]))
        reached = language.advance(*path[-1])
        assert reached is not None, "the language offers what it accepts"
        state = reached
    rest = known.setdefault(state, "") if language.complete(state) else known[state]
    for before, character in reversed(path):
        rest = known[before] = character + rest
    return rest


def children_first(behind: Callable[[int], Iterable[int]]) -> Iterator[int]:
    """The states from 0 on, which make no cycle, each after all that it leads to."""
    done: set[int] = set()
    todo = [0]
    while todo:
        waiting = [there for there in behind(todo[-1]) if there not in done]
        if waiting:
            todo += waiting
            continue
        state = todo.pop()
        if state not in done:
            yield state
            done.add(state)


def _minimal(
    moves: list[dict[int, tuple[int, bool]]], ends: list[tuple[bool, bool]]
) -> tuple[list[dict[int, tuple[int, bool]]], list[tuple[bool, bool]], int]:
    """The same automaton with equal states merged; a move leads to a smaller number."""
    merged: dict[tuple[tuple[bool, bool], tuple[tuple[int, tuple[int, bool]], ...]], int] = {}
    numbers: dict[int, int] = {}
    for state in children_first(lambda state: [there for there, _ in moves[state].values()]):
        kept = {symbol: (numbers[there], cut) for symbol, (there, cut) in moves[state].items()}
        key = (ends[state], tuple(sorted(kept.items())))
        numbers[state] = merged.setdefault(key, len(merged))
    found = [dict(edges) for _, edges in merged]
    return found, [own for own, _ in merged], numbers[0]
