"""manifest.json as bytes, with the hash put right.

`TOSSED` and `FIXED` are plans of which manifests are made, with coins and without.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from lmexposure._files import content_hash
from lmexposure._integrity import CONTENT
from lmexposure.canaries import Canary, Format, Manifest, Plan
from lmexposure.canaries.manifest import ManifestFile

__all__ = ["FIXED", "LONG_PIN", "SHORT_KEY", "TOSSED", "judged", "read", "signed", "today"]
LONG_PIN = Format(name="pin", template="My PIN is {digits:4}")
SHORT_KEY = Format(name="key", template="KEY={hex:12}")
TOSSED = Plan(
    formats=(LONG_PIN, SHORT_KEY),
    canaries=6,
    repetitions=(1, 3),
    controls=2,
    seed=7,
    inclusion_probability=0.5,
    inclusion_seed=7,
    witness=False,
)
FIXED = replace(TOSSED, inclusion_probability=None, inclusion_seed=None)


def judged(manifest: Manifest) -> list[Canary]:
    """The entries that are measured: all but the witnesses."""
    return [entry for entry in manifest.entries if entry.role != "witness"]


def today(manifest: Manifest) -> dict[str, Any]:
    """The contents of the file, without the hash."""
    values: dict[str, Any] = json.loads(json.dumps(manifest.to_dict()))
    return values


def signed(values: dict[str, Any]) -> bytes:
    """A file with these contents that carries their hash."""
    contents = {key: value for key, value in values.items() if key != CONTENT}
    return json.dumps({**contents, CONTENT: content_hash(contents)}).encode()


def read(content: bytes) -> Manifest:
    """What such a file says, as a Manifest."""
    return ManifestFile.parse(content, Path("manifest.json")).manifest()
