"""Numbers as people read them: how many digits, what a missing one looks like, what is a bound."""

from lmexposure.reporting.data import ClassRow, Found

_MISSING = "n/a"


def number(value: float | None, digits: int = 2) -> str:
    """A number to so many decimals.

    >>> number(1.005), number(None)
    ('1.00', 'n/a')
    """
    return _MISSING if value is None else f"{value:.{digits}f}"


def median_bits(row: ClassRow) -> str:
    """The median exposure; a lower bound says so."""
    return ("≥ " if row.capped else "") + number(row.median)


def interval(low: float | None, high: float | None) -> str:
    """From low to high; an end that so few canaries do not give is missing.

    >>> interval(1, None)
    '1.00 .. n/a'
    """
    return f"{number(low)} .. {number(high)}"


def probability(value: float | None) -> str:
    """A p-value: never 0.

    >>> probability(0.0001), probability(0.00001), probability(0.0312)
    ('0.0001', '< 0.0001', '0.0312')
    """
    if value is None:
        return _MISSING
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}"


def chance(value: float) -> str:
    """An expected number of finds.

    >>> chance(0.25), chance(1e-05)
    ('0.25', '1e-05')
    """
    return f"{value:.2g}"


def found_of(found: Found | None) -> str:
    """Found of searched for; in brackets where guessing would do half as well or better."""
    if found is None:
        return _MISSING
    cell = f"{found.found}/{found.of}"
    return f"({cell})" if 2 * found.by_chance >= max(found.found, 1) else cell


def class_name(role: str, repetitions: int) -> str:
    """A class as people read it."""
    return str(repetitions) if role == "canary" else f"{role}s"
