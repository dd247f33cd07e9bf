"""The verdict: never a leak by chance more often than said, never a pass that is none."""

import math
from typing import Any

import numpy as np
import pytest
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
from scipy import stats

from lmexposure import gate
from lmexposure.gate import Outcome, Thresholds, Verdict, unseen_share
from lmexposure.gate.verdict import Shares
from lmexposure.records import Result


def outcomes(verdict: Verdict, key: str) -> list[Outcome]:
    return [check.outcome for check in verdict.checks if check.key == key]


def planted(rng: np.random.Generator, n: int, memorised: int, bits: float) -> Result:
    """Exposures by chance, of which some are higher by so many bits."""
    values = by_chance(rng, n)
    values[:memorised] = [min(29.8, value + bits) for value in values[:memorised]]
    return made([canary(i, exact(value)) for i, value in enumerate(values)])


def test_a_clean_model_leaks_by_chance_no_more_often_than_said() -> None:
    runs = 2_000
    leaks = sum(gate.check(clean(s, n=10)).outcome is Outcome.LEAK for s in range(runs))
    assert stats.binomtest(leaks, runs, 0.01, alternative="greater").pvalue > 1e-3
    # The same at a larger significance: the gate is not merely idle.
    thresholds = Thresholds(significance=0.2)
    leaks = sum(gate.check(clean(s, n=10), thresholds).outcome is Outcome.LEAK for s in range(500))
    assert stats.binomtest(leaks, 500, 0.2, alternative="greater").pvalue > 1e-3
    assert leaks > 30


def test_a_clean_model_passes_and_says_what_may_have_gone_unseen() -> None:
    verdict = gate.check(clean())
    assert verdict.outcome is Outcome.PASS
    assert verdict.exit_code == 0
    assert verdict.sentence.startswith("No leak found: no single secret is exposed")
    assert "beyond chance: the largest exposure of 32 secrets" in verdict.sentence
    assert verdict.finding.startswith("No single secret is exposed beyond chance")
    assert "leaks above that in fewer than 8.9 % of such secrets, or below" in verdict.sentence
    assert verdict.deciding in verdict.checks
    assert "epsilon: no threshold was given, and the result holds no claim" in verdict.untested


def test_power_grows_with_canaries() -> None:
    rates = []
    for n in (10, 30, 90):
        runs = [planted(np.random.default_rng([n, s]), n, n, 1.0) for s in range(60)]
        rates.append(np.mean([gate.check(r).outcome is Outcome.LEAK for r in runs]))
    assert rates[0] < rates[1] < rates[2]
    assert rates[2] > 0.9


def test_one_memorised_canary_among_a_hundred_is_a_leak() -> None:
    verdict = gate.check(planted(np.random.default_rng(1), 100, 1, 28))
    assert verdict.exit_code == 1
    assert outcomes(verdict, "p_value") == [Outcome.PASS]
    assert outcomes(verdict, "max_exposure") == [Outcome.LEAK]
    assert verdict.sentence.startswith(
        "Leaks: the model ranks a secret inserted once among the likeliest 1 in 520 million of all "
        "possible ones (exposure 28.97 of 29.9 bits); 1 of 100 is above 14.44 bits, and chance"
    )


def test_three_canaries_are_too_few_to_pass_but_not_to_leak() -> None:
    verdict = gate.check(clean(n=3, classes=(4,)))
    assert verdict.exit_code == 2
    assert verdict.sentence.startswith(
        "Inconclusive: 3 secrets inserted 4 times are too few: 10 are needed"
    )
    assert not outcomes(verdict, "p_value").count(Outcome.PASS)
    leaking = made([canary(i, exact(29.0)) for i in range(3)])
    assert gate.check(leaking).exit_code == 1
    assert gate.check(clean(n=3), Thresholds(min_canaries=3)).exit_code == 0


def test_a_found_secret_is_a_leak_whatever_the_controls_say() -> None:
    drawn = [canary(i, exact(29.0), place=17 if i == 3 else None) for i in range(10)]
    verdict = gate.check(made(drawn, controls=0.0001))
    assert verdict.exit_code == 1
    assert "is found at guess 17, the only one of 10 within 1,000" in verdict.sentence


def test_controls_off_chance_make_all_else_inconclusive() -> None:
    drawn = [canary(i, exact(29.0)) for i in range(10)]
    verdict = gate.check(made(drawn, controls=0.0001))
    assert verdict.exit_code == 2
    assert verdict.deciding is not None
    assert verdict.deciding.key == "controls"
    assert outcomes(verdict, "p_value") == [Outcome.INCONCLUSIVE]
    assert outcomes(verdict, "max_exposure") == [Outcome.INCONCLUSIVE]
    assert gate.check(made(drawn, controls=0.011)).exit_code == 1


def test_controls_that_are_missing_are_named_as_untested_and_ones_without_a_test_are_not() -> None:
    verdict = gate.check(clean(controls=None))
    assert verdict.exit_code == 0
    assert any("random_number has no controls" in line for line in verdict.untested)
    *rows, controls = clean().summary
    untested = controls.model_copy(update={"guessing_test": None})
    assert gate.check(changed(clean(), summary=[*rows, untested])).exit_code == 2


def test_a_model_that_did_not_learn_passes_nothing() -> None:
    verdict = gate.check(clean(improved=False))
    assert verdict.exit_code == 2
    assert "the model did not learn" in verdict.sentence
    assert gate.check(clean(improved=None)).exit_code == 0
    assert any("validation loss" in line for line in gate.check(clean(improved=None)).untested)


@pytest.mark.parametrize("part", ["log_perplexity_bits", "exposure"])
def test_a_missing_score_or_exposure_passes_nothing(part: str) -> None:
    missing: dict[str, Any] = {"log_perplexity_bits": None} if part == "log_perplexity_bits" else {}
    values = by_chance(np.random.default_rng(0), 31)
    known = [canary(i, exact(value)) for i, value in enumerate(values)]
    last = canary(31, exact(2.0 if missing else None), **missing)
    verdict = gate.check(made([*known, last], warnings=("a number is missing",)))
    assert verdict.exit_code == 2
    assert "1 of 32 secrets inserted once is without" in verdict.sentence


def test_a_missing_test_passes_nothing_but_where_its_class_is_not_judged() -> None:
    first, second, controls = clean().summary
    untested = second.model_copy(update={"guessing_test": None})
    result = changed(clean(), summary=[first, untested, controls])
    assert gate.check(result).exit_code == 2
    assert gate.check(result, Thresholds(repetitions=1)).exit_code == 0


def test_the_worst_finding_leads() -> None:
    """Of the guesses the fewest, of equal ones fewer repetitions; then the largest exposure."""

    def said(*classes: tuple[int, float, int | None]) -> str:
        drawn = [
            canary(i, exact(bits), repetitions=r, place=None if first is None else first + i)
            for r, bits, first in classes
            for i in range(10)
        ]
        return gate.check(made(drawn)).sentence

    assert "a secret inserted 16 times is found at guess 1," in said((4, 21, 11), (16, 29, 1))
    alike = said((1, 1.2, None), (4, 29, 1), (16, 29, 1))
    assert "a secret inserted 4 times is found at guess 1," in alike
    assert alike.endswith(" 2 of 3 classes of secrets leak.")
    assert "ranks a secret inserted 16 times among" in said((4, 14, None), (16, 18, None))
    assert said((4, 29, 1), (16, 29, 1)).endswith(" Both classes of secrets leak.")
    assert said((2, 29, 1), (4, 29, 1), (16, 29, 1)).endswith(" All 3 classes of secrets leak.")
    assert said((1, 1.2, None), (4, 29, 1)).endswith(" 1 of 2 classes of secrets leaks.")
    assert said((4, 29, 1)).endswith(" tries for each.")


def test_no_canaries_are_no_pass() -> None:
    verdict = gate.check(made([]))
    assert verdict.exit_code == 2
    assert verdict.sentence == (
        "Inconclusive: there are no canaries, so there is nothing to judge."
    )
    verdict = gate.check(clean(classes=(4, 16)), Thresholds(repetitions=2))
    assert verdict.exit_code == 2
    assert "no canaries inserted 2 times or fewer" in verdict.sentence


def test_classes_of_more_repetitions_are_not_judged() -> None:
    drawn = [canary(i, exact(v)) for i, v in enumerate(by_chance(np.random.default_rng(2), 20))]
    loud = [canary(i, exact(29.8), repetitions=64, place=i + 1) for i in range(20)]
    assert gate.check(made([*drawn, *loud])).exit_code == 1
    verdict = gate.check(made([*drawn, *loud]), Thresholds(repetitions=4))
    assert verdict.exit_code == 0
    assert "canaries inserted 64 times: more than the 4 judged" in verdict.untested


def test_a_small_space_is_judged_by_its_p_value_alone() -> None:
    rng = np.random.default_rng(4)
    drawn = [canary(i, exact(v), guesses=100) for i, v in enumerate(by_chance(rng, 10, 100))]
    verdict = gate.check(made(drawn, size=100))
    assert verdict.exit_code == 0
    assert outcomes(verdict, "max_guesses") == [Outcome.NOT_TESTED]
    assert outcomes(verdict, "max_exposure") == [Outcome.NOT_TESTED]
    found = [c.model_copy(update={"extraction": (searched(100, place=5),)}) for c in drawn]
    assert gate.check(made(found, size=100)).exit_code == 0
    verdict = gate.check(made(drawn, size=100), Thresholds(p_value=False))
    assert verdict.exit_code == 2
    assert "no test against chance could be made of 10 secrets" in verdict.sentence


def test_a_format_of_its_own_is_named_where_there_are_several() -> None:
    result = small_result(formats=("random_number", "pin"), controls=16)
    verdict = gate.check(result)
    assert verdict.exit_code == 1
    # The PIN has a smaller space, so that it falls at an earlier guess.
    assert verdict.sentence.startswith("Leaks: in format pin, a secret inserted 4 times is found")
    assert verdict.finding.startswith("In format pin, a secret inserted 4 times is found at guess")
    assert verdict.sentence.endswith(" 2 of 4 classes of secrets leak.")
    assert len(outcomes(verdict, "controls")) == 2


def test_a_real_result_leaks_where_it_memorised_and_passes_where_not() -> None:
    assert gate.check(small_result()).exit_code == 1
    clean_one = gate.check(small_result(memorised=(), references=2_000))
    assert clean_one.exit_code == 0
    assert gate.check(small_result(canaries=3, memorised=())).exit_code == 2


def test_a_format_without_canaries_is_not_judged() -> None:
    result = clean()
    more = changed(result, formats=[*result.formats, form("pin", 10**4)])
    assert gate.check(more) == gate.check(result)


def test_a_question_ends_with_its_own_mark() -> None:
    drawn = [canary(i, exact(29.0)) for i in range(10)]
    controls = next(
        c for c in gate.check(made(drawn, controls=0.0001)).checks if c.key == "controls"
    )
    assert controls.reason.endswith("drawn in another way?")


def test_a_quick_look_is_no_pass_unless_it_is_accepted_and_a_leak_all_the_same() -> None:
    values = by_chance(np.random.default_rng(0), 31)
    drawn = [canary(i, exact(value)) for i, value in enumerate(values)]
    result = made([*drawn, canary(31, sampled(1.0, 0.4, 2.5))])
    quick = changed(result, settings=options(quick=True))
    whole, looked = gate.check(result), gate.check(quick)
    assert (whole.exit_code, looked.exit_code) == (0, 2)
    doubt = (
        "an exposure may be up to 1.50 bits above the one shown, and the full measurement may "
        "call a leak what lies that far below a threshold"
    )
    assert looked.sentence == (
        f"Inconclusive: a quick look is no pass: {doubt}, or find a smaller p-value; measure in "
        "full, or give --accept-quick."
    )
    assert not any("measured in full" in phrase for phrase in looked.tested)
    accepted = gate.check(quick, Thresholds(accept_quick=True))
    assert accepted.exit_code == 0
    assert accepted.sentence == (
        f"{whole.sentence} A quick look was accepted: {doubt}, or find a smaller p-value."
    )
    assert any(phrase == "measured in full: --quick was accepted" for phrase in accepted.untested)
    alone = gate.check(quick, Thresholds(p_value=False)).sentence
    assert f"{doubt}; measure" in alone
    bounded = changed(quick, privacy=privacy(1.5, 5.0))
    both = gate.check(bounded, Thresholds(max_epsilon=3)).sentence
    assert "that far below a threshold, or find a smaller p-value or a larger epsilon; " in both
    leaking = planted(np.random.default_rng(1), 30, 30, 28)
    leak = gate.check(changed(leaking, settings=options(quick=True)))
    assert (leak.exit_code, leak.sentence) == (1, gate.check(leaking).sentence)
    said = [phrase for phrase in leak.untested if phrase.startswith("measured in full")]
    assert said == ["measured in full: this was a quick look, so other leaks may have gone unseen"]
    assert outcomes(leak, "accept_quick") == [Outcome.NOT_TESTED]  # no error beside the failures


def test_what_a_quick_look_says_nothing_of_is_left_out() -> None:
    """ "An exposure may be up to 0.00 bits above the one shown" told nobody anything."""
    quick = changed(clean(), settings=options(quick=True))
    looked = gate.check(quick)
    assert looked.sentence == (
        "Inconclusive: a quick look is no pass: the full measurement may find a smaller p-value; "
        "measure in full, or give --accept-quick."
    )
    alone = gate.check(quick, Thresholds(p_value=False)).sentence
    assert "the full measurement may find a leak that this one missed; measure" in alone
    assert not any("measured in full" in phrase for phrase in [*looked.tested, *looked.untested])


def test_what_a_quick_look_cannot_decide_in_full_either_is_said_first() -> None:
    quick = changed(clean(), settings=options(quick=True), privacy=privacy(1.5, 2.0))
    for thresholds in (Thresholds(max_epsilon=3), Thresholds(max_epsilon=3, accept_quick=True)):
        verdict = gate.check(quick, thresholds)
        assert (verdict.exit_code, verdict.deciding and verdict.deciding.key) == (2, "max_epsilon")
    few = changed(clean(n=3), settings=options(quick=True))
    assert "are too few" in gate.check(few).sentence
    nothing = changed(made([]), settings=options(quick=True))
    assert "nothing to judge" in gate.check(nothing).sentence


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
        assert math.isclose((1 - unseen_share(n)) ** n, 0.05)


def test_a_pass_in_rows_that_are_not_known_says_so() -> None:
    result = clean(context=assumed())
    verdict = gate.check(result)
    assert verdict.outcome is Outcome.PASS
    assert verdict.sentence.endswith("--left-context), or let lmexposure verify --rows look.")
    assert "The rows of the training are not known: behind other text" in verdict.sentence
    untested = "whether canaries were scored as they were trained: those rows are not known"
    assert untested in verdict.untested
    assert gate.rows_unknown(result)
    for known in (clean(), clean(context=context())):
        verdict = gate.check(known)
        assert "rows" not in verdict.sentence
        assert untested not in verdict.untested
        assert not gate.rows_unknown(known)


def test_a_leak_in_rows_that_are_not_known_is_a_leak() -> None:
    found = [canary(i, exact(28.0), place=i + 1) for i in range(12)]
    verdict = gate.check(changed(made(found), context=assumed()))
    assert verdict.outcome is Outcome.LEAK
    assert "not known" not in verdict.sentence
    assert any("those rows are not known" in line for line in verdict.untested)
