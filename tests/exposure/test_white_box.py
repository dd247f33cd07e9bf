"""A private training seen from inside, in every rendering and in the gate."""

from pathlib import Path
from typing import Any

import pytest
from exposure.test_tables import CLAIM, column
from known import known
from made_results import clean, small_run
from models.bare_optimizer import optimizer, step

import lmexposure as lx
from lmexposure.core.render import as_json, as_markdown, as_page
from lmexposure.errors import ResultError
from lmexposure.models import epsilon_spent
from lmexposure.statistics import one_run_audit, step_guesses_epsilon
from lmexposure.studies import DpClaim, Result, WhiteBoxAudit, WhiteBoxBounds
from lmexposure.studies.exposure.tables import inside_section

COINS = tuple(number % 3 == 0 or number % 7 == 0 for number in range(60))


def audit(composed: float | None = 1.5, shift: float = 6.0) -> WhiteBoxAudit:
    """By hand: half of the scores of single steps are right by far."""
    scores = tuple(shift * coin + number % 5 for number, coin in enumerate(COINS))
    one_run = one_run_audit(scores, COINS, delta=1e-5, significance=0.0125, seed=1)
    step = step_guesses_epsilon(scores, COINS, threshold=5.5, delta=1e-5, significance=0.025)
    bounds = WhiteBoxBounds(
        kind="hadamard",
        weights=1_000,
        canaries=60,
        included=sum(COINS),
        sample_rate=CLAIM.sample_rate,
        steps=60,
        tosses=60,
        noise_multiplier=CLAIM.noise_multiplier,
        delta=1e-5,
        one_run=one_run,
        one_run_gaussian=None,
        step=step,
        noise_at_most=CLAIM.noise_multiplier,
        composed=composed,
        attainable=9.0,
        noise_attainable=0.4,
        significance=0.05,
        assumptions=("sampled as claimed",),
    )
    return WhiteBoxAudit.now(
        bounds=bounds,
        claimed_epsilon=CLAIM.epsilon,
        scores=scores,
        coins=COINS,
        step_scores=scores,
        step_coins=COINS,
    )


def claim(composed: float | None = 1.5) -> DpClaim:
    return CLAIM.model_copy(update={"white_box": audit(composed).bounds})


def promising(result: Result, promise: DpClaim) -> Result:
    learned = known(result.model.validation)
    model = result.model.model_copy(
        update={"validation": learned.model_copy(update={"claim": promise})}
    )
    return result.model_copy(update={"model": model})


def claimed(result: Result, composed: float | None = 1.5, **seen: Any) -> Result:
    promise = claim(composed)
    bounds = known(promise.white_box).model_copy(update=seen)
    return promising(result, promise.model_copy(update={"white_box": bounds}))


def from_inside(result: Result, most: float | None = None) -> dict[str, str]:
    """The outcome of each check from inside, by its key."""
    checks = lx.check(result, lx.Thresholds(max_epsilon=most)).checks
    return {c.key: str(c.outcome) for c in checks if c.name.endswith("from inside")}


def test_bounds_are_listed_up_to_the_claim() -> None:
    section = known(inside_section(claim(), None))
    names, bounds = column(section, "what"), [row[-1] for row in known(section.table).cells]
    assert names == ["whole training", "step by step, composed", "a single step", "promised"]
    assert bounds[1] == "1.500"
    assert bounds[-1] == "3.998"
    assert "sampled as claimed" in section.notes
    attainable = "max attainable in 60 steps: 9.000, and room for a noise multiplier of at most 0.4"
    assert any(note.startswith(attainable) for note in section.notes)
    assert inside_section(CLAIM, None) is None
    without = known(inside_section(claim(None), None))
    assert known(without.table).cells[1][-1] == "n/a"


def test_page_markdown_and_chart_have_them(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", whole=False)
    claimed(Result.read(run)).write(run / "result.json")
    audit().save(run)
    told = Result.read(run).told()
    html, markdown, exported = as_page(told), as_markdown(told), as_json(told)
    for text in (html, markdown):
        assert "Seen from inside" in text
        assert "step by step, composed" in text
        assert "3.998 nats at delta 1e-05 (PRV accountant)" in text
    assert "What the noise leaves of canaries in the gradients" in html
    assert 'href="#inside"' in html
    assert '"step by step, composed"' in exported
    assert "step_coins" not in exported
    assert "Seen from inside" not in as_page(promising(Result.read(run), CLAIM).told())


def test_a_chart_says_its_means_and_needs_both_sides() -> None:
    chart = known(audit().chart())
    assert "26 canaries in, mean score 8.08" in chart.description
    assert chart.svg()
    alone = audit().model_copy(update={"coins": (True,) * 60, "step_coins": (True,) * 60})
    assert alone.chart() is None


def test_the_gate_holds_the_claim_against_them() -> None:
    passed = lx.check(claimed(clean()))
    inside = [check for check in passed.checks if check.name.endswith("from inside")]
    assert [str(check.outcome) for check in inside] == ["pass"]
    refuted = lx.check(claimed(clean(), composed=4.1))
    assert refuted.outcome == "leak"
    assert "4.100" in refuted.sentence
    limited = lx.check(claimed(clean()), lx.Thresholds(max_epsilon=1.4))
    outcomes = {check.name: str(check.outcome) for check in limited.checks}
    assert outcomes["lower bound on epsilon, from inside"] == "leak"
    assert outcomes["claimed epsilon, from inside"] == "pass"


def test_a_promise_of_noise_is_refuted_by_itself() -> None:
    """A step shows that the noise is eleven times too small, whatever epsilon could be composed."""
    less = claimed(clean(), noise_at_most=CLAIM.noise_multiplier / 11)
    verdict = lx.check(less)
    assert verdict.outcome == "leak"
    assert "does not keep its promise" in verdict.sentence
    assert "its steps fit a noise multiplier of at most" in verdict.sentence
    assert from_inside(claimed(clean(), noise_at_most=None)) == {"claimed_epsilon": "pass"}


def test_what_no_canary_could_have_shown_is_no_pass() -> None:
    """The rule of runs and sweeps: max attainable, of the promise and of the threshold."""
    few = claimed(clean(), attainable=CLAIM.epsilon, noise_attainable=CLAIM.noise_multiplier)
    assert from_inside(few) == {"claimed_epsilon": "inconclusive"}
    verdict = lx.check(few)
    assert verdict.outcome == "inconclusive"
    assert "nothing could have contradicted the promise" in verdict.sentence
    assert "max attainable in 60 steps is" in verdict.sentence
    assert "(--set gradient_canaries=N)" in verdict.sentence
    # Either could have: a claim is of the noise, and of epsilon.
    for seen in ({"noise_attainable": None}, {"attainable": 0.0}):
        assert from_inside(claimed(clean(), **seen)) == {"claimed_epsilon": "pass"}
    for most, outcome in ((8.9, "pass"), (9.0, "inconclusive"), (20.0, "inconclusive")):
        assert from_inside(claimed(clean()), most)["max_epsilon"] == outcome


@pytest.mark.slow
def test_the_gate_refutes_a_training_without_noise() -> None:
    """Readers' cases: Opacus says its noise is 2, or 1, and adds none; 1e-6 lets it run."""
    for sigma, rate, steps, count in ((2.0, 0.25, 1_200, 64), (1.0, 0.5, 600, 0)):
        made = optimizer(noise_multiplier=sigma)
        add = made.add_noise

        def none(made: Any = made, add: Any = add, sigma: float = sigma) -> None:
            made.noise_multiplier = 1e-6
            add()
            made.noise_multiplier = sigma

        made.add_noise = none
        canaries = lx.GradientCanaries(made, sample_rate=rate, count=count, seed=1)
        for _ in range(steps):
            step(made)
        spent = epsilon_spent([(sigma, rate, steps)], delta=1e-5).epsilon
        promise = CLAIM.model_copy(
            update={
                "epsilon": spent,
                "noise_multiplier": sigma,
                "white_box": canaries.audit(delta=1e-5).bounds,
            }
        )
        for most in (8.0, spent):
            found = from_inside(promising(clean(), promise), most)
            assert found == {"claimed_epsilon": "leak", "max_epsilon": "leak"}


def test_scores_of_another_training_are_refused(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", whole=False)
    claimed(Result.read(run / "result.json")).write(run / "result.json")
    assert Result.read(run).files.white_box is None  # they are not there
    made = audit()
    made.save(run)
    assert Result.read(run).files.white_box == made
    audit(composed=1.6).save(run)
    with pytest.raises(ResultError, match="another training"):
        Result.read(run)


def test_as_many_coins_as_scores(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="59 coins"):
        WhiteBoxAudit(**{**dict(audit()), "coins": COINS[:-1]})
    with pytest.raises(ResultError, match="with gradient canaries"):
        WhiteBoxAudit.read(tmp_path)
