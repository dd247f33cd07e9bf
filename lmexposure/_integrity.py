"""What is read is what was written: content hashes of records, of directories, of kept parts.

A record carries the hash of its own content; the hashes of a directory's files are in the record
that comes after it; a part that only this package reads ends in its seal.
"""

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lmexposure._files import atomic_write, content_hash, open_regular, sha256_file, write_json
from lmexposure._style import visible
from lmexposure.errors import FileError

CONTENT = "content_sha256"
_SEAL = re.compile(rb"\nsha256:([0-9a-f]{64})\n")
_SEAL_BYTES = len(b"\nsha256:\n") + 64
_DAMAGED = "is damaged, or was changed since it was written"
_OTHER = "is damaged, or another part than its name says"
_UNSEALED = "is damaged: it ends in no hash"
_LOG = logging.getLogger(__name__)


def write_hashed(path: Path, record: Mapping[str, Any], *, mode: int = 0o644) -> None:
    """Write a record as JSON that carries the hash of its own content."""
    values = json.loads(json.dumps(record))  # as a reader will see it
    write_json(path, {**record, CONTENT: content_hash(values)}, mode=mode)


def take_hash(record: dict[str, Any]) -> bool:
    """Take the hash out of a record, and say whether the rest fits it."""
    known = record.pop(CONTENT, None)
    try:
        return bool(known == content_hash(record))
    except (ValueError, RecursionError):
        return False


def file_hashes(directory: Path) -> dict[str, str]:
    """SHA-256 of every file below a directory, by its path from there, sorted."""
    files = sorted(path for path in Path(directory).rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): sha256_file(path) for path in files}


def damaged_file(directory: Path, hashes: Mapping[str, str]) -> Path | None:
    """The first file that is missing or has another hash; None where all are as they were."""
    for name, sha256 in hashes.items():
        path = Path(directory) / name
        if not path.is_file() or sha256_file(path) != sha256:
            return path
    return None


def write_sealed(path: Path, data: bytes | memoryview, *, mode: int = 0o644, of: str = "") -> None:
    """Write bytes, and behind them a line with the hash of them and of what they are of."""
    digest = hashlib.sha256(data)
    digest.update(of.encode())
    with atomic_write(path, mode=mode) as stream:
        stream.write(data)
        stream.write(b"\nsha256:%s\n" % digest.hexdigest().encode())


def read_sealed(path: Path, *, of: str = "") -> bytes | None:
    """The bytes that `write_sealed` wrote; None where there are none, or damaged, or another's."""
    if not path.exists():
        return None
    whole = check_seal(path, of=of)
    with _said(path):
        content = path.read_bytes()[:-_SEAL_BYTES]
    if not whole:
        say_rebuilt(path, why=_UNSEALED if whole is None else _OTHER if of else _DAMAGED)
        return None
    return content


@contextmanager
def _said(path: Path) -> Iterator[None]:
    """Say why a file cannot be read, and the way out."""
    try:
        yield
    except OSError as failure:
        reason = failure.strerror or failure
        raise FileError(
            failure.errno,
            f"cannot read {path}: {reason}; move it away, and give the same command again",
        ) from failure


def check_seal(path: Path, *, of: str = "") -> bool | None:
    """Whether a file's bytes fit the seal at their end; None where it ends in none."""
    with _said(path), open_regular(path) as stream:
        length = stream.seek(0, 2) - _SEAL_BYTES
        stream.seek(max(length, 0))
        seal = _SEAL.fullmatch(stream.read())
        if seal is None:
            return None
        stream.seek(0)
        return _digest(stream, length, of) == seal[1].decode()


def _digest(stream: Any, length: int, of: str) -> str:
    """SHA-256 of the first bytes of a file, and of what they are of."""
    digest = hashlib.sha256()
    while length > 0:
        block = stream.read(min(length, 1 << 20))
        if not block:
            break
        digest.update(block)
        length -= len(block)
    digest.update(of.encode())
    return digest.hexdigest()


def say_rebuilt(path: Path, what: str = "it is made again", *, why: str = _DAMAGED) -> None:
    """Warn why a file is not used, and what becomes of it; of several processes the first does."""
    if os.environ.get("RANK", "0") == "0":
        _LOG.warning("%s %s: %s", visible(path), why, what)
