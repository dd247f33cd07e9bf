"""A result in words: what its tables hold, and a legend of nothing that is not there."""

import math
from dataclasses import replace
from typing import Any

import pytest
from made_results import canary, class_row, exact, form, made, privacy, sampled, small_result

from lmexposure.reporting import Section, privacy_sections, result_sections
from lmexposure.reporting.build import class_rows
from lmexposure.reporting.privacy import primary_section
from lmexposure.reporting.sections import found_cell
from lmexposure.studies import Result


def sections(result: Result) -> dict[str, Section]:
    """By the beginning of their titles; the legend has none."""
    return {section.title.split(",")[0]: section for section in result_sections(result)}


def column(section: Section, head: str) -> list[str]:
    return [row[section.columns.index(head)] for row in section.rows]


@pytest.fixture(scope="module")
def found() -> dict[str, Section]:
    return sections(small_result())


def test_every_class_has_its_row_and_guessing_stands_last(found: dict[str, Section]) -> None:
    table = found["Exposure in bits"]
    assert column(table, "repetitions") == ["controls", "1×", "4×", "guessing"]
    assert column(table, "canaries") == ["16", "10", "10", ""]
    assert column(table, "median")[2:] == ["20.82", "1.00"]
    assert column(table, "epsilon (point)")[0] == "n/a"
    assert "|R| = 1,000,000,000 (29.9 bits), 400 references" in table.title
    assert {len(row) for row in table.rows} == {len(table.columns)}


def test_secrets_found_by_guesses_and_by_characters_known() -> None:
    both = [
        section.columns
        for section in result_sections(small_result())
        if section.title.startswith("Secrets found")
    ]
    assert both == [
        ("repetitions", "1 guess", "10 guesses", "100 guesses", "1,000 guesses"),
        ("repetitions", "0 known", "1 known", "2 known"),
    ]
    assert found_cell(None) == "n/a"


def terms(result: Result) -> list[str]:
    return [line.split(":")[0] for line in sections(result)["How to read these tables"].notes]


def test_the_legend_explains_what_is_there_and_nothing_else() -> None:
    bare = made([canary(i, exact(2.0), guesses=None) for i in range(4)], controls=None)
    heads = ["interval", "exact", "p (chance)", "proven lower bound", "skew-normal"]
    assert terms(bare) == [*heads, "epsilon (point)"]
    capped = made([canary(i, sampled(13.288, 11.4, 29.9, capped=True)) for i in range(4)])
    assert terms(capped) == [*heads, "epsilon (point)", "≥"]
    assert {"guesses", "known", "(!)"} <= set(terms(small_result()))


def test_what_is_a_lower_bound_says_so() -> None:
    shown = [sampled(13.288, 11.4, 29.9, capped=True), *(exact(2.0) for _ in range(3))]
    drawn = [canary(i, one) for i, one in enumerate(shown)]
    row = class_row(drawn)
    top = row.median.model_copy(update={"low": 2.0, "high": math.log2(10_000)})
    summary = [row.model_copy(update={"median": top})]
    table = sections(made(drawn, summary=summary))["Exposure in bits"]
    assert column(table, "mean")[0].startswith("≥ ")
    assert column(table, "median")[0] == "2.00"
    assert column(table, "interval")[0] == "2.00 .. ≥ 13.29"


def test_an_extrapolation_that_nothing_vouches_for_is_marked() -> None:
    drawn = [canary(i, exact(20.0)) for i in range(4)]
    parts: dict[str, Any] = {"other_medians": {"skew_normal": 31.5, "certificate": None}}
    result = made(drawn, summary=[class_row(drawn, **parts)])
    table = sections(result)["Exposure in bits"]
    assert column(table, "skew-normal") == ["31.50 (!)", ""]
    assert column(table, "proven lower bound") == ["n/a", ""]
    assert "(!)" in terms(result)


def test_a_space_too_large_for_a_float_has_its_size() -> None:
    large = made([canary(0, exact(3.0), size=16**1000)], size=16**1000)
    assert "|R| = 1.32e+1204 (4,000.0 bits)" in sections(large)["Exposure in bits"].title


def test_a_format_without_canaries_has_no_table() -> None:
    result = made([canary(0, exact(3.0))])
    assert class_rows(result, form("pin")) == ()


def test_the_bound_to_quote_and_what_it_rests_on() -> None:
    section = primary_section(privacy(1.23456, 3.45678))
    assert section.title.startswith("epsilon ≥ 1.235 nats at delta 1e-05, a lower bound (one-run")
    assert section.notes[0].startswith("holds for every private training (any-dp), at significance")
    assert section.notes[1].startswith("max attainable 3.457: what a perfect attack")


def test_bounds_of_each_class_and_a_legend_of_their_kinds() -> None:
    head, table, legend, quoted = privacy_sections(privacy(1.2, None, claimed=8.0))
    assert "no inclusion probability is declared" in head.title
    assert table.title == "random_number, repetitions 1: 32 inserted, 0 held out, 10,000 references"
    assert table.columns[4] == "max attainable"
    assert table.rows == (("one-run audit, primary", "any-dp", "1e-05", "1.200", "n/a", "0.025"),)
    assert table.notes == ("made by hand",)
    assert [line.split(":")[0] for line in legend.notes] == ["primary", "any-dp"]
    assert quoted.notes[-1] == "claim of epsilon 8 at delta 0: not decided: so"


def test_without_a_bound_it_says_why() -> None:
    none = privacy(None)
    assert [section.columns for section in privacy_sections(none)] == [(), (), ()]
    assert primary_section(none).title == (
        "No bound on epsilon: no class has both inserted and held out canaries."
    )
    assert primary_section(None).title == "No bound on epsilon: the result holds none."


def test_guessing_that_would_find_as_many_is_in_brackets(found: dict[str, Section]) -> None:
    row = class_rows(small_result(), small_result().formats[0])[-1]
    cell = replace(row.guesses[-1], found=8, of=10, by_chance=4.0)
    assert found_cell(cell) == "(8/10)"
