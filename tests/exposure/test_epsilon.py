"""The checks of bounds on epsilon: a threshold that was asked for, and a claim."""

from typing import Any

import pytest
from exposure.judged import LEAK, OPEN, PASS, check_of
from made_results import clean, options, privacy, small_result

import lmexposure as lx
from lmexposure.audit import MeasureSettings
from lmexposure.core import Outcome, Thresholds
from lmexposure.studies import Result

CLAIM = options(claimed_epsilon=2.0, delta=1e-5)
HOW = "(delta 1e-05, significance 0.025, holds for every private training)"
LESS = "The training is less private than the 4 allowed: epsilon is "


def claimed(value: float | None, most: float | None = None) -> Result:
    """A result with a bound, the most that it could have been, and what they say of epsilon 2."""
    return clean(privacy=privacy(value, most, claimed=2.0), settings=CLAIM)


@pytest.mark.parametrize(
    ("value", "most", "outcome"),
    [
        (4.1, 6.0, LEAK),
        (4.1, None, LEAK),
        (4.0, 6.0, PASS),
        (0.0, 4.1, PASS),
        (0.0, 4.0, OPEN),
        (0.0, None, OPEN),
    ],
)
def test_a_pass_could_have_been_a_leak(value: float, most: float | None, outcome: Outcome) -> None:
    check = check_of(clean(privacy=privacy(value, most)), "max_epsilon", max_epsilon=4.0)
    assert (check.outcome, check.value, check.unit) == (outcome, value, "nats")
    assert check.asked
    assert HOW in check.reason
    assert check.reason.startswith(LESS) == (outcome is LEAK)


@pytest.mark.parametrize("section", [None, privacy(None)])
def test_a_result_without_a_bound_is_inconclusive_where_one_is_asked_for(section: Any) -> None:
    result = clean(privacy=section)
    check = check_of(result, "max_epsilon", max_epsilon=4.0)
    assert (check.outcome, check.value) == (OPEN, None)
    assert "the result holds no bound on epsilon" in check.reason.lower()
    assert "max_epsilon" not in {check.key for check in lx.check(result).checks}


@pytest.mark.parametrize(
    ("value", "most", "outcome"),
    [(2.1, 6.0, LEAK), (1.0, 6.0, PASS), (1.0, 2.0, OPEN), (1.0, None, OPEN), (None, None, OPEN)],
)
def test_a_claim_counts_as_asked(value: float | None, most: float | None, outcome: Outcome) -> None:
    check = check_of(claimed(value, most), "claimed_epsilon")
    assert (check.outcome, check.value, check.threshold) == (outcome, value, 2.0)
    assert check.asked
    assert "the claim of epsilon 2 at delta 0 is" in check.reason.lower()


@pytest.mark.parametrize("significance", [0.01, 1e-6])
def test_a_claim_is_judged_at_the_level_it_was_measured_with(significance: float) -> None:
    verdict = lx.check(claimed(2.1, 6.0), Thresholds(significance=significance))
    assert verdict.outcome is LEAK
    assert "contradicted in at most 2.5 % of measurements, whatever the" in verdict.sentence


@pytest.mark.parametrize("section", [None, privacy(1.0, 6.0)])
def test_a_claim_that_vanished_is_inconclusive(section: Any) -> None:
    verdict = lx.check(clean(privacy=section, settings=CLAIM))
    assert verdict.exit_code == 2
    assert "an epsilon was claimed, and the result says nothing about it" in verdict.sentence


@pytest.mark.parametrize(("most", "asked"), [(2.0, 3.0), (6.0, 5.5)])
def test_a_claim_that_nothing_could_contradict_was_not_tested(most: float, asked: float) -> None:
    told = most > 2
    verdict = lx.check(claimed(1.0, most), Thresholds(max_epsilon=asked))
    names = ("claimed epsilon", "lower bound on epsilon")
    untested = [line for line in verdict.untested if line.startswith(names)]
    tested = [f"{name} (at a significance of its own)" for name in names]
    assert [line for line in tested if line in verdict.tested] == (tested if told else [])
    assert [line.partition(":")[0] for line in untested] == list(() if told else names[::-1])
    assert told or "is not decided: " in untested[1]


def test_a_claim_of_a_real_measurement() -> None:
    result = small_result(
        claimed_epsilon=0.1,
        measure=MeasureSettings(bootstraps=39, permutations=999, revealed=2, delta=1e-5),
        inclusion_probability=0.5,
        canaries=60,
        repetitions=(1,),
        memorised=((1, 60.0),),
    )
    assert check_of(result, "claimed_epsilon").outcome is LEAK


def test_a_leak_without_a_null_is_none() -> None:
    result = clean(controls=0.0001, privacy=privacy(9.0, 12.0))
    assert lx.check(result, Thresholds(max_epsilon=4)).exit_code == 2
