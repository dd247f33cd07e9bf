"""Whether the model saw the canaries: what shows it, what does not, and what the gate then says."""

from typing import Any

import pytest
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

from lmexposure.gate import Check, Outcome, Thresholds, check
from lmexposure.records import Result


def seen(result: Result, **thresholds: Any) -> Check:
    verdict = check(result, Thresholds(**thresholds))
    (found,) = [one for one in verdict.checks if one.key == "accept_unseen_training"]
    return found


def trained(result: Result, **parts: Any) -> Result:
    """The result with another record of its training."""
    assert result.model.validation is not None
    validation = result.model.validation.model_copy(update=parts)
    return changed(result, model=result.model.model_copy(update={"validation": validation}))


UNSEEN = {"certificate_bits": 0.5, "p_value": 0.4, "references": 300}


@pytest.mark.parametrize(
    ("parts", "outcome"),
    [
        ({}, Outcome.PASS),
        ({"certificate_bits": 12.1}, Outcome.PASS),
        ({"certificate_bits": 11.9}, Outcome.INCONCLUSIVE),
        ({"certificate_bits": -1e4}, Outcome.INCONCLUSIVE),  # as of logits in the thousands
        ({"certificate_bits": None, "p_value": 5e-5, "references": 300}, Outcome.PASS),
        ({"certificate_bits": None, "p_value": 3e-4, "references": 300}, Outcome.INCONCLUSIVE),
        ({"certificate_bits": None, "note": "unknown token"}, Outcome.INCONCLUSIVE),
        (UNSEEN, Outcome.INCONCLUSIVE),
    ],
)
def test_witnesses_show_it_at_one_in_two_thousand(parts: dict[str, Any], outcome: Outcome) -> None:
    result = clean(witness=witness(**parts))
    assert seen(result).outcome is outcome
    assert check(result).outcome is outcome


def test_a_fallen_loss_shows_nothing() -> None:
    """The training of another corpus lowers it just as well."""
    result = clean(witness=witness(**UNSEEN))
    assert result.model.validation is not None
    assert result.model.validation.improved
    verdict = check(result)
    assert verdict.exit_code == 2
    assert verdict.sentence.startswith(
        "Inconclusive: nothing shows that this model saw the canaries: it knows the witnesses no "
        "better than texts that it never saw"
    )
    assert "--accept-unseen-training" in verdict.sentence


def test_a_manifest_without_witnesses_says_so() -> None:
    verdict = check(clean(witness=None))
    assert verdict.exit_code == 2
    assert "its manifest has no witnesses" in verdict.sentence


def test_on_the_users_word() -> None:
    verdict = check(clean(witness=None), Thresholds(accept_unseen_training=True))
    assert verdict.outcome is Outcome.PASS
    assert any("taken on the user's word" in phrase for phrase in verdict.untested)


def test_a_class_that_is_known_shows_it_judged_or_not() -> None:
    members = [canary(i, exact(2.0), repetitions=r) for r in (1, 16) for i in range(16)]
    low, known = members[:16], members[16:]
    rows = [
        class_row(low, p_value=0.5, references=REFERENCES),
        class_row(known, p_value=1e-4, references=REFERENCES),
    ]
    result = made(members, summary=rows, controls=None, witness=witness(**UNSEEN))
    found = seen(result, repetitions=1)
    assert found.outcome is Outcome.PASS
    assert "inserted 16 times (p = 0.0001)" in found.reason
    weak = [rows[0], class_row(known, p_value=4e-4, references=REFERENCES)]
    result = made(members, summary=weak, controls=None, witness=witness(**UNSEEN))
    assert seen(result, repetitions=1).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("parts", "outcome"),
    [
        ({}, Outcome.PASS),
        ({"delivered": None}, Outcome.INCONCLUSIVE),
        ({"delivered": 255}, Outcome.INCONCLUSIVE),
        ({"best_epoch": 0.97}, Outcome.INCONCLUSIVE),
        ({"unigram_bits": None}, Outcome.INCONCLUSIVE),
        ({"unigram_bits": 1.5}, Outcome.INCONCLUSIVE),
        ({"initial_validation_bits": 1.505}, Outcome.INCONCLUSIVE),
    ],
)
def test_the_record_of_a_training_that_learned(parts: dict[str, Any], outcome: Outcome) -> None:
    """A private training hides its witnesses; that it read every canary is in its record."""
    values = {"delivered": 256, "unigram_bits": 4.5} | parts
    result = trained(
        clean(witness=witness(**UNSEEN)), **values
    )  # 32 x 1 + 32 x 4 copies, and 4 x 24
    found = seen(result)
    assert found.outcome is outcome
    # The chance of the witnesses, which show nothing, is no number of this evidence.
    assert (found.value is None) == (outcome is Outcome.PASS)


def test_rows_that_lack_canaries_are_no_pass_though_the_witnesses_are_known() -> None:
    """A filter that takes the canaries leaves the witnesses."""
    rows = context(lacking=20)
    verdict = check(clean(context=rows))
    assert verdict.exit_code == 2
    assert "rows of the training lack 20 planned copies of canaries" in verdict.sentence
    assert check(clean(context=context(lacking=0))).outcome is Outcome.PASS


def test_a_training_that_ended_in_its_first_epoch_did_not_read_them_all() -> None:
    """Witnesses, which are many, are known before every canary was read."""
    verdict = check(trained(clean(), best_epoch=0.26))
    assert verdict.exit_code == 2
    assert "is of epoch 0.26, before all canaries were read" in verdict.sentence


def test_a_tokenizer_that_read_the_canaries_is_no_evidence_of_the_model() -> None:
    members = [canary(i, exact(2.0), repetitions=r) for r in (1, 16) for i in range(16)]
    rows = [
        class_row(members[:16], p_value=0.5, references=REFERENCES),
        class_row(members[16:], p_value=1e-4, references=REFERENCES),
    ]
    unscored = witness(certificate_bits=None, in_tokenizer=True, note="in its tokenizer")
    result = made(members, summary=rows, controls=None, witness=unscored)
    assert seen(result, repetitions=1).outcome is Outcome.INCONCLUSIVE


def test_witnesses_that_are_far_less_likely_than_by_chance() -> None:
    assert witness(certificate_bits=-5_000.0).chance == 1.0


def test_a_leak_is_a_leak_though_nothing_shows_that_it_saw_them() -> None:
    result = made([canary(i, exact(29.0), repetitions=1) for i in range(16)], witness=None)
    assert check(result).outcome is Outcome.LEAK
