"""Two secrets for one text: decided exactly, against building every text."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmexposure.canaries import Format
from lmexposure.canaries.ambiguity import ambiguous_text
from lmexposure.canaries.template import parse_template
from lmexposure.errors import FormatError

ENTRIES = st.lists(st.text("a1", min_size=1, max_size=3), min_size=1, max_size=4, unique=True)
PIECES = st.sampled_from(["{choice:p}", "{choice:q}", "{digits:1}", "a", "1"])


def all_texts(template: str, lists: dict[str, tuple[str, ...]]) -> Counter[str]:
    """Every text with the number of secrets that give it, without any search."""
    texts = [""]
    for part in parse_template(template, lists):
        texts = [text + part.write(value, text) for text in texts for value in range(part.size)]
    return Counter(texts)


@given(st.lists(PIECES, min_size=1, max_size=3), ENTRIES, ENTRIES, st.booleans())
@settings(max_examples=300)
def test_agrees_with_building_every_text(
    pieces: list[str], p: list[str], q: list[str], luhn: bool
) -> None:
    template = "".join(["{choice:p}", *pieces, "{choice:q}"])
    if luhn:
        template += "{digits:1}{luhn}" + ("1" if len(p) > 2 else "")
    lists = {"p": tuple(p), "q": tuple(q)}
    counts = all_texts(template, lists)
    found = ambiguous_text(parse_template(template, lists))
    if found is None:
        assert max(counts.values()) == 1
    else:
        assert counts[found] >= 2


def test_the_check_digit_can_settle_what_the_holes_leave_open() -> None:
    # "1" + "11" and "11" + "1": the free characters alone are ambiguous, with or without the digit.
    lists = {"c": ["1", "11"]}
    with pytest.raises(FormatError, match="secrets 1 and 2 both give the text '111'"):
        Format(name="a", template="{choice:c}{choice:c}", lists=lists)
    # Here only a check digit of 1 could be read as part of the entry, and it never is.
    settled = Format(name="a", template="{choice:c}{luhn}", lists={"c": ["1", "18"]})
    assert [settled.text(index) for index in range(2)] == ["18", "182"]


def test_variable_width_with_a_literal_between_is_fine() -> None:
    lists = {"c": ["Elm", "Elmwood", "Elm St"]}
    one = Format(name="a", template="{choice:c}, {choice:c}", lists=lists)
    assert [one.index(one.text(index)) for index in range(9)] == list(range(9))


def test_the_message_names_format_and_both_secrets() -> None:
    with pytest.raises(FormatError, match=r"format 'a': secrets \d+ and \d+ both give the text"):
        Format(
            name="a",
            template="{choice:c}{choice:d}",
            lists={"c": ["an", "anna"], "d": ["x", "nax"]},
        )
