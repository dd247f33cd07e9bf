"""Numbers as people read them."""

import pytest
from made_results import small_result

from lmexposure.reporting.data import Found
from lmexposure.reporting.figures import (
    chance,
    class_name,
    found_of,
    interval,
    median_bits,
    number,
    probability,
)
from lmexposure.reporting.rows import class_rows


def test_numbers_and_what_is_missing() -> None:
    assert (number(2.345, 1), number(None)) == ("2.3", "n/a")
    assert interval(None, 3) == "n/a .. 3.00"
    assert chance(0.00001) == "1e-05"


@pytest.mark.parametrize(
    ("value", "said"), [(None, "n/a"), (0.0, "< 0.0001"), (1e-4, "0.0001"), (1.0, "1.0000")]
)
def test_a_p_value_is_never_nothing(value: float | None, said: str) -> None:
    assert probability(value) == said


def test_what_chance_would_find_stands_in_brackets() -> None:
    def of(found: int, by_chance: float) -> str:
        return found_of(Found(given=10, found=found, of=10, by_chance=by_chance))

    assert found_of(None) == "n/a"
    assert of(3, 1e-6) == "3/10"
    assert of(0, 0.4) == "0/10"
    assert of(0, 0.5) == "(0/10)"
    assert of(8, 4.0) == "(8/10)"


def test_a_lower_bound_says_so() -> None:
    result = small_result(extraction=False)
    row = class_rows(result, result.formats[0])[-1]
    assert row.capped
    assert median_bits(row).startswith("≥ ")
    assert class_name(row.role, row.repetitions) == "4"
    assert class_name("control", 0) == "controls"
