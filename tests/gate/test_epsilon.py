from dataclasses import replace
from typing import Any

import pytest
from made_results import clean, small_result

from lmexposure.errors import ResultError
from lmexposure.gate import Check, Outcome, Thresholds, check_result


def privacy(value: float | None, attainable: float | None, **more: Any) -> dict[str, Any]:
    primary = {"value": value, "delta": 1e-5, "significance": 0.05, "validity": "any-dp"}
    return {"primary": primary, "attainable": attainable, "claim": None, **more}


def significant(value: float | None) -> dict[str, Any]:
    section = privacy(1.0, 6.0)
    section["primary"]["significance"] = value
    return section


def judged(section: dict[str, Any] | None, most: float | None = 4.0) -> Check | None:
    verdict = check_result(replace(clean(), privacy=section), Thresholds(max_epsilon=most))
    keys = ("max_epsilon", "claimed_epsilon")
    return next((check for check in verdict.checks if check.key in keys), None)


@pytest.mark.parametrize(
    ("value", "attainable", "outcome"),
    [
        (4.1, 6.0, Outcome.LEAK),
        (4.1, None, Outcome.LEAK),
        (4.0, 6.0, Outcome.PASS),
        (0.0, 4.1, Outcome.PASS),
        (0.0, 4.0, Outcome.INCONCLUSIVE),
        (0.0, None, Outcome.INCONCLUSIVE),
        (None, 6.0, Outcome.INCONCLUSIVE),
    ],
)
def test_a_pass_could_have_been_a_leak(
    value: float | None, attainable: float | None, outcome: Outcome
) -> None:
    check = judged(privacy(value, attainable))
    assert check is not None
    assert (check.outcome, check.unit, check.asked) == (outcome, "nats", True)


@pytest.mark.parametrize("section", [None, {"primary": None, "attainable": None, "claim": None}])
def test_a_result_without_a_bound_is_inconclusive_where_one_is_asked_for(
    section: dict[str, Any] | None,
) -> None:
    check = judged(section)
    assert check is not None
    assert check.outcome is Outcome.INCONCLUSIVE
    assert judged(section, None) is None


CLAIM = {"reason": "so", "claimed_epsilon": 2.0, "claimed_delta": 0.0}


@pytest.mark.parametrize(
    ("verdict", "bound", "attainable", "outcome"),
    [
        ("contradicted", 2.1, 6.0, Outcome.LEAK),
        ("consistent", 1.0, 6.0, Outcome.PASS),
        ("cannot tell", 1.0, 2.0, Outcome.INCONCLUSIVE),
        ("cannot tell", 1.0, None, Outcome.INCONCLUSIVE),
        ("cannot tell", None, None, Outcome.INCONCLUSIVE),
    ],
)
def test_a_claim_counts_as_asked(
    verdict: str, bound: float | None, attainable: float | None, outcome: Outcome
) -> None:
    claim = CLAIM | {"verdict": verdict, "bound": bound}
    check = judged(privacy(1.0, attainable, claim=claim), None)
    assert check is not None
    assert (check.outcome, check.threshold, check.asked) == (outcome, 2.0, True)
    assert "the claim of epsilon 2 at delta 0 is" in check.reason.lower()


def test_a_claim_is_judged_at_the_level_it_was_measured_with() -> None:
    claim = CLAIM | {"verdict": "contradicted", "bound": 2.1, "significance": 0.025}
    result = replace(clean(), privacy=privacy(2.1, 6.0, claim=claim))
    for significance in (0.01, 1e-6):
        verdict = check_result(result, Thresholds(significance=significance))
        assert verdict.outcome is Outcome.LEAK
        assert "contradicted in at most 2.5 % of measurements, whatever the" in verdict.sentence
    claim = CLAIM | {"verdict": "consistent", "bound": 1.0, "significance": 0.025}
    check = judged(privacy(1.0, 6.0, claim=claim), None)
    assert check is not None
    assert "2.5 %" not in check.reason


@pytest.mark.parametrize(
    ("verdict", "bound", "attainable"),
    [
        ("consistent", 2.1, 6.0),
        ("consistent", None, 6.0),
        ("consistent", 1.0, None),
        ("consistent", 1.0, 2.0),
        ("cannot tell", 2.1, 6.0),
        ("contradicted", 2.0, 6.0),
    ],
)
def test_a_verdict_on_a_claim_that_does_not_follow_is_refused(
    verdict: str, bound: float | None, attainable: float | None
) -> None:
    claim = CLAIM | {"verdict": verdict, "bound": bound}
    with pytest.raises(ResultError, match=f"is said to be '{verdict}', but with a bound of"):
        judged(privacy(1.0, attainable, claim=claim), None)


def test_a_claim_that_vanished_is_inconclusive_and_another_is_refused() -> None:
    for section in (None, privacy(1.0, 6.0)):
        result = replace(clean(), privacy=section, settings={"claimed_epsilon": 2.0})
        verdict = check_result(result)
        assert verdict.exit_code == 2
        assert "an epsilon was claimed, and the result says nothing of it" in verdict.sentence
    claim = CLAIM | {"verdict": "consistent", "bound": 1.0}
    settings = {"claimed_epsilon": 1.0}
    result = replace(clean(), privacy=privacy(1.0, 6.0, claim=claim), settings=settings)
    with pytest.raises(ResultError, match="a claim of epsilon 2 at delta 0, and 1 was to be"):
        check_result(result)


@pytest.mark.parametrize(("bound", "attainable"), [(1.0, 2.0), (1.0, 6.0)])
def test_a_claim_that_nothing_could_contradict_was_not_tested(
    bound: float, attainable: float
) -> None:
    told = attainable > 2
    claim = CLAIM | {"verdict": "consistent" if told else "cannot tell", "bound": bound}
    section = privacy(1.0, attainable, claim=claim)
    asked = Thresholds(max_epsilon=attainable - 0.5 if told else attainable + 1)
    verdict = check_result(replace(clean(), privacy=section), asked)
    names = ("claimed epsilon", "lower bound on epsilon")
    untested = [line for line in verdict.untested if line.startswith(names)]
    assert [name for name in names if name in verdict.tested] == list(names if told else ())
    assert [line.partition(":")[0] for line in untested] == list(() if told else names[::-1])
    if not told:
        assert "is neither contradicted nor tested: " in untested[1]


def test_a_claim_of_a_real_measurement() -> None:
    made = {"coins": 0.5, "canaries": 200, "repetitions": (1,), "memorised": ((1, 60.0),)}
    verdict = check_result(
        small_result(claimed_epsilon=0.1, measure=_delta(), formats=("random_number",), **made)
    )
    claims = [check for check in verdict.checks if check.key == "claimed_epsilon"]
    assert [check.outcome for check in claims] == [Outcome.LEAK]


def _delta() -> Any:
    from lmexposure.audit import MeasureSettings

    return MeasureSettings(bootstraps=39, permutations=999, revealed=2, delta=1e-5)


def test_a_leak_without_a_null_is_none() -> None:
    section = privacy(9.0, 12.0)
    result = replace(clean(controls=0.0001), privacy=section)
    verdict = check_result(result, Thresholds(max_epsilon=4))
    assert verdict.exit_code == 2


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (privacy("much", 1.0), "value='much' is no number"),  # type: ignore[arg-type]
        ({"primary": "4"}, "privacy, primary: '4' is no table"),
        (privacy(-1.0, 2.0), "value=-1.0 must lie from 0 to any finite number"),
        (privacy(float("nan"), 2.0), "value=nan must lie"),
        (privacy(1.0, float("inf")), "attainable=inf must lie"),
        (significant(1.0), "a significance strictly between 0 and 1, which is 1"),
        (significant(0), "a significance strictly between 0 and 1, which is 0"),
        (significant(None), "a significance strictly between 0 and 1, which is unknown"),
        (significant(2), "significance=2 must lie from 0 to 1"),
        (privacy(1.0, 2.0, claim=CLAIM | {"verdict": "fine"}), "'fine', which is none of"),
        (privacy(1.0, 2.0, claim="fine"), "privacy, claim: 'fine' is no table"),
        (privacy(1.0, 2.0, claim={}), "holds a claim of epsilon unknown at delta unknown"),
        (privacy(1.0, 2.0, claim=CLAIM | {"claimed_epsilon": None}), "epsilon unknown at delta 0"),
    ],
)
def test_a_section_that_cannot_be_is_refused(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ResultError, match=message):
        judged(section)
