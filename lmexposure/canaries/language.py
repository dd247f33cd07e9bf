"""The language of a format: which texts are its fills, read one character at a time."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from lmexposure.canaries.template import (
    NO_DIGITS,
    CheckDigit,
    Choice,
    LuhnSums,
    Part,
    luhn_digit,
    luhn_sums,
)

# (number of the part, node of its automaton); (number of parts, 0) means: the fill is complete.
_Config = tuple[int, int]
_Key = tuple[frozenset[_Config], LuhnSums]


def _following(
    parts: tuple[Part, ...], config: _Config, character: str, digit: str
) -> Iterator[_Config]:
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
    """The texts of a format, read from the left: an automaton over characters.

    It is built as it is asked. A state is a small integer for every way to read the
    text so far: the set of (part, node) pairs, and the sums of the check digit. Every pair can be
    completed, so a text is viable exactly when its set is not empty.

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
            digit = luhn_digit(sums)
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
        digit = luhn_digit(sums)
        reached = frozenset(
            config for old in configs for config in _following(self._parts, old, character, digit)
        )
        number = self._number(reached, luhn_sums(sums, character)) if reached else None
        # A refused character is not kept: there are too many of them.
        if number is not None:
            self._moves[state][character] = number
        return number

    def _number(self, configs: frozenset[_Config], sums: LuhnSums) -> int:
        # LuhnSums that no check digit will ask for would only split equal states.
        key = (configs, sums if min(configs)[0] <= self._check_at else NO_DIGITS)
        if key not in self._numbers:
            self._numbers[key] = len(self._keys)
            self._keys.append(key)
            self._moves.append({})
            self._options.append(None)
        return self._numbers[key]


# Two readings of the text so far, whether they have parted, and the text's check sums (which both
# share, because they depend on the text alone).
_Readings = tuple[_Config, _Config, bool, LuhnSums]


def ambiguous_text(parts: tuple[Part, ...]) -> str | None:
    """A text that two different secrets give, or None when there is none.

    Two readings of one text go side by side through the parts, one character at a time. They part
    where one entry of a list begins another; if they ever reach the same place again, or both reach
    the end, the text up to there was read in two ways. There are finitely many pairs of places, so
    the search ends.

    Source: the idea of the test of Sardinas and Patterson (1953), on automata instead of words.
    """
    if all(part.is_prefix_free for part in parts if isinstance(part, Choice)):
        return None
    start: _Readings = ((0, 0), (0, 0), False, NO_DIGITS)
    reached_by: dict[_Readings, tuple[_Readings, str] | None] = {start: None}
    queue = deque([start])
    while queue:
        readings = queue.popleft()
        first, second, parted, sums = readings
        if parted and first == second:
            return _completed(parts, _spelled(reached_by, readings), first, sums)
        for after, character in _next_readings(parts, readings):
            if after not in reached_by:
                reached_by[after] = (readings, character)
                queue.append(after)
    return None


def _next_readings(parts: tuple[Part, ...], readings: _Readings) -> list[tuple[_Readings, str]]:
    first, second, parted, sums = readings
    if len(parts) in (first[0], second[0]):
        return []
    counts_digits = any(isinstance(part, CheckDigit) for part in parts)
    digit = luhn_digit(sums)
    options = (parts[number].options(node, digit) for number, node in (first, second))
    found = []
    for character in sorted(set.intersection(*map(set, options))):
        after = luhn_sums(sums, character) if counts_digits else NO_DIGITS
        for left in _following(parts, first, character, digit):
            for right in _following(parts, second, character, digit):
                # The two are interchangeable: keep one order of each pair.
                low, high = sorted((left, right))
                found.append(((low, high, parted or left != right, after), character))
    return found


def _spelled(reached_by: dict[_Readings, tuple[_Readings, str] | None], readings: _Readings) -> str:
    """The text that leads to these readings."""
    characters = []
    step = reached_by[readings]
    while step is not None:
        readings, character = step
        characters.append(character)
        step = reached_by[readings]
    return "".join(reversed(characters))


def _completed(parts: tuple[Part, ...], text: str, config: _Config, sums: LuhnSums) -> str:
    """This text, continued from where both readings are until it is a fill."""
    while config[0] < len(parts):
        digit = luhn_digit(sums)
        character = min(parts[config[0]].options(config[1], digit))
        config = max(_following(parts, config, character, digit))
        sums = luhn_sums(sums, character)
        text += character
    return text


_DIGITS = "0123456789"  # a check digit may be any: at worst a format is refused that would do

# Places in the outer and in the inner fill, and whether the inner one began later.
_Nested = tuple[_Config, _Config, bool]
_Place = TypeVar("_Place", bound=tuple[object, ...])


def may_nest(parts: tuple[Part, ...]) -> bool:
    """Whether one fill can lie within another of the same format, as "I am Ann" in "I am Anna".

    An inserted canary would then insert other fills with it, and those would no longer be secrets
    that the model never saw. An outer and an inner fill go side by side, the inner one beginning at
    any place of the outer; if the inner can end while the outer goes on, or began later, it lies
    within.
    """
    choices = [part for part in parts if isinstance(part, Choice)]
    if all(len(set(map(len, part.entries))) == 1 for part in choices):
        return False  # all fills are of one length
    start, end = (0, 0), (len(parts), 0)

    def behind(config: _Config) -> Iterator[_Config]:
        options = _options(parts, config)
        listed = isinstance(parts[config[0]], Choice)
        for character in options if listed else options[:1]:  # else all lead to the same place
            after = _following(parts, config, character, character)
            yield from (config for config in after if config[0] < len(parts))

    def both(nested: _Nested) -> Iterator[_Nested]:
        outer, inner, later = nested
        if end in (outer, inner):
            return
        shared = set(_options(parts, outer)) & set(_options(parts, inner))
        # Outside lists one character leads where another does.
        if not any(isinstance(parts[number], Choice) for number, _ in (outer, inner)):
            shared = set(sorted(shared)[:1])
        for character in shared:
            for outer_after in _following(parts, outer, character, character):
                for inner_after in _following(parts, inner, character, character):
                    yield outer_after, inner_after, later

    inside = [(place, start, True) for place in _reached([start], behind) if place != start]
    return any(
        inner == end and (later or outer != end)
        for outer, inner, later in _reached([(start, start, False), *inside], both)
    )


def _reached(
    starts: Sequence[_Place], following: Callable[[_Place], Iterable[_Place]]
) -> Iterator[_Place]:
    """Each place once that these lead to, themselves first."""
    queue, seen = deque(starts), set(starts)
    while queue:
        place = queue.popleft()
        yield place
        for after in following(place):
            if after not in seen:
                seen.add(after)
                queue.append(after)


def _options(parts: tuple[Part, ...], config: _Config) -> str:
    part = parts[config[0]]
    return _DIGITS if isinstance(part, CheckDigit) else part.options(config[1], "")
