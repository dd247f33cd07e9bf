"""The checks of a class against chance: largest exposure, p-value, median and quantiles."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from exposure.judged import LEAK, OPEN, PASS, UNTESTED, check_of
from made_results import (
    RANDOM_NUMBER,
    REFERENCES,
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

import lmexposure as lx
from lmexposure.core import Check, Outcome, Thresholds
from lmexposure.statistics import Estimate, Method, quantile_interval, sampled_exposure
from lmexposure.studies import Result
from lmexposure.studies.exposure.check_classes import exposure_by_chance


def of_exposures(exposures: Sequence[Estimate], **parts: Any) -> Result:
    return made([canary(i, one, guesses=None) for i, one in enumerate(exposures)], **parts)


def ranked(ranks: Sequence[int]) -> list[Estimate]:
    """Sampled exposures of these ranks among 10,000 references."""
    bits = np.array(ranks) - 1.5
    rows = sampled_exposure(bits, np.arange(REFERENCES), space_size=10**9)
    return [rows.canary(i) for i in range(len(ranks))]


def drawn(value: float, low: float, high: float) -> list[Estimate]:
    """And nine that chance gives."""
    return [estimate("importance", value, low=low, high=high, level=0.95), *NINE]


NINE = [exact(1.0)] * 9
MANY = list(range(100, 9_000, 100))  # 89 canaries: 14.3 bits
LIMIT = math.log2(10 / 0.0045)  # of ten canaries: 11.12 bits


@pytest.mark.parametrize(
    ("exposures", "most", "outcome", "words"),
    [
        ([exact(LIMIT), *NINE], None, PASS, "at most the 11.12 bits"),
        ([exact(LIMIT + 1e-6), *NINE], None, LEAK, "exceeds 11.12 bits, which chance"),
        # The rank is the statistic of a sample: 13.3 bits, though its interval begins at 11.4 ...
        (
            ranked([1, *range(500, 9_500, 1_000)]),
            None,
            LEAK,
            "in 10,000 of all possible ones (exposure ≥ 13.29 of 29.9 bits)",
        ),
        # ... and 12.3 bits are below 12.7, though it reaches higher.
        (ranked([2, *range(100, 9_000, 300)]), None, PASS, ""),
        (
            ranked(MANY),
            None,
            UNTESTED,
            "The max attainable exposure of 89 secrets inserted once is 11.40 bits",
        ),
        (ranked(MANY), 15, OPEN, ""),
        (
            ranked([1, *MANY]),
            None,
            OPEN,
            "≥ 13.29 bits were measured, and anything between 11.40 and 29.90",
        ),
        (ranked([1] * 100), 20, OPEN, ""),
        (drawn(12.5, 12.1, 13.0), 12, LEAK, ""),
        (drawn(12.5, 12.0, 13.0), 12, OPEN, ""),
        (drawn(11.0, 10.0, 12.1), 12, OPEN, ""),
        (drawn(11.0, 10.0, 12.0), 12, PASS, ""),
        ([exact(6.0), *NINE], 5, OPEN, "chance too often reaches 11.12 bits"),
        ([exact(1.0), *NINE], 30, OPEN, ""),  # more than the space has
        (
            drawn(20.0, 10.0, 22.0),
            None,
            OPEN,
            "20.00 bits were measured, and anything between 10.00 and 22.00 bits is possible",
        ),
        (drawn(20.0, 12.0, 22.0), None, LEAK, ""),
        (drawn(11.0, 10.0, 22.0), None, PASS, "is 11.00 of 29.9 bits, at most the 11.12 bits"),
    ],
)
def test_the_largest_exposure(
    exposures: list[Estimate], most: float | None, outcome: Outcome, words: str
) -> None:
    check = check_of(of_exposures(exposures), "max_exposure", max_exposure=most)
    assert (check.outcome, check.asked) == (outcome, most is not None)
    assert words in check.reason
    if len(exposures) == 10:
        assert check.threshold == pytest.approx(most or LIMIT)


@pytest.mark.parametrize(("method", "value"), [("skew_normal", None), ("certificate", 0.0)])
def test_an_extrapolation_or_a_certificate_does_not_decide(
    method: Method, value: float | None
) -> None:
    shown = estimate(method, value, low=0.0, high=29.0, level=0.95)
    estimates = {"sampled": ranked([1])[0], method: shown}
    others = [canary(i, exact(1.0)) for i in range(9)]
    check = check_of(made([*others, canary(9, shown, estimates=estimates)]), "max_exposure")
    assert check.outcome is LEAK
    assert check.value == pytest.approx(math.log2(REFERENCES))


def test_a_rank_among_few_fills_left_is_small_by_chance() -> None:
    """Of 2^14 fills all but a quarter are set aside: clean exposures are 2 bits higher."""
    rng, size, n, runs = np.random.default_rng(11), 2**14, 10, 300
    left, leaks = size // 4, 0
    filled = form(size=size, exhaustive=True, set_aside=size - left - n)
    space: dict[str, Any] = {"size": size, "controls": None, "formats": (filled,)}
    for _ in range(runs):
        ranks = rng.integers(1, left + 2, n)
        result = of_exposures([exact(14 - math.log2(r)) for r in ranks], **space)
        check = check_of(result, "max_exposure", significance=0.5, p_value=False)
        assert check.threshold == pytest.approx(math.log2(n / 0.45) + 2, abs=0.01)
        leaks += check.outcome is LEAK
    assert stats.binomtest(leaks, runs, 0.45, alternative="greater").pvalue > 1e-3
    assert leaks > 0.25 * runs  # not idle; without the 2 bits it is 0.9
    # A rank counts no fill that was set aside: of these 14 bits 4 come from those.
    filled = form(size=size, exhaustive=True, set_aside=size - 2**10 - 9)
    result = of_exposures([exact(14.0)] * 10, size=size, controls=None, formats=(filled,))
    check = check_of(result, "max_exposure", significance=0.1)
    assert check.outcome is LEAK
    assert "among the likeliest 1 in 1,000 of all possible ones (exposure 14.00" in check.reason


def classes_of(exposures: Sequence[Estimate], p_value: float) -> Result:
    """The same in 46 classes, for which 16.7 bits or p = 0.0000978 are needed."""
    result = made(
        [canary(i, one, repetitions=r) for r in range(1, 47) for i, one in enumerate(exposures)]
    )
    rows = [with_test(row, p_value=p_value) for row in result.summary[:46]]
    return changed(result, summary=[*rows, *result.summary[46:]])


def test_where_neither_test_against_chance_can_be_made_a_class_does_not_pass() -> None:
    """10,000 references can show 13.3 bits."""
    result = classes_of(ranked(range(500, 9_500, 900)), 0.5)
    for key in ("p_value", "max_exposure"):
        assert check_of(result, key).outcome is UNTESTED
    verdict = lx.check(result)
    assert verdict.exit_code == 2
    assert "no test against chance could be made of 10 secrets inserted once" in verdict.sentence


def test_forty_six_classes_at_the_floor_of_their_test_are_no_pass() -> None:
    exposures = [exact(value) for value in by_chance(np.random.default_rng(7), 10)]
    assert lx.check(classes_of(exposures, 0.5)).exit_code == 0
    verdict = lx.check(classes_of(exposures, 1e-4))
    assert verdict.exit_code == 2
    assert "are too few for p below 0.0001, and a leak takes 9.78e-05" in verdict.sentence


def test_a_leak_in_a_huge_space_has_its_chance_in_words() -> None:
    huge = of_exposures([exact(1300.0)] * 10, size=10**400)
    check = check_of(huge, "max_exposure")
    assert check.outcome is LEAK
    assert "in 1 of 2.2 × 10^390 tests" in check.reason
    assert lx.check(huge, Thresholds(max_guesses=10**15)).exit_code == 1


def test_the_default_threshold_is_passed_by_chance_as_rarely_as_it_says() -> None:
    rng, limit = np.random.default_rng(3), exposure_by_chance(20, 0.05)
    passed = sum(max(by_chance(rng, 20)) > limit for _ in range(4_000))
    assert stats.binomtest(passed, 4_000, 0.05, alternative="greater").pvalue > 1e-3
    assert stats.binomtest(passed, 4_000, 0.05, alternative="less").pvalue > 1e-3  # not idle


# One class: 0.9 of 0.01, shared with the largest exposure.
@pytest.mark.parametrize(
    ("p", "permutations", "asked", "outcome", "words"),
    [
        (0.0001, 9_999, None, LEAK, ""),
        (0.0045, 9_999, None, LEAK, ""),
        (0.0046, 9_999, None, PASS, ""),
        (0.01, 9_999, None, PASS, ""),
        (0.5, 99, None, UNTESTED, "are too few for p below 0.01"),
        (0.5, 99, True, OPEN, "are too few for p below 0.01"),
        (0.0051, 195, None, OPEN, ""),  # as small as 195 permutations give it
        (0.01, 195, None, OPEN, ""),
        (0.011, 195, None, UNTESTED, ""),
        (0.5, 221, None, UNTESTED, "are too few for p below 0.0045"),  # 1 / 222 is above its share
        (0.5, 222, None, PASS, ""),  # and 1 / 223 is not
    ],
)
def test_a_leak_is_a_p_value_at_its_share_or_below(
    p: float, permutations: int, asked: bool | None, outcome: Outcome, words: str
) -> None:
    members = [canary(i, exact(1.0)) for i in range(10)]
    row = with_test(class_row(members, p_value=p), permutations=permutations)
    check = check_of(made(members, summary=[row]), "p_value", p_value=asked)
    assert (check.outcome, check.value, check.asked) == (outcome, p, asked is True)
    assert check.threshold == pytest.approx(0.0045)
    assert words in check.reason


def test_few_canaries_among_few_references_cannot_give_a_small_p_value() -> None:
    members = [canary(0, exact(1.0))]
    row = class_row(members, p_value=0.2, references=20)
    check = check_of(made(members, summary=[row], references=20), "p_value")
    assert check.outcome is UNTESTED
    assert "are too few for p below 0.0476" in check.reason  # one of 21 places


def test_switched_off_it_stands_in_untested() -> None:
    verdict = lx.check(clean(), Thresholds(p_value=False))
    assert not [check for check in verdict.checks if check.key == "p_value"]
    assert "p-value against guessing: switched off" in verdict.untested


def test_a_class_without_a_test_says_so() -> None:
    rows = [replace(row, guessing_test=None) for row in clean().summary]
    result = changed(clean(), summary=rows)
    for key, words in (
        ("p_value", "is missing"),
        ("controls", "The p-value of the controls is missing"),
    ):
        check = check_of(result, key)
        assert check.outcome is OPEN
        assert words in check.reason


def of_quantile(values: Sequence[float], key: str = "median_exposure", **thresholds: Any) -> Check:
    return check_of(of_exposures([exact(value) for value in values]), key, **thresholds)


@pytest.mark.parametrize(
    ("limit", "outcome"),
    [
        (1.5, LEAK),
        ("low", OPEN),  # the lower end itself is not above it
        (15.0, OPEN),
        ("high", PASS),  # the upper end itself
        (28.0, PASS),
    ],
)
def test_the_median_is_held_against_its_interval(limit: float | str, outcome: Outcome) -> None:
    """29 values 1 .. 29, each end missed with the share's probability at most."""
    values = [float(k) for k in range(1, 30)]
    ends = quantile_interval(values, level=1 - 2 * 0.01 * 0.9 / 3)
    most = getattr(ends, limit) if isinstance(limit, str) else limit
    check = of_quantile(values, median_exposure=most)
    assert (check.outcome, check.value, check.unit) == (outcome, 15.0, "bits")


def test_too_few_canaries_have_no_interval() -> None:
    few: dict[str, Any] = {"median_exposure": 5, "min_canaries": 5}
    check = of_quantile([20.0] * 8, **few)
    assert check.outcome is OPEN
    assert "a lower end takes 9" in check.reason
    assert of_quantile([20.0] * 9, **few).outcome is LEAK


@pytest.mark.parametrize(
    ("values", "outcome", "words"),
    [
        ([20.0] * 30, LEAK, "0.9 quantile of exposure"),
        ([2.0] * 30, OPEN, "an upper end 56"),
        ([2.0] * 56, PASS, ""),
    ],
)
def test_another_quantile_has_its_own_needs(
    values: list[float], outcome: Outcome, words: str
) -> None:
    check = of_quantile(values, "quantile_exposure", quantile_exposure=(0.9, 8))
    assert check.outcome is outcome
    assert words in f"{check.name}: {check.reason}"


def test_the_upper_end_of_a_capped_exposure_is_what_is_possible() -> None:
    result = of_exposures([sampled(3.0, 2.0, 29.9, capped=True)] * 30)
    assert check_of(result, "median_exposure", median_exposure=5).outcome is OPEN


def shared(rng: np.random.Generator, n: int, references: int, shift: float) -> Result:
    """Sampled ranks of n canaries among the same references, as `measure` writes them."""
    own, null = rng.standard_normal(n) - shift, rng.standard_normal(references)
    found = sampled_exposure(own, null, space_size=RANDOM_NUMBER)
    members = [
        canary(i, found.canary(i), guesses=None, log_perplexity_bits=30 + bits)
        for i, bits in enumerate(own.tolist())
    ]
    return made(members, references=references)


def test_shared_references_call_no_clean_median_a_leak() -> None:
    """The true median is 3.98 bits, and 100 references put most medians of 200 canaries off."""
    rng, key = np.random.default_rng(8), "median_exposure"
    limit = float(-norm.logcdf(-1.5) / np.log(2)) + 0.01
    leaks = sum(
        check_of(shared(rng, 200, 100, 1.5), key, median_exposure=limit, significance=0.2).outcome
        is LEAK
        for _ in range(100)
    )
    assert leaks <= 9  # its share is .06; it was called one in a third
    strong = lx.check(shared(rng, 200, 1000, 2.0), Thresholds(median_exposure=1.5))
    assert strong.outcome is LEAK


def test_a_small_space_that_was_filled_calls_no_clean_median_a_leak() -> None:
    """100 fills: 60 canaries, 32 controls and 8 references; a clean median is 2.3 bits, not 1."""
    rng, runs, leaks, past = np.random.default_rng(3), 60, 0, 0
    thresholds = Thresholds(median_exposure=1, quantile_exposure=(0.9, 3.4), significance=0.05)
    for _ in range(runs):
        places = rng.permutation(100)
        null = np.sort(places[60:])
        bits = np.log2(100) - np.log2(1 + np.searchsorted(null, places[:60]))
        members = [
            canary(i, exact(float(v)), repetitions=1 + i // 20, guesses=None)
            for i, v in enumerate(bits)
        ]
        past += float(np.median(bits)) > 1
        result = made(members, size=100, references=8)
        rows = [with_test(row, p_value=0.5) for row in result.summary]
        verdict = lx.check(changed(result, summary=rows), thresholds)
        leaks += verdict.outcome is LEAK
        checks = [c for c in verdict.checks if c.key == "median_exposure"]
        assert {c.outcome for c in checks} == {OPEN}
        assert "bits of that come from the format alone" in checks[0].reason
    assert past > 0.9 * runs
    assert leaks <= 0.05 * runs
