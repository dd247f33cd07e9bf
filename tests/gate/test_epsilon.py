from typing import Any

import pytest
from made_results import clean, options, privacy, small_result

from lmexposure import gate
from lmexposure.gate import Check, Outcome, Thresholds
from lmexposure.records import Privacy, Result


def judged(section: Privacy | None, most: float | None = 4.0) -> Check | None:
    verdict = gate.check(clean(privacy=section), Thresholds(max_epsilon=most))
    return next((check for check in verdict.checks if check.key == "max_epsilon"), None)


def claimed(epsilon: float, value: float | None, most: float | None = None) -> Result:
    """A result with a bound, the most that it could have been, and what they say of a claim."""
    section = privacy(value, most, claimed=epsilon)
    return clean(privacy=section, settings=options(claimed_epsilon=epsilon, delta=1e-5))


def of_claim(result: Result) -> Check:
    checks = gate.check(result).checks
    return next(check for check in checks if check.key == "claimed_epsilon")


@pytest.mark.parametrize(
    ("value", "most", "outcome"),
    [
        (4.1, 6.0, Outcome.LEAK),
        (4.1, None, Outcome.LEAK),
        (4.0, 6.0, Outcome.PASS),
        (0.0, 4.1, Outcome.PASS),
        (0.0, 4.0, Outcome.INCONCLUSIVE),
        (0.0, None, Outcome.INCONCLUSIVE),
    ],
)
def test_a_pass_could_have_been_a_leak(value: float, most: float | None, outcome: Outcome) -> None:
    check = judged(privacy(value, most))
    assert check is not None
    assert (check.outcome, check.value, check.unit) == (outcome, value, "nats")
    assert check.asked
    how = "(delta 1e-05, significance 0.025, holds for every private training)"
    assert how in check.reason
    leak = check.reason.startswith("The training is less private than the 4 allowed: epsilon is ")
    assert leak == (outcome is Outcome.LEAK)


@pytest.mark.parametrize("section", [None, privacy(None)])
def test_a_result_without_a_bound_is_inconclusive_where_one_is_asked_for(
    section: Privacy | None,
) -> None:
    check = judged(section)
    assert check is not None
    assert (check.outcome, check.value) == (Outcome.INCONCLUSIVE, None)
    assert "the result holds no bound on epsilon" in check.reason.lower()
    assert judged(section, None) is None


@pytest.mark.parametrize(
    ("value", "most", "outcome"),
    [
        (2.1, 6.0, Outcome.LEAK),
        (1.0, 6.0, Outcome.PASS),
        (1.0, 2.0, Outcome.INCONCLUSIVE),
        (1.0, None, Outcome.INCONCLUSIVE),
        (None, None, Outcome.INCONCLUSIVE),
    ],
)
def test_a_claim_counts_as_asked(value: float | None, most: float | None, outcome: Outcome) -> None:
    check = of_claim(claimed(2.0, value, most))
    assert (check.outcome, check.value, check.threshold) == (outcome, value, 2.0)
    assert check.asked
    assert "the claim of epsilon 2 at delta 0 is" in check.reason.lower()


def test_a_claim_is_judged_at_the_level_it_was_measured_with() -> None:
    for significance in (0.01, 1e-6):
        verdict = gate.check(claimed(2.0, 2.1, 6.0), Thresholds(significance=significance))
        assert verdict.outcome is Outcome.LEAK
        assert "contradicted in at most 2.5 % of measurements, whatever the" in verdict.sentence
    assert "2.5 %" not in of_claim(claimed(2.0, 1.0, 6.0)).reason


@pytest.mark.parametrize("section", [None, privacy(1.0, 6.0)])
def test_a_claim_that_vanished_is_inconclusive(section: Privacy | None) -> None:
    asked = options(claimed_epsilon=2.0, delta=1e-5)
    verdict = gate.check(clean(privacy=section, settings=asked))
    assert verdict.exit_code == 2
    assert "an epsilon was claimed, and the result says nothing about it" in verdict.sentence


@pytest.mark.parametrize("most", [2.0, 6.0])
def test_a_claim_that_nothing_could_contradict_was_not_tested(most: float) -> None:
    told = most > 2
    asked = Thresholds(max_epsilon=most - 0.5 if told else most + 1)
    verdict = gate.check(claimed(2.0, 1.0, most), asked)
    names = ("claimed epsilon", "lower bound on epsilon")
    untested = [line for line in verdict.untested if line.startswith(names)]
    tested = [f"{name} (at a significance of its own)" for name in names]
    assert [line for line in tested if line in verdict.tested] == (tested if told else [])
    assert [line.partition(":")[0] for line in untested] == list(() if told else names[::-1])
    if not told:
        assert "is not decided: " in untested[1]


def test_a_claim_of_a_real_measurement() -> None:
    made = {
        "inclusion_probability": 0.5,
        "canaries": 200,
        "repetitions": (1,),
        "memorised": ((1, 60.0),),
    }
    result = small_result(claimed_epsilon=0.1, measure=_delta(), formats=("random_number",), **made)
    assert of_claim(result).outcome is Outcome.LEAK


def _delta() -> Any:
    from lmexposure.audit import MeasureSettings

    return MeasureSettings(bootstraps=39, permutations=999, revealed=2, delta=1e-5)


def test_a_leak_without_a_null_is_none() -> None:
    result = clean(controls=0.0001, privacy=privacy(9.0, 12.0))
    assert gate.check(result, Thresholds(max_epsilon=4)).exit_code == 2
