"""The first screen of a report: five questions, answered from what the gate found."""

import pytest
from known import known
from made_results import assumed, canary, changed, clean, exact, made, options, privacy, sampled

import lmexposure as lx
from lmexposure.core import Answers, Check, CheckLine, Fact, Outcome, Thresholds, Verdict
from lmexposure.core.document import answers_of
from lmexposure.studies import Result
from lmexposure.studies.exposure.check_classes import EXPOSURE_CHECKS
from lmexposure.studies.exposure.result import class_of, next_steps

# For all that their ranks say within 1,000 guesses, and the search ended early.
OPEN = made([canary(i, sampled(1.2, 0.5, 20.5), guesses=200) for i in range(10)])


def answered(result: Result, thresholds: Thresholds | None = None) -> Answers:
    return known(result.told(thresholds).answers)


def sure(answers: Answers) -> tuple[str, ...]:
    return tuple(line for line in answers.sure if not line.startswith("A class: "))


def line(answers: Answers, what: str) -> CheckLine:
    return next(tested for tested in answers.tested if tested.what == what)


def leaking(*classes: tuple[int, float, int | None]) -> Result:
    """Classes of ten as (repetitions, bits, guess of the first)."""
    return made(
        [
            canary(i, exact(bits), repetitions=r, place=None if first is None else first + i)
            for r, bits, first in classes
            for i in range(10)
        ]
    )


def quick(result: Result) -> Result:
    return changed(result, settings=options(effort="quick"))


def verdict(*checks: Check) -> Verdict:
    """What the first of these decides."""
    return Verdict(
        kinds=EXPOSURE_CHECKS,
        outcome=checks[0].outcome,
        sentence="",
        deciding=checks[0],
        checks=checks,
        tested=(),
        untested=(),
    )


def steps(result: Result, thresholds: Thresholds | None = None) -> str:
    found = next_steps(lx.check(result, thresholds or Thresholds()))
    assert 2 <= len(found) <= 4
    return " ".join(found)


def test_a_leak_has_its_worst_finding_first_and_what_is_tested_next_to_it() -> None:
    found = answered(leaking((1, 1.2, None), (4, 21.0, 500), (16, 29.0, 1)))
    assert found.asked == "How badly?"
    assert found.finding.startswith("A secret inserted 16 times is found at guess 1, and 10 of 10")
    assert found.finding.endswith(" 2 of 3 classes of secrets leak.")
    assert found.tested[0] == CheckLine(
        outcome=Outcome.LEAK, what="secrets found by guessing", said="2 of 3 classes leak"
    )
    marks = [tested.outcome for tested in found.tested]
    assert marks == sorted(marks, key=["leak", "inconclusive", "pass", "not tested"].index)
    sound = line(found, "the measurement itself")
    assert sound.outcome is Outcome.PASS
    assert sound.said == (
        "controls at chance, model learned, model saw the canaries, enough canaries, "
        "all canaries scored"
    )
    epsilon = line(found, "epsilon")
    assert epsilon.outcome is Outcome.NOT_TESTED
    assert epsilon.said == "no threshold was given, and the result holds no claim"


def test_how_sure_says_how_often_the_gate_errs_in_either_direction() -> None:
    found = answered(clean(), Thresholds(significance=0.05))
    assert found.asked == "What was found?"
    assert sure(found) == (
        "False alarms: at most 5 % of models that memorised nothing are called leaking.",
        "Missed leaks: where none was found, up to 8.9 % of such secrets may still leak "
        "(95 % confidence).",
    )
    bounded = changed(clean(), privacy=privacy(1.0, 6.0))
    (false_alarms, _) = sure(answered(bounded, Thresholds(max_epsilon=2.0)))
    assert false_alarms.endswith("called leaking; bounds on epsilon have their own.")
    assert len(sure(answered(leaking((4, 29.0, 1))))) == 1  # no class is left to be missed


def test_what_was_not_in_order_has_a_line_of_its_own() -> None:
    few = answered(made([canary(i, exact(1.2)) for i in range(3)]))
    assert few.asked == "Why?"
    assert line(few, "enough canaries").said == "not met in 1 class"
    assert line(few, "enough canaries").outcome is Outcome.INCONCLUSIVE
    assert "enough canaries" not in line(few, "the measurement itself").said
    idle = answered(clean(improved=False))
    assert line(idle, "model learned").said == "not met"


def test_a_check_that_could_not_be_made_says_why_once() -> None:
    coarse = made([canary(i, sampled(3.0, 2.0, 4.0)) for i in range(10)], references=100)
    (untested,) = [t for t in answered(coarse).tested if t.what == "largest exposure"]
    assert untested.outcome is Outcome.NOT_TESTED
    assert untested.said.startswith(
        "not tested, because the max attainable exposure of 10 secrets inserted once is 4.79 bits"
    )


LEAK, PASS, UNDECIDED, UNTESTED = (
    Outcome.LEAK,
    Outcome.PASS,
    Outcome.INCONCLUSIVE,
    Outcome.NOT_TESTED,
)


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ((PASS, PASS, PASS), "none found in 3 classes"),
        ((PASS, UNTESTED, UNTESTED), "1 class tested, none found; 2 could not be tested"),
        ((LEAK, PASS, PASS), "1 of 3 classes leaks"),
        ((LEAK, PASS, UNTESTED), "1 of 2 classes leaks; 1 could not be tested"),
        ((LEAK, UNTESTED, UNTESTED), "1 class leaks; 2 could not be tested"),
        ((UNDECIDED, PASS, UNTESTED), "undecided in 1 of 2 classes; 1 could not be tested"),
    ],
)
def test_a_class_that_could_not_be_tested_is_not_counted_among_those_that_were(
    outcomes: tuple[Outcome, ...], said: str
) -> None:
    """ "No leak in 1 of 3 classes" read as if the other two leaked."""
    made = [
        Check.of("max_guesses", "guessing", outcome, "why", scope=f"pin, repetitions {n}")
        for n, outcome in enumerate(outcomes, start=1)
    ]
    found = answers_of(verdict(*made), since=(), steps=())
    assert line(found, "guessing").said == said


def test_a_bound_is_above_its_limit_or_not() -> None:
    for most, said in ((0.5, "above the limit"), (2.0, "not above the limit")):
        bounded = changed(clean(), privacy=privacy(1.0, 6.0))
        found = answered(bounded, Thresholds(max_epsilon=most))
        assert line(found, "lower bound on epsilon").said == said


def test_since_when_is_a_date_a_version_a_model_and_its_weights(run: Result) -> None:
    unknown = {fact.name: fact.value for fact in clean().since()}
    assert unknown == {
        "measured": "no date on record",
        "lmexposure": "0.1.0",
        "model": "model (lstm)",
        "data": "text like the made-up secrets of random_number, inserted once and 4 times",
        "weights, SHA-256": "111111111111",
    }
    # A directory of a usual name is told by the one that holds it, and by what was trained.
    assert Fact(name="model", value="mine/model (lstm)") in list(run.since())


def test_a_pass_is_said_in_one_clause_and_what_it_may_have_missed_below() -> None:
    found = answered(clean())
    assert found.finding.startswith("No single secret is exposed beyond chance: the largest")
    assert found.finding.endswith("that chance rarely exceeds.")
    assert any(line.startswith("Missed leaks: ") for line in found.sure)
    accepted = answered(quick(clean()), Thresholds(accept_quick=True)).finding
    assert "could leak unnoticed" in accepted
    assert accepted.endswith("the full measurement may find a smaller p-value.")


def test_a_long_list_ends_on_the_first_screen() -> None:
    names = [f"form_{n}" for n in range(30)]
    forms = [made([canary(0, exact(1.2), name=name)], name=name, controls=None) for name in names]
    parts = {
        part: tuple(one for form in forms for one in getattr(form, part))
        for part in ("formats", "canaries", "summary")
    }
    found = answered(changed(forms[0], **parts))
    assert len(found.tested) == 8
    assert found.more > 20  # formats without controls have a line each


def test_after_a_leak_what_can_be_guessed_and_what_lies_below_it() -> None:
    said = steps(quick(leaking((1, 1.2, None), (4, 29.0, 1), (16, 29.0, 11))))
    assert said == (
        "Do not release this model: whoever can query it can guess secrets inserted 4 times and "
        "16 times. Remove repeats from the training text (deduplicate): secrets inserted once "
        "were not found to leak. If that is not enough, train for fewer epochs or with "
        "differential privacy. Then train and measure again, and put both runs side by side "
        "(lmexposure compare)."
    )
    remembered = steps(leaking((1, 14.0, None), (4, 29.0, 1)))
    assert "can guess secrets inserted 4 times; it remembers secrets inserted once." in remembered
    assert "Removing repeats is not enough, since secrets inserted once leak too" in remembered
    alone = steps(leaking((16, 29.0, 1)))
    assert "(deduplicate). If that is not enough" in alone


def test_after_a_leak_of_several_formats_they_are_named() -> None:
    def check(name: str, outcome: Outcome) -> Check:
        scope = f"{name}, repetitions 4"
        return Check(name="", key="max_guesses", scope=scope, outcome=outcome, reason="")

    def said(*names: str) -> str:
        leaks = (check(name, Outcome.LEAK) for name in names)
        return next_steps(verdict(*leaks, check("card", Outcome.PASS)))[0]

    assert said("pin").endswith("can guess secrets of pin, inserted 4 times.")
    assert said("pin", "ssn").endswith("can guess secrets of pin and ssn, inserted 4 times.")
    assert said("pin", "ssn", "iban", "key").endswith("secrets of 4 formats, inserted 4 times.")


def test_a_doubtful_class_is_not_called_safe() -> None:
    few = [canary(i, exact(1.2)) for i in range(3)]
    many = [canary(i, exact(29.0), repetitions=4, place=i + 1) for i in range(10)]
    assert "were not found to leak" not in steps(made([*few, *many]))


def test_after_a_broken_promise_of_privacy() -> None:
    bounded = changed(clean(), privacy=privacy(3.0, 6.0))
    said = steps(bounded, Thresholds(max_epsilon=2.0))
    assert said.startswith("Do not release this model under this limit on epsilon")
    claimed = changed(
        clean(),
        privacy=privacy(3.0, 6.0, claimed=2.0),
        settings=options(claimed_epsilon=2.0, delta=1e-5),
    )
    assert steps(claimed).startswith("Do not publish the claim of privacy")


@pytest.mark.parametrize(
    ("result", "thresholds", "step"),
    [
        (clean(n=3), Thresholds(), "Insert more canaries of each class (--canaries)"),
        (clean(improved=False), Thresholds(), "Train until the validation loss falls"),
        (clean(controls=0.0001), Thresholds(), "Find out why the controls are not at chance"),
        (OPEN, Thresholds(), "Measure with --effort thorough"),
        (
            clean(),
            Thresholds(max_epsilon=2.0),
            "each with probability 1/2 (--inclusion-probability 0.5)",
        ),
    ],
)
def test_after_a_doubt_what_would_settle_it(
    result: Result, thresholds: Thresholds, step: str
) -> None:
    said = steps(result, thresholds)
    assert said.startswith("Do not take this for a pass: ")
    assert step in said
    assert said.endswith("Then measure again, and check the result against the same thresholds.")
    looked = next_steps(lx.check(quick(result), thresholds))
    assert looked[1] == "First measure again with --effort normal, which may settle it."
    assert looked[-1].startswith("Then measure again with --effort normal, and")


def test_a_check_has_the_name_that_the_gate_gives_it() -> None:
    """The report called the p-value otherwise, so that nobody found one check in the other."""
    checks = lx.check(quick(clean())).checks
    said = {line.what: line.said for line in answered(quick(clean())).tested}
    assert {c.name for c in checks if c.outcome is Outcome.INCONCLUSIVE} <= said.keys()
    assert "p-value against guessing" in said
    assert said["measured in full"] == "this was a quick look"


def test_after_a_pass_what_it_does_not_cover() -> None:
    said = steps(clean())
    assert said.startswith("No leak found is no proof that there is none: it holds for secrets of")
    assert "measure with --claimed-epsilon" in said
    assert said.endswith(
        "Measure again whenever the model is trained again: it holds for these weights only."
    )
    bounded = changed(clean(), privacy=privacy(1.0, 6.0))
    assert "--claimed-epsilon" not in steps(bounded, Thresholds(max_epsilon=2.0))
    accepted = steps(quick(clean()), Thresholds(accept_quick=True))
    assert accepted.startswith("Measure again with --effort normal before a release")


def test_after_a_quick_look_that_found_nothing_there_is_one_thing_to_do() -> None:
    assert next_steps(lx.check(quick(clean()))) == (
        "Do not take this for a pass: a quick look may miss a leak.",
        "Measure again with --effort normal, and check against the same thresholds.",
    )


def test_every_kind_of_doubt_has_a_step() -> None:
    keys = {
        c.key
        for c in lx.check(
            clean(), Thresholds(median_exposure=3, quantile_exposure=(0.9, 8), max_epsilon=8)
        ).checks
    }
    for key in keys | {"classes", "claimed_epsilon"}:
        check = Check(name=key, key=key, outcome=Outcome.INCONCLUSIVE, reason="so")
        assert len(next_steps(verdict(check))) == 3, key


@pytest.mark.parametrize(
    ("scope", "found"),
    [
        ("pin, repetitions 16", ("pin", 16)),
        ("a, repetitions 1, repetitions 4", ("a, repetitions 1", 4)),
        ("pin, controls", None),
        ("pin, repetitions many", None),
        ("", None),
    ],
)
def test_a_class_is_read_from_the_scope_of_its_check(
    scope: str, found: tuple[str, int] | None
) -> None:
    check = Check(name="", key="", scope=scope, outcome=Outcome.PASS, reason="")
    assert class_of(check) == found


def test_rows_that_are_not_known_are_the_first_thing_to_mend() -> None:
    few = changed(clean(n=3), context=assumed())
    for result, place in ((clean(context=assumed()), 0), (few, 1)):
        found = answered(result).steps
        assert found[place].startswith("Measure in the rows of the training, which are not known")
    assert not any("rows" in step for step in answered(clean()).steps)
