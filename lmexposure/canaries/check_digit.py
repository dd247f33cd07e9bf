"""The Luhn check digit, kept up to date one character at a time."""

# (Luhn sum if the last digit is doubled, Luhn sum if it is not), both modulo 10. Which of the two
# will count is open until the check digit comes, so both travel along.
Sums = tuple[int, int]
NO_DIGITS: Sums = (0, 0)


def add(sums: Sums, character: str) -> Sums:
    """The sums after one more character; anything but 0-9 is skipped."""
    if character not in "0123456789":
        return sums
    digit = int(character)
    doubled = 2 * digit - 9 * (digit > 4)
    return (sums[1] + doubled) % 10, (sums[0] + digit) % 10


def due(sums: Sums) -> str:
    """The check digit that would be right now."""
    return str(-sums[0] % 10)


def check_digit(text: str) -> str:
    """The Luhn check digit over all digits (0-9) of `text`; other characters are skipped.

    Source: ISO/IEC 7812-1, annex B (H. P. Luhn, US patent 2,950,048).

    >>> check_digit("7992 7398 71")
    '3'
    """
    sums = NO_DIGITS
    for character in text:
        sums = add(sums, character)
    return due(sums)
