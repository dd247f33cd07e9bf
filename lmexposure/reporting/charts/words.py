"""How charts shorten names and lists, with no character that a file refuses."""

from collections.abc import Sequence

_LONGEST = 48


def joined(parts: Sequence[str], most: int = 8) -> str:
    """Joined by semicolons; what is beyond `most` is counted."""
    more = [f"and {len(parts) - most} more"] if len(parts) > most else []
    return "; ".join([*parts[:most], *more])


def clipped(text: str, most: int = _LONGEST) -> str:
    """Text from data as one line that XML can hold, cut with a sign where it is long.

    >>> clipped("a\\x00b\\nc")
    'a\\ufffdb c'
    """
    line = " ".join(text.split())
    clean = "".join(sign if sign.isprintable() else "\ufffd" for sign in line)
    return clean if len(clean) <= most else clean[: most - 1] + "…"
