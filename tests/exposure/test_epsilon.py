"""The checks of bounds on epsilon, and of chosen texts, which have no others but of coins."""

from dataclasses import replace
from typing import Any

import pytest
from exposure.judged import LEAK, OPEN, PASS, check_of
from known import known
from made_results import bound, clean, options, privacy, small_result
from studies.test_result_kinds import values

import lmexposure as lx
from lmexposure.audit import MeasureSettings
from lmexposure.core import Check, Outcome, Thresholds, Verdict
from lmexposure.studies import KindMembership, Result

CLAIM = options(claimed_epsilon=2.0, delta=1e-5)
HOW = "(delta 1e-05, significance 0.025, holds for any private training)"
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


def _kind(p_value: float = 0.5, **parts: Any) -> KindMembership:
    """A class of 20 candidates whose coins nothing tells, and a bound that could have been 6."""
    row = KindMembership.model_validate(values())
    test = replace(known(row.test), p_value=p_value)
    return row.model_copy(update={"test": test, "bound": bound(0.0, max_attainable=6.0), **parts})


def _verdict(*rows: KindMembership, **thresholds: Any) -> Verdict:
    result: Result = clean(privacy=privacy(0.0, 6.0)).model_copy(update={"kinds": rows})
    return lx.check(result, Thresholds(**thresholds))


def _of(verdict: Verdict, key: str, scope: str = "texts, repetitions 2") -> Check:
    return next(c for c in verdict.checks if (c.key, c.scope) == (key, scope))


def test_a_result_whose_kinds_show_nothing_passes() -> None:
    verdict = _verdict(_kind(), max_epsilon=4.0)
    assert verdict.outcome is PASS
    check = _of(verdict, "p_value")
    assert "are not told from those that their coins left out (p = 0.5" in check.reason
    assert "10 chosen texts inserted 2 times and 10 held out" in _of(verdict, "min_canaries").reason


def test_coins_that_are_told_are_a_leak() -> None:
    verdict = _verdict(_kind(1e-5))
    assert verdict.outcome is LEAK
    assert verdict.deciding == _of(verdict, "p_value")
    assert "better than chance explains" in verdict.sentence


def test_each_class_of_a_kind_has_a_share_of_the_significance() -> None:
    alone, three = _verdict(), _verdict(_kind(), _kind(group="other/x2", format="other"))
    classes = len({c.scope for c in alone.checks if c.key == "p_value"})
    before = next(c.threshold for c in alone.checks if c.key == "p_value")
    after = {c.threshold for c in three.checks if c.key == "p_value"}
    assert before is not None
    assert len(after) == 1
    assert max(filter(None, after)) == pytest.approx(before * classes / (classes + 2))
    share = min(filter(None, after))
    # What would be a leak of one class alone is none where there are more.
    several = _verdict(_kind((before + share) / 2), _kind(group="other/x2", format="other"))
    assert several.outcome is not LEAK


@pytest.mark.parametrize(
    ("value", "most", "outcome"),
    [(4.1, 6.0, LEAK), (4.0, 6.0, PASS), (0.0, 4.0, OPEN), (0.0, None, OPEN)],
)
def test_the_bound_of_a_kind_is_held_against_the_threshold(
    value: float, most: float | None, outcome: Outcome
) -> None:
    verdict = _verdict(_kind(bound=bound(value, max_attainable=most)), max_epsilon=4.0)
    check = _of(verdict, "max_epsilon")
    assert (check.outcome, check.value, check.asked) == (outcome, value, True)
    assert verdict.outcome is outcome
    assert f"epsilon is at least {value:.3g}" in check.reason.lower()
    assert not any(c.key == "max_epsilon" for c in _verdict(_kind()).checks)


def test_a_kind_without_numbers_is_inconclusive() -> None:
    empty = _kind(bound=None, note="the coins left all out").model_copy(update={"test": None})
    verdict = _verdict(empty, max_epsilon=4.0)
    assert verdict.outcome is OPEN
    assert _of(verdict, "p_value").reason == "There is no p-value: the coins left all out."
    assert "no bound on epsilon: the coins left" in _of(verdict, "max_epsilon").reason


def test_too_few_candidates_are_no_pass() -> None:
    for sides in ({"canaries": 3}, {"held_out": 3}):
        verdict = _verdict(_kind(**sides))
        assert verdict.outcome is OPEN
        assert "are too few: 10 of each are needed" in _of(verdict, "min_canaries").reason
        assert "the candidates are too few, so this is no pass" in _of(verdict, "p_value").reason
        assert _verdict(_kind(1e-5, **sides)).outcome is LEAK


def test_candidates_that_no_p_value_of_a_leak_comes_from_are_inconclusive() -> None:
    row = _kind()
    coarse = replace(known(row.test), permutations=99)
    check = _of(_verdict(row.model_copy(update={"test": coarse})), "p_value")
    assert check.outcome is OPEN
    assert "too few for p below" in check.reason


def test_a_kind_that_nothing_tests_is_no_pass() -> None:
    verdict = _verdict(_kind(), p_value=False)
    assert _of(verdict, "classes").outcome is OPEN
    assert "no test was made of 10 chosen texts" in _of(verdict, "classes").reason.lower()


def test_a_kind_of_more_repetitions_is_left_out() -> None:
    verdict = _verdict(_kind(1e-5, repetitions=64, group="texts/x64"), repetitions=32)
    assert verdict.outcome is not LEAK
    assert "canaries inserted 64 times: more than the 32 judged" in verdict.untested
