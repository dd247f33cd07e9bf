"""The checks of a class against chance: largest exposure, p-value, median and quantiles."""

import math
from typing import Any

import numpy as np
import pytest
from made_results import (
    RANDOM_NUMBER,
    by_chance,
    canary,
    changed,
    class_row,
    clean,
    estimate,
    exact,
    form,
    made,
    sampled,
    with_test,
)
from scipy import stats
from scipy.stats import norm

from lmexposure import gate
from lmexposure.gate import Check, Outcome, Thresholds
from lmexposure.gate.exposure import exposure_by_chance
from lmexposure.records import Estimate, Method, Result
from lmexposure.statistics import sampled_exposure

CLEAN = Thresholds()
REFERENCES = 10_000


def largest(exposures: list[Estimate], thresholds: Thresholds = CLEAN) -> Check:
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
    check = largest([*ten, exact(limit)])
    assert check.threshold == pytest.approx(limit)
    assert check.outcome is Outcome.PASS
    assert largest([*ten, exact(limit + 1e-6)]).outcome is Outcome.LEAK


def test_the_rank_itself_is_the_statistic_of_a_sample() -> None:
    """Rank 1 of 10,000 is 13.3 bits, past 11.1, though its interval begins at 11.4."""
    check = largest(ranked([1, *range(500, 9_500, 1_000)]))
    assert check.outcome is Outcome.LEAK
    assert "in 10,000 of all possible ones (exposure ≥ 13.29 of 29.9 bits)" in check.reason


def test_a_clean_sample_passes_though_intervals_reach_higher() -> None:
    """32 canaries: 12.8 bits, of 13.3 that 10,000 references can show."""
    rng, passed = np.random.default_rng(0), 0
    for _ in range(200):
        exposures = ranked(rng.integers(1, REFERENCES + 2, 32).clip(1, REFERENCES).tolist())
        passed += largest(exposures).outcome is Outcome.PASS
    assert passed >= 195
    assert largest(ranked([2, *range(100, 9_000, 300)])).outcome is Outcome.PASS


def test_references_too_few_to_show_a_leak_leave_it_untested() -> None:
    exposures = ranked(list(range(100, 9_000, 100)))  # 89 canaries: 14.3 bits
    check = largest(exposures)
    assert check.outcome is Outcome.NOT_TESTED
    assert "The max attainable exposure of 89 secrets inserted once is 11.40 bits" in check.reason
    asked = largest(exposures, Thresholds(max_exposure=15))
    assert asked.outcome is Outcome.INCONCLUSIVE


def test_a_canary_beyond_all_references_is_no_pass_even_where_it_is_no_leak() -> None:
    check = largest(ranked([1, *range(100, 9_000, 100)]))
    assert check.outcome is Outcome.INCONCLUSIVE
    assert "≥ 13.29 bits were measured, and anything between 11.40 and 29.90" in check.reason


def test_all_capped_below_the_threshold_is_inconclusive() -> None:
    check = largest(ranked([1] * 100), Thresholds(max_exposure=20))
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
    check = largest([drawn(value, low, high), *[exact(1.0)] * 9], Thresholds(max_exposure=12))
    assert (check.outcome, check.asked, check.threshold) == (outcome, True, 12)


def test_what_chance_gives_as_often_is_no_leak_at_any_threshold() -> None:
    check = largest([exact(6.0)] + [exact(1.0)] * 9, Thresholds(max_exposure=5))
    assert check.outcome is Outcome.INCONCLUSIVE
    assert "chance reaches 11.12 bits too often" in check.reason


def test_a_threshold_above_the_space_cannot_be_passed() -> None:
    check = largest([exact(1.0)] * 10, Thresholds(max_exposure=30))
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
    check = largest([exposure, *[exact(1.0)] * 9])
    assert check.outcome is outcome
    if outcome is Outcome.INCONCLUSIVE:
        assert (
            "20.00 bits were measured, and anything between 10.00 and 22.00 bits is possible"
            in (check.reason)
        )
    if outcome is Outcome.PASS:
        assert "is 11.00 of 29.9 bits, at most the 11.12 bits" in check.reason


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


def test_the_default_threshold_is_passed_by_chance_as_rarely_as_it_says() -> None:
    rng, limit = np.random.default_rng(3), exposure_by_chance(20, 0.05)
    passed = sum(max(by_chance(rng, 20)) > limit for _ in range(4_000))
    assert stats.binomtest(passed, 4_000, 0.05, alternative="greater").pvalue > 1e-3
    assert stats.binomtest(passed, 4_000, 0.05, alternative="less").pvalue > 1e-3  # not idle


def p_check(p: float, thresholds: Thresholds | None = None, **test: Any) -> Check | None:
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
    check = p_check(p)
    assert check is not None
    assert (check.outcome, check.value, check.asked) == (outcome, p, False)
    assert check.threshold == pytest.approx(0.0045)


@pytest.mark.parametrize(
    ("asked", "outcome"), [(None, Outcome.NOT_TESTED), (True, Outcome.INCONCLUSIVE)]
)
def test_a_test_that_cannot_fail_does_not_pass(asked: bool | None, outcome: Outcome) -> None:
    check = p_check(0.5, Thresholds(p_value=asked), permutations=99)
    assert check is not None
    assert check.outcome is outcome
    assert "are too few for p below 0.01" in check.reason


def test_few_canaries_among_few_references_cannot_give_a_small_p_value() -> None:
    drawn = [canary(0, exact(1.0))]
    row = class_row(drawn, p_value=0.2, references=20)
    result = made(drawn, summary=[row], references=20)
    check = next(c for c in gate.check(result).checks if c.key == "p_value")
    assert check.outcome is Outcome.NOT_TESTED
    assert "are too few for p below 0.0476" in check.reason  # one of 21 places


def test_switched_off_it_stands_in_untested() -> None:
    assert p_check(0.0001, Thresholds(p_value=False)) is None
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
    check = p_check(p, permutations=permutations)
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
    assert "are too few for p below 0.0001, and a leak takes 9.78e-05" in verdict.sentence


def quantile(values: list[float], thresholds: Thresholds) -> Check:
    drawn = [canary(i, exact(value)) for i, value in enumerate(values)]
    verdict = gate.check(made(drawn), thresholds)
    return next(c for c in verdict.checks if c.key in ("median_exposure", "quantile_exposure"))


@pytest.mark.parametrize(
    ("limit", "outcome"),
    [
        (1.5, Outcome.LEAK),
        (6.0, Outcome.INCONCLUSIVE),  # the lower end itself is not above it
        (15.0, Outcome.INCONCLUSIVE),
        (25.0, Outcome.PASS),  # the upper end itself
        (28.0, Outcome.PASS),
    ],
)
def test_the_median_is_held_against_its_interval(limit: float, outcome: Outcome) -> None:
    """29 values 1 .. 29, each end missed with the share's probability at most."""
    values = [float(k) for k in range(1, 30)]
    share = 0.01 * 0.9 / 3
    from lmexposure.statistics import quantile_interval

    ends = quantile_interval(values, level=1 - 2 * share)
    assert ends.low is not None
    assert ends.high is not None
    shift = {6.0: ends.low, 25.0: ends.high}.get(limit, limit)
    check = quantile(values, Thresholds(median_exposure=shift))
    assert (check.outcome, check.value, check.unit) == (outcome, 15.0, "bits")


def test_a_clean_median_is_hardly_ever_a_leak_at_one_bit() -> None:
    rng, thresholds = np.random.default_rng(5), Thresholds(median_exposure=1, significance=0.3)
    leaks = sum(
        quantile(by_chance(rng, 40), thresholds).outcome is Outcome.LEAK for _ in range(300)
    )
    assert leaks <= 0.09 * 300 + 15  # its share is 0.09


def test_too_few_canaries_have_no_interval() -> None:
    check = quantile([20.0] * 8, Thresholds(median_exposure=5, min_canaries=5))
    assert check.outcome is Outcome.INCONCLUSIVE
    assert "a lower end takes 9" in check.reason
    assert (
        quantile([20.0] * 9, Thresholds(median_exposure=5, min_canaries=5)).outcome is Outcome.LEAK
    )


def test_another_quantile_has_its_own_needs() -> None:
    check = quantile([20.0] * 30, Thresholds(quantile_exposure=(0.9, 8)))
    assert check.name == "0.9 quantile of exposure"
    assert check.outcome is Outcome.LEAK
    check = quantile([2.0] * 30, Thresholds(quantile_exposure=(0.9, 8)))
    assert check.outcome is Outcome.INCONCLUSIVE
    assert "an upper end 56" in check.reason
    assert quantile([2.0] * 56, Thresholds(quantile_exposure=(0.9, 8))).outcome is Outcome.PASS


def test_the_upper_end_of_a_capped_exposure_is_what_is_possible() -> None:
    capped = sampled(3.0, 2.0, 29.9, capped=True)
    drawn = [canary(i, capped) for i in range(30)]
    verdict = gate.check(made(drawn), Thresholds(median_exposure=5))
    check = next(c for c in verdict.checks if c.key == "median_exposure")
    assert check.outcome is Outcome.INCONCLUSIVE


def shared(rng: np.random.Generator, n: int, references: int, shift: float) -> Result:
    """Sampled ranks of n canaries among the same references, as `measure` writes them."""
    own, null = rng.standard_normal(n) - shift, rng.standard_normal(references)
    found = sampled_exposure(own, null, space_size=RANDOM_NUMBER)
    drawn = [
        canary(
            i, Estimate.model_validate(found.row(i)), guesses=None, log_perplexity_bits=30 + bits
        )
        for i, bits in enumerate(own.tolist())
    ]
    return made(drawn, references=references)


def test_shared_references_call_no_clean_median_a_leak() -> None:
    """The true median is 3.98 bits, and 100 references put most medians of 200 canaries off."""
    rng = np.random.default_rng(8)
    limit = float(-norm.logcdf(-1.5) / np.log(2)) + 0.01
    thresholds = Thresholds(median_exposure=limit, significance=0.2)
    outcomes = [
        next(c.outcome for c in gate.check(r, thresholds).checks if c.key == "median_exposure")
        for r in (shared(rng, 200, 100, 1.5) for _ in range(100))
    ]
    assert outcomes.count(Outcome.LEAK) <= 9  # its share is .06; it was called one in a third
    strong = gate.check(shared(rng, 200, 1000, 2.0), Thresholds(median_exposure=1.5))
    assert strong.outcome is Outcome.LEAK


def test_a_small_space_that_was_filled_calls_no_clean_median_a_leak() -> None:
    """100 fills: 60 canaries, 32 controls and 8 references; a clean median is 2.3 bits, not 1."""
    rng, runs, leaks, past = np.random.default_rng(3), 200, 0, 0
    thresholds = Thresholds(median_exposure=1, quantile_exposure=(0.9, 3.4), significance=0.05)
    for _ in range(runs):
        places = rng.permutation(100)
        null = np.sort(places[60:])
        bits = np.log2(100) - np.log2(1 + np.searchsorted(null, places[:60]))
        drawn = [
            canary(i, exact(float(v)), repetitions=1 + i // 20, guesses=None)
            for i, v in enumerate(bits)
        ]
        past += float(np.median(bits)) > 1
        result = made(drawn, size=100, references=8)
        rows = [with_test(row, p_value=0.5) for row in result.summary]
        verdict = gate.check(changed(result, summary=rows), thresholds)
        leaks += verdict.outcome is Outcome.LEAK
        checks = [c for c in verdict.checks if c.key == "median_exposure"]
        assert {c.outcome for c in checks} == {Outcome.INCONCLUSIVE}
        assert "bits of that come from the small space alone" in checks[0].reason
    assert past > 0.9 * runs
    assert leaks <= 0.05 * runs
