"""Summaries of scores that are made up, so that every number is known beforehand."""

import math

import numpy as np
import pytest
from corpora import sentences
from known import known
from manifest_files import judged

from lmexposure.audit import MeasureSettings
from lmexposure.audit.estimates import FormatEstimates, estimate_format
from lmexposure.audit.format_scores import FormatScores
from lmexposure.audit.search import FormatSearch
from lmexposure.canaries import Plan, load_format
from lmexposure.integrations import insert
from lmexposure.scoring import Beginning

REFERENCES = np.linspace(100, 163, 64)


def estimated(
    origin: str, seed: int = 0, estimate: str = "auto", few: int = 64, interrupted: bool = False
) -> FormatEstimates:
    form = load_format("random_number")
    plan = Plan(formats=(form,), canaries=4, repetitions=(1, 2), controls=2, seed=0)
    canaries = tuple(judged(insert(sentences(50), plan).manifest))
    once, twice, controls = [50.0, 60.0, 101.5, 107.5], [103.5] * 4, [131.5, 131.5]
    bits = np.concatenate([once, twice, controls, REFERENCES[:few]])
    scores = FormatScores(
        format=form,
        canaries=canaries,
        bits=bits,
        tokens=np.full(bits.size, 9),
        secret_bits=bits - 40,
        beginning=Beginning(ids=[1], characters=1, scored=True),
        first_unscored=False,
        population=10**9,
        exhaustive=False,
        set_aside=0,
    )
    settings = MeasureSettings(
        bootstraps=39, permutations=199, bootstrap_seed=seed, estimate=estimate
    )
    search = FormatSearch(estimates=tuple({} for _ in canaries), interrupted=interrupted)
    return estimate_format(scores, search, {}, settings, origin=origin)


ESTIMATES = estimated("one manifest, one model")


def test_a_median_between_capped_and_not_is_a_lower_bound() -> None:
    row = next(r for r in ESTIMATES.summary if r.repetitions == 1)
    assert (row.capped, row.n) == (2, 4)
    assert row.median_capped
    assert known(row.epsilon).capped
    assert not next(r for r in ESTIMATES.summary if r.repetitions == 2).median_capped


@pytest.mark.slow
def test_the_curve_is_tested_where_it_is_asked_for() -> None:
    asked = estimated("one manifest, one model", estimate="skew_normal")
    assert known(ESTIMATES.record.skew_normal).goodness is None
    assert known(known(asked.record.skew_normal).goodness).bootstraps == 39
    for without, tested in zip(ESTIMATES.canaries, asked.canaries, strict=True):
        curve, other = without.estimates["skew_normal"], tested.estimates["skew_normal"]
        assert curve.value == other.value
        assert curve.low is curve.high is None
        assert "ask for the skew_normal estimate" in curve.warnings[0]
        assert None not in (other.low, other.high)
    assert [row.skew_normal_flagged for row in ESTIMATES.summary] == [2, 4, 4]


def test_a_format_without_a_curve_shows_its_ranks_and_says_so() -> None:
    """A reader's case: the whole measurement was lost, other formats included."""
    alone = estimated("one manifest, one model", estimate="skew_normal", few=8)
    assert {canary.exposure.method for canary in alone.canaries} <= {"sampled", "exact"}
    assert any("no skew-normal curve" in line for line in alone.warnings)


def test_epsilon_is_shared_out_over_repetitions() -> None:
    row = next(r for r in ESTIMATES.summary if r.repetitions == 2)
    median = math.log2(64 / 5)  # 4 of 64 references lie below 103.5
    assert row.median.value == pytest.approx(median)
    assert known(row.epsilon).value == pytest.approx(math.log(2) * (median - 1) / 2)


def test_controls_are_tested_in_both_directions() -> None:
    alternatives = {r.role: known(r.guessing_test).alternative for r in ESTIMATES.summary}
    assert alternatives == {"control": "different", "canary": "memorised"}
    assert next(r for r in ESTIMATES.summary if r.role == "control").epsilon is None


def test_certificates_count_the_secret_alone() -> None:
    first = ESTIMATES.canaries[0]
    assert first.estimates["certificate"].value == pytest.approx(math.log2(1e9) - 10)
    assert any("secrets not scored" in a for a in first.estimates["certificate"].assumptions)


def test_after_an_early_end_no_exposure_is_below_its_proven_bound() -> None:
    """Of a canary likelier than all 64 references "at least 6.02 bits" was said beside 19.9."""
    ended = estimated("one manifest, one model", interrupted=True)
    for canary, whole in zip(ended.canaries, ESTIMATES.canaries, strict=True):
        proven, shown = canary.estimates["certificate"], canary.exposure
        if shown.capped:
            assert known(shown.value) >= known(proven.value)
        else:
            assert shown == whole.exposure
    first = ended.canaries[0]
    assert (first.exposure, first.estimates["sampled"].value) == (
        first.estimates["certificate"],
        ESTIMATES.canaries[0].exposure.value,
    )
    row, before = (
        next(r for r in each.summary if r.repetitions == 1) for each in (ended, ESTIMATES)
    )
    assert row.median_capped
    assert row.median.value >= before.median.value


def test_the_interval_of_a_median_keeps_half_of_its_error_for_the_references() -> None:
    row = next(r for r in ESTIMATES.summary if r.repetitions == 2)
    assert "at level 0.975" in known(row.median.note)


def test_guessing_is_among_as_many_references() -> None:
    ranks = np.arange(1, 66)
    for row in ESTIMATES.summary:
        assert row.methods == {"sampled": row.n}
        assert row.guessing.mean == pytest.approx(6 - np.log2(ranks).mean())  # 1.348
        assert row.guessing.median == pytest.approx(6 - math.log2(33))


def test_each_class_of_each_measurement_has_permutations_of_its_own() -> None:
    """One seed for all would make every gate's error that of one draw of permutations."""
    made = [estimated(origin, seed) for origin, seed in (("a", 0), ("b", 0), ("a", 1))]
    seeds = [known(row.guessing_test).seed for one in made for row in one.summary]
    assert len(set(seeds)) == len(seeds) == 9
    assert all(0 <= seed < 2**48 for seed in seeds)
    assert [known(row.guessing_test).seed for row in estimated("a").summary] == seeds[:3]
