"""Kinds of canaries whose texts were chosen, in the gate: leaks, passes, and what is no pass."""

from dataclasses import replace
from typing import Any

import pytest
from known import known
from made_results import clean, privacy
from studies.test_result_kinds import values

import lmexposure as lx
from lmexposure.core import Check, Outcome, Thresholds, Verdict
from lmexposure.statistics import EpsilonBound, one_run_audit
from lmexposure.studies import KindMembership, Result


def _bound(value: float, most: float | None, repetitions: int = 2) -> EpsilonBound:
    bits = [float(i) for i in range(20)]
    inside = [i % 2 == 0 for i in range(20)]
    made = one_run_audit(bits, inside, significance=0.05, repetitions=repetitions, seed=0)
    return replace(made, value=value, max_attainable=most)


def _kind(p_value: float = 0.5, **parts: Any) -> KindMembership:
    """A class of 20 candidates whose coins nothing tells, and a bound that could have been 6."""
    row = KindMembership.model_validate(values())
    test = replace(known(row.test), p_value=p_value)
    return row.model_copy(update={"test": test, "bound": _bound(0.0, 6.0), **parts})


def _verdict(*rows: KindMembership, **thresholds: Any) -> Verdict:
    result: Result = clean(privacy=privacy(0.0, 6.0)).model_copy(update={"kinds": rows})
    return lx.check(result, Thresholds(**thresholds))


def _of(verdict: Verdict, key: str, scope: str = "texts, repetitions 2") -> Check:
    return next(c for c in verdict.checks if (c.key, c.scope) == (key, scope))


def test_a_result_whose_kinds_show_nothing_passes() -> None:
    verdict = _verdict(_kind(), max_epsilon=4.0)
    assert verdict.outcome is Outcome.PASS
    check = _of(verdict, "p_value")
    assert "are not told from those that their coins left out (p = 0.5" in check.reason
    assert "10 chosen texts inserted 2 times and 10 held out" in _of(verdict, "min_canaries").reason


def test_coins_that_are_told_are_a_leak() -> None:
    verdict = _verdict(_kind(1e-5))
    assert verdict.outcome is Outcome.LEAK
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
    assert several.outcome is not Outcome.LEAK


@pytest.mark.parametrize(
    ("value", "most", "outcome"),
    [
        (4.1, 6.0, Outcome.LEAK),
        (4.0, 6.0, Outcome.PASS),
        (0.0, 4.0, Outcome.INCONCLUSIVE),
        (0.0, None, Outcome.INCONCLUSIVE),
    ],
)
def test_the_bound_of_a_kind_is_held_against_the_threshold(
    value: float, most: float | None, outcome: Outcome
) -> None:
    verdict = _verdict(_kind(bound=_bound(value, most)), max_epsilon=4.0)
    check = _of(verdict, "max_epsilon")
    assert (check.outcome, check.value, check.asked) == (outcome, value, True)
    assert verdict.outcome is outcome
    assert f"epsilon is at least {value:.3g}" in check.reason.lower()
    assert not any(c.key == "max_epsilon" for c in _verdict(_kind()).checks)


def test_a_kind_without_numbers_is_inconclusive() -> None:
    empty = _kind(bound=None, note="the coins left all out").model_copy(update={"test": None})
    verdict = _verdict(empty, max_epsilon=4.0)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert _of(verdict, "p_value").reason == "There is no p-value: the coins left all out."
    assert "no bound on epsilon: the coins left" in _of(verdict, "max_epsilon").reason


def test_too_few_candidates_are_no_pass() -> None:
    for sides in ({"canaries": 3}, {"held_out": 3}):
        verdict = _verdict(_kind(**sides))
        assert verdict.outcome is Outcome.INCONCLUSIVE
        assert "are too few: 10 of each are needed" in _of(verdict, "min_canaries").reason
        assert "the candidates are too few, so this is no pass" in _of(verdict, "p_value").reason
        assert _verdict(_kind(1e-5, **sides)).outcome is Outcome.LEAK


def test_candidates_that_no_p_value_of_a_leak_comes_from_are_inconclusive() -> None:
    row = _kind()
    coarse = replace(known(row.test), permutations=99)
    check = _of(_verdict(row.model_copy(update={"test": coarse})), "p_value")
    assert check.outcome is Outcome.INCONCLUSIVE
    assert "too few for p below" in check.reason


def test_a_kind_that_nothing_tests_is_no_pass() -> None:
    verdict = _verdict(_kind(), p_value=False)
    assert _of(verdict, "classes").outcome is Outcome.INCONCLUSIVE
    assert "no test was made of 10 chosen texts" in _of(verdict, "classes").reason.lower()


def test_a_kind_of_more_repetitions_is_left_out() -> None:
    verdict = _verdict(_kind(1e-5, repetitions=64, group="texts/x64"), repetitions=32)
    assert verdict.outcome is not Outcome.LEAK
    assert "canaries inserted 64 times: more than the 32 judged" in verdict.untested
