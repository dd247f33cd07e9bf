"""Files that are whole or not there: atomic writes, content hashes, canonical JSON."""

import errno
import hashlib
import json
import os
import shutil
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from lmexposure.errors import FileError, InputError, SettingsError

__all__ = [
    "PRIVATE",
    "atomic_directory",
    "atomic_write",
    "canonical_json",
    "mode_like",
    "new_file",
    "read_toml",
    "sha256_bytes",
    "sha256_file",
    "write_json",
]

PRIVATE = 0o600  # read and written by the owner alone


def mode_like(*sources: Path) -> int:
    """The permission bits of what is made of these files, here as everywhere in this package:

    * what holds a corpus's text or was trained on it (its copies, checkpoints, models) may be read
      and written by those who may read and write all of its sources, from the first byte on;
    * what secrets could be computed from (manifest, run.json, training.json, sidecars, scores,
      parts of a measurement) is `PRIVATE`;
    * what is made to be shown (results, reports, curves, verdicts) is for everyone.

    The umask takes more away. The owner can always read what was made.

    Raises:
        FileError: there is no such file.
    """
    mode = 0o666
    for path in sources:
        try:
            mode &= path.stat().st_mode
        except OSError as failure:
            raise FileError(
                failure.errno, f"cannot read {path}: {failure.strerror}; give a file that is there"
            ) from failure
    return mode | 0o400


def new_file(path: Path, mode: int) -> IO[bytes]:
    """Open a file that is not there yet for writing, with these permission bits from the start."""

    def opened(name: str, flags: int) -> int:
        return os.open(name, flags, mode)

    return open(path, "xb", opener=opened)


def _partial(path: Path) -> Path:
    """The name under which `path` is built: beside it, hidden, and plainly not finished."""
    return path.with_name(f".{path.name}.partial")


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    """Turn what the disk says into a FileError that names the path and the way out."""
    try:
        yield
    except FileError:
        raise
    except OSError as failure:
        advice = {
            errno.ENOSPC: "free some space and run the same command again",
            errno.EROFS: "choose a writable directory",
            errno.EACCES: "choose a directory that you may write to",
            errno.ENOTDIR: "choose a path whose parents are directories",
        }.get(failure.errno or 0, "nothing was changed under its final name")
        reason = failure.strerror or str(failure)
        raise FileError(failure.errno, f"cannot write {path}: {reason}; {advice}") from failure


@contextmanager
def atomic_write(
    path: Path, *, mode: int = 0o644, check: Callable[[Path], None] | None = None
) -> Iterator[IO[bytes]]:
    """Open a binary file that appears under `path` only when the block ends without an error.

    Args:
        path: final name; its parent directories are made.
        mode: permission bits, set before the first byte (0o600 for files that hold secrets).
        check: called with the path of the finished file before it gets its name; what it raises
            leaves `path` as it was.

    Raises:
        FileError: the disk is full, read-only, or not ours; no half-written file is left.
    """
    path = Path(path)
    partial = _partial(path)
    with _disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)
        try:
            with new_file(partial, mode) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
                ours = os.fstat(stream.fileno()).st_ino
            if check is not None:
                check(partial)
            _check_ours(path, partial, ours)
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


@contextmanager
def atomic_directory(path: Path, *, mode: int = 0o666) -> Iterator[Path]:
    """Build a directory beside `path` and move it into place when the block ends without an error.

    A directory already at `path` is replaced; a killed process leaves only a hidden `.partial` one.

    Args:
        path: final name; its parent directories are made.
        mode: permission bits that the files in it may have at most, whoever writes them; until they
            have them, the directory is the owner's alone.

    Raises:
        FileError: the disk is full, read-only, or not ours.
    """
    path = Path(path)
    partial = _partial(path)
    with _disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        made = partial.stat()
        partial.chmod(0o700)
        ours = made.st_ino
        try:
            yield partial
            _check_ours(path, partial, ours)
            _open_up(partial, made.st_mode, mode)
            if path.exists():
                shutil.rmtree(path)
            os.replace(partial, path)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def _open_up(directory: Path, own: int, most: int) -> None:
    """Give a directory its own mode, when the files in it have at most theirs."""
    for file in directory.rglob("*"):
        if file.is_file() and not file.is_symlink():
            file.chmod(file.stat().st_mode & most)
    directory.chmod(own)


def _check_ours(path: Path, partial: Path, inode: int) -> None:
    if not partial.exists() or partial.stat().st_ino != inode:
        raise FileError(
            None, f"cannot write {path}: another process writes it, too; let one do it at a time"
        )


def canonical_json(value: Any) -> bytes:
    """One spelling for one value: sorted keys, no spaces, UTF-8, no NaN."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def write_json(path: Path, value: Any, *, mode: int = 0o644) -> None:
    """Write indented JSON atomically; NaN and infinity are refused."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    with atomic_write(path, mode=mode) as stream:
        stream.write(text.encode() + b"\n")


def sha256_bytes(data: bytes) -> str:
    """SHA-256 of the bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_toml(
    path: Path, *, what: str = "settings file", error: type[InputError] = SettingsError
) -> dict[str, Any]:
    """What a TOML file says.

    Args:
        path: of the file.
        what: it is, for messages.
        error: to raise.

    Raises:
        InputError: the file is missing, is not UTF-8 text, is not TOML, or is nested too deep.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as failure:
        raise error(f"cannot read the {what} {path}: {failure.strerror}") from None
    except UnicodeDecodeError:
        raise error(f"cannot read the {what} {path}: not UTF-8 text") from None
    except ValueError as failure:  # the library's own kind, and Python's of a number too long
        reason = str(failure).partition(";")[0]
        raise error(f"{path} is not TOML: {reason}; mend the file") from None
    except RecursionError:
        raise error(f"{path} is nested too deep; write it with fewer brackets") from None
