"""One verdict over all classes: the largest bound contradicts, any class can have shown more."""

from dataclasses import replace

import numpy as np
import pytest

from lmexposure.errors import InputError, SettingsError
from lmexposure.statistics import Claim, ScoreClass, joint_bounds, one_run_audit, privacy_of


def tossed(m: int, shift: float, seed: int, repetitions: int = 1) -> ScoreClass:
    rng = np.random.default_rng(seed)
    coins = rng.random(m) < 0.5
    return ScoreClass(
        formats=("pin",),
        repetitions=repetitions,
        scores=rng.laplace(size=m) + shift * coins,
        included=coins,
        references=np.empty(0),
    )


EMPTY = ScoreClass(
    formats=("pin",),
    repetitions=4,
    scores=np.array([1.0, 2.0]),
    included=np.array([False, False]),
    references=np.empty(0),
)


def test_one_class_is_the_joint_bounds_of_its_scores() -> None:
    one = tossed(400, 2.0, 1)
    found = privacy_of([one], inclusion_probability=0.5, deltas=(0.0, 1e-5), seed=3)
    alone = joint_bounds(
        one.scores, one.included, inclusion_probability=0.5, deltas=(0.0, 1e-5), seed=3
    )
    assert found["classes"][0]["bounds"] == alone.to_dict()
    assert found["primary"]["value"] == alone.primary.value > 0
    assert found["max_attainable"] == alone.primary.max_attainable
    assert found["claim"] is None


def test_the_largest_of_several_classes_is_paid_for() -> None:
    classes = [tossed(400, 0.0, 1), tossed(400, 3.0, 2, repetitions=2)]
    found = privacy_of(classes, inclusion_probability=0.5)
    strong = classes[1]
    paid = one_run_audit(strong.scores, strong.included, significance=0.0125, repetitions=2, seed=0)
    assert found["primary"]["value"] == paid.value
    assert found["primary"]["repetitions"] == 2
    levels = [one["bounds"]["primary"]["significance"] for one in found["classes"]]
    assert levels == [0.0125, 0.0125]
    assert found["primary"]["significance"] == pytest.approx(0.025)


def test_the_largest_of_many_bounds_and_its_verdict_have_the_sum_of_their_levels() -> None:
    """No signal, and a claim that is true: contradicted by any of ten classes that errs."""
    claim, runs, wrong = Claim(epsilon=0.0, delta=0.0), 60, 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        classes = [
            ScoreClass(
                formats=("pin",),
                repetitions=1,
                scores=rng.random(12),
                included=np.arange(12) < 6,
                references=rng.random(60),
            )
            for _ in range(10)
        ]
        found = privacy_of(classes, claim=claim, significance=0.5)
        wrong += found["claim"]["verdict"] == "contradicted"
    level = found["claim"]["significance"]
    assert level == found["primary"]["significance"] == pytest.approx(0.25)
    assert found["classes"][0]["bounds"]["primary"]["significance"] == pytest.approx(0.025)
    assert wrong / runs > 4 * 0.025  # far above the level of one class
    assert wrong / runs < level + 3 * np.sqrt(level * (1 - level) / runs)


def test_a_claim_that_only_another_class_could_have_contradicted_is_consistent() -> None:
    # The many show nothing and could have shown much; the few of 16 copies could show little.
    classes = [tossed(2_000, 0.0, 1), tossed(400, 12.0, 2, repetitions=16)]
    found = privacy_of(classes, inclusion_probability=0.5, claim=Claim(epsilon=3.0, delta=0.0))
    assert found["primary"]["repetitions"] == 16
    assert found["primary"]["max_attainable"] < 3 < found["max_attainable"]
    assert found["claim"]["verdict"] == "consistent"


def test_a_class_without_a_bound_says_why_and_a_claim_is_never_dropped() -> None:
    found = privacy_of(
        [EMPTY], inclusion_probability=0.5, claim=Claim(epsilon=1.0, delta=1e-5), deltas=(1e-5,)
    )
    assert found["primary"] is None
    assert "0 scores were in and 2 were not" in found["classes"][0]["note"]
    assert found["claim"]["verdict"] == "cannot tell"
    assert found["claim"]["bound"] is None
    beside = privacy_of([tossed(400, 3.0, 1), EMPTY], inclusion_probability=0.5)
    assert beside["primary"]["value"] > 0


def test_no_signal_gives_0() -> None:
    assert privacy_of([tossed(400, 0.0, 1)], inclusion_probability=0.5)["primary"]["value"] == 0


def test_wrong_settings_are_errors_and_no_notes() -> None:
    with pytest.raises(SettingsError, match="inclusion_probability="):
        privacy_of([tossed(20, 0.0, 1)], inclusion_probability=2.0)
    with pytest.raises(SettingsError, match="significance="):
        privacy_of([tossed(20, 0.0, 1)], significance=0.0)
    with pytest.raises(InputError, match="no candidates"):
        privacy_of([])


def test_scores_the_wrong_way_round_are_said_with_what_to_do() -> None:
    turned = tossed(400, -3.0, 1)
    classes = [tossed(400, 0.0, 2), turned]
    found = privacy_of(classes, inclusion_probability=0.5, if_reversed="turn them")
    assert found["primary"]["value"] == 0
    (note,) = found["notes"]
    assert note.startswith("pin, repetitions 1: those that were in score lower than the rest (AUC ")
    assert note.endswith("which no bound counts as a leak; turn them")
    right = replace(turned, scores=-turned.scores)
    assert privacy_of([right], inclusion_probability=0.5)["notes"] == []


def test_coins_that_no_class_alone_refutes_are_refuted_by_all() -> None:
    fixed = [
        ScoreClass(
            formats=("pin",),
            repetitions=copies,
            scores=np.arange(10.0),
            included=np.full(10, True),
            references=np.arange(-5.0, 5.0),
        )
        for copies in (1, 4, 16)
    ]
    alone = privacy_of(fixed[:1], inclusion_probability=0.5)
    assert alone["primary"] is not None
    found = privacy_of(fixed, inclusion_probability=0.5)
    assert found["primary"] is None
    for row in found["classes"]:
        assert "30 of 30 candidates went in, which coins of 0.5 give" in row["note"]
    assert privacy_of(fixed)["primary"] is not None
