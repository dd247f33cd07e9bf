"""Secrets, indices and texts of a format; its template and language; shipped formats and files."""

import math
import pickle
from collections import Counter
from dataclasses import asdict
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmexposure.canaries import Format, Plan, check_format_file, load_format, shipped_formats
from lmexposure.canaries.language import ambiguous_text
from lmexposure.canaries.template import ALPHABETS, check_digit, parse_template
from lmexposure.errors import FormatError, PlanError

HOLES = st.sampled_from([*(f"{{{kind}:{n}}}" for kind in ALPHABETS for n in (1, 3)), "{choice:c}"])
TEMPLATES = st.lists(st.one_of(HOLES, st.sampled_from(["-", " x ", "{{", "7", "é"])), min_size=1)


def some_format(pieces: list[str], luhn: bool) -> Format:
    template = "".join([*pieces, "{digits:2}", "{luhn}." if luhn else ""])
    lists = {"c": ["ab", "zz", "é7"]} if "{choice:c}" in template else {}
    return Format(name="random", template=template, lists=lists)


@given(TEMPLATES, st.booleans(), st.data())
def test_round_trip(pieces: list[str], luhn: bool, data: st.DataObject) -> None:
    one = some_format(pieces, luhn)
    index = data.draw(st.integers(0, one.size - 1))
    text = one.text(index)
    assert one.index(text) == index
    assert one.pattern.fullmatch(text)
    assert one.complete(text)
    assert text.startswith(one.prefix)
    assert len(one.fills(index)) == sum(len(piece) > 3 for piece in pieces) + 1 + luhn


@pytest.mark.parametrize(
    ("template", "alphabet"),
    [
        ("{digits:1}", "0123456789"),
        ("{lower:1}", "abcdefghijklmnopqrstuvwxyz"),
        ("{upper:1}", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
        ("{alnum:1}", "abcdefghijklmnopqrstuvwxyz0123456789"),
        ("{hex:1}", "0123456789abcdef"),
        ("{printable:1}", "".join(chr(code) for code in range(33, 127))),
    ],
)
def test_alphabets_are_ordered_as_written(template: str, alphabet: str) -> None:
    one = Format(name="one", template=template)
    assert "".join(one.text(index) for index in range(one.size)) == alphabet


def test_first_hole_is_the_most_significant() -> None:
    one = Format(name="mixed", template="{choice:c}{digits:2}-{lower:1}", lists={"c": ["x", "a"]})
    assert one.size == 2 * 100 * 26
    assert one.fills(0) == ("x", "00", "a")
    assert one.fills(100 * 26 + 26 + 1) == ("a", "01", "b")
    assert [one.index(one.text(index)) for index in range(one.size)] == list(range(one.size))
    assert len({one.text(index) for index in range(one.size)}) == one.size


def test_check_digit_adds_no_randomness() -> None:
    one = Format(name="card", template="Card 12: {digits:4} {digits:3}{luhn}")
    assert one.size == 10**7
    assert one.fills(1234567) == ("1234", "567", check_digit("12 1234567"))
    wrong = one.text(5)[:-1] + str((int(one.text(5)[-1]) + 1) % 10)
    with pytest.raises(FormatError, match="is not of format 'card'"):
        one.index(wrong)


def test_sizes_are_exact() -> None:
    assert Format(name="big", template="{alnum:26}").size == 36**26
    assert Format(name="big", template="{alnum:26}").bits == pytest.approx(26 * math.log2(36))
    assert Format(name="two", template="{choice:c}", lists={"c": ["a", "b"]}).bits == 1
    with pytest.raises(FormatError, match="fewer than 2 ways"):
        Format(name="one", template="{choice:c}", lists={"c": ["a"]})
    with pytest.raises(FormatError, match=r"more than 10\^4000 ways"):
        Format(name="huge", template="{printable:1000}{printable:1000}{printable:1000}")
    one = Format(name="wide", template="{digits:1000}{digits:1000}")
    assert one.index(one.text(one.size - 1)) == int(str(one.size - 1))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        *(
            ({"name": name}, r"must match \[a-z0-9_\]\+")
            for name in ("", "Card", "a b", "a/b", "é")
        ),
        ({"description": 3}, "description must be a string"),
        ({"known": [1]}, "known goes with chosen texts alone; leave it out"),
        ({"kind": "texts"}, "kind 'texts' needs the template '{choice:texts}' and its list"),
    ],
)
def test_refused_values(values: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        Format(**{"name": "pin", "template": "PIN {digits:4}", **values})


def test_refused_indices_and_texts() -> None:
    pin = Format(name="pin", template="PIN {digits:2}")
    for index in (-1, 100, 1.5, True):
        with pytest.raises(FormatError, match="must be a whole number from 0 to 99"):
            pin.text(index)  # type: ignore[arg-type]
    for text in ("", "PIN 1", "PIN 123", "pin 12", "PIN 1x", "PIN 12 ", "PIN 1²"):
        with pytest.raises(FormatError, match=r"is not of format 'pin'") as caught:
            pin.index(text)
        assert not text or text not in str(caught.value)


def test_revealed_stops_before_the_next_free_character() -> None:
    one = Format(name="card", template="No {digits:2}-{digits:1}{luhn}!")
    text = one.text(123)
    assert [one.revealed(123, k) for k in range(4)] == ["No ", "No 1", "No 12-", text]
    assert one.free_characters(123) == 3
    with pytest.raises(FormatError, match="k=4 must be a whole number from 0 to 3"):
        one.revealed(123, 4)
    # Nothing tells where an entry ends that others begin with.
    one = Format(name="way", template="{choice:c} St", lists={"c": ["Elm", "Elmwood", "Oak"]})
    assert one.revealed(0, 3) == "Elm"
    assert one.revealed(2, 3) == "Oak St"
    assert one.revealed(1, 7) == "Elmwood St"


def test_dict_and_pickle_round_trip() -> None:
    one = Format(name="a", template="{choice:c}", lists={"c": ["Al", "Bert"]}, source="here")
    one.viable("A")
    assert Format(**asdict(one)) == one
    assert pickle.loads(pickle.dumps(one)) == one
    assert hash(Format(**asdict(one))) == hash(one)
    assert one != Format(name="a", template="{choice:c}", lists={"c": ["Al", "Bob"]})


@given(st.sampled_from(["{digits:1}", "{hex:40}", "{choice:c}"]), st.integers(0, 9), st.data())
@settings(max_examples=50)
def test_a_sample_is_the_beginning_of_a_longer_one(
    template: str, seed: int, data: st.DataObject
) -> None:
    lists = {"c": ["a", "b"]} if "choice" in template else {}
    one = Format(name="a", template=template, lists=lists)
    n = data.draw(st.integers(0, min(one.size, 50)))
    longer = one.sample(min(one.size, 50), seed=seed)
    assert one.sample(n, seed=seed) == longer[:n]
    assert len(set(longer)) == len(longer)
    assert all(0 <= index < one.size for index in longer)


def test_sample_names_the_largest() -> None:
    pin = Format(name="pin", template="{digits:1}")
    assert sorted(pin.sample(10, seed=0)) == list(range(10))
    with pytest.raises(FormatError, match="n=11 must be a whole number from 0 to 10"):
        pin.sample(11, seed=0)


def test_fills_left_counts_those_that_agree() -> None:
    one = Format(name="f", template="a {choice:c}-{digits:1}{luhn}", lists={"c": ["x", "xy", "z"]})
    for index in range(one.size):
        characters = one.free_characters(index)
        for k in range(characters + 1):
            known = one.revealed(index, k)
            # "x" and "xy" are still open after one x; the text behind it is what tells them apart.
            agree = sum(one.text(i).startswith(known) for i in range(one.size))
            assert one.fills_left(index, k) == agree
    with pytest.raises(FormatError, match="k=9"):
        one.fills_left(0, 9)


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


PEOPLE = "I am {choice:names} {digits:1}"
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
    (PEOPLE, {"names": []}, "non-empty list"),
    (PEOPLE, {"names": ["Ann", ""]}, "entry 1 must be a non-empty string"),
    (PEOPLE, {"names": ["Ann", "Bob", "Ann"]}, "holds 'Ann' more than once"),
    (PEOPLE, {"names": ["Ann", "B\rob"]}, "entry 1 holds a line break"),
    (PEOPLE, {"names": ["Ann", 3]}, "entry 1 must be a non-empty string"),
    (PEOPLE, {"names": "Ann"}, "non-empty list of strings"),
    (PEOPLE, [1], "lists must be a table"),
    (PEOPLE, {"names": TWO, "other": ["c"]}, "list 'other' is in no hole"),
    ("{choice:gaps} ", {"gaps": [" ", "x"]}, "can give a blank text"),
]


@pytest.mark.parametrize(("template", "lists", "message"), REFUSED)
def test_refused_templates(template: Any, lists: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        Format(name="own", template=template, lists=lists)


OWN = 'name = "own"\ntemplate = "My code is {digits:6}"\ndescription = "A code"\n'
SHIPPED = sorted(
    path.stem for path in (Path(__file__).parents[2] / "canary_formats").glob("*.toml")
)
# Counted by hand from the templates; a format without a line here is tested like the others.
SIZES = {
    "random_number": 10**9,
    "ssn": 10**9,
    "card_number": 10**16,
    "credit_card": 10**15,
    "phone": 10**10,
    "email": 26**8 * 36**4,
    "password": 94**12,
    "api_key": 16**32,
    "pin": 10**4,
    "uuid": 2**122,
    "medical_record": 26**2 * 10**7 * 38,
    "street_address": 10**9 * 32 * 8 * 32,
}


def test_shipped_formats() -> None:
    sizes = {name: form.size for name, form in shipped_formats().items()}
    assert sizes | SIZES == sizes
    assert sorted(sizes) == SHIPPED
    assert load_format("random_number").text(281265017) == "The random number is 281265017"
    shipped_formats().clear()  # a copy
    assert shipped_formats()


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_formats_are_sound(name: str) -> None:
    one = load_format(name)
    assert one.name == name
    assert one.description
    assert one.source
    assert one.prefix
    assert one.bits == math.log2(one.size)
    assert not one.may_nest
    for index in (0, one.size - 1, *one.sample(20, seed=2)):
        assert one.index(one.text(index)) == index


def test_own_file(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(OWN, encoding="utf-8")
    assert load_format(path) == load_format(str(path))
    assert load_format(path).size == 10**6
    check = check_format_file(path)
    assert check.format == load_format(path)
    assert check.problems == check.advice == ()


def test_a_list_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        'name = "own"\ntemplate = "{choice:a}{digits:1}"\n[lists]\na = ["x", "y"]\n', "utf-8"
    )
    check = check_format_file(path)
    assert check.format is not None
    assert check.format.lists == {"a": ("x", "y")}
    assert len(check.advice) == 3
    assert "no literal text" in check.advice[0]
    assert "only 4.3 bits" in check.advice[1]
    assert "no description" in check.advice[2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name = ", "is not TOML"),
        (OWN + 'colour = "red"\n', "unknown keys: colour; a format has description, lists"),
        ('name = "own"\n', "missing keys: template"),
        ('name = "own"\ntemplate = "{digit:3}"\n', "unknown hole"),
        ('name = "own"\ntemplate = "{digits:3}"\nlists = 3\n', "lists must be a table"),
    ],
)
def test_broken_files(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(FormatError, match=message):
        load_format(path)
    check = check_format_file(path)
    assert check.format is None
    assert "own.toml" in check.problems[0]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no format 'luhn'; the shipped ones are api_key, "):
        load_format("luhn")
    with pytest.raises(FormatError, match=r"no format 'PINN'; did you mean 'pin'\? The shipped"):
        load_format("PINN")
    with pytest.raises(FormatError, match=r"cannot read the format file .*: No such file"):
        load_format(tmp_path / "missing.toml")
    (tmp_path / "latin.toml").write_bytes(b"\xe9")
    with pytest.raises(FormatError, match="not UTF-8 text"):
        load_format(tmp_path / "latin.toml")


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
PARTS = st.sampled_from(["{choice:p}", "{choice:q}", "{digits:1}", "a", "1"])


def all_texts(template: str, lists: dict[str, tuple[str, ...]]) -> Counter[str]:
    """Every text with the number of secrets that give it, without any search."""
    texts = [""]
    for part in parse_template(template, lists):
        texts = [text + part.write(value, text) for text in texts for value in range(part.size)]
    return Counter(texts)


@given(st.lists(PARTS, min_size=1, max_size=3), ENTRIES, ENTRIES, st.booleans())
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


def test_long_holes_are_decided_quickly() -> None:
    one = Format(name="f", template="{printable:100}{choice:c}!", lists={"c": ["a", "aa", "ab"]})
    assert one.may_nest


def test_a_plan_refuses_it_and_a_check_says_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    one = Format(name="f", template="I am {choice:c}", lists={"c": ["Ann", "Anna"]})
    with pytest.raises(PlanError, match="one secret of format 'f' can lie within another"):
        Plan(formats=(one,), canaries=1, repetitions=(1,), controls=0, seed=0)
    path = tmp_path_factory.mktemp("formats") / "f.toml"
    path.write_text('name="f"\ntemplate="I am {choice:c}"\n[lists]\nc=["Ann", "Anna"]\n')
    assert any("within another" in line for line in check_format_file(path).advice)
