"""Can one fill stand within another, as "I am Ann" stands in "I am Anna"?

An inserted canary would then insert other fills with it, and those would no longer be secrets that
the model never saw. An outer and an inner fill walk side by side, the inner one beginning at any
place of the outer; if the inner can end while the outer goes on, or began later, it lies within.
"""

from collections import deque
from collections.abc import Iterator

from lmexposure.canaries.holes import CheckDigit, Choice, Literal, Part
from lmexposure.canaries.language import Config, following

_DIGITS = "0123456789"  # a check digit may be any: at worst a format is refused that would do

# Where the outer and the inner fill stand, and whether the inner one began later.
_Pair = tuple[Config, Config, bool]


def may_nest(parts: tuple[Part, ...]) -> bool:
    """Whether a fill can stand within another fill of the same format."""
    choices = [part for part in parts if isinstance(part, Choice)]
    if all(len(set(map(len, part.entries))) == 1 for part in choices):
        return False  # all fills are of one length
    start: Config = (0, 0)
    open_pairs: deque[_Pair] = deque([(start, start, False)])
    open_pairs.extend((config, start, True) for config in _reachable(parts, start))
    seen = set(open_pairs)
    end = (len(parts), 0)
    while open_pairs:
        outer, inner, later = open_pairs.popleft()
        if inner == end:
            if later or outer != end:
                return True
            continue
        for pair in _onwards(parts, outer, inner, later):
            if pair not in seen:
                seen.add(pair)
                open_pairs.append(pair)
    return False


def _reachable(parts: tuple[Part, ...], start: Config) -> set[Config]:
    """Every place of a fill behind its first character and before its last."""
    found: set[Config] = set()
    queue = deque([start])
    while queue:
        config = queue.popleft()
        for character in _characters(parts, config):
            for after in following(parts, config, character, character):
                if after[0] < len(parts) and after not in found:
                    found.add(after)
                    queue.append(after)
    return found


def _onwards(parts: tuple[Part, ...], outer: Config, inner: Config, later: bool) -> Iterator[_Pair]:
    """The pairs of places that one more character leads to."""
    if outer[0] == len(parts):
        return
    both = set(_options(parts, outer)) & set(_options(parts, inner))
    if not any(isinstance(parts[number], Choice | Literal) for number, _ in (outer, inner)):
        both = set(sorted(both)[:1])  # in other holes one character leads where another does
    for character in both:
        for one in following(parts, outer, character, character):
            for other in following(parts, inner, character, character):
                yield one, other, later


def _characters(parts: tuple[Part, ...], config: Config) -> str:
    """The characters that lead on, one of them where all lead to the same place."""
    options = _options(parts, config)
    return options if isinstance(parts[config[0]], Choice | Literal) else options[:1]


def _options(parts: tuple[Part, ...], config: Config) -> str:
    part = parts[config[0]]
    return _DIGITS if isinstance(part, CheckDigit) else part.options(config[1], "")
