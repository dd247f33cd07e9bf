"""A thousand random damages to result.json and manifest.json: no traceback, no secret told."""

import json
from functools import cache
from pathlib import Path

import pytest
from made_results import secret_texts, small_manifest, small_result
from mutations import mutations

from lmexposure import check
from lmexposure.canaries import Manifest
from lmexposure.errors import ManifestError, ResultError
from lmexposure.studies import Result

NUMBER = 640
BATCHES = 8


@cache
def sound() -> Result:
    """A result with coins, of a few canaries' searches."""
    return small_result(
        inclusion_probability=0.5, canaries=9, repetitions=(2,), controls=3, references=60
    )


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
        assert mutation.hashed or found == sound(), mutation.what
        check(found)
        str(found.privacy)
    assert refused > NUMBER // BATCHES / 2


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
