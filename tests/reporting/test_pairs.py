"""The same canaries under two models: differences, what is open, and what chance explains."""

from collections.abc import Sequence

import numpy as np
import pytest
from made_results import estimate, sampled, small_result
from scipy.stats import binomtest

from lmexposure.records import Estimate, Result
from lmexposure.reporting.pairs import Difference, differences
from lmexposure.statistics import binomial_interval


def with_exposures(result: Result, exposures: Sequence[Estimate]) -> Result:
    """The result with another exposure of each canary."""
    pairs = zip(result.canaries, exposures, strict=True)
    canaries = tuple(one.model_copy(update={"exposure": shown}) for one, shown in pairs)
    return result.model_copy(update={"canaries": canaries})


def moved(result: Result, gains: list[float], *, capped: bool = False) -> Result:
    """The exposures of class 4 raised by some bits; those of the others as they are."""
    left = iter(gains)
    return with_exposures(
        result,
        [
            _moved(one.exposure, next(left), capped) if one.repetitions == 4 else one.exposure
            for one in result.canaries
        ],
    )


def _moved(exposure: Estimate, gain: float, capped: bool) -> Estimate:
    assert exposure.value is not None
    return estimate("exact", exposure.value + gain, capped=capped)


def plain() -> Result:
    """Nothing capped."""
    return moved(small_result(), [0.0] * 10)


def of_class_4(base: Result, other: Result) -> Difference:
    return list(differences([base, other], ["base", "other"]))[-1]


def test_the_median_and_its_exact_interval() -> None:
    gains = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]
    found = of_class_4(plain(), moved(plain(), gains))
    assert (found.base, found.other, found.n) == ("base", "other", 10)
    assert found.median == pytest.approx(5.5)
    # Order statistics 2 and 9 of 10 cover the median with 1 - 2 * 11 / 1024 = 0.979.
    assert (found.low, found.high) == pytest.approx((2.0, 9.0))
    assert (found.higher, found.lower, found.open, found.capped) == (10, 0, 0, 0)
    assert found.p_value == pytest.approx(binomtest(10, 10).pvalue)


def test_as_many_up_as_down_is_chance() -> None:
    found = of_class_4(plain(), moved(plain(), [1, -1, 2, -2, 3, -3, 4, -4, 0, 0]))
    assert (found.higher, found.lower, found.p_value) == (4, 4, 1.0)


def test_other_classes_did_not_move() -> None:
    rows = list(differences([plain(), moved(plain(), [1.0] * 10)], ["a", "b"]))
    assert [(row.role, row.repetitions, row.median) for row in rows[:2]] == [
        ("control", 0, 0.0),
        ("canary", 1, 0.0),
    ]
    assert [row.p_value for row in rows[:2]] == [1.0, 1.0]


def test_lower_bounds_do_not_make_a_difference() -> None:
    """Counted exactly under one model and only bounded under the other: nothing is shown."""
    counted, bounded = small_result(), small_result(extraction=False)
    found = of_class_4(counted, bounded)
    assert found.median < -5
    assert found.capped == found.open == 9
    assert found.p_value == 1.0
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0 < found.high


def test_a_lower_bound_above_the_other_is_surely_higher() -> None:
    found = of_class_4(plain(), moved(plain(), [5.0] * 10, capped=True))
    assert (found.higher, found.open) == (10, 0)
    assert found.p_value < 0.01
    assert found.low == pytest.approx(5.0)


def test_open_ones_are_counted_against() -> None:
    base, other = plain(), moved(plain(), [-5.0] * 3 + [5.0] * 7, capped=True)
    found = of_class_4(base, other)
    assert (found.higher, found.lower, found.open) == (7, 0, 3)
    assert found.p_value == pytest.approx(binomtest(3, 10).pvalue)


def test_another_manifest_has_no_pairs() -> None:
    assert list(differences([small_result(), small_result(seed=1)], ["a", "b"])) == []


def test_a_missing_exposure_is_left_out() -> None:
    base = plain()
    gone = [
        estimate("exact", None) if one.id.endswith("x4/0000") else one.exposure
        for one in base.canaries
    ]
    assert of_class_4(base, with_exposures(base, gone)).n == 9


def test_what_references_leave_open_is_in_the_interval() -> None:
    """10 canaries of the same ranks among the same 100 references: nothing is known of either."""
    base = plain()
    few = tuple(form.model_copy(update={"references": 100}) for form in base.formats)
    shown = [sampled(1.0, 0.7, 1.3)] * len(base.canaries)
    sampled_ones = with_exposures(base.model_copy(update={"formats": few}), shown)
    found = of_class_4(sampled_ones, sampled_ones)
    # Half of .025 over 10 canaries in 2 runs, each by Clopper and Pearson: 49 of 100 came as low.
    ends = binomial_interval(49, 100, level=1 - 2 * 0.0125 / 20)
    bits = float(np.log2((ends.high[0] + 1e-9) / ends.low[0]))
    assert (found.low, found.high) == pytest.approx((-bits, bits))


def test_few_canaries_have_no_interval() -> None:
    few = small_result(canaries=3)
    found = list(differences([few, few], ["a", "b"]))[-1]
    assert (found.low, found.high) == (None, None)


def test_no_difference_is_seldom_called_one() -> None:
    """1,000 pairs of models that memorise alike: p <= 0.05 in at most 5 %."""
    draw = np.random.default_rng(11)
    base, called = plain(), 0
    for _ in range(1000):
        found = of_class_4(base, moved(base, draw.normal(0, 1, 10).tolist()))
        called += found.p_value <= 0.05
    assert binomtest(called, 1000, 0.05, alternative="greater").pvalue > 0.001
