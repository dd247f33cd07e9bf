from typing import Any

import numpy as np
import pytest
from made_results import by_chance, canary, changed, class_row, clean, exact, made, with_test

from lmexposure import gate
from lmexposure.gate import Check, Outcome, Thresholds


def judged(p: float, thresholds: Thresholds | None = None, **test: Any) -> Check | None:
    drawn = [canary(i, exact(1.0)) for i in range(10)]
    row = with_test(class_row(drawn, p_value=p), **test)
    verdict = gate.check(made(drawn, summary=[row]), thresholds or Thresholds())
    return next((check for check in verdict.checks if check.key == "p_value"), None)


# One class: 0.9 of 0.01, shared with the largest exposure.
@pytest.mark.parametrize(
    ("p", "outcome"),
    [(0.0001, Outcome.LEAK), (0.0045, Outcome.LEAK), (0.0046, Outcome.PASS), (1.0, Outcome.PASS)],
)
def test_a_leak_is_at_its_share_or_below(p: float, outcome: Outcome) -> None:
    check = judged(p)
    assert check is not None
    assert (check.outcome, check.value, check.asked) == (outcome, p, False)
    assert check.threshold == pytest.approx(0.0045)


@pytest.mark.parametrize(
    ("asked", "outcome"), [(None, Outcome.NOT_TESTED), (True, Outcome.INCONCLUSIVE)]
)
def test_a_test_that_cannot_fail_does_not_pass(asked: bool | None, outcome: Outcome) -> None:
    check = judged(0.5, Thresholds(p_value=asked), permutations=99)
    assert check is not None
    assert check.outcome is outcome
    assert "cannot give p below 0.01" in check.reason


def test_few_canaries_among_few_references_cannot_give_a_small_p_value() -> None:
    drawn = [canary(0, exact(1.0))]
    row = class_row(drawn, p_value=0.2, references=20)
    result = made(drawn, summary=[row], references=20)
    check = next(c for c in gate.check(result).checks if c.key == "p_value")
    assert check.outcome is Outcome.NOT_TESTED
    assert "cannot give p below 0.0476" in check.reason  # one of 21 places


def test_switched_off_it_stands_in_untested() -> None:
    assert judged(0.0001, Thresholds(p_value=False)) is None
    verdict = gate.check(clean(), Thresholds(p_value=False))
    assert "p-value against guessing: switched off" in verdict.untested


def test_a_class_without_a_test_says_so() -> None:
    result = clean()
    rows = [row.model_copy(update={"guessing_test": None}) for row in result.summary]
    verdict = gate.check(changed(result, summary=rows))
    checks = [c for c in verdict.checks if c.key == "p_value"]
    assert {c.outcome for c in checks} == {Outcome.INCONCLUSIVE}
    assert "is missing" in checks[0].reason
    controls = next(c for c in verdict.checks if c.key == "controls")
    assert controls.outcome is Outcome.INCONCLUSIVE
    assert "The p-value of the controls is missing" in controls.reason


@pytest.mark.parametrize(
    ("p", "permutations", "outcome"),
    [
        (0.0051, 195, Outcome.INCONCLUSIVE),  # as small as 195 permutations give it
        (0.01, 195, Outcome.INCONCLUSIVE),
        (0.011, 195, Outcome.NOT_TESTED),
        (0.01, 9_999, Outcome.PASS),
    ],
)
def test_a_test_that_is_too_coarse_does_not_hide_what_looks_like_a_leak(
    p: float, permutations: int, outcome: Outcome
) -> None:
    check = judged(p, permutations=permutations)
    assert check is not None
    assert check.outcome is outcome


def test_forty_six_classes_at_the_floor_of_their_test_are_no_pass() -> None:
    rng = np.random.default_rng(7)
    drawn = [
        canary(i, exact(v), repetitions=r)
        for r in range(1, 47)
        for i, v in enumerate(by_chance(rng, 10))
    ]
    result = made(drawn)
    assert gate.check(result).exit_code == 0
    rows = [with_test(row, p_value=1e-4) for row in result.summary[:46]]
    verdict = gate.check(changed(result, summary=[*rows, *result.summary[46:]]))
    assert verdict.exit_code == 2
    assert "cannot give p below 0.0001, and a leak takes 9.78e-05" in verdict.sentence
