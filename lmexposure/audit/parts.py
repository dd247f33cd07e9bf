"""What a measurement keeps of its parts until it is whole: sealed, or else made again."""

import json
from pathlib import Path
from typing import TypeVar

from lmexposure._files import PRIVATE
from lmexposure._integrity import read_sealed, say_rebuilt, write_sealed
from lmexposure._record import Record

UNKNOWN = "is not as this version writes it"
MOVED = "is a part of another format or measurement"
_PART = "part"
_PartT = TypeVar("_PartT", bound=Record)


def keep_part(path: Path | None, part: Record) -> None:
    """Write a part with the hash of its own content.

    Args:
        path: where; None keeps nothing.
        part: what was found.

    Raises:
        FileError: the disk refused.
    """
    if path is not None:
        content = {_PART: name_of(path), **part.model_dump()}
        write_sealed(path, json.dumps(content).encode(), mode=PRIVATE)


def read_part(path: Path | None, kind: type[_PartT]) -> _PartT | None:
    """What `keep_part` wrote; None where there is nothing, or what is there is to be made again.

    A warning names a file that is damaged, or that another version wrote.

    Args:
        path: where; None where nothing is kept.
        kind: of record.
    """
    content = None if path is None else read_sealed(path)
    if path is None or content is None:
        return None
    try:
        values = json.loads(content)
        # Of a version that wrote no name, none is known.
        moved = isinstance(values, dict) and values.pop(_PART, name_of(path)) != name_of(path)
        part = kind.model_validate(values)
    except (ValueError, RecursionError):
        say_rebuilt(path, why=UNKNOWN)
        return None
    if moved:
        say_rebuilt(path, why=MOVED)
        return None
    return part


def name_of(path: Path) -> str:
    """What a part is of: the measurement's directory and the file, as `5eed.../pin.npz`."""
    return f"{path.parent.name}/{path.name}"
