import math

import numpy as np
import pytest
from made_results import by_chance, canary, changed, estimate, exact, form, made, with_test
from scipy import stats

from lmexposure import gate
from lmexposure.gate import Check, Outcome, Thresholds
from lmexposure.records import (
    Estimate,
    Method,
)
from lmexposure.statistics import sampled_exposure

CLEAN = Thresholds()
REFERENCES = 10_000


def judged(exposures: list[Estimate], thresholds: Thresholds = CLEAN) -> Check:
    drawn = [canary(i, one) for i, one in enumerate(exposures)]
    verdict = gate.check(made(drawn), thresholds)
    return next(check for check in verdict.checks if check.key == "max_exposure")


def ranked(ranks: list[int]) -> list[Estimate]:
    """Sampled exposures of these ranks among 10,000 references."""
    bits = np.array(ranks) - 1.5
    rows = sampled_exposure(bits, np.arange(REFERENCES), space_size=10**9)
    return [Estimate.model_validate(rows.row(i)) for i in range(len(ranks))]


def drawn(value: float, low: float, high: float) -> Estimate:
    return estimate("importance", value, low=low, high=high, level=0.95)


def test_by_default_the_threshold_is_what_chance_hardly_passes() -> None:
    limit = math.log2(10 / 0.0045)
    ten = [exact(value) for value in [1.0] * 9]
    check = judged([*ten, exact(limit)])
    assert check.threshold == pytest.approx(limit)
    assert check.outcome is Outcome.PASS
    assert judged([*ten, exact(limit + 1e-6)]).outcome is Outcome.LEAK


def test_the_rank_itself_is_the_statistic_of_a_sample() -> None:
    """Rank 1 of 10,000 is 13.3 bits, past 11.1, though its interval begins at 11.4."""
    check = judged(ranked([1, *range(500, 9_500, 1_000)]))
    assert check.outcome is Outcome.LEAK
    assert "in 10,000 of all possible ones (exposure ≥ 13.29 of 29.9 bits)" in check.reason


def test_a_clean_sample_passes_though_intervals_reach_higher() -> None:
    """32 canaries: 12.8 bits, of 13.3 that 10,000 references can show."""
    rng, passed = np.random.default_rng(0), 0
    for _ in range(200):
        exposures = ranked(rng.integers(1, REFERENCES + 2, 32).clip(1, REFERENCES).tolist())
        passed += judged(exposures).outcome is Outcome.PASS
    assert passed >= 195
    assert judged(ranked([2, *range(100, 9_000, 300)])).outcome is Outcome.PASS


def test_references_too_few_to_show_a_leak_leave_it_untested() -> None:
    exposures = ranked(list(range(100, 9_000, 100)))  # 89 canaries: 14.3 bits
    check = judged(exposures)
    assert check.outcome is Outcome.NOT_TESTED
    assert "can show 11.40 bits of exposure at most" in check.reason
    asked = judged(exposures, Thresholds(max_exposure=15))
    assert asked.outcome is Outcome.INCONCLUSIVE


def test_a_canary_beyond_all_references_is_no_pass_even_where_it_is_no_leak() -> None:
    check = judged(ranked([1, *range(100, 9_000, 100)]))
    assert check.outcome is Outcome.INCONCLUSIVE
    assert "≥ 13.29 bits were measured, and between 11.40 and 29.90 bits" in check.reason


def test_all_capped_below_the_threshold_is_inconclusive() -> None:
    check = judged(ranked([1] * 100), Thresholds(max_exposure=20))
    assert check.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("low", "value", "high", "outcome"),
    [
        (12.1, 12.5, 13.0, Outcome.LEAK),
        (12.0, 12.5, 13.0, Outcome.INCONCLUSIVE),
        (10.0, 11.0, 12.1, Outcome.INCONCLUSIVE),
        (10.0, 11.0, 12.0, Outcome.PASS),
    ],
)
def test_an_asked_threshold_is_held_against_the_interval(
    low: float, value: float, high: float, outcome: Outcome
) -> None:
    check = judged([drawn(value, low, high), *[exact(1.0)] * 9], Thresholds(max_exposure=12))
    assert (check.outcome, check.asked, check.threshold) == (outcome, True, 12)


def test_what_chance_gives_as_often_is_no_leak_at_any_threshold() -> None:
    check = judged([exact(6.0)] + [exact(1.0)] * 9, Thresholds(max_exposure=5))
    assert check.outcome is Outcome.INCONCLUSIVE
    assert "reach 11.12 bits by chance too often" in check.reason


def test_a_threshold_above_the_space_cannot_be_passed() -> None:
    check = judged([exact(1.0)] * 10, Thresholds(max_exposure=30))
    assert check.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(("method", "value"), [("skew_normal", None), ("certificate", 0.0)])
def test_an_extrapolation_or_a_certificate_does_not_decide(
    method: Method, value: float | None
) -> None:
    shown = estimate(method, value, low=0.0, high=29.0, level=0.95)
    estimates = {"sampled": ranked([1])[0], method: shown}
    others = [canary(i, exact(1.0)) for i in range(9)]
    checks = gate.check(made([*others, canary(9, shown, estimates=estimates)])).checks
    check = next(one for one in checks if one.key == "max_exposure")
    assert check.outcome is Outcome.LEAK
    assert check.value == pytest.approx(math.log2(REFERENCES))


def test_ranks_by_chance_are_what_the_builder_says() -> None:
    values = by_chance(np.random.default_rng(0), 20_000)
    assert np.mean(values) == pytest.approx(1 / math.log(2), abs=0.03)


@pytest.mark.parametrize(
    ("exposure", "outcome"),
    [
        (drawn(20.0, 10.0, 22.0), Outcome.INCONCLUSIVE),
        (drawn(20.0, 12.0, 22.0), Outcome.LEAK),
        (drawn(11.0, 10.0, 22.0), Outcome.PASS),
    ],
)
def test_a_drawn_exposure_past_the_threshold_passes_only_if_it_is_surely_not(
    exposure: Estimate, outcome: Outcome
) -> None:
    """The threshold of ten canaries is 11.1 bits."""
    check = judged([exposure, *[exact(1.0)] * 9])
    assert check.outcome is outcome
    if outcome is Outcome.INCONCLUSIVE:
        assert "20.00 bits were measured, and between 10.00 and 22.00 bits are possible" in (
            check.reason
        )
    if outcome is Outcome.PASS:
        assert "is 11.00 of 29.9 bits, at or below the 11.12 bits" in check.reason


def test_a_rank_among_few_fills_left_is_small_by_chance() -> None:
    """Of 2^14 fills all but a quarter are set aside: clean exposures are 2 bits higher."""
    rng, size, n = np.random.default_rng(11), 2**14, 10
    thresholds, leaks, runs = Thresholds(significance=0.5, p_value=False), 0, 1_000
    left = size // 4
    for _ in range(runs):
        ranks = rng.integers(1, left + 2, n)
        values = [canary(i, exact(14 - math.log2(r)), guesses=None) for i, r in enumerate(ranks)]
        filled = form(size=size, exhaustive=True, set_aside=size - left - n)
        result = made(values, size=size, controls=None, formats=(filled,))
        checks = gate.check(result, thresholds).checks
        check = next(one for one in checks if one.key == "max_exposure")
        assert check.threshold == pytest.approx(math.log2(n / 0.45) + 2, abs=0.01)
        leaks += check.outcome is Outcome.LEAK
    assert stats.binomtest(leaks, runs, 0.45, alternative="greater").pvalue > 1e-3
    assert leaks > 0.25 * runs  # not idle; without the 2 bits it is 0.9


def test_the_first_of_few_fills_left_is_among_the_likeliest_of_those() -> None:
    """A rank counts no fill that was set aside: 14 bits of which 4 come from those."""
    size, left = 2**14, 2**10
    found = [canary(i, exact(14.0), guesses=None) for i in range(10)]
    filled = form(size=size, exhaustive=True, set_aside=size - left - 9)
    result = made(found, size=size, controls=None, formats=(filled,))
    checks = gate.check(result, Thresholds(significance=0.1)).checks
    check = next(one for one in checks if one.key == "max_exposure")
    assert check.outcome is Outcome.LEAK
    assert "among the likeliest 1 in 1,000 of all possible ones (exposure 14.00" in check.reason


def test_where_neither_test_against_chance_can_be_made_a_class_does_not_pass() -> None:
    """46 classes: 16.7 bits are needed, and 10,000 references can show 13.3."""
    rows = ranked(list(range(500, 9_500, 900)))
    result = made(
        [canary(i, one, repetitions=r) for r in range(1, 47) for i, one in enumerate(rows)]
    )
    rows_ = [with_test(row, p_value=0.5) for row in result.summary]
    verdict = gate.check(changed(result, summary=rows_))
    outcomes = {check.key: check.outcome for check in verdict.checks}
    assert outcomes["p_value"] is outcomes["max_exposure"] is Outcome.NOT_TESTED
    assert verdict.exit_code == 2
    assert "no test against chance could be made of 10 secrets inserted once" in verdict.sentence


def test_a_leak_in_a_huge_space_has_its_chance_in_words() -> None:
    drawn_ = [canary(i, exact(1300.0), guesses=None) for i in range(10)]
    checks = gate.check(made(drawn_, size=10**400)).checks
    check = next(one for one in checks if one.key == "max_exposure")
    assert check.outcome is Outcome.LEAK
    assert "in 1 of 2.2 × 10^390 such tests" in check.reason
    asked = gate.check(made(drawn_, size=10**400), Thresholds(max_guesses=10**15))
    assert asked.exit_code == 1
