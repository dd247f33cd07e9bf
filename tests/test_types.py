"""A result of the statistics as a part of a record: read to the leaf, and imported without it."""

import subprocess
import sys
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from lmexposure._record import Record, first_problem
from lmexposure._types import FROM_FILE, BigInteger, Found, Rows, Share


@dataclass(frozen=True, kw_only=True)
class Part(Found):
    """What was found."""

    share: Share
    seed: BigInteger
    notes: Rows[str] = ()


class Whole(Record):
    part: Part | None


PART = Part(share=0.5, seed=2**70, notes=("a",))
VALUES: dict[str, Any] = {"share": 0.5, "seed": str(2**70), "notes": ["a"]}


def read(**changes: Any) -> Whole:
    kept = {name: value for name, value in (VALUES | changes).items() if value is not None}
    return Whole.model_validate({"part": kept}, context=FROM_FILE)


def test_what_was_written_is_read_again() -> None:
    whole = Whole(part=PART)
    assert whole.model_dump(mode="json") == {"part": VALUES}
    assert read() == whole
    assert read().part == PART


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"share": 1.5}, "part.share=1.5: Input should be less than or equal to 1"),
        ({"share": "0.5"}, "part.share='0.5': Input should be a valid number"),
        ({"share": float("nan")}, "part.share=nan: Input should be a finite number"),
        ({"seed": 7}, "part.seed=7: Input should be a decimal string of at most 4,000 digits"),
        ({"notes": None}, "part.notes: Field required"),  # its default is for who computes it
        ({"more": 1}, "part.more: Extra inputs are not permitted"),
    ],
)
def test_each_part_is_there_of_its_type_and_nothing_else(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        read(**changes)
    assert first_problem(refused.value) == said


def test_no_message_shows_what_is_unknown_where_a_value_may_be_a_secret() -> None:
    with pytest.raises(ValidationError) as refused:
        read(hunter2="s3cret")
    assert first_problem(refused.value, shown=False) == "part: Extra inputs are not permitted"


def test_what_was_computed_is_checked_when_a_record_takes_it() -> None:
    wrong = replace(PART, share=2.0)
    with pytest.raises(ValidationError, match="less than or equal to 1"):
        Whole(part=wrong)


def test_it_is_strict_by_itself_too() -> None:
    with pytest.raises(ValidationError, match="valid number"):
        TypeAdapter(Part).validate_python(VALUES | {"share": "0.5"}, context=FROM_FILE)


def test_results_need_neither_pydantic_nor_numpy() -> None:
    script = (
        "import sys, lmexposure.statistics.results\n"
        "assert not {'pydantic', 'numpy', 'scipy', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
