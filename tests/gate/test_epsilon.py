from dataclasses import replace
from typing import Any

import pytest
from gate.made_results import clean
from report_runs import small_result

from lmexposure.errors import ResultError
from lmexposure.gate import Check, Outcome, Thresholds, check_result


def privacy(value: float | None, attainable: float | None, **more: Any) -> dict[str, Any]:
    primary = {"value": value, "delta": 1e-5, "significance": 0.05, "validity": "any-dp"}
    return {"primary": primary, "attainable": attainable, "claim": None, **more}


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
        (float("nan"), 6.0, Outcome.INCONCLUSIVE),
        (1.0, float("nan"), Outcome.INCONCLUSIVE),
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


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        ("contradicted", Outcome.LEAK),
        ("consistent", Outcome.PASS),
        ("cannot tell", Outcome.INCONCLUSIVE),
    ],
)
def test_a_claim_counts_as_asked(verdict: str, outcome: Outcome) -> None:
    claim = {"verdict": verdict, "reason": "so", "claimed_epsilon": 2.0, "claimed_delta": 0.0}
    check = judged(privacy(1.0, 6.0, claim=claim | {"bound": 1.0}), None)
    assert check is not None
    assert (check.outcome, check.threshold, check.asked) == (outcome, 2.0, True)
    assert "the claim of epsilon 2 at delta 0 is" in check.reason.lower()


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
        ({"primary": "4"}, "primary is no bound"),
        (privacy(1.0, 2.0, claim={"verdict": "fine"}), "verdict 'fine', which is none of"),
        (privacy(1.0, 2.0, claim="fine"), "which is none of contradicted, consistent"),
    ],
)
def test_a_section_that_cannot_be_is_refused(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ResultError, match=message):
        judged(section)
