"""The Luhn digit against published numbers and a slow second way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmexposure.canaries.check_digit import check_digit


def naive(payload: str) -> str:
    """Try all ten digits with the textbook test: doubled digits from the right, sum modulo 10."""
    for candidate in "0123456789":
        digits = [int(c) for c in reversed(payload + candidate) if c in "0123456789"]
        total = sum(digits[::2])
        total += sum(sum(map(int, str(2 * digit))) for digit in digits[1::2])
        if total % 10 == 0:
            return candidate
    raise AssertionError("no digit fits")


@pytest.mark.parametrize(
    ("payload", "digit"),
    [
        ("7992739871", "3"),  # the example of Wikipedia, "Luhn algorithm"
        ("411111111111111", "1"),  # the public Visa test number 4111 1111 1111 1111
        ("37828224631000", "5"),  # the public American Express test number 378282246310005
        ("4111-1111 1111 111", "1"),
        ("", "0"),
    ],
)
def test_published_numbers(payload: str, digit: str) -> None:
    assert check_digit(payload) == digit


@given(st.text(alphabet="0123456789 -x²", max_size=20))
def test_equals_the_slow_way(payload: str) -> None:
    assert check_digit(payload) == naive(payload)
