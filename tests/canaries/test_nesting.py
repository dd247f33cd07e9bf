from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmexposure.canaries import Format, Plan, check_format_file, shipped_formats
from lmexposure.errors import FormatError, PlanError


def nests_by_brute_force(one: Format) -> bool:
    texts = [one.text(i) for i in range(one.size)]
    return any(a in b for a, b in permutations(texts, 2))


@pytest.mark.parametrize(
    ("template", "entries", "nests"),
    [
        ("I am {choice:c}", ["Ann", "Anna"], True),
        ("I am {choice:c}.", ["Ann", "Anna"], False),
        ("{choice:c} street", ["oak", "soak"], True),
        ("in {choice:c} street", ["oak", "soak"], False),
        ("a{choice:c}b", ["1", "1baa1", "x"], True),
        ("a{choice:c}b", ["1", "11"], False),
        ("x{choice:c}{digits:1}", ["A", "A1"], True),
        ("{digits:1}{choice:c}", ["A", "AB"], True),
        ("{digits:2}", [], False),
        ("{digits:1}{luhn}", [], False),
        ("{choice:c}{digits:1}{luhn}", ["a", "b1", "ba"], True),
    ],
)
def test_agrees_with_looking(template: str, entries: list[str], nests: bool) -> None:
    one = Format(name="f", template=template, lists={"c": entries} if entries else {})
    assert one.may_nest == nests
    assert nests_by_brute_force(one) == nests


@given(
    entries=st.lists(st.text("ab", min_size=1, max_size=3), min_size=2, max_size=4, unique=True),
    before=st.sampled_from(["", "a", "ab", "c", "{digits:1}"]),
    after=st.sampled_from(["", "a", "ba", "c", "{digits:1}"]),
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
    one = Format(name="f", template="{printable:300}{choice:c}!", lists={"c": ["a", "aa", "ab"]})
    assert one.may_nest


def test_a_plan_refuses_it_and_a_check_says_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    one = Format(name="f", template="I am {choice:c}", lists={"c": ["Ann", "Anna"]})
    with pytest.raises(PlanError, match="one fill of format 'f' can stand within another"):
        Plan(formats=(one,), canaries=1, repetitions=(1,), controls=0, seed=0)
    path = tmp_path_factory.mktemp("formats") / "f.toml"
    path.write_text('name="f"\ntemplate="I am {choice:c}"\n[lists]\nc=["Ann", "Anna"]\n')
    assert any("within another" in line for line in check_format_file(path).advice)
