"""manifest.json as bytes: of today with the hash put right, and as versions 1 and 2 wrote it.

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

__all__ = [
    "FIXED",
    "LONG_PIN",
    "SHORT_KEY",
    "TOSSED",
    "judged",
    "of_version",
    "read",
    "signed",
    "today",
    "without_kinds",
]
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


def signed(values: dict[str, Any], name: str = CONTENT) -> bytes:
    """A file with these contents that carries their hash, as `name`."""
    contents = {key: value for key, value in values.items() if key != name}
    return json.dumps({**contents, name: content_hash(contents)}).encode()


def without_kinds(values: dict[str, Any]) -> None:
    """What formats and plans have said since version 5, left out."""
    assert values["plan"].pop("witness") is False
    for form in values["plan"]["formats"]:
        assert (form.pop("kind"), form.pop("known")) == ("uniform", [])


def of_version(version: int, manifest: Manifest) -> dict[str, Any]:
    """The contents as version 1 or 2 wrote them, with their checksum."""
    values = today(manifest)
    plan, corpus = values["plan"], values["corpus"]
    without_kinds(values)
    del corpus["wrapping"]  # of version 4
    coins = {"coins": plan.pop("inclusion_probability"), "coin_seed": plan.pop("inclusion_seed")}
    if version == 2:
        plan |= coins
    if corpus["verified"]:
        del corpus["verified"]
    values["schema"] = f"lmexposure.manifest/{version}"
    values["canaries"] = [
        {**row, "role": "excluded" if row["role"] == "held_out" else row["role"]}
        for row in values.pop("entries")
    ]
    older: dict[str, Any] = json.loads(signed(values, "checksum"))
    return older


def read(content: bytes) -> Manifest:
    """What such a file says, as a Manifest."""
    return ManifestFile.parse(content, Path("manifest.json")).manifest()
