"""A format's language read byte by byte, so that tokens may end inside a character."""

from lmexposure.canaries import (
    Language,
)


class ByteLanguage:
    """The texts of a format behind a known text, as bytes of UTF-8.

    Args:
        language: the format's automaton over characters.
        known: bytes that stand before every fill.

    >>> from lmexposure.canaries import Format
    >>> form = Format(name="w", template="{choice:w}", lists={"w": ["é", "ê"]})
    >>> texts = ByteLanguage(form.language, known=b"a")
    >>> state = texts.read(texts.start, b"a\\xc3")
    >>> [hex(byte) for byte in sorted(texts.moves(state))]
    ['0xa9', '0xaa']
    """

    start = 0

    def __init__(self, language: Language, *, known: bytes = b"") -> None:
        self._language = language
        # (known bytes still to come, state of the format, bytes of a character that has begun)
        first = (known, language.start, b"")
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
        """Whether what was read is a fill."""
        known, inner, begun = self._keys[state]
        return not known and not begun and self._language.complete(inner)

    def _find(self, known: bytes, inner: int, begun: bytes) -> dict[int, int]:
        if known:
            return {known[0]: self._number(known[1:], inner, b"")}
        found: dict[int, int] = {}
        for character in self._language.next_characters(inner):
            code = character.encode()
            if not code.startswith(begun):
                continue
            rest = code[len(begun) :]
            if len(rest) > 1:
                found[rest[0]] = self._number(b"", inner, begun + rest[:1])
            else:
                there = self._language.advance(inner, character)
                assert there is not None, "the language offers what it accepts"
                found[rest[0]] = self._number(b"", there, b"")
        return found

    def _number(self, known: bytes, inner: int, begun: bytes) -> int:
        key = (known, inner, begun)
        if key not in self._numbers:
            self._numbers[key] = len(self._keys)
            self._keys.append(key)
            self._moves.append(None)
        return self._numbers[key]
