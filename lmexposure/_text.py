"""Text from files made harmless: what does not print, or turns a line around, is spelled out."""

import json
import re

# Controls but tab and line ends, formats (bidi marks, zero widths), halves of characters, and the
# two characters that end a line without being seen.
_UNSEEN = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2"
    r"\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    r"\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0001-\U000e007f]"
)


def visible(text: object) -> str:
    r"""A name or a line with everything that does not print spelled out, line ends too.

    >>> visible("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return "".join(
        character if character.isprintable() else _spelled(character) for character in str(text)
    )


def printable(text: str, *, json_escapes: bool = False) -> str:
    """A whole file's text with all but its line ends and blanks spelled out where it is unseen."""
    spelled = _spelled_in_json if json_escapes else _spelled
    return _UNSEEN.sub(lambda found: spelled(found[0]), text)


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _spelled_in_json(character: str) -> str:
    # ASCII has one control that JSON allows bare, and that json would leave so.
    return r"\u007f" if character == "\x7f" else json.dumps(character)[1:-1]
