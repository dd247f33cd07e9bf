"""Rows of classes and canaries, against the result that they were read from."""

import math
from typing import Any

import pytest
from made_results import (
    RANDOM_NUMBER,
    canary,
    estimate,
    made,
    sampled,
    small_manifest,
    small_result,
)

from lmexposure.records import (
    Estimate,
    Extraction,
    Method,
)
from lmexposure.reporting.data import CanaryRow
from lmexposure.reporting.rows import canary_rows, class_rows


def test_a_class_says_what_the_summary_says() -> None:
    result = small_result()
    row = class_rows(result, result.formats[0])[2]
    said = next(one for one in result.summary if one.repetitions == 4)
    assert said.guessing_test is not None
    assert said.epsilon is not None
    assert (row.median, row.low, row.high) == (said.median.value, said.median.low, said.median.high)
    assert row.p_value == said.guessing_test.p_value
    assert row.exact == said.methods["exact"]
    assert row.epsilon == said.epsilon.value
    assert [one.given for one in row.guesses] == [1, 10, 100, 1000]
    assert row.guesses[-1].found == sum(
        any(search.method == "best_first" and search.found for search in one.extraction)
        for one in result.canaries
        if one.repetitions == 4
    )
    assert row.guesses[-1].by_chance == pytest.approx(10 * 1000 / 10**9)


def test_controls_come_first_and_have_no_epsilon() -> None:
    result = small_result(repetitions=(4, 1))
    rows = class_rows(result, result.formats[0])
    assert [(row.role, row.repetitions) for row in rows] == [
        ("control", 0),
        ("canary", 1),
        ("canary", 4),
    ]
    assert rows[0].epsilon is None


def test_with_some_revealed_the_better_search_counts() -> None:
    result = small_result()
    row = class_rows(result, result.formats[0])[2]
    assert [one.given for one in row.revealed] == [0, 1, 2]
    by_method = {
        (count.method, count.revealed): count.found
        for count in next(r for r in result.summary if r.repetitions == 4).extraction
    }
    for found in row.revealed:
        both = (by_method["greedy", found.given], by_method["beam", found.given])
        assert found.found == max(both)
    assert row.revealed[1].by_chance == 10 * 100 / 10**8


def test_chance_in_a_small_space_is_at_most_all() -> None:
    result = small_result(formats=("tiny",), canaries=5, controls=4)
    row = class_rows(result, result.formats[0])[1]
    assert row.guesses[-1].by_chance <= row.guesses[-1].of


def _row(*searches: Extraction, shown: Estimate | None = None) -> CanaryRow:
    """Of a canary of which this is known."""
    made_of = canary(0, shown or sampled(3.0, 2.0, 4.0), extraction=searches)
    (row,) = canary_rows(made([made_of], controls=None), "random_number")
    return row


def _found(
    method: str, revealed: int, place: int | None, *, chance: float = 0.0, proven: int = 1000
) -> Extraction:
    values: dict[str, Any] = {"method": method, "revealed": revealed, "by_chance": chance}
    return Extraction(
        **values,
        found=place is not None,
        place=place,
        width=100,
        steps=9,
        proven=proven if method == "best_first" else None,
        fills_left=10**9,
    )


def test_guesses_are_those_of_a_proven_order_with_nothing_given() -> None:
    row = _row(_found("greedy", 0, 1), _found("best_first", 0, 77))
    assert (row.guesses, row.guesses_tried, row.revealed) == (77, 1000, 0)
    row = _row(_found("beam", 0, 5), _found("best_first", 0, None))
    assert (row.guesses, row.guesses_tried) == (None, 1000)
    assert _row().guesses_tried is None
    assert _row(_found("best_first", 0, None, proven=0)).guesses_tried is None


def test_a_counted_rank_says_how_many_guesses_it_takes() -> None:
    def placed(method: Method, *, capped: bool = False) -> Estimate:
        bits = math.log2(RANDOM_NUMBER) - math.log2(736_461)
        return estimate(method, bits, rank=736_461, place=736_486, capped=capped)

    unfound = _found("best_first", 0, None)
    assert _row(unfound, shown=placed("exact")).guesses == 736_486
    assert _row(_found("best_first", 0, 77), shown=placed("exact")).guesses == 77
    assert _row(unfound, shown=placed("bounded", capped=True)).guesses is None
    assert _row(unfound, shown=placed("importance")).guesses is None


def test_what_chance_would_have_found_is_not_found() -> None:
    easy, found = _found("beam", 3, 9, chance=0.5), _found("greedy", 4, 1, chance=0.1)
    assert _row(easy).revealed is None
    assert _row(easy, found).revealed == 4


def test_secrets_only_from_a_manifest() -> None:
    result, manifest = small_result(), small_manifest()
    assert {row.secret for row in canary_rows(result, "random_number")} == {None}
    rows = canary_rows(result, "random_number", manifest)
    assert len({row.secret for row in rows}) == len(rows)


def test_an_exposure_says_how_it_was_estimated() -> None:
    rows = canary_rows(small_result(), "random_number")
    capped = [row for row in rows if row.capped]
    assert {row.method for row in rows} == {"sampled", "exact"}
    assert all(row.rank == "1" and row.method == "sampled" for row in capped)
    assert capped
