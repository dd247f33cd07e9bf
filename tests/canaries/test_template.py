"""Every mistake in a template is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmexposure.canaries import Format
from lmexposure.canaries.template import check_digit
from lmexposure.errors import FormatError


def build(template: str, **lists: list[str]) -> Format:
    return Format(name="own", template=template, lists=lists)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("no hole here", "no hole that is free"),
        ("", "no hole that is free"),
        ("only {luhn}", "no hole that is free"),
        ("a {number:3}", r"unknown hole \{number:3\}; the holes are \{digits:n\}"),
        ("a {}", r"unknown hole \{\}"),
        ("a {digits}", "needs a width from 1 to 1000"),
        ("a {digits:0}", "needs a width from 1 to 1000"),
        ("a {digits:1001}", "needs a width from 1 to 1000"),
        ("a {digits:-2}", "needs a width from 1 to 1000"),
        ("a {digits:{n}}", "needs a width from 1 to 1000"),
        ("a {digits!r:3}", "has a conversion '!r'"),
        ("a {digits:3", "double a brace to mean it literally"),
        ("a } {digits:3}", "double a brace to mean it literally"),
        ("{digits:3}{luhn}{digits:2}", r"\{digits:2\} comes after \{luhn\}"),
        ("{digits:3}{luhn}{luhn}", r"\{luhn\} comes after \{luhn\}"),
        ("{digits:3}{luhn:2}", "takes nothing after the name"),
        ("7 {lower:3}{luhn}", "no free digit before it"),
        ("{luhn} {digits:3}", r"comes after \{luhn\}"),
        ("a {choice:towns}", "names no list of this format; its lists: none"),
        ("two\nlines {digits:2}", "line break"),
        ("two\u2028lines {digits:2}", "line break"),
        ("nul \0 {digits:2}", "NUL"),
        ("half \ud800 {digits:2}", "cannot be written as UTF-8"),
    ],
)
def test_refused_templates(template: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        build(template)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "non-empty list"),
        (["Ann", ""], "entry 1 must be a non-empty string"),
        (["Ann", "Bob", "Ann"], "holds 'Ann' more than once"),
        (["Ann", "B\rob"], "entry 1 holds a line break"),
        (["Ann", 3], "entry 1 must be a non-empty string"),
        ("Ann", "non-empty list of strings"),
    ],
)
def test_refused_lists(entries: list[str], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        build("I am {choice:names} {digits:1}", names=entries)


def test_refused_combinations() -> None:
    with pytest.raises(FormatError, match="can give a blank text"):
        build("{choice:gaps} ", gaps=[" ", "x"])
    with pytest.raises(FormatError, match="list 'other' is in no hole"):
        build("{choice:names}", names=["a", "b"], other=["c"])
    with pytest.raises(FormatError, match="lists must be a table"):
        Format(name="own", template="{digits:2}", lists=[1])  # type: ignore[arg-type]
    with pytest.raises(FormatError, match="template must be a string, not int"):
        Format(name="own", template=3)  # type: ignore[arg-type]


def test_doubled_braces_are_literal() -> None:
    one = build('{{"pin": {digits:2}}}')
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
