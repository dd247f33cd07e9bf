"""A thousand random damages to result.json and manifest.json: no traceback, no secret told."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from made_results import secret_texts, small_manifest, small_result
from mutations import Mutation, mutations

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


def survivors(
    path: Path, whole: Any, error: type[Exception], given: tuple[int, int], secrets: set[str]
) -> Iterator[tuple[Mutation, Any]]:
    """Damages that are read all the same; the others, more than half, are refused in a sentence."""
    count, seed = given
    refused = 0
    whole.write(path)
    assert type(whole).read(path) == whole
    for mutation in mutations(json.loads(path.read_text()), count, seed=seed):
        path.write_bytes(mutation.content)
        try:
            found = type(whole).read(path)
        except error as failure:
            refused += 1
            message = str(failure)
            assert message.isprintable(), mutation.what
            assert len(message) < len(str(path)) + 600, mutation.what
            assert message.startswith(f"{path}"), mutation.what
            assert not [text for text in secrets if text in message], mutation.what
            continue
        yield mutation, found
    assert refused > count / 2


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_damage_is_taken_for_a_result(tmp_path: Path, batch: int) -> None:
    path, given = tmp_path / "result.json", (NUMBER // BATCHES, batch)
    for mutation, found in survivors(path, sound(), ResultError, given, set()):
        assert mutation.hashed or found == sound(), mutation.what
        check(found)
        str(found.privacy)


@pytest.mark.parametrize("batch", range(4))
def test_no_damage_is_taken_for_a_manifest(tmp_path: Path, batch: int) -> None:
    """Nor does a message show what stands in a manifest: it may be a secret."""
    whole = small_manifest(
        inclusion_probability=0.5, canaries=3, controls=2, formats=("random_number", "pin")
    )
    secrets = secret_texts(whole) | {str(whole.plan.inclusion_seed)} - {"1"}
    path, given = tmp_path / "manifest.json", (90, 100 + batch)
    for mutation, found in survivors(path, whole, ManifestError, given, secrets):
        assert as_planned(found) if mutation.hashed else found == whole, mutation.what


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
