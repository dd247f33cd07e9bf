"""How charts write numbers, names and counts: short, and with no character that a file refuses."""

import re
from collections.abc import Sequence

_LONGEST = 48


def number(value: float) -> str:
    """Three digits: enough to read, few enough to remember.

    >>> number(29.897), number(10000.0), number(1e-5)
    ('29.9', '10,000', '1e-5')
    """
    if value and abs(value) < 0.0001:
        return f"{value:.3g}".replace("e-0", "e-")
    return f"{value:,.0f}" if abs(value) >= 100 else f"{float(f'{value:.3g}'):g}"


def count(n: int, one: str, many: str | None = None) -> str:
    """A number with its noun.

    >>> count(1, "canary", "canaries"), count(1200, "control")
    ('1 canary', '1,200 controls')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def class_name(role: str, repetitions: int) -> str:
    """What people call the canaries of one role and number of repetitions."""
    return "controls" if role == "control" else count(repetitions, "repetition")


def listed(parts: Sequence[str], most: int = 8) -> str:
    """Joined by semicolons; what is beyond `most` is counted."""
    more = [f"and {len(parts) - most} more"] if len(parts) > most else []
    return "; ".join([*parts[:most], *more])


def short(text: str, most: int = _LONGEST) -> str:
    """Text from data as one line that XML can hold, cut with a sign where it is long.

    >>> short("a\\x00b\\nc")
    'a\\ufffdb c'
    """
    line = " ".join(text.split())
    clean = "".join(one if one.isprintable() else "\ufffd" for one in line)
    return clean if len(clean) <= most else clean[: most - 1] + "…"


def slug(text: str) -> str:
    """Lower-case letters, digits, _ and -, for ids and file names; never empty.

    >>> slug("random_number"), slug("<b>")
    ('random_number', 'b')
    """
    return re.sub("[^a-z0-9_]+", "-", text.lower()).strip("-")[:_LONGEST].strip("-") or "unnamed"
