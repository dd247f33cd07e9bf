"""A thousand random damages to result.json and manifest.json: no traceback, no wrong number."""

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_results import secret_texts, small_manifest
from mutations import mutations

from lmexposure.canaries import Manifest
from lmexposure.errors import ManifestError, ResultError
from lmexposure.records import CanaryResult, Result

NUMBER = 640
BATCHES = 8


@cache
def sound() -> Result:
    """A real result with coins and a claim, of a few canaries' searches."""
    path = Path(__file__).parents[1] / "data" / "result_1" / "coins" / "result.json"
    result = Result.read(path)
    update: dict[str, Any] = {
        part: tuple(
            row.model_copy(
                update={"extraction": tuple(x for x in row.extraction if x.method == "best_first")}
            )
            for row in rows
        )
        for part, rows in (("canaries", result.canaries), ("summary", result.summary))
    }
    return result.model_copy(update=update)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_damage_is_taken_for_a_result(tmp_path: Path, batch: int) -> None:
    sound().write(tmp_path / "sound.json")
    assert Result.read(tmp_path / "sound.json") == sound()
    values = json.loads((tmp_path / "sound.json").read_text())
    path, refused = tmp_path / "result.json", 0
    for mutation in mutations(values, NUMBER // BATCHES, seed=batch):
        path.write_bytes(mutation.content)
        try:
            found = Result.read(path)
        except ResultError as failure:
            refused += 1
            message = str(failure)
            assert message.isprintable(), mutation.what
            assert len(message) < len(str(path)) + 600, mutation.what
            assert message.startswith(f"{path}"), mutation.what
            continue
        if mutation.hashed:
            assert contradiction(found) is None, mutation.what
        else:
            assert found == sound(), mutation.what
    assert refused > NUMBER // BATCHES / 2


def contradiction(result: Result) -> str | None:  # noqa: C901 - one rule after the other
    """The first number that other parts of a result contradict, computed anew and slowly."""
    for form in result.formats:
        if not math.isclose(2.0**form.bits, form.space_size, rel_tol=1e-5):
            return f"the size of {form.name}"
    groups: dict[Any, list[CanaryResult]] = {}
    for canary in result.canaries:
        if canary.exposure not in canary.estimates.values():
            return f"the exposure of {canary.id}"
        for estimate in canary.estimates.values():
            if estimate.method == "exact" and estimate.rank and estimate.value is not None:
                size = result.format_named[canary.format].space_size
                if not math.isclose(size / 2**estimate.value, estimate.rank, rel_tol=1e-5):
                    return f"the rank of {canary.id}"
        groups.setdefault((canary.format, canary.role, canary.repetitions), []).append(canary)
    if len(result.summary) != len(groups):
        return "the classes"
    for row in result.summary:
        members = groups[row.format, row.role, row.repetitions]
        bits = np.array([canary.exposure.value for canary in members], dtype=float)
        derived = {
            "n": (row.n, len(members)),
            "mean": (row.mean, bits.mean()),
            "lower quartile": (row.lower_quartile.value, np.quantile(bits, 0.25)),
            "median": (row.median.value, np.quantile(bits, 0.5)),
            "upper quartile": (row.upper_quartile.value, np.quantile(bits, 0.75)),
            "capped": (row.capped, sum(canary.exposure.capped for canary in members)),
            "test's n": (row.n if row.guessing_test is None else row.guessing_test.n, row.n),
        }
        for name, (said, is_so) in derived.items():
            if not math.isclose(said, is_so, abs_tol=2e-6):
                return f"{name} of {row.name}"
    return _privacy_contradiction(result, groups)


def _privacy_contradiction(result: Result, groups: dict[Any, list[CanaryResult]]) -> str | None:
    if result.privacy is None:
        return None
    primaries = [part.bounds.primary for part in result.privacy.classes if part.bounds is not None]
    best = max((bound.value for bound in primaries), default=None)
    said = None if result.privacy.primary is None else result.privacy.primary.value
    if said != best:
        return "the primary bound"
    for part in result.privacy.classes:
        keys = [(name, "canary", part.repetitions) for name in part.formats]
        if part.canaries != sum(len(groups.get(key, [])) for key in keys):
            return "the canaries of a class of candidates"
    claim = result.privacy.claim
    if claim is not None and claim.bound != said:
        return "the bound that a claim is held against"
    return None


def test_the_sound_one_is_sound_and_says_so(tmp_path: Path) -> None:
    assert contradiction(sound()) is None
    broken = sound().model_copy(
        update={"summary": tuple(r.model_copy(update={"mean": 9.0}) for r in sound().summary)}
    )
    assert contradiction(broken) is not None
    broken.write(tmp_path / "result.json")
    with pytest.raises(ResultError, match=r"mean=9, but the result's canaries give"):
        Result.read(tmp_path / "result.json")


@pytest.mark.parametrize("batch", range(4))
def test_no_damage_is_taken_for_a_manifest(tmp_path: Path, batch: int) -> None:
    """Nor does a message show what stands in a manifest: it may be a secret."""
    manifest = small_manifest(
        inclusion_probability=0.5, canaries=3, controls=2, formats=("random_number", "pin")
    )
    manifest.write(tmp_path / "sound.json")
    assert Manifest.read(tmp_path / "sound.json") == manifest
    values = json.loads((tmp_path / "sound.json").read_text())
    secrets = secret_texts(manifest) | {str(manifest.plan.inclusion_seed)} - {"1"}
    path, refused = tmp_path / "manifest.json", 0
    for mutation in mutations(values, 90, seed=100 + batch):
        path.write_bytes(mutation.content)
        try:
            found = Manifest.read(path)
        except ManifestError as failure:
            refused += 1
            message = str(failure)
            assert message.isprintable(), mutation.what
            assert len(message) < len(str(path)) + 600, mutation.what
            assert not [text for text in secrets if text in message], mutation.what
            continue
        if mutation.hashed:
            assert as_planned(found), mutation.what
        else:
            assert found == manifest, mutation.what
    assert refused > 45


def as_planned(manifest: Manifest) -> bool:
    """Whether every entry is what the plan draws again, slowly."""
    plan = manifest.plan
    for entry in manifest.entries:
        form = manifest.hidden_formats[entry.format]
        if form.text(entry.index) != entry.text or len(entry.positions) != entry.repetitions:
            return False
        if any(not 0 <= place < manifest.corpus.documents for place in entry.positions):
            return False
        drawn = "witness" if form.name == "witness" else plan.role(entry.id)
        if entry.role != (drawn if entry.repetitions else "control"):
            return False
    planned = [name for f in plan.formats for name in (*plan.ids(f), *plan.control_ids(f))]
    planned += plan.witnesses(manifest.corpus.documents)
    return sorted(e.id for e in manifest.entries) == sorted(set(planned) - set(plan.left_out))
