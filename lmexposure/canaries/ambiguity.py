"""Can two secrets give one text? Decided exactly.

Two readings of one text walk side by side through the parts, one character at a time. They part
where one entry of a list begins another; if they ever stand at the same place again, or both at
the end, the text up to there was read in two ways. There are finitely many pairs of places, so the
search ends (the idea of the Sardinas-Patterson test, on automata instead of words).
"""

from collections import deque

from lmexposure.canaries.check_digit import NO_DIGITS, Sums, add, due
from lmexposure.canaries.holes import CheckDigit, Choice, Part
from lmexposure.canaries.language import Config, following

# Two readings of the text so far, whether they have parted, and the text's check sums (which both
# share, because they depend on the text alone).
_Pair = tuple[Config, Config, bool, Sums]


def ambiguous_text(parts: tuple[Part, ...]) -> str | None:
    """A text that two different secrets give, or None when there is none."""
    if all(part.is_prefix_free for part in parts if isinstance(part, Choice)):
        return None
    start: _Pair = ((0, 0), (0, 0), False, NO_DIGITS)
    reached_by: dict[_Pair, tuple[_Pair, str] | None] = {start: None}
    queue = deque([start])
    while queue:
        pair = queue.popleft()
        if pair[2] and pair[0] == pair[1]:
            return _completed(parts, _spelled(reached_by, pair), pair[0], pair[3])
        for after, character in _next_pairs(parts, pair):
            if after not in reached_by:
                reached_by[after] = (pair, character)
                queue.append(after)
    return None


def _next_pairs(parts: tuple[Part, ...], pair: _Pair) -> list[tuple[_Pair, str]]:
    first, second, parted, sums = pair
    if len(parts) in (first[0], second[0]):
        return []
    counts_digits = any(isinstance(part, CheckDigit) for part in parts)
    digit = due(sums)
    options = (parts[number].options(node, digit) for number, node in (first, second))
    found = []
    for character in sorted(set.intersection(*map(set, options))):
        after = add(sums, character) if counts_digits else NO_DIGITS
        for one in following(parts, first, character, digit):
            for other in following(parts, second, character, digit):
                # The two are interchangeable: keep one order of each pair.
                low, high = sorted((one, other))
                found.append(((low, high, parted or one != other, after), character))
    return found


def _spelled(reached_by: dict[_Pair, tuple[_Pair, str] | None], pair: _Pair) -> str:
    characters = []
    step = reached_by[pair]
    while step is not None:
        pair, character = step
        characters.append(character)
        step = reached_by[pair]
    return "".join(reversed(characters))


def _completed(parts: tuple[Part, ...], text: str, config: Config, sums: Sums) -> str:
    """Go on from where both readings stand until the text is a fill."""
    while config[0] < len(parts):
        digit = due(sums)
        character = min(parts[config[0]].options(config[1], digit))
        config = max(following(parts, config, character, digit))
        sums = add(sums, character)
        text += character
    return text
