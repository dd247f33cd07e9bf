"""What a measurement keeps of its parts until it is whole: sealed, or else made again."""

import json
from pathlib import Path
from typing import TypeVar

from lmexposure._files import PRIVATE
from lmexposure._integrity import read_sealed, say_rebuilt, write_sealed
from lmexposure._record import Record

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
        write_sealed(path, json.dumps(part.model_dump()).encode(), mode=PRIVATE)


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
        return kind.model_validate(json.loads(content))
    except (ValueError, RecursionError):
        say_rebuilt(path, why="is not as this version writes it")
        return None
