"""Whether the model saw the canaries: what shows it, what does not, and what the gate then says."""

from typing import Any

import pytest
from exposure.judged import LEAK, OPEN, PASS, check_of
from known import known
from made_results import (
    REFERENCES,
    canary,
    changed,
    class_row,
    clean,
    context,
    exact,
    made,
    witness,
)

from lmexposure import check
from lmexposure.core import Outcome, Thresholds
from lmexposure.studies import Result

KEY = "accept_unseen_training"
UNKNOWN = witness(certificate_bits=0.5, p_value=0.4, references=300)


def trained(result: Result, **parts: Any) -> Result:
    """The result with another record of its training."""
    validation = known(result.model.validation).model_copy(update=parts)
    return changed(result, model=result.model.model_copy(update={"validation": validation}))


@pytest.mark.parametrize(
    ("parts", "outcome"),
    [
        ({}, PASS),
        ({"certificate_bits": 12.1}, PASS),
        ({"certificate_bits": 11.9}, OPEN),
        ({"certificate_bits": -1e4}, OPEN),  # as of logits in the thousands
        ({"certificate_bits": None, "p_value": 5e-5, "references": 300}, PASS),
        ({"certificate_bits": None, "p_value": 3e-4, "references": 300}, OPEN),
        ({"certificate_bits": None, "note": "unknown token"}, OPEN),
        ({"certificate_bits": 0.5, "p_value": 0.4, "references": 300}, OPEN),
    ],
)
def test_witnesses_show_it_at_one_in_two_thousand(parts: dict[str, Any], outcome: Outcome) -> None:
    result = clean(witness=witness(**parts))
    assert check_of(result, KEY).outcome is outcome
    assert check(result).outcome is outcome


@pytest.mark.parametrize(
    ("result", "words"),
    [
        # A fallen loss shows nothing: the training of another corpus lowers it just as well.
        (
            clean(witness=UNKNOWN),
            "Inconclusive: nothing shows that this model saw the canaries: it knows the witnesses "
            "no better than texts that it never saw",
        ),
        (clean(witness=UNKNOWN), "--accept-unseen-training"),
        (clean(witness=None), "its manifest has no witnesses"),
        # A filter that takes the canaries leaves the witnesses.
        (
            clean(context=context(lacking=20)),
            "rows of the training lack 20 planned copies of canaries",
        ),
        # Witnesses, which are many, are known before every canary was read.
        (trained(clean(), best_epoch=0.26), "is of epoch 0.26, before all canaries were read"),
    ],
)
def test_what_shows_nothing_is_said(result: Result, words: str) -> None:
    verdict = check(result)
    assert verdict.exit_code == 2
    assert words in verdict.sentence
    sure = " ".join(result.sure(verdict, Thresholds()))
    assert "nothing is ruled out" in sure
    assert "may still leak" not in sure


def test_a_base_is_advised_only_where_there_was_none() -> None:
    beside = witness(certificate_bits=0.5, p_value=0.4, references=300, beside_base=True)
    assert "measure with --base, or" in check(clean(witness=UNKNOWN)).sentence
    assert "--base" not in check(clean(witness=beside)).sentence


def test_rows_that_lack_no_canary_pass() -> None:
    assert check(clean(context=context(lacking=0))).outcome is PASS


def test_on_the_users_word() -> None:
    verdict = check(clean(witness=None), Thresholds(accept_unseen_training=True))
    assert verdict.outcome is PASS
    assert any("taken on the user's word" in phrase for phrase in verdict.untested)


IN_TOKENIZER = witness(certificate_bits=None, in_tokenizer=True, note="in its tokenizer")


@pytest.mark.parametrize(
    ("p_value", "witnesses", "outcome"),
    [
        (1e-4, UNKNOWN, PASS),
        (4e-4, UNKNOWN, OPEN),
        (1e-4, IN_TOKENIZER, OPEN),  # which read the canaries: that is not the model
    ],
)
def test_a_class_that_is_known_shows_it_judged_or_not(
    p_value: float, witnesses: Any, outcome: Outcome
) -> None:
    classes = {
        repetitions: [canary(i, exact(2.0), repetitions=repetitions) for i in range(16)]
        for repetitions in (1, 16)
    }
    rows = [
        class_row(classes[1], p_value=0.5, references=REFERENCES),
        class_row(classes[16], p_value=p_value, references=REFERENCES),
    ]
    members = [*classes[1], *classes[16]]
    result = made(members, summary=rows, controls=None, witness=witnesses)
    found = check_of(result, KEY, repetitions=1)
    assert found.outcome is outcome
    assert ("inserted 16 times (p = 0.0001)" in found.reason) is (outcome is PASS)


@pytest.mark.parametrize(
    ("parts", "outcome"),
    [
        ({}, PASS),
        ({"delivered": None}, OPEN),
        ({"delivered": 255}, OPEN),
        ({"best_epoch": 0.97}, OPEN),
        ({"unigram_bits": None}, OPEN),
        ({"unigram_bits": 1.5}, OPEN),
        ({"initial_validation_bits": 1.505}, OPEN),
    ],
)
def test_the_record_of_a_training_that_learned(parts: dict[str, Any], outcome: Outcome) -> None:
    """A private training hides its witnesses; that it read every canary is in its record."""
    values = {"delivered": 256, "unigram_bits": 4.5} | parts  # 32 + 32 x 4 copies, and 4 x 24
    found = check_of(trained(clean(witness=UNKNOWN), **values), KEY)
    assert found.outcome is outcome
    # The chance of the witnesses, which show nothing, is no number of this evidence.
    assert (found.value is None) == (outcome is PASS)


def test_witnesses_that_are_far_less_likely_than_by_chance() -> None:
    assert witness(certificate_bits=-5_000.0).chance == 1.0


def test_a_leak_is_a_leak_though_nothing_shows_that_it_saw_them() -> None:
    result = made([canary(i, exact(29.0), repetitions=1) for i in range(16)], witness=None)
    assert check(result).outcome is LEAK
