"""The language of a format: what may follow a beginning, ambiguity, and fills within fills."""

from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmexposure.canaries import Format, Plan, check_format_file, shipped_formats
from lmexposure.canaries.language import ambiguous_text
from lmexposure.canaries.template import parse_template
from lmexposure.errors import FormatError, PlanError

SMALL = [
    Format(name="digits", template="No {digits:3}."),
    Format(name="check", template="1-{digits:2}{luhn}!"),
    Format(name="names", template="{choice:c} and {choice:c}", lists={"c": ["Al", "Ali", "A"]}),
    Format(name="end", template="I am {choice:c}", lists={"c": ["Ann", "Anna", "Bo"]}),
    Format(name="moving", template="{choice:c}{luhn}", lists={"c": ["1", "18", "205"]}),
]


@pytest.mark.parametrize("one", SMALL, ids=lambda one: one.name)
def test_agrees_with_the_list_of_all_fills(one: Format) -> None:
    texts = {one.text(index) for index in range(one.size)}
    beginnings = {text[:end] for text in texts for end in range(len(text) + 1)}
    characters = {character for text in texts for character in text} | {"?"}
    for beginning in beginnings:
        following = {c for c in characters if beginning + c in beginnings}
        assert one.next_characters(beginning) == "".join(sorted(following))
        assert one.complete(beginning) == (beginning in texts)
        assert one.viable(beginning)
        for character in characters - following:
            assert not one.viable(beginning + character)
            assert one.next_characters(beginning + character) == ""
            assert not one.complete(beginning + character)


def test_states_can_be_kept_and_taken_up_again() -> None:
    language = SMALL[1].language
    state = language.advance(language.start, "1-4")
    assert state is not None
    assert language.advance(language.start, "1-") == language.advance(language.start, "1-")
    one_way, other_way = language.advance(state, "2"), language.advance(state, "3")
    assert one_way is not None
    assert other_way is not None
    assert language.next_characters(one_way) != language.next_characters(other_way)
    assert language.advance(state, "") == state


def test_equal_ways_to_go_on_share_a_state() -> None:
    language = SMALL[0].language
    assert language.advance(language.start, "No 12") == language.advance(language.start, "No 98")


ENTRIES = st.lists(st.text("a1", min_size=1, max_size=3), min_size=1, max_size=4, unique=True)
PIECES = st.sampled_from(["{choice:p}", "{choice:q}", "{digits:1}", "a", "1"])


def all_texts(template: str, lists: dict[str, tuple[str, ...]]) -> Counter[str]:
    """Every text with the number of secrets that give it, without any search."""
    texts = [""]
    for part in parse_template(template, lists):
        texts = [text + part.write(value, text) for text in texts for value in range(part.size)]
    return Counter(texts)


@given(st.lists(PIECES, min_size=1, max_size=3), ENTRIES, ENTRIES, st.booleans())
@settings(max_examples=60)
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


def test_the_message_names_format_and_both_secrets() -> None:
    with pytest.raises(FormatError, match=r"format 'a': secrets \d+ and \d+ both give the text"):
        Format(
            name="a",
            template="{choice:c}{choice:d}",
            lists={"c": ["an", "anna"], "d": ["x", "nax"]},
        )


def nests_by_brute_force(one: Format) -> bool:
    texts = [one.text(i) for i in range(one.size)]
    return any(a in b for a, b in permutations(texts, 2))


@given(
    entries=st.lists(st.text("ab", min_size=1, max_size=3), min_size=2, max_size=4, unique=True),
    before=st.sampled_from(["", "a", "ab", "c", "{digits:1}"]),
    after=st.sampled_from(["", "a", "ba", "c", "{digits:1}", "{digits:1}{luhn}"]),
)
def test_never_misses_and_never_invents(entries: list[str], before: str, after: str) -> None:
    try:
        one = Format(name="f", template=f"{before}{{choice:c}}{after}", lists={"c": entries})
    except FormatError:
        return  # ambiguous: refused before
    assert one.may_nest == nests_by_brute_force(one)


@pytest.mark.parametrize("one", shipped_formats().values(), ids=lambda one: str(one.name))
def test_no_shipped_format_nests(one: Format) -> None:
    assert not one.may_nest


def test_long_holes_are_decided_quickly() -> None:
    one = Format(name="f", template="{printable:100}{choice:c}!", lists={"c": ["a", "aa", "ab"]})
    assert one.may_nest


def test_a_plan_refuses_it_and_a_check_says_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    one = Format(name="f", template="I am {choice:c}", lists={"c": ["Ann", "Anna"]})
    with pytest.raises(PlanError, match="one fill of format 'f' can lie within another"):
        Plan(formats=(one,), canaries=1, repetitions=(1,), controls=0, seed=0)
    path = tmp_path_factory.mktemp("formats") / "f.toml"
    path.write_text('name="f"\ntemplate="I am {choice:c}"\n[lists]\nc=["Ann", "Anna"]\n')
    assert any("within another" in line for line in check_format_file(path).advice)
