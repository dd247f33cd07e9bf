"""Which of two runs leaks more, in a sentence: what it says, and when it says nothing."""

from dataclasses import replace
from typing import Any

import pytest
from made_results import small_result

from lmexposure.reporting.findings import Finding, findings, settings_differ
from lmexposure.reporting.pairs import Difference

ROW = Difference(
    base="base",
    other="tuned",
    format="pin",
    role="canary",
    repetitions=16,
    paired=True,
    n=10,
    n_base=10,
    median=12.3,
    least=12.3,
    most=12.3,
    low=9.0,
    high=15.0,
    level=0.95,
    higher=10,
    lower=0,
    open=0,
    p_value=0.002,
    p_adjusted=0.004,
    p_least=0.004,
    capped=0,
    assumes="",
)
NONE: dict[str, Any] = {"median": 0.5, "least": 0.5, "most": 0.5, "higher": 6, "lower": 4}
NONE |= {"p_value": 0.75, "p_adjusted": 1.0}
DOWN: dict[str, Any] = {"median": -12.3, "least": -12.3, "most": -12.3, "higher": 0, "lower": 10}


def finding(*rows: Difference) -> Finding:
    (found,) = findings(["base", "tuned"], rows)
    return found


def test_more_by_how_much_and_not_by_chance() -> None:
    once = replace(ROW, repetitions=1, **NONE)
    found = finding(once, ROW)
    assert found.which == "more"
    assert found.sentence == (
        "tuned leaks more than base: secrets inserted 16 times are 12.3 bits more exposed in the "
        "median (p = 0.0040 by a sign test of the same 10 canaries, corrected for 2 tests; chance "
        "does not explain it). 1 of 2 classes differ so."
    )


def test_less_is_said_of_the_run_that_leaks_more() -> None:
    found = finding(replace(ROW, paired=False, n=7, **DOWN))
    assert found.which == "less"
    assert found.sentence == (
        "base leaks more than tuned: secrets inserted 16 times are 12.3 bits more exposed in the "
        "median (p = 0.0040 by a rank-sum test of 10 and 7 other canaries; chance does not explain "
        "it)."
    )


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (replace(ROW, least=12.3, most=20.0), "are 12.3 bits more exposed"),
        (replace(ROW, least=3.0), "are at least 3.0 bits more exposed"),
        (replace(ROW, least=-1.0), "are more exposed in 10 of 10 canaries, and less in 0 (p ="),
        (
            replace(ROW, **DOWN | {"least": -20.0, "most": -2.0}),
            "are at least 2.0 bits more exposed",
        ),
        (replace(ROW, repetitions=1), "secrets inserted once are 12.3 bits"),
    ],
)
def test_lower_bounds_leave_less_to_say(row: Difference, said: str) -> None:
    assert said in finding(row).sentence


def test_a_median_that_shows_nothing_gives_way_to_the_pairs() -> None:
    """Most canaries tie, or a rank-sum test sees what medians do not: never "0.0 bits more"."""
    ties: dict[str, Any] = {"n": 20, "median": 0.0, "least": 0.0, "most": 0.0}
    tied = finding(replace(ROW, **ties, higher=9))
    assert "tuned leaks more than base: secrets inserted 16 times are more exposed in 9 of 20 " in (
        tied.sentence
    )
    against: dict[str, Any] = {"median": 1.0, "least": 1.0, "most": 1.0, "higher": 20, "lower": 80}
    found = finding(replace(ROW, paired=False, **against))
    assert found.sentence.startswith(
        "base leaks more than tuned: secrets inserted 16 times are more exposed in 80 of 100 pairs "
        "of canaries, and less in 20 (p = 0.0040 by a rank-sum test"
    )


def test_classes_that_disagree() -> None:
    found = finding(replace(ROW, format="date", repetitions=1, **DOWN), ROW)
    assert found.which == "both"
    assert found.sentence.startswith(
        "Neither leaks more throughout: secrets of pin inserted 16 times are 12.3 bits more "
        "exposed in the median under tuned than under base (p = 0.0040 by"
    )
    assert "but secrets of date inserted once are 12.3 bits more exposed" in found.sentence


def test_what_chance_explains_is_no_difference() -> None:
    found = finding(replace(ROW, **NONE))
    assert found.which == "neither"
    assert found.sentence == (
        "No difference beyond chance between base and tuned; nearest to one are "
        "secrets inserted 16 times, 0.5 bits more exposed in the median under tuned (p = 1.0000 "
        "by a sign test of the same 10 canaries)."
    )
    alike = replace(ROW, **NONE | {"median": 0.0})
    assert "secrets inserted 16 times, alike in the median (p = 1.0000" in finding(alike).sentence
    few = finding(replace(ROW, **NONE, n=3, p_least=0.25)).sentence
    assert few.endswith("With so few canaries none could have been shown.")
    left_open = finding(replace(ROW, **NONE, open=4)).sentence
    assert "Of 4 of 10 canaries, lower bounds or references leave open" in left_open


def test_nothing_in_common_is_not_known() -> None:
    controls = replace(ROW, role="control", repetitions=0, p_value=1.0, p_adjusted=None)
    found = finding(controls)
    assert found.which == "unknown"
    assert found.sentence.startswith(
        "base and tuned have no class of canaries that can be compared:"
    )


def test_controls_that_differ_raise_an_alarm() -> None:
    controls = replace(ROW, role="control", repetitions=0, p_value=0.002, p_adjusted=None)
    assert " Controls differ too (p = 0.0020)" in finding(ROW, controls).sentence
    assert "Controls" not in finding(ROW, replace(controls, p_value=0.02)).sentence


def test_settings_that_differ_are_named() -> None:
    result = small_result()
    other = result.model_copy(
        update={
            "settings": result.settings.model_copy(update={"budget_steps": 10**6, "quick": True}),
            "model": result.model.model_copy(update={"dtype": "bfloat16"}),
        }
    )
    assert settings_differ(result, other) == (
        "budget steps by default and 1,000,000; quick no and yes; dtype float32 and bfloat16"
    )
    assert settings_differ(result, result) == ""
