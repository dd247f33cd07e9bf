import numpy as np
import pytest
from made_results import RANDOM_NUMBER, by_chance, canary, changed, exact, made, sampled, with_test
from scipy.stats import norm

from lmexposure import gate
from lmexposure.gate import Check, Outcome, Thresholds
from lmexposure.records import Estimate, Result
from lmexposure.statistics import sampled_exposure


def judged(values: list[float], thresholds: Thresholds) -> Check:
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
    check = judged(values, Thresholds(median_exposure=shift))
    assert (check.outcome, check.value, check.unit) == (outcome, 15.0, "bits")


def test_a_clean_median_is_hardly_ever_a_leak_at_one_bit() -> None:
    rng, thresholds = np.random.default_rng(5), Thresholds(median_exposure=1, significance=0.3)
    leaks = sum(judged(by_chance(rng, 40), thresholds).outcome is Outcome.LEAK for _ in range(300))
    assert leaks <= 0.09 * 300 + 15  # its share is 0.09


def test_too_few_canaries_have_no_interval() -> None:
    check = judged([20.0] * 8, Thresholds(median_exposure=5, min_canaries=5))
    assert check.outcome is Outcome.INCONCLUSIVE
    assert "a lower end takes 9" in check.reason
    assert judged([20.0] * 9, Thresholds(median_exposure=5, min_canaries=5)).outcome is Outcome.LEAK


def test_another_quantile_has_its_own_needs() -> None:
    check = judged([20.0] * 30, Thresholds(quantile_exposure=(0.9, 8)))
    assert check.name == "0.9 quantile of exposure"
    assert check.outcome is Outcome.LEAK
    check = judged([2.0] * 30, Thresholds(quantile_exposure=(0.9, 8)))
    assert check.outcome is Outcome.INCONCLUSIVE
    assert "an upper end 56" in check.reason
    assert judged([2.0] * 56, Thresholds(quantile_exposure=(0.9, 8))).outcome is Outcome.PASS


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
        assert "bits of that come from so small a space alone" in checks[0].reason
    assert past > 0.9 * runs
    assert leaks <= 0.05 * runs
