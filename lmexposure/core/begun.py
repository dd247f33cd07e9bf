"""What work was begun for, as its directory says."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lmexposure._integrity import check_seal, read_sealed
from lmexposure._record import JsonValue

HOME, ASKED = ".work", "asked.json"  # of work under way, in the directory of its study


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What work was begun for: the kind of study, and what decides its outcome, by names."""

    kind: str
    asked: Mapping[str, JsonValue]


def read_asked(out: Path) -> Asked | None:
    """What a directory's work was begun for; None where nothing says so, or it is damaged."""
    path = out / HOME / ASKED
    try:
        content = read_sealed(path) if path.exists() and check_seal(path) else None
        return None if content is None else Asked(**json.loads(content))
    except (OSError, TypeError, ValueError):  # no file, or as another version wrote it
        return None
