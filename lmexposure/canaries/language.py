"""What may follow a beginning of a text, so that it can still become a fill.

An automaton over characters, built as it is asked. A state is a small integer that stands for
every way to read the text so far: the set of (part, node) pairs, and the sums of the check digit.
Every pair can be completed, so a text is viable exactly when its set is not empty.
"""

from collections.abc import Iterator

from lmexposure.canaries.check_digit import NO_DIGITS, Sums, add, due
from lmexposure.canaries.holes import CheckDigit, Part

# (number of the part, node of its automaton); (number of parts, 0) means: the fill is complete.
Config = tuple[int, int]
_Key = tuple[frozenset[Config], Sums]


def following(
    parts: tuple[Part, ...], config: Config, character: str, digit: str
) -> Iterator[Config]:
    """The pairs that one more character leads to: on in the same part, at the next part's start."""
    number, node = config
    if number == len(parts):
        return
    part = parts[number]
    reached = part.step(node, character, digit)
    if reached is None:
        return
    if part.goes_on(reached):
        yield number, reached
    if part.ends(reached):
        yield number + 1, 0


class Language:
    """The texts of a format, read from the left.

    >>> from lmexposure.canaries import Format
    >>> language = Format(name="pin", template="PIN {digits:2}").language
    >>> state = language.advance(language.start, "PIN 4")
    >>> language.next_characters(state), language.complete(state)
    ('0123456789', False)
    >>> language.advance(state, "x") is None
    True
    """

    start = 0

    def __init__(self, parts: tuple[Part, ...]) -> None:
        self._parts = parts
        checks = [n for n, part in enumerate(parts) if isinstance(part, CheckDigit)]
        self._check_at = checks[0] if checks else -1
        key: _Key = (frozenset({(0, 0)}), NO_DIGITS)
        self._numbers: dict[_Key, int] = {key: 0}
        self._keys: list[_Key] = [key]
        self._moves: list[dict[str, int]] = [{}]
        self._options: list[str | None] = [None]

    def advance(self, state: int, text: str) -> int | None:
        """The state after `text`, or None when no fill goes on so."""
        moves = self._moves
        for character in text:
            reached = moves[state].get(character)
            if reached is None:
                reached = self._move(state, character)
                if reached is None:
                    return None
            state = reached
        return state

    def next_characters(self, state: int) -> str:
        """The characters that may come next, each once, sorted; "" when nothing can follow."""
        options = self._options[state]
        if options is None:
            configs, sums = self._keys[state]
            digit = due(sums)
            found: set[str] = set()
            for number, node in configs:
                if number < len(self._parts):
                    found.update(self._parts[number].options(node, digit))
            options = self._options[state] = "".join(sorted(found))
        return options

    def complete(self, state: int) -> bool:
        """Whether the text read so far is a fill (a longer fill may still begin with it)."""
        return (len(self._parts), 0) in self._keys[state][0]

    def _move(self, state: int, character: str) -> int | None:
        configs, sums = self._keys[state]
        digit = due(sums)
        reached = frozenset(
            config for old in configs for config in following(self._parts, old, character, digit)
        )
        number = self._number(reached, add(sums, character)) if reached else None
        # A refused character is not kept: there are too many of them.
        if number is not None:
            self._moves[state][character] = number
        return number

    def _number(self, configs: frozenset[Config], sums: Sums) -> int:
        # Sums that no check digit will ask for would only split equal states.
        key = (configs, sums if min(configs)[0] <= self._check_at else NO_DIGITS)
        if key not in self._numbers:
            self._numbers[key] = len(self._keys)
            self._keys.append(key)
            self._moves.append({})
            self._options.append(None)
        return self._numbers[key]
