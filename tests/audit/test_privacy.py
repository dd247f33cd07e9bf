"""The section "privacy" of a result: what is pooled, what is paid for, what a claim is told."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from audit.quick import QUICK
from audit.small import loaded_of, task_of
from corpora import sentences
from known import known

from lmexposure.audit import MeasureSettings, measure
from lmexposure.audit.format_scores import FormatScores, score_format
from lmexposure.audit.format_scores import scores_of as table_of
from lmexposure.audit.privacy import privacy_section
from lmexposure.canaries import Format, Manifest, Plan
from lmexposure.errors import SettingsError
from lmexposure.integrations import insert
from lmexposure.statistics import Privacy, joint_bounds

FORMATS = (
    Format(name="code", template="number {digits:6}"),
    Format(name="pin", template="rune {digits:5}"),
)
LOADED = loaded_of("lstm")
FEW = replace(QUICK, references=100, extraction=False, estimate="sampled")


def manifest_of(
    coins: float | str,
    *,
    formats: int = 1,
    candidates: int = 60,
    repetitions: tuple[int, ...] = (1,),
) -> Manifest:
    plan = Plan(
        formats=FORMATS[:formats],
        canaries=candidates,
        repetitions=repetitions,
        controls=4,
        seed=3,
        inclusion_probability=None if coins == "fixed" else coins,  # type: ignore[arg-type]
        inclusion_seed=None if coins == "fixed" else 3,
    )
    return insert(sentences(400), plan).manifest


def scores_of(manifest: Manifest, memorised: float = 0.0) -> list[FormatScores]:
    """Scores under a random model, as if it had shortened every inserted canary by some bits."""
    found = []
    for name in manifest.formats:
        one = score_format(task_of(LOADED, manifest, FEW), name)
        bits = one.bits.copy()
        bits[: len(one.canaries)] -= memorised * np.array(
            [c.role == "canary" for c in one.canaries]
        )
        found.append(replace(one, bits=bits))
    return found


def section_of(manifest: Manifest, memorised: float = 0.0, **changes: Any) -> Privacy:
    found = table_of(scores_of(manifest, memorised))
    return privacy_section(found, manifest, replace(FEW, **changes))


def test_fair_coins_give_the_one_run_audit_of_the_candidates() -> None:
    manifest = manifest_of(0.5)
    (scores,) = found = scores_of(manifest, memorised=20)
    section = privacy_section(table_of(found), manifest, FEW)
    kept = np.array([c.role == "canary" for c in scores.canaries])
    inside, outside = scores.bits[: len(kept)][kept], scores.reference_bits[: len(scores.held_out)]
    (row,) = section.classes
    assert (row.canaries, row.held_out, row.references) == (inside.size, outside.size, 100)
    alone = joint_bounds(
        -np.concatenate([inside, outside]),
        np.arange(60) < inside.size,
        inclusion_probability=0.5,
        deltas=(0.0, 1 / 400),
    )
    assert known(section.primary).value == alone.primary.value > 2
    assert section.inclusion_probability == 0.5
    assert section.deltas == (0.0, 1 / 400)


def test_a_model_that_saw_nothing_shows_nothing() -> None:
    manifest = manifest_of(0.5)
    section = section_of(manifest)
    assert known(section.primary).value == 0
    area = known(section.classes[0].membership).area_under_curve
    assert area.low < 0.5 < area.high


def test_canaries_that_surprise_the_model_are_said() -> None:
    manifest = manifest_of(0.5)
    section = section_of(manifest, -20)
    assert known(section.primary).value == 0
    packed, turned = section.notes
    assert "if the training packed documents into blocks" in packed  # another's training
    own = privacy_section(table_of(scores_of(manifest)), manifest, FEW, own_training=True).notes
    assert own[0].startswith("training packs documents into blocks of tokens")
    assert turned.startswith("code, repetitions 1: those that were in score lower than the rest (")
    assert "more surprising than texts that it never saw" in turned


def test_formats_are_pooled_by_place_and_classes_of_repetitions_are_not() -> None:
    manifest = manifest_of(0.5, formats=2, candidates=30, repetitions=(1, 3))
    section = section_of(manifest, 20)
    assert [(one.formats, one.repetitions) for one in section.classes] == [
        (("code", "pin"), 1),
        (("code", "pin"), 3),
    ]
    for one in section.classes:
        assert one.canaries + one.held_out == 60
        assert known(one.bounds).significance == pytest.approx(0.025)
    values = [known(one.bounds).primary.value for one in section.classes]
    assert known(section.primary).value == max(values)


def test_without_coins_each_format_stands_alone() -> None:
    manifest = manifest_of("fixed", formats=2, candidates=10)
    section = section_of(manifest, 20)
    assert [one.formats for one in section.classes] == [("code",), ("pin",)]
    assert known(section.primary).validity == "iid-scores"
    assert section.inclusion_probability is None
    refused = {one.method for one in known(section.classes[0].bounds).refused}
    assert "one_run_audit" in refused


def test_a_class_that_the_coins_left_empty_says_so() -> None:
    manifest = manifest_of(0.03, candidates=10, repetitions=(1, 2))
    section = section_of(manifest)
    empty = [one for one in section.classes if one.canaries == 0]
    assert empty
    assert all("0 scores were in" in known(one.note) for one in empty)


def test_a_claim_is_held_against_the_primary_bound() -> None:
    section = section_of(manifest_of(0.5), 20, claimed_epsilon=0.5, delta=1e-6)
    assert section.deltas == (1e-6,)
    assert known(section.claim).verdict == "contradicted"
    high = section_of(manifest_of(0.5), 20, claimed_epsilon=50.0, delta=1e-6)
    assert known(high.claim).verdict == "cannot tell"
    with pytest.raises(SettingsError, match="without its delta"):
        MeasureSettings(claimed_epsilon=1.0)


def test_measure_puts_the_section_into_the_result() -> None:
    manifest = manifest_of(0.5, candidates=20)
    result = measure(LOADED, manifest, settings=FEW)
    assert result.privacy is not None
    assert known(result.privacy.primary).method == "one_run_audit"
    assert len(result.canaries) == sum(c.role in ("canary", "control") for c in manifest.entries)
