"""The gate of sweeps: no false alarm more often than said, no pass without power."""

import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from exposure.judged import LEAK, OPEN, PASS, check_of
from known import known
from made_results import HOSTILE
from made_sweeps import bound_of, made_sweep, sweep_with, written_sweep
from scipy import stats

import lmexposure as lx
from lmexposure.core import (
    Outcome,
    Thresholds,
    verdict_json,
    verdict_junit,
    verdict_sarif,
    verdict_summary,
    verdict_text,
)
from lmexposure.statistics import EpsilonBound
from lmexposure.statistics.bounds.one_run import fixed_rays
from lmexposure.studies import SweepBound, SweepEpsilon, SweepResult, SweepText
from lmexposure.studies.sweep_checks import MOST_LOOKS, _binomial_tail


def asked(question: Any, chosen_from: int, bound: EpsilonBound) -> SweepBound:
    return SweepBound(question=question, repetitions=1, chosen_from=chosen_from, bound=bound)


def with_bounds(primary: EpsilonBound, *others: SweepBound) -> SweepResult:
    """A clean sweep with another primary bound, and those of other questions."""
    first = asked("together", 1, primary)
    epsilon = SweepEpsilon(primary=first, significance=0.05, bounds=(first, *others), refused=())
    return sweep_with(made_sweep(), epsilon=epsilon)


def with_text(result: SweepResult, place: int, **parts: Any) -> SweepResult:
    """The sweep with one text of other parts."""
    texts = list(result.texts)
    texts[place] = SweepText(**{**texts[place].model_dump(), **parts})
    return sweep_with(result, texts=tuple(texts))


@pytest.mark.parametrize(
    ("parts", "outcome", "deciding"),
    [
        ({}, PASS, "worst_canary"),
        ({"leaking": 1}, LEAK, "worst_canary"),
        ({"documents_leaking": 1}, LEAK, "worst_document"),
        ({"shift": 1.0}, LEAK, "worst_canary"),
        ({"shift": 0.4}, LEAK, "guessed_coins"),
        ({"coins": "exactly_half"}, PASS, "worst_canary"),
        ({"population": 0}, PASS, "worst_canary"),
        ({"models": 8}, OPEN, "worst_canary"),
        ({"canaries": 9}, OPEN, "min_canaries"),
        ({"canaries": 0, "population": 0}, OPEN, "min_canaries"),
        ({"failed": 9}, OPEN, "failed_models"),
        ({"failed": 8, "leaking": 1}, OPEN, "failed_models"),
        ({"failed": 7, "leaking": 1}, LEAK, "worst_canary"),
        ({"learned": 50}, OPEN, "validation"),
        ({"learned": 50, "leaking": 1}, LEAK, "worst_canary"),
        ({"learned": 60}, PASS, "worst_canary"),
    ],
)
def test_a_verdict_by_default(parts: dict[str, Any], outcome: Outcome, deciding: str) -> None:
    verdict = lx.check(made_sweep(**parts))
    assert verdict.outcome is outcome
    assert known(verdict.deciding).key == deciding
    assert verdict.exit_code == {PASS: 0, LEAK: 1, OPEN: 2}[outcome]
    assert {check.key for check in verdict.checks} <= set(SweepResult.CHECKS)


def test_sweeps_that_memorised_nothing_leak_no_more_often_than_said() -> None:
    thresholds = Thresholds(significance=0.2)
    sweeps = 100
    parts = {"models": 16, "canaries": 12, "population": 10}
    leaks = sum(
        lx.check(made_sweep(seed=seed, **parts), thresholds).outcome is LEAK
        for seed in range(sweeps)
    )
    assert stats.binomtest(leaks, sweeps, 0.2, alternative="greater").pvalue > 1e-3


def test_one_text_given_away_whole_is_a_leak_that_the_average_hides() -> None:
    """Name and shame: the rest is at chance, and so is the rate of all of them."""
    result = made_sweep(canaries=500, leaking=1, population=0)
    rate = next(rate for rate in result.primary["canaries"].rates if rate.fpr == 0.001)
    assert known(rate.value) <= 0.001 + 2 / 500
    verdict, check = lx.check(result), check_of(result, "worst_canary")
    assert (check.outcome, check.value) == (LEAK, result.worst and result.worst.p)
    assert "canary pin/x1/0000 gives itself away: in " in verdict.sentence
    assert "for the worst of 500 canaries" in verdict.sentence


def test_the_looks_that_are_paid_for_are_all_that_an_audit_has() -> None:
    for cells in (1, 12, 800, 64 * 500, 64 * 10_000):
        assert sum(ray.looks.size for ray in fixed_rays(cells, 0.05)) <= MOST_LOOKS


@pytest.mark.parametrize(("trials", "least"), [(10, 0), (10, 5), (10, 8), (40, 40), (9_000, 4_700)])
def test_the_chance_of_right_guesses_is_binomial(trials: int, least: int) -> None:
    expected = stats.binom.sf(least - 1, trials, 0.5) if 2 * least > trials else 1.0
    assert math.isclose(_binomial_tail(trials, least), expected, rel_tol=1e-9)


@pytest.mark.parametrize("most", [None, 0.5])
def test_as_many_models_as_it_takes_are_enough(most: float | None) -> None:
    key = "worst_canary" if most is None else "max_worst_tpr"
    few = check_of(made_sweep(models=6, population=0), key, max_worst_tpr=most)
    assert few.outcome is OPEN
    assert "are too few" in few.reason
    models = int(few.reason.split("it takes about ")[1].split(" ")[0])
    assert 12 < models < 80
    for seed in range(5):
        enough = made_sweep(models=models, population=0, seed=seed)
        assert lx.check(enough, Thresholds(max_worst_tpr=most)).outcome is not OPEN


def test_a_pass_names_a_leak_that_would_have_been_one() -> None:
    check = check_of(made_sweep(), "worst_canary")
    above = int(check.reason.split("such as about ")[1].split(" ")[0])
    assert (check.outcome, above) == (PASS, 12)

    for seen, outcome in ((above, LEAK), (above - 1, PASS)):
        p = math.comb(64 - seen, 32) / math.comb(64, 32)
        parts = {"models_in": 32, "models_out": 32, "tpr": seen / 32, "p": p}
        assert check_of(with_text(made_sweep(), 0, **parts), "worst_canary").outcome is outcome


@pytest.mark.parametrize(
    ("parts", "most", "outcome", "words"),
    [
        ({"leaking": 1}, 0.5, LEAK, "gives itself away more often than the 0.5 allowed"),
        ({"leaking": 1}, 0.9, OPEN, "are too few to show a rate above the 0.9 allowed"),
        ({}, 0.5, PASS, "not more often than the 0.5 allowed"),
        ({"shift": 1.0}, 0.4, OPEN, "but the rate is only known to be at least 0.2"),
        ({}, 0.01, OPEN, "but the rate is only known to be at least 0"),
    ],
)
def test_a_rate_that_was_asked_for(
    parts: dict[str, Any], most: float, outcome: Outcome, words: str
) -> None:
    check = check_of(made_sweep(**parts), "max_worst_tpr", max_worst_tpr=most)
    assert (check.outcome, check.threshold, check.asked) == (outcome, most, True)
    assert words in check.reason


def test_a_rate_is_asked_of_documents_too() -> None:
    verdict = lx.check(made_sweep(documents_leaking=1), Thresholds(max_worst_tpr=0.5))
    outcomes = {check.name: check.outcome for check in verdict.checks if check.asked}
    assert outcomes == {"worst canary": PASS, "worst ordinary document": LEAK}


def test_documents_that_few_models_had_let_nothing_pass() -> None:
    check = check_of(made_sweep(models=20), "worst_document")
    assert check.outcome is OPEN
    assert "too few for the worst of" in check.reason
    assert check_of(made_sweep(models=64), "worst_document").outcome is PASS


@pytest.mark.parametrize(
    ("value", "most", "other", "outcome", "words"),
    [
        (2.1, 6.0, 0.0, LEAK, "the training is less private than the 2 allowed"),
        (2.0, 6.0, 0.0, PASS, "not above the 2 allowed; max attainable here is 6.000"),
        (0.0, 2.0, 0.0, OPEN, "is 2.000, not above the 2 allowed; train more models"),
        (0.0, None, 0.0, OPEN, "is n/a, not above the 2 allowed"),
        (0.0, 6.0, 2.5, OPEN, "the bound per canary is 2.500, above the 2 allowed"),
    ],
)
def test_an_epsilon_that_was_asked_for(
    value: float, most: float | None, other: float, outcome: Outcome, words: str
) -> None:
    result = with_bounds(bound_of(value, most), asked("per_canary", 32, bound_of(other, 9.0)))
    verdict = lx.check(result, Thresholds(max_epsilon=2.0))
    check = check_of(result, "max_epsilon", max_epsilon=2.0)
    assert (check.outcome, check.value, check.unit) == (outcome, value, "nats")
    assert words.lower() in check.reason.lower()
    assert not [check for check in verdict.checks if check.key == "guessed_coins"]


def test_coins_that_follow_from_each_other_allow_no_bound() -> None:
    verdict = lx.check(made_sweep(coins="exactly_half"), Thresholds(max_epsilon=2.0))
    assert verdict.outcome is OPEN
    assert "there is no bound on epsilon: coins=exactly_half" in verdict.sentence.lower()
    assert any("together" in line for line in lx.check(made_sweep(coins="exactly_half")).untested)


def test_coins_guessed_right_are_a_leak_though_no_text_is() -> None:
    assert check_of(made_sweep(shift=0.4), "worst_canary").outcome is PASS
    check = check_of(made_sweep(shift=0.4), "guessed_coins")
    assert check.outcome is LEAK
    assert "surest guesses, of 2,048 coins, are right" in check.reason


def test_too_few_coins_can_show_nothing() -> None:
    counts = {"canaries": 8, "both_guesses": 8, "both_correct": 8}
    check = check_of(with_bounds(bound_of(0.0, 1.0, counts=counts)), "guessed_coins")
    assert check.outcome is OPEN
    assert "8 coins are too few" in check.reason


def test_canaries_in_all_models_let_nothing_pass() -> None:
    alike = {"models_in": 64, "models_out": 0, "tpr": None, "p": None, "difference": None}
    result = with_text(made_sweep(), 3, **alike)
    assert lx.check(result).outcome is OPEN
    said = check_of(result, "scores").reason
    assert "1 of 32 canaries were in all models or in none" in said


def test_a_sweep_is_judged_from_its_folder_too(tmp_path: Path) -> None:
    home = written_sweep(tmp_path / "sweep")
    assert lx.check(home) == lx.check(home / "sweep.json") == lx.check(made_sweep())


def test_every_form_says_the_same() -> None:
    name = HOSTILE + "\x00|</testcase>]]>@all\r\n## Passed"
    result = with_text(sweep_with(made_sweep(leaking=1), worst=None), 0, id=name)
    verdict, provenance = lx.check(result), result.provenance
    record = json.loads(verdict_json(verdict, result.hashes, provenance))
    assert record["schema"] == "lmexposure.verdict/1"
    assert record["scores_sha256"] == result.matrices_sha256
    assert record["provenance"]["model"] == "64 models of lstm"
    assert verdict_text(verdict, provenance).splitlines()[:2] == [verdict.sentence, provenance.line]
    assert verdict_summary(verdict, provenance).startswith("## lmexposure: leaks\n")
    suite = ElementTree.fromstring(verdict_junit(verdict, provenance))[0]
    assert suite.get("failures") == "2"
    log = json.loads(verdict_sarif(verdict, "sweep.json", provenance))["runs"][0]
    assert {found["ruleId"] for found in log["results"]} == {
        "lmexposure/worst_canary",
        "lmexposure/guessed_coins",
    }
