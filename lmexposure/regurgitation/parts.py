"""Parts of long work on the disk, each whole, for the same work to go on."""

import json
from pathlib import Path
from typing import Any

from lmexposure._files import PRIVATE, atomic_write, canonical_json, content_hash

_KEY, _SEAL = "key", "content_sha256"


class Parts:
    """What is done of a piece of work."""

    NAME = "parts"

    def __init__(self, out: Path, key: str) -> None:
        self._directory, self._key = out / self.NAME, key

    def read(self, name: str) -> dict[str, Any] | None:
        """A part that is whole and of this work, or None."""
        try:
            values = json.loads((self._directory / f"{name}.json").read_bytes())
        except (OSError, ValueError):
            return None
        if not isinstance(values, dict) or values.get(_KEY) != self._key:
            return None
        seal = values.pop(_SEAL, None)
        if seal != content_hash(values):
            return None
        del values[_KEY]
        return values

    def write(self, name: str, values: dict[str, Any]) -> None:
        """Keep a part; private, since samples may hold what was memorised."""
        sealed = {**values, _KEY: self._key}
        sealed[_SEAL] = content_hash(sealed)
        with atomic_write(self._directory / f"{name}.json", mode=PRIVATE) as stream:
            stream.write(canonical_json(sealed))
