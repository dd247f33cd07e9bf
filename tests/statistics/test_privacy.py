"""One verdict over all classes: the largest bound contradicts, any class can have shown more.

Classes that may be compared: repetitions apart, formats by places or apart.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from lmexposure.errors import InputError
from lmexposure.statistics import (
    Claim,
    ScoreClass,
    epsilon_from_scores,
    gaussian_dp_epsilon,
    joint_bounds,
    one_run_audit,
    privacy_of,
    score_classes,
)
from lmexposure.statistics.arrays import Floats, midranks

SCORES = [1.0, 2.0, 3.0, 100.0, 300.0, 200.0, 9.0]
ROLES = ["canary", "held_out", "reference", "canary", "held_out", "reference", "control"]
COPIES = [1, 1, 0, 1, 1, 0, 0]
FORMATS = ["pin", "pin", "pin", "ssn", "ssn", "ssn", "pin"]


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


EMPTY = replace(tossed(2, 0.0, 1, repetitions=4), included=np.array([False, False]))


def test_one_class_is_the_joint_bounds_of_its_scores() -> None:
    group = tossed(400, 2.0, 1)
    found: Any = privacy_of([group], inclusion_probability=0.5, deltas=(0.0, 1e-5), seed=3)
    alone = joint_bounds(
        group.scores, group.included, inclusion_probability=0.5, deltas=(0.0, 1e-5), seed=3
    )
    assert found.classes[0].bounds == alone
    assert found.primary.value == alone.primary.value > 0
    assert found.max_attainable == alone.primary.max_attainable
    assert found.claim is None


def test_the_largest_of_several_classes_is_paid_for() -> None:
    classes = [tossed(400, 0.0, 1), tossed(400, 3.0, 2, repetitions=2)]
    found: Any = privacy_of(classes, inclusion_probability=0.5)
    strong = classes[1]
    paid = one_run_audit(strong.scores, strong.included, significance=0.0125, repetitions=2, seed=0)
    assert found.primary.value == paid.value
    assert found.primary.repetitions == 2
    levels = [group.bounds.primary.significance for group in found.classes]
    assert levels == [0.0125, 0.0125]
    assert found.primary.significance == pytest.approx(0.025)


@pytest.mark.slow
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
        found: Any = privacy_of(classes, claim=claim, significance=0.5)
        wrong += found.claim.verdict == "contradicted"
    level = found.claim.significance
    assert level == found.primary.significance == pytest.approx(0.25)
    assert found.classes[0].bounds.primary.significance == pytest.approx(0.025)
    assert wrong / runs > 4 * 0.025  # far above the level of one class
    assert wrong / runs < level + 3 * np.sqrt(level * (1 - level) / runs)


def test_a_claim_that_only_another_class_could_have_contradicted_is_consistent() -> None:
    # The many show nothing and could have shown much; the few of 16 copies could show little.
    classes = [tossed(2_000, 0.0, 1), tossed(400, 12.0, 2, repetitions=16)]
    found: Any = privacy_of(classes, inclusion_probability=0.5, claim=Claim(epsilon=3.0, delta=0.0))
    assert found.primary.repetitions == 16
    assert found.primary.max_attainable < 3 < found.max_attainable
    assert found.claim.verdict == "consistent"


def test_a_class_without_a_bound_says_why_and_a_claim_is_never_dropped() -> None:
    found: Any = privacy_of(
        [EMPTY], inclusion_probability=0.5, claim=Claim(epsilon=1.0, delta=1e-5), deltas=(1e-5,)
    )
    assert found.primary is None
    assert "0 scores were in and 2 were not" in found.classes[0].note
    assert found.claim.verdict == "cannot tell"
    assert found.claim.bound is None
    beside: Any = privacy_of([tossed(400, 3.0, 1), EMPTY], inclusion_probability=0.5)
    assert beside.primary.value > 0


def test_scores_the_wrong_way_round_are_said_with_what_to_do() -> None:
    turned = tossed(400, -3.0, 1)
    classes = [tossed(400, 0.0, 2), turned]
    found: Any = privacy_of(classes, inclusion_probability=0.5, if_reversed="turn them")
    assert found.primary.value == 0
    (note,) = found.notes
    assert note.startswith("pin, repetitions 1: those that were in score lower than the rest (AUC ")
    assert note.endswith("which no bound counts as a leak; turn them")
    right = replace(turned, scores=-turned.scores)
    assert privacy_of([right], inclusion_probability=0.5).notes == ()


def test_coins_that_no_class_alone_refutes_are_refuted_by_all() -> None:
    once = ScoreClass(
        formats=("pin",),
        repetitions=1,
        scores=np.arange(10.0),
        included=np.full(10, True),
        references=np.arange(-5.0, 5.0),
    )
    fixed = [replace(once, repetitions=copies) for copies in (1, 4, 16)]
    alone = privacy_of(fixed[:1], inclusion_probability=0.5)
    assert alone.primary is not None
    found: Any = privacy_of(fixed, inclusion_probability=0.5)
    assert found.primary is None
    assert all("30 of 30 candidates went in" in row.note for row in found.classes)
    assert privacy_of(fixed).primary is not None


PIN = ("pin",)


@pytest.mark.parametrize(
    ("rows", "pooled", "expected"),
    [
        (
            (SCORES, ROLES, COPIES, FORMATS),
            False,
            [(PIN, 1, [1, 2], [3]), (("ssn",), 1, [100, 300], [200])],  # the control is left aside
        ),
        (
            (SCORES, ROLES, COPIES, FORMATS),
            True,
            [(("pin", "ssn"), 1, [1 / 3, 2 / 3, 1 / 3, 1], [1, 2 / 3])],  # places
        ),
        (([1, 5], ROLES[:2], [2, 2], ["pin"] * 2), True, [(PIN, 2, [1, 5], [])]),
        (
            ([1, 1, 7], ["canary"] * 3, [1] * 3, ["pin", "pin", "ssn"]),
            True,
            [(("pin", "ssn"), 1, [0.75, 0.75, 1], [])],
        ),
        (
            (SCORES, ROLES, [1, 2, 0, 1, 1, 0, 0], FORMATS),
            True,
            [(("pin", "ssn"), 1, [1, 0.5, 1], []), (PIN, 2, [2], [3])],
        ),
        (
            (SCORES[:3], ROLES[:3], [1, 16, 0], FORMATS[:3]),
            True,
            [(PIN, 1, [1], [3]), (PIN, 16, [2], [3])],
        ),
    ],
)
def test_classes_are_of_one_number_of_copies_and_formats_are_compared_by_places(
    rows: Any, pooled: bool, expected: list[tuple[object, ...]]
) -> None:
    found = score_classes(*rows, pooled=pooled)
    assert [(group.formats, group.repetitions) for group in found] == [row[:2] for row in expected]
    for group, (_, _, scores, references) in zip(found, expected, strict=True):
        assert group.scores.tolist() == pytest.approx(scores)
        assert group.references.tolist() == pytest.approx(references)
    assert found[0].included.tolist()[0]


Sizes = list[tuple[int, int]]
# (candidates, references) of each format.
EQUAL: Sizes = [(100, 10_000)] * 3
UNEQUAL: list[Sizes] = [
    [(100, 10_000)] + [(50, 20)] * 8,
    [(100, 10_000)] + [(100, 0)] * 4,
    [(20, 1000)] * 2 + [(20, 0)] * 10,
]


def pooled(sizes: Sizes, rng: np.random.Generator, shift: float = 0.0) -> ScoreClass:
    """Formats of these sizes with fair coins, on scales that do not compare."""
    scores: list[Floats] = []
    roles: list[str] = []
    for number, (m, n) in enumerate(sizes):
        coins = rng.random(m) < 0.5
        own = rng.normal(size=m + n) + shift * np.append(coins, np.zeros(n)).astype(np.float64)
        scores.append(number + (1 + number) * own)
        roles += [*np.where(coins, "canary", "held_out").tolist(), *["reference"] * n]
    names = np.repeat([f"format {k}" for k in range(len(sizes))], [m + n for m, n in sizes])
    (group,) = score_classes(np.concatenate(scores), roles, np.ones(len(roles)), names, pooled=True)
    return group


def test_formats_with_equal_numbers_keep_every_reference() -> None:
    group = pooled(EQUAL, np.random.default_rng(1), shift=2.0)
    assert (group.scores.size, group.references.size, group.references_left_out) == (300, 30_000, 0)
    steps = np.sort(np.concatenate([group.scores, group.references]))
    assert np.array_equal(steps, np.repeat(np.arange(1, 10_101) / 10_100, 3))
    # What 30,000 references show, and left-out candidates alone do not: 4.45 and 2.35 in the median
    # of 100 such runs.
    inside, out = group.scores[group.included], group.scores[~group.included]
    assert epsilon_from_scores(inside, group.outside).value > 3.5
    assert epsilon_from_scores(inside, out).value < 3


def test_formats_with_unequal_numbers_keep_as_many_references_for_each_candidate() -> None:
    rng = np.random.default_rng(2)
    found = [pooled(sizes, rng) for sizes in (*UNEQUAL, [(10, 10_000)] * 3 + [(10, 9_938)])]
    numbers = [(group.references.size, group.references_left_out) for group in found]
    assert numbers == [(40 + 8 * 20, 9_960), (0, 10_000), (0, 2_000), (4 * 9_938, 186)]
    assert np.array_equal(np.unique(found[2].scores), np.arange(1, 21) / 20)
    # 7 references are not 10 for 10 candidates and 7 for 7, and 7 and 10 have no common part.
    assert pooled([(10, 10), (7, 7)], rng).references.size == 17
    assert pooled([(10, 9), (7, 7)], rng).references.size == 0


def test_the_references_that_are_kept_follow_from_the_seed() -> None:
    scores, roles = np.arange(40.0), ["canary", "held_out"] * 2 + ["reference"] * 36
    scores[0] = 20.5  # amid the 30 references of its format, of which 6 are kept
    names = ["a", "a", "b", "b"] + ["a"] * 30 + ["b"] * 6

    def kept(seed: int) -> list[float]:
        (group,) = score_classes(scores, roles, [1] * 40, names, pooled=True, seed=seed)
        return [float(place) for place in group.scores]

    assert kept(1) == kept(1)
    assert len({tuple(kept(seed)) for seed in range(9)}) > 1


@pytest.mark.parametrize("sizes", UNEQUAL)
def test_without_a_leak_pooled_formats_show_none(sizes: Sizes) -> None:
    """At .05 each: in 1,000 runs 34, 34 and 80 % of `epsilon_from_scores` were above 0."""
    runs, above = 30, np.zeros(2, int)
    for seed in range(runs):
        group = pooled(sizes, np.random.default_rng([seed, 9]))
        inside = group.scores[group.included]
        above[0] += epsilon_from_scores(inside, group.outside).value > 0
        above[1] += gaussian_dp_epsilon(inside, group.outside, delta=1e-5).value > 0
    assert above.max() <= stats.binom.isf(1e-4, runs, 0.05)


def test_without_a_leak_the_joint_table_and_the_verdict_show_none() -> None:
    """Runs in which the table went up to 1.01 nats, by bounds that take scores for alike."""
    for seed in (2, 4, 6):
        group = pooled(UNEQUAL[2], np.random.default_rng([seed, 9]))
        section: Any = privacy_of([group], inclusion_probability=0.5, deltas=(1e-5,), seed=seed)
        bounds = section.classes[0].bounds
        assert all(bound.value == 0 for bound in [bounds.primary, *bounds.others])
        assert section.notes == (
            "12 formats, repetitions 1: 2,000 of 2,000 references are left out: several formats "
            "are compared by places, which takes as many references for each candidate in each",
        )
        area = section.classes[0].membership.area_under_curve
        assert area.low < 0.5 < area.high


def test_a_role_that_is_none_is_not_shown() -> None:
    with pytest.raises(InputError, match="1 roles are none of canary, held_out") as refused:
        score_classes([1.0], ["my secret"], [1], ["a"], pooled=True)
    assert "my secret" not in str(refused.value)


def test_midranks_are_those_of_scipy_stats() -> None:
    values = np.random.default_rng(1).integers(0, 5, 20).astype(float)
    assert midranks(values).tolist() == stats.rankdata(values).tolist()
