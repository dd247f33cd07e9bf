"""The verdict: never a leak by chance more often than said, never a pass that is none.

And its thresholds: which are refused, and what counts as asked for.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from exposure.judged import LEAK, OPEN, PASS, UNTESTED, check_of
from made_looks import look
from made_results import (
    assumed,
    by_chance,
    canary,
    changed,
    clean,
    context,
    exact,
    form,
    made,
    options,
    privacy,
    sampled,
    searched,
    small_result,
)
from made_sweeps import made_sweep
from scipy import stats

import lmexposure as lx
from lmexposure._quantiles import unseen_share
from lmexposure.core import Outcome, Thresholds, Verdict
from lmexposure.errors import LmexposureError, ResultError, SettingsError
from lmexposure.studies import CanaryResult, Result
from lmexposure.studies.exposure.checks import Shares, rows_unknown


def outcomes(verdict: Verdict, key: str) -> list[Outcome]:
    return [check.outcome for check in verdict.checks if check.key == key]


def members(
    values: list[float],
    *,
    repetitions: int = 1,
    first: int | None = None,
    guesses: int = 1000,
    begin: int = 0,
) -> list[CanaryResult]:
    """Canaries of these exposures, found at the first place and those behind it."""
    places = [None if first is None else first + i for i in range(len(values))]
    return [
        canary(i, exact(value), repetitions=repetitions, place=place, guesses=guesses)
        for i, (value, place) in enumerate(zip(values, places, strict=True), begin)
    ]


def chance(seed: int, n: int, size: int = 10**9) -> list[float]:
    return by_chance(np.random.default_rng(seed), n, size)


def planted(rng: np.random.Generator, n: int, memorised: int, bits: float) -> Result:
    """Exposures by chance, of which some are higher by so many bits."""
    values = by_chance(rng, n)
    values[:memorised] = [min(29.8, value + bits) for value in values[:memorised]]
    return made(members(values))


def untested(result: Result, row: int) -> Result:
    """Without the test of a row of its summary."""
    rows = list(result.summary)
    rows[row] = replace(rows[row], guessing_test=None)
    return changed(result, summary=rows)


def lacking(last: CanaryResult) -> Result:
    return made([*members(chance(0, 31)), last], warnings=("a number is missing",))


def test_a_clean_model_leaks_by_chance_no_more_often_than_said() -> None:
    """At a significance at which the gate is not merely idle."""
    thresholds = Thresholds(significance=0.2)
    leaks = sum(lx.check(clean(s, n=10), thresholds).outcome is LEAK for s in range(500))
    assert stats.binomtest(leaks, 500, 0.2, alternative="greater").pvalue > 1e-3
    assert leaks > 30


def test_power_grows_with_canaries() -> None:
    rates = []
    for n in (10, 30, 90):
        runs = [planted(np.random.default_rng([n, s]), n, n, 1.0) for s in range(40)]
        rates.append(np.mean([lx.check(r).outcome is LEAK for r in runs]))
    assert rates[0] < rates[1] < rates[2]
    assert rates[2] > 0.9


OFF: dict[str, Any] = {"controls": 0.0001}
LOUD = made([*members(chance(2, 20)), *members([29.8] * 20, repetitions=64, first=1)])
TINY = members(chance(4, 10, 100), guesses=100)
FOUND = [one.model_copy(update={"extraction": (searched(100, place=5),)}) for one in TINY]
UNSURE = made(members([29.0] * 10), **OFF)
FOUND_ALL_THE_SAME = made([*members([29.0], first=17), *members([29.0] * 9, begin=1)], **OFF)
UNKNOWN_ROWS = clean(context=assumed())
LEAK_IN_UNKNOWN_ROWS = made(members([28.0] * 12, first=1), context=assumed())
HIGHEST = (
    "Leaks: the model ranks a secret inserted once among the likeliest 1 in 520 million of all "
    "possible ones (exposure 28.97 of 29.9 bits); chance does so in 1 "
    "of 5.2 million tests; 1 of 100 exceeds 14.44 bits, which chance rarely does."
)
WITHOUT = "1 of 32 secrets inserted once is without"


@pytest.mark.parametrize(
    ("result", "thresholds", "outcome", "words"),
    [
        (clean(), {}, PASS, "No leak found: no single secret is exposed beyond chance: the large"),
        (
            clean(),
            {},
            PASS,
            "with 32 secrets a class, up to 8.9 % of them could leak unnoticed, and smaller",
        ),
        (planted(np.random.default_rng(1), 100, 1, 28), {}, LEAK, HIGHEST),
        (clean(n=3, classes=(4,)), {}, OPEN, "secrets inserted 4 times are too few: 10 are needed"),
        (made(members([29.0] * 3)), {}, LEAK, ""),
        (clean(n=3), {"min_canaries": 3}, PASS, ""),
        (FOUND_ALL_THE_SAME, {}, LEAK, "is found at guess 17, the only one of 10 within 1,000"),
        (UNSURE, {}, OPEN, "controls"),
        (UNSURE, {}, OPEN, "drawn in another way?"),
        (made(members([29.0] * 10), controls=0.011), {}, LEAK, ""),
        (clean(controls=None), {}, PASS, ""),
        (untested(clean(), -1), {}, OPEN, "controls is missing"),
        (clean(improved=False), {}, OPEN, "the model did not learn"),
        (clean(improved=None), {}, PASS, ""),
        (lacking(canary(31, exact(2.0), log_perplexity_bits=None)), {}, OPEN, WITHOUT),
        (lacking(canary(31, exact(None))), {}, OPEN, WITHOUT),
        (untested(clean(), 1), {}, OPEN, "is missing"),
        (untested(clean(), 1), {"repetitions": 1}, PASS, ""),
        (made([]), {}, OPEN, "Inconclusive: there are no canaries, so there is nothing to judge."),
        (clean(classes=(4, 16)), {"repetitions": 2}, OPEN, "no canaries inserted 2 times or fewer"),
        (LOUD, {}, LEAK, ""),
        (LOUD, {"repetitions": 4}, PASS, ""),
        # A small space is judged by its p-value alone.
        (made(TINY, size=100), {}, PASS, ""),
        (made(FOUND, size=100), {}, PASS, ""),
        (made(TINY, size=100), {"p_value": False}, OPEN, "no test against chance could be made of"),
        (UNKNOWN_ROWS, {}, PASS, "The rows of the training are not known: behind other text"),
        (UNKNOWN_ROWS, {}, PASS, "--left-context), or let lmexposure verify --rows look."),
        (LEAK_IN_UNKNOWN_ROWS, {}, LEAK, ""),
    ],
)
def test_a_verdict(
    result: Result, thresholds: dict[str, Any], outcome: Outcome, words: str
) -> None:
    verdict = lx.check(result, Thresholds(**thresholds))
    assert verdict.outcome is outcome
    assert verdict.exit_code == {PASS: 0, LEAK: 1, OPEN: 2}[outcome]
    assert words in verdict.sentence
    assert verdict.deciding is None or verdict.deciding in verdict.checks


def test_a_real_result_leaks_where_it_memorised_and_passes_where_not() -> None:
    leak = lx.check(small_result())
    assert (leak.outcome, repr(leak)) == (LEAK, f"<Verdict: {leak.sentence}>")
    assert lx.check(small_result(memorised=(), references=2_000)).outcome is PASS
    assert lx.check(small_result(canaries=3, memorised=())).outcome is OPEN


LEFT_OUT = "epsilon: no threshold was given, and the result holds no claim"
UNKNOWN = "whether canaries were scored as they were trained: those rows are not known"


@pytest.mark.parametrize(
    ("result", "thresholds", "words"),
    [
        (clean(), {}, LEFT_OUT),
        (clean(controls=None), {}, "random_number has no controls"),
        (clean(improved=None), {}, "validation loss"),
        (LOUD, {"repetitions": 4}, "canaries inserted 64 times: more than the 4 judged"),
        (UNKNOWN_ROWS, {}, UNKNOWN),
        (LEAK_IN_UNKNOWN_ROWS, {}, UNKNOWN),
    ],
)
def test_what_was_not_tested_is_said(
    result: Result, thresholds: dict[str, Any], words: str
) -> None:
    verdict = lx.check(result, Thresholds(**thresholds))
    assert any(words in line for line in verdict.untested)
    assert rows_unknown(result) is (words is UNKNOWN)
    assert ("not known" in verdict.sentence) is (words is UNKNOWN and verdict.outcome is PASS)
    for known in (clean(), clean(context=context())):
        assert not rows_unknown(known)
        assert UNKNOWN not in lx.check(known).untested


@pytest.mark.parametrize(
    ("result", "key", "outcome"),
    [
        (planted(np.random.default_rng(1), 100, 1, 28), "p_value", PASS),
        (UNSURE, "p_value", OPEN),
        (UNSURE, "max_exposure", OPEN),
        (made(TINY, size=100), "max_guesses", UNTESTED),
        (made(TINY, size=100), "max_exposure", UNTESTED),
    ],
)
def test_a_check_that_does_not_decide(result: Result, key: str, outcome: Outcome) -> None:
    assert check_of(result, key).outcome is outcome


@pytest.mark.parametrize(
    ("classes", "begin", "end"),
    [
        # Of the guesses the fewest, of equal ones fewer repetitions; then the largest exposure.
        (((4, 21, 11), (16, 29, 1)), "a secret inserted 16 times is found at guess 1,", ""),
        (
            ((1, 1.2, None), (4, 29, 1), (16, 29, 1)),
            "a secret inserted 4 times is found at guess 1,",
            " 2 of 3 classes of secrets leak.",
        ),
        (((4, 14, None), (16, 18, None)), "ranks a secret inserted 16 times among", ""),
        (((4, 29, 1), (16, 29, 1)), "", " Both classes of secrets leak."),
        (((2, 29, 1), (4, 29, 1), (16, 29, 1)), "", " All 3 classes of secrets leak."),
        (((1, 1.2, None), (4, 29, 1)), "", " 1 of 2 classes of secrets leaks."),
    ],
)
def test_the_worst_finding_leads(
    classes: tuple[tuple[int, float, int | None], ...], begin: str, end: str
) -> None:
    drawn = [
        one
        for repetitions, bits, first in classes
        for one in members([bits] * 10, repetitions=repetitions, first=first)
    ]
    sentence = lx.check(made(drawn)).sentence
    assert begin in sentence
    assert sentence.endswith(end)


def test_a_format_of_its_own_is_named_where_there_are_several() -> None:
    verdict = lx.check(small_result(formats=("random_number", "pin"), controls=16))
    assert verdict.exit_code == 1
    # The PIN has a smaller space, so that it falls at an earlier guess.
    assert verdict.sentence.startswith("Leaks: in format pin, a secret inserted 4 times is found")
    assert verdict.finding.startswith("In format pin, a secret inserted 4 times is found at guess")
    assert verdict.sentence.endswith(" 2 of 4 classes of secrets leak.")
    assert len(outcomes(verdict, "controls")) == 2


def test_a_format_without_canaries_is_not_judged() -> None:
    result = clean()
    more = changed(result, formats=[*result.formats, form("pin", 10**4)])
    assert lx.check(more) == lx.check(result)


CAPPED = made([*members(chance(0, 31)), canary(31, sampled(1.0, 0.4, 2.5))])
EPSILON = {"max_epsilon": 3}
NO_PASS, SMALLER = "a quick look is too coarse for a pass: ", "a smaller p-value"
IN_FULL = "; measure with --effort normal, or give --accept-quick."
DOUBTS = "true exposures may be up to 1.50 bits higher"


@pytest.mark.parametrize(
    ("result", "thresholds", "outcome", "words"),
    [
        (CAPPED, {}, OPEN, f"Inconclusive: {NO_PASS}{DOUBTS}{IN_FULL}"),
        (CAPPED, {"accept_quick": True}, PASS, f" A quick look was accepted: {DOUBTS}."),
        (CAPPED, {"p_value": False}, OPEN, f"{DOUBTS}; measure"),
        (changed(CAPPED, privacy=privacy(1.5, 5.0)), EPSILON, OPEN, f"{DOUBTS}; measure"),
        # What it says nothing of is left out: no "up to 0.00 bits above the one shown".
        (
            clean(),
            {},
            OPEN,
            f"Inconclusive: {NO_PASS}the full measurement may find {SMALLER}{IN_FULL}",
        ),
        (clean(), {"p_value": False}, OPEN, "may find a leak that this one missed; measure"),
        # What it cannot decide in full either is said first.
        (clean(privacy=privacy(1.5, 2.0)), EPSILON, OPEN, "is 2.000, not above the 3 allowed"),
        (clean(privacy=privacy(1.5, 2.0)), EPSILON | {"accept_quick": True}, OPEN, "is 2.000, not"),
        (clean(n=3), {}, OPEN, "are too few"),
        (made([]), {}, OPEN, "nothing to judge"),
        (planted(np.random.default_rng(1), 30, 30, 28), {}, LEAK, "Leaks: "),
    ],
)
def test_a_quick_look_is_no_pass_unless_it_is_accepted_and_a_leak_all_the_same(
    result: Result, thresholds: dict[str, Any], outcome: Outcome, words: str
) -> None:
    verdict = lx.check(changed(result, settings=options(effort="quick")), Thresholds(**thresholds))
    assert verdict.outcome is outcome
    assert words in verdict.sentence
    full = [phrase for phrase in verdict.untested if phrase.startswith("measured in full")]
    assert not any("measured in full" in phrase for phrase in verdict.tested)
    if outcome is PASS:
        assert verdict.sentence.startswith(lx.check(result).sentence)
        assert full == ["measured in full: a quick look was accepted"]
    elif outcome is LEAK:
        assert verdict.sentence == lx.check(result).sentence
        assert full == [
            "measured in full: this was a quick look, so other leaks may have gone unseen"
        ]
        assert outcomes(verdict, "accept_quick") == [UNTESTED]  # no error beside the failures


@pytest.mark.parametrize("classes", [1, 3, 30])
@pytest.mark.parametrize(
    ("thresholds", "tests"),
    [
        (Thresholds(), 2),
        (Thresholds(p_value=False), 1),
        (Thresholds(median_exposure=3, quantile_exposure=(0.9, 5), significance=0.05), 4),
    ],
)
def test_shares_add_up_to_the_significance(
    thresholds: Thresholds, tests: int, classes: int
) -> None:
    shares = Shares.of(thresholds, classes)
    assert classes * (shares.extraction + tests * shares.test) == pytest.approx(
        thresholds.significance
    )


def test_what_a_pass_leaves_unseen_is_the_exact_binomial_bound() -> None:
    for n in (1, 3, 10, 29, 299):
        bound = stats.binomtest(0, n).proportion_ci(0.90, method="exact").high
        assert unseen_share(n) == pytest.approx(bound)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"significance": 0}, "significance=0 must lie strictly between 0 and 1"),
        ({"p_value": 0.05}, "p_value=0.05 must be true or false"),
        ({"max_exposure": 0}, "max_exposure=0 must be a finite number above 0"),
        ({"max_exposure": float("nan")}, "max_exposure=nan must be"),
        ({"median_exposure": 0.9}, "median_exposure=0.9 bits must be at least 1, which guessing"),
        ({"quantile_exposure": (0.9, 3)}, "quantile_exposure=3 bits must be at least 3.32"),
        ({"quantile_exposure": (1e-17, 3)}, "its quantile must lie between 1e-09 and 1 - 1e-09"),
        ({"significance": 5e-324}, "significance=5e-324 must be at least 1e-09"),
        ({"quantile_exposure": (1.0, 3)}, "quantile_exposure=1.0 must lie strictly"),
        ({"quantile_exposure": 8}, r"quantile_exposure=8 must be a quantile and bits, such as"),
        ({"max_guesses": 0}, "max_guesses=0 must be a whole number from 1 to"),
        ({"max_guesses": 10**400}, "must be a whole number from 1 to"),
        ({"max_epsilon": -1}, "max_epsilon=-1 must be a finite number, at least 0"),
        ({"max_epsilon": float("inf")}, "max_epsilon=inf must be"),
        ({"max_epsilon": "8"}, "max_epsilon='8' must be"),
        ({"min_canaries": 0}, "min_canaries=0 must be"),
        ({"repetitions": 0}, "repetitions=0 must be"),
        ({"max_verbatim_run": -1}, "max_verbatim_run=-1"),
        ({"max_extractable": 1}, "max_extractable=1"),
        ({"max_worst_tpr": -0.1}, "must be a rate, at least 0 and below 1"),
        ({"max_worst_tpr": 1.0}, "must be a rate, at least 0 and below 1"),
        ({"max_worst_tpr": True}, "must be a rate, at least 0 and below 1"),
        ({"max_worst_tpr": "high"}, "must be a rate, at least 0 and below 1"),
    ],
)
def test_refuses_what_cannot_be_meant(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Thresholds(**values)


@pytest.mark.parametrize(
    ("judged", "thresholds", "message"),
    [
        (made_sweep(), {"max_exposure": 5.0}, "max_exposure=5.0 does not apply to a sweep"),
        (made_sweep(), {"p_value": False}, "p_value=False does not apply to a sweep"),
        (made_sweep(), {"repetitions": 4}, "repetitions=4 does not apply to a sweep"),
        (clean(), {"max_worst_tpr": 0.5}, r"max_worst_tpr=0\.5 does not apply to a run"),
        (look(), {"max_guesses": 5}, "max_guesses=5 does not apply to a look at memorised text"),
    ],
)
def test_thresholds_of_another_kind_are_refused(
    judged: Any, thresholds: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        lx.check(judged, Thresholds(**thresholds))


@pytest.mark.parametrize(
    ("judged", "thresholds", "error", "message"),
    [
        (
            3,
            Thresholds(),
            ResultError,
            "measured is of type int; give a study, such as a Result, or the path",
        ),
        (made_sweep(), 3, SettingsError, "thresholds is of type int"),
    ],
)
def test_what_is_no_sweep_is_refused(
    judged: Any, thresholds: Any, error: type[LmexposureError], message: str
) -> None:
    with pytest.raises(error, match=message):
        lx.check(judged, thresholds)


def test_what_was_asked_for_is_told_from_defaults() -> None:
    assert not any(Thresholds().asked(key) for key in ("max_guesses", "p_value", "max_exposure"))
    assert Thresholds(max_guesses=1000).asked("max_guesses")
    assert Thresholds(p_value=True).asked("p_value")
    assert not Thresholds(p_value=False).asked("p_value")
    assert Thresholds(max_epsilon=0).asked("max_epsilon")
    assert Thresholds(max_guesses=5).guesses == 5
