"""Every mistake in a template is named."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmexposure.canaries import Format
from lmexposure.canaries.template import check_digit
from lmexposure.errors import FormatError


def test_doubled_braces_are_literal() -> None:
    one = Format(name="own", template='{{"pin": {digits:2}}}')
    assert one.text(7) == '{"pin": 07}'
    assert one.prefix == '{"pin": '


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


NAMES = "I am {choice:names} {digits:1}"
TWO = ["a", "b"]
REFUSED: list[tuple[Any, Any, str]] = [
    ("no hole here", {}, "no hole that is free"),
    ("", {}, "no hole that is free"),
    ("only {luhn}", {}, "no hole that is free"),
    ("a {number:3}", {}, r"unknown hole \{number:3\}; the holes are \{digits:n\}"),
    ("a {}", {}, r"unknown hole \{\}"),
    *(
        (f"a {{digits{width}}}", {}, "needs a width from 1 to 1000")
        for width in ("", ":0", ":1001", ":-2", ":{n}")
    ),
    ("a {digits!r:3}", {}, "has a conversion '!r'"),
    ("a {digits:3", {}, "double a brace to mean it literally"),
    ("a } {digits:3}", {}, "double a brace to mean it literally"),
    ("{digits:3}{luhn}{digits:2}", {}, r"\{digits:2\} comes after \{luhn\}"),
    ("{digits:3}{luhn}{luhn}", {}, r"\{luhn\} comes after \{luhn\}"),
    ("{digits:3}{luhn:2}", {}, "takes nothing after the name"),
    ("7 {lower:3}{luhn}", {}, "no free digit before it"),
    ("{luhn} {digits:3}", {}, r"comes after \{luhn\}"),
    ("a {choice:towns}", {}, "names no list of this format; its lists: none"),
    ("two\nlines {digits:2}", {}, "line break"),
    ("two\u2028lines {digits:2}", {}, "line break"),
    ("nul \0 {digits:2}", {}, "NUL"),
    ("half \ud800 {digits:2}", {}, "cannot be written as UTF-8"),
    (3, {}, "template must be a string, not int"),
    (NAMES, {"names": []}, "non-empty list"),
    (NAMES, {"names": ["Ann", ""]}, "entry 1 must be a non-empty string"),
    (NAMES, {"names": ["Ann", "Bob", "Ann"]}, "holds 'Ann' more than once"),
    (NAMES, {"names": ["Ann", "B\rob"]}, "entry 1 holds a line break"),
    (NAMES, {"names": ["Ann", 3]}, "entry 1 must be a non-empty string"),
    (NAMES, {"names": "Ann"}, "non-empty list of strings"),
    (NAMES, [1], "lists must be a table"),
    (NAMES, {"names": TWO, "other": ["c"]}, "list 'other' is in no hole"),
    ("{choice:gaps} ", {"gaps": [" ", "x"]}, "can give a blank text"),
]


@pytest.mark.parametrize(("template", "lists", "message"), REFUSED)
def test_refused_templates(template: Any, lists: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        Format(name="own", template=template, lists=lists)
