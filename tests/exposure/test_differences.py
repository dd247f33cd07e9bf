"""Classes under two models: differences in bits, their tests, and the sentence about them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import comb
from typing import Any

import numpy as np
import pytest
from known import known
from made_results import RANDOM_NUMBER, estimate, exact, sampled, small_result
from scipy.stats import binomtest, mannwhitneyu

from lmexposure.statistics import Estimate, binomial_interval
from lmexposure.studies import Result, Scores
from lmexposure.studies.exposure.compare import Difference, differences, findings
from lmexposure.studies.exposure.rows import Floats

BITS = float(np.log2(RANDOM_NUMBER))


def with_exposures(result: Result, exposures: Sequence[Estimate]) -> Result:
    """The result with another exposure of each canary."""
    pairs = zip(result.canaries, exposures, strict=True)
    canaries = tuple(one.model_copy(update={"exposure": shown}) for one, shown in pairs)
    return result.model_copy(update={"canaries": canaries})


def in_class_4(result: Result, shown: Iterable[Estimate]) -> Result:
    """Other exposures of class 4; those of the others as they are."""
    left = iter(shown)
    every = [next(left) if one.repetitions == 4 else one.exposure for one in result.canaries]
    return with_exposures(result, every)


def moved(result: Result, gains: list[float], *, capped: bool = False) -> Result:
    """The exposures of class 4 raised by some bits."""
    before = [known(one.exposure.value) for one in result.canaries if one.repetitions == 4]
    pairs = zip(before, gains, strict=True)
    return in_class_4(result, [counted(value + gain, capped) for value, gain in pairs])


def counted(value: float, capped: bool) -> Estimate:
    """Of a search that ended at the canary, or before it: then the rest of the secret is open."""
    return estimate("bounded", value, high=BITS, capped=True) if capped else exact(value)


def plain() -> Result:
    """Nothing capped."""
    return moved(small_result(), [0.0] * 10)


def scored(result: Result, seed: int = 0) -> Result:
    """With scores that give each text as many bits less as its exposure is."""
    names = [one.id for one in result.canaries] + [f"reference/{i}" for i in range(400)]
    bits = (
        40
        - np.r_[
            [one.exposure.value or 0.0 for one in result.canaries],
            np.random.default_rng(seed).exponential(1 / np.log(2), 400),
        ]
    )
    roles = [one.role for one in result.canaries] + ["reference"] * 400
    return result.with_scores(
        Scores(
            ids=np.array(names),
            formats=np.array([result.formats[0].name] * len(names)),
            roles=np.array(roles),
            repetitions=np.zeros(len(names), dtype=np.int64),
            log_perplexity_bits=bits,
        )
    )


def p_of(found: Difference) -> float:
    return known(found.p_value)


def of_class_4(base: Result, other: Result) -> Difference:
    return list(differences([scored(base), scored(other)], ["base", "other"]))[-1]


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
    rows = list(differences([scored(plain()), scored(moved(plain(), [1.0] * 10))], ["a", "b"]))
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
    assert (found.capped, found.open) == (9, 10)  # references leave the tenth open
    assert found.least < found.median < 0 < found.most
    assert found.p_value == 1.0
    assert known(found.low) < 0 < known(found.high)


def test_a_lower_bound_above_the_other_is_surely_higher() -> None:
    found = of_class_4(plain(), moved(plain(), [5.0] * 10, capped=True))
    assert (found.higher, found.open) == (10, 0)
    assert p_of(found) < 0.01
    assert found.low == pytest.approx(5.0)


def test_open_ones_are_counted_against() -> None:
    base, other = plain(), moved(plain(), [-5.0] * 3 + [5.0] * 7, capped=True)
    found = of_class_4(base, other)
    assert (found.higher, found.lower, found.open) == (7, 0, 3)
    assert found.p_value == pytest.approx(binomtest(3, 10).pvalue)


def others(n: int, values: Sequence[float], *, capped: bool = False, seed: int = 1) -> Result:
    """Another manifest, with these exposures in class 4."""
    shown = [counted(value, capped) for value in values]
    return in_class_4(small_result(canaries=n, seed=seed), shown)


def test_other_canaries_of_the_class_are_shuffled_with_these() -> None:
    values = np.random.default_rng(5).exponential(3.0, 13)
    base, other = others(6, values[:6].tolist(), seed=2), others(7, (values[6:] + 2).tolist())
    found = of_class_4(base, other)
    assert (found.paired, found.n_base, found.n) == (False, 6, 7)
    assert found.higher + found.lower == 42
    naive = mannwhitneyu(values[6:] + 2, values[:6], method="exact").pvalue
    assert found.p_value == pytest.approx(naive)
    assert found.median == pytest.approx(np.median(values[6:] + 2) - np.median(values[:6]))
    assert (found.low, found.high) == (None, None)  # 6 have no median between two at .975


def test_lower_bounds_of_other_canaries_count_where_they_are_sure() -> None:
    low, high = others(8, [1.0] * 8, seed=2), others(8, [20.0] * 8, capped=True)
    found = of_class_4(low, high)
    assert (found.higher, found.open, found.capped) == (64, 0, 8)
    assert found.p_value == pytest.approx(2 / comb(16, 8))
    back = of_class_4(high, others(8, [25.0] * 8, seed=3))
    assert (back.higher, back.lower, back.open, back.p_value) == (0, 0, 64, 1.0)


def test_one_canary_shows_nothing() -> None:
    found = of_class_4(others(1, [0.0], seed=2), others(1, [29.0]))
    assert (found.p_value, found.p_least) == (1.0, 1.0)


def test_all_classes_of_all_later_runs_hold_together() -> None:
    base = plain()
    runs = [scored(run) for run in (base, moved(base, [1.0] * 10), base)]
    rows = differences(runs, ["a", "b", "c"])
    tests = [row for row in rows if row.role == "canary"]
    assert len(tests) == 4
    least = 2 / 2**10
    assert [row.p_adjusted for row in tests] == pytest.approx([1.0, 4 * least, 1.0, 1.0])
    assert tests[1].p_least == pytest.approx(4 * least)
    assert [row.p_adjusted for row in rows if row.role == "control"] == [None, None]


def test_the_same_references_do_not_make_a_difference() -> None:
    """One model, measured twice: 10 canaries as deep as each other move up and down together."""
    draw, called = np.random.default_rng(3), 0
    base = plain()
    few = tuple(form.model_copy(update={"references": 1000}) for form in base.formats)
    base = base.model_copy(update={"formats": few})
    for _ in range(200):
        sides = []
        for as_low in draw.binomial(1000, 0.004, 2):  # both runs draw references of their own
            value = -float(np.log2((as_low + 1) / 1001))
            sides.append(with_exposures(base, [sampled(value, 0.0, 29.0)] * len(base.canaries)))
        called += p_of(of_class_4(*sides)) <= 0.05
    assert called <= 10
    # Ranks far apart are a difference for all that.
    sides = [with_exposures(base, [sampled(v, 0.0, 29.0)] * len(base.canaries)) for v in (1.0, 8.0)]
    assert of_class_4(*sides).p_value == pytest.approx(2 / 2**10 + 0.001)


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


@pytest.mark.slow
def test_no_difference_of_other_canaries_is_seldom_called_one() -> None:
    """400 classes of models that memorise alike, lower bounds among them."""
    draw, called = np.random.default_rng(12), 0
    one, two = others(7, [1.0] * 7, seed=2), others(12, [1.0] * 12)
    for _ in range(400):
        sides = []
        for result, n in ((one, 7), (two, 12)):
            drawn = draw.exponential(6.0, n).tolist()
            sides.append(in_class_4(result, [counted(min(v, 10.0), v > 10) for v in drawn]))
        called += p_of(of_class_4(*sides)) <= 0.05
    assert binomtest(called, 400, 0.05, alternative="greater").pvalue > 0.001


@pytest.mark.slow
def test_no_difference_is_seldom_called_one() -> None:
    """400 pairs of models that memorise alike: p <= 0.05 in at most 5 %."""
    draw = np.random.default_rng(11)
    base, called = plain(), 0
    before = scored(base)
    for _ in range(400):
        after = scored(moved(base, draw.normal(0, 1, 10).tolist()))
        called += p_of(differences([before, after], ["base", "other"])[-1]) <= 0.05
    assert binomtest(called, 400, 0.05, alternative="greater").pvalue > 0.001


@pytest.mark.slow
def test_two_models_that_read_nothing_are_not_told_apart() -> None:
    """B puts a tenth of all fills first, so that most others are a little less exposed."""
    draw, signs, called = np.random.default_rng(8), 0, 0
    base = small_result(canaries=60)
    for _ in range(200):
        bits = draw.normal(60, 5, len(base.canaries) + 400)
        first = bits - 100.0 * (draw.random(bits.size) < 0.1)
        sides = [with_bits(base, column) for column in (bits, first)]
        found = differences(sides, ["A", "B"])[-1]
        signs += binomtest(found.lower, found.higher + found.lower).pvalue <= 0.05
        called += p_of(found) <= 0.05
    assert signs > 100  # as the signs alone would have it
    assert called <= 10


def with_bits(result: Result, bits: Floats) -> Result:
    """Of two measurements of all fills: exposures are exact, and as these scores have it."""
    ranks = np.searchsorted(np.sort(bits), bits, "right")
    values = np.log2(bits.size) - np.log2(ranks[: len(result.canaries)])
    shown = scored(with_exposures(result, [exact(float(value)) for value in values]))
    return shown.with_scores(replace(known(shown.scores), log_perplexity_bits=bits))


def test_without_references_of_both_there_is_no_p() -> None:
    base, other = plain(), moved(plain(), [5.0] * 10)
    rows = differences([base, other], ["base", "tuned"])
    assert [(row.p_value, row.p_adjusted) for row in rows] == [(None, None)] * 3
    assert rows[-1].median == pytest.approx(5.0)
    found = finding(*rows)
    assert found.startswith("Nothing says whether chance explains how base and tuned dif")
    scores = known(scored(other).scores)
    ids = np.char.add(scores.ids, np.where(scores.roles == "reference", "b", ""))
    others = other.with_scores(replace(scores, ids=ids))
    assert differences([scored(base), others], ["base", "tuned"])[-1].p_value is None


def test_extrapolated_curves_are_not_compared() -> None:
    """A curve errs alike for all canaries of a class: their agreement proves nothing."""
    asked = replace(plain().settings, estimate="skew_normal")
    curves = plain().model_copy(update={"settings": asked})
    assert not differences([curves, moved(curves, [5.0] * 10)], ["base", "other"])
    assert not differences([plain(), curves], ["base", "other"])


ROW = Difference(
    base="base",
    other="tuned",
    format="pin",
    role="canary",
    repetitions=16,
    paired=True,
    n=10,
    n_base=10,
    median=12.3,
    least=12.3,
    most=12.3,
    low=9.0,
    high=15.0,
    level=0.95,
    higher=10,
    lower=0,
    open=0,
    p_value=0.002,
    p_adjusted=0.004,
    p_least=0.004,
    capped=0,
    assumes="",
)
NONE: dict[str, Any] = {"median": 0.5, "least": 0.5, "most": 0.5, "higher": 6, "lower": 4}
NONE |= {"p_value": 0.75, "p_adjusted": 1.0}
DOWN: dict[str, Any] = {"median": -12.3, "least": -12.3, "most": -12.3, "higher": 0, "lower": 10}


def finding(*rows: Difference) -> str:
    (found,) = findings(["base", "tuned"], rows)
    return found


def test_more_by_how_much_and_not_by_chance() -> None:
    once = replace(ROW, repetitions=1, **NONE)
    found = finding(once, ROW)
    assert found == (
        "tuned leaks more than base: secrets inserted 16 times are 12.3 bits more exposed in the "
        "median (p = 0.0040 by tests of the same 10 canaries, by signs and beside references, "
        "corrected for 2 tests; chance does not explain it). 1 of 2 classes differ beyond chance."
    )


def test_less_is_said_of_the_run_that_leaks_more() -> None:
    found = finding(replace(ROW, paired=False, n=7, **DOWN))
    assert found == (
        "base leaks more than tuned: secrets inserted 16 times are 12.3 bits more exposed in the "
        "median (p = 0.0040 by a rank-sum test of 10 and 7 other canaries; chance does not explain "
        "it)."
    )


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (replace(ROW, least=12.3, most=20.0), "are 12.3 bits more exposed"),
        (replace(ROW, least=3.0), "are at least 3.0 bits more exposed"),
        (replace(ROW, least=-1.0), "are more exposed in 10 of 10 canaries, and less in 0 (p ="),
        (
            replace(ROW, **DOWN | {"least": -20.0, "most": -2.0}),
            "are at least 2.0 bits more exposed",
        ),
        (replace(ROW, repetitions=1), "secrets inserted once are 12.3 bits"),
    ],
)
def test_lower_bounds_leave_less_to_say(row: Difference, said: str) -> None:
    assert said in finding(row)


def test_a_median_that_shows_nothing_gives_way_to_the_pairs() -> None:
    """Most canaries tie, or a rank-sum test sees what medians do not: never "0.0 bits more"."""
    ties: dict[str, Any] = {"n": 20, "median": 0.0, "least": 0.0, "most": 0.0}
    tied = finding(replace(ROW, **ties, higher=9))
    assert "tuned leaks more than base: secrets inserted 16 times are more exposed in 9 of 20 " in (
        tied
    )
    against: dict[str, Any] = {"median": 1.0, "least": 1.0, "most": 1.0, "higher": 20, "lower": 80}
    found = finding(replace(ROW, paired=False, **against))
    assert found.startswith(
        "base leaks more than tuned: secrets inserted 16 times are more exposed in 80 of 100 pairs "
        "of canaries, and less in 20 (p = 0.0040 by a rank-sum test"
    )


def test_classes_that_disagree() -> None:
    found = finding(replace(ROW, format="date", repetitions=1, **DOWN), ROW)
    assert found.startswith(
        "Neither leaks more throughout: secrets of pin inserted 16 times are 12.3 bits more "
        "exposed in the median under tuned than under base (p = 0.0040 by"
    )
    assert "but secrets of date inserted once are 12.3 bits more exposed" in found


def test_what_chance_explains_is_no_difference() -> None:
    found = finding(replace(ROW, **NONE))
    assert found == (
        "No difference beyond chance between base and tuned; nearest to one are "
        "secrets inserted 16 times, 0.5 bits more exposed in the median under tuned (p = 1.0000 "
        "by tests of the same 10 canaries, by signs and beside references)."
    )
    alike = replace(ROW, **NONE | {"median": 0.0})
    assert "secrets inserted 16 times, alike in the median (p = 1.0000" in finding(alike)
    few = finding(replace(ROW, **NONE, n=3, p_least=0.25))
    assert few.endswith("There are too few canaries to show one.")
    left_open = finding(replace(ROW, **NONE, open=4))
    assert "For 4 of 10 canaries, lower bounds or references leave open" in left_open


def test_nothing_in_common_is_not_known() -> None:
    controls = replace(ROW, role="control", repetitions=0, p_value=1.0, p_adjusted=None)
    found = finding(controls)
    assert found.startswith("base and tuned have no class of canaries that can be compared:")


def test_controls_that_differ_raise_an_alarm() -> None:
    controls = replace(ROW, role="control", repetitions=0, p_value=0.002, p_adjusted=None)
    found = finding(ROW, controls)
    assert found.startswith(
        "Nothing says whether base or tuned leaks more: secrets inserted 16 times are 12.3 bits "
        "more exposed in the median under tuned (p = 0.0040 by tests of the same 10 canaries, by "
        "signs and beside references), but memory need not explain it. Controls differ too (p = "
        "0.0020), though they were never inserted"
    )
    assert " Controls differ too (p = 0.0020)" in finding(replace(ROW, **NONE), controls)
    assert "Controls" not in finding(ROW, replace(controls, p_value=0.02))
