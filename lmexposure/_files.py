"""Files that are whole or not there: atomic writes, content hashes, canonical JSON, locks.

The locks let one process at a time write into a directory; a killed one leaves none behind.
Nothing is replaced or removed but what this package wrote, as `_written` knows it.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from io import BufferedReader
from itertools import chain, count
from pathlib import Path
from typing import IO, Any

from lmexposure import _written
from lmexposure._style import visible
from lmexposure.errors import BusyError, FileError, InputError, SettingsError

try:
    import fcntl
except ImportError:  # no POSIX: no locks
    fcntl = None  # type: ignore[assignment]

PRIVATE = 0o600  # read and written by the owner alone
STDOUT = Path("-")  # as commands call standard output
_LARGEST = 1 << 26  # bytes of a file that may be replaced
_LARGEST_TOML = 1 << 22  # bytes of a settings file or a format
_LOOKED_AT = 200  # bytes
_RECORD = re.compile(rb'\{\s*"schema": ?"lmexposure\.')  # how every record of ours begins
# A TOML key of more than 100 parts, bare or quoted.
_PART = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
_LONG_KEY = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*\.[ \t]*{_PART}){{100}}")

LOCK = _written.LOCK
# What a step finds locked by the run that it belongs to; a thread of its own begins with nothing.
_OURS: ContextVar[frozenset[str]] = ContextVar("locked", default=frozenset())
_LOCKS: set[int] = set()  # files that this process made, by their inodes
_NOT_HERE = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_NOT_WRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)


def mode_like(*sources: Path) -> int:
    """The permission bits of what is made of these files, here as everywhere in this package.

    * what holds a corpus's text or was trained on it (its copies, checkpoints, models) may be read
      and written by those who may read and write all of its sources, from the first byte on;
    * what secrets could be computed from (manifest, run.json, training.json, sidecars, scores,
      parts of a measurement) is `PRIVATE`;
    * what is made to be shown (results, reports, curves, verdicts) is for everyone.

    The umask takes more away. The owner can always read what was made.
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
    return open(path, "xb", opener=partial(os.open, mode=mode))


def _partial(path: Path) -> Path:
    """The name under which `path` is built: next to it, hidden, and plainly not finished."""
    names = chain([f".{path.name}.partial"], (f".{path.name}.{n}.partial" for n in count(1)))
    return next(free for name in names if _written.may_go(free := path.with_name(name)))


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn what the disk says into a FileError that names the path and the way out."""
    try:
        yield
    except FileError:
        raise
    except OSError as failure:
        advice = {
            errno.ENOSPC: "free some space and run the same command again",
            errno.EFBIG: "raise the limit (ulimit -f) and run the same command again",
            errno.EROFS: "choose a writable directory",
            errno.EACCES: "choose a directory that you may write to",
            errno.ENOTDIR: "choose a path whose parents are directories",
            errno.EPIPE: "its reader ended early; let it read to the end",
            errno.ELOOP: "choose a path whose links lead somewhere",
        }.get(failure.errno or 0, "nothing was changed under its final name")
        reason = failure.strerror or str(failure)
        raise FileError(failure.errno, f"cannot write {path}: {reason}; {advice}") from failure


@contextmanager
def atomic_write(
    path: Path,
    *,
    mode: int = 0o644,
    replaces: Callable[[bytes], object] | None = None,
    sha256: str | None = None,
    of: Collection[str] = (),
) -> Iterator[IO[bytes]]:
    """Open a binary file that appears under `path` only when the block ends without an error.

    A file is replaced if the list of its study (`only_writer`) names it, where no link is followed;
    elsewhere if it is empty or is as one of ours. Of several hard links this name alone changes.
    """
    path = Path(path)
    with disk_errors(path):
        if path == STDOUT:
            with _standard_output() as stream:
                yield stream
            return
        final = _followed(path)
        _refuse_special(path, final)
        if _written.root_of(path) is None:
            refuse_unlike(final, replaces or _RECORD.match)
        _written.claim(path, sha256=sha256, of=of)
        final.parent.mkdir(parents=True, exist_ok=True)
        partial = _partial(final)
        partial.unlink(missing_ok=True)
        _written.note(partial)
        try:
            with new_file(partial, mode) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
                ours = os.fstat(stream.fileno()).st_ino
            _check_ours(path, partial, ours)
            os.replace(partial, final)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        _sync(final.parent)


def is_record(path: Path) -> bool:
    """Whether a file begins as every record of ours does."""
    with disk_errors(path), open_regular(path) as stream:
        return _RECORD.match(stream.read(_LOOKED_AT)) is not None


def refuse_unlike(path: Path, ours: Callable[[bytes], object]) -> None:
    """Refuse to replace a file that was named by a person, and was not written here."""
    if not is_taken(path):
        return
    with disk_errors(path), open(path, "rb") as file:
        content = file.read(_LARGEST)
    if content and not ours(content):
        raise FileError(
            errno.EEXIST,
            f"{path} is there already, and lmexposure did not write it; choose another name, or "
            "move it away",
        )


def append(path: Path, data: bytes) -> None:
    """Add to the end of a file; links are followed."""
    with disk_errors(path):
        final = _followed(path)
        _refuse_special(path, final)
        final.parent.mkdir(parents=True, exist_ok=True)
        with final.open("ab") as stream:
            stream.write(data)


def is_taken(path: Path) -> bool:
    """Whether a regular file has the name, so that writing would replace it; links are followed."""
    return path != STDOUT and path.is_file()


@contextmanager
def made_directory(path: Path) -> Iterator[None]:
    """Make a directory, with its parents; those of them that stay empty are taken away again."""
    missing = [place for place in (path, *path.parents) if not place.exists()]
    with disk_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):
            for directory in missing:
                directory.rmdir()


@contextmanager
def _standard_output() -> Iterator[IO[bytes]]:
    """A passing file whose bytes go to standard output in the end, all or none."""
    if sys.stdout is None:  # its number may be another file's by now
        raise FileError(errno.EBADF, "standard output is closed; give a file instead of -")
    with tempfile.TemporaryFile() as passing:
        yield passing
        passing.seek(0)
        sys.stdout.flush()  # what was printed before comes first
        with os.fdopen(os.dup(1), "wb") as target:
            shutil.copyfileobj(passing, target)


def _followed(path: Path) -> Path:
    """Where the links of a path lead; the disk says so where that is in a circle."""
    with suppress(FileNotFoundError):
        os.stat(path)
    return Path(os.path.realpath(path))


def _refuse_special(path: Path, final: Path) -> None:
    """Refuse to write to what is no regular file, or is one only behind an open descriptor."""
    home = os.path.realpath(path.parent)
    is_open = home == "/dev" or home.startswith("/proc/")  # /dev/stdout may lead to a file
    if is_open or (path.exists() and not final.is_file()):
        what = "a directory" if final.is_dir() else "no regular file"
        raise FileError(
            errno.EINVAL,
            f"cannot write {path}: it is {what}; give the name of a file, or - for standard output",
        )


@contextmanager
def atomic_directory(path: Path, *, mode: int = 0o666) -> Iterator[Path]:
    """Build a directory next to `path`; move it into place when the block ends without an error.

    A directory of ours at `path` is replaced; a killed process leaves only hidden ones (`.partial`,
    `.old`), which the next call clears.
    """
    path = Path(path)
    with disk_errors(path):
        final = _followed(path)
        if final.exists() and not final.is_dir():
            raise FileError(
                errno.ENOTDIR, f"cannot write {path}: it is no directory; choose another name"
            )
        _written.check(path)
        final.parent.mkdir(parents=True, exist_ok=True)
        partial = _partial(final)
        _written.note(partial, tree=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        made = partial.stat()
        partial.chmod(0o700)
        try:
            yield partial
            for home, _, names in os.walk(partial, topdown=False):
                for name in (*names, ""):  # files first, then the directory that names them
                    _sync(Path(home, name))
            _check_ours(path, partial, made.st_ino)
            for file in partial.rglob("*"):
                if file.is_file() and not file.is_symlink():
                    file.chmod(file.stat().st_mode & mode)
            partial.chmod(made.st_mode)  # open to others now that its files have their modes
            _written.check(path)  # a person may have put something there meanwhile
            _written.note(*(final / file for file in _written.files_in(partial)))
            _give_name(partial, final)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def _give_name(partial: Path, final: Path) -> None:
    """Whatever happens, `final` is the old directory, the new one, or absent for a moment."""
    old = final.with_name(f".{final.name}.old")
    if final.exists() and any(final.iterdir()):
        _written.check_tree(old)
        shutil.rmtree(old, ignore_errors=True)
        _written.note(old, tree=True)
        os.replace(final, old)
    os.replace(partial, final)
    _sync(final.parent)
    if _written.may_go(old):
        shutil.rmtree(old, ignore_errors=True)


def _check_ours(path: Path, partial: Path, inode: int) -> None:
    if not partial.exists() or partial.stat().st_ino != inode:
        raise FileError(
            None, f"cannot write {path}: another process writes it as well; start one at a time"
        )


def _sync(path: Path) -> None:
    """Have a file or a directory on the disk, where the file system can promise it."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError:
        return  # a directory that may be written to, not read
    try:
        os.fsync(descriptor)
    except OSError as failure:
        if failure.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


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


def sha256_bytes(data: bytes | memoryview) -> str:
    """SHA-256 of the bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def content_hash(record: Mapping[str, Any]) -> str:
    """SHA-256 of a record, as it is read from JSON and without its hash, in canonical JSON."""
    return sha256_bytes(canonical_json(record))


def set_aside_in(out: Path) -> Path:
    """Where to keep what a person may have changed: the first damaged-N that is not there."""
    return next(p for n in count(1) if not os.path.lexists(p := out / f"damaged-{n}"))


def sha256_file(path: Path) -> str:
    """SHA-256 of a regular file's content, in hexadecimal."""
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading; what is none, as a pipe, is neither waited for nor read."""
    stream = _opened(path)
    if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        return stream
    stream.close()
    raise OSError(errno.EINVAL, "no regular file", str(path))


def _opened(path: str | Path) -> BufferedReader:
    """Open a file, or a pipe without waiting for its writer."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.set_blocking(descriptor, True)
        return open(descriptor, "rb")
    except OSError:  # a directory
        os.close(descriptor)
        raise


def read_bytes(path: str | Path) -> bytes:
    """The content of a file; a pipe without a writer is empty, and is not waited for."""
    with _opened(path) as stream:
        endless = stat.S_ISCHR(os.fstat(stream.fileno()).st_mode)
        return stream.read(1 << 16 if endless else -1)


def read_toml(
    path: Path, *, what: str = "settings file", error: type[InputError] = SettingsError
) -> dict[str, Any]:
    """What a TOML file says."""
    try:
        with Path(path).open("rb") as stream:  # of a pipe, which a shell gives, what comes
            content = stream.read(_LARGEST_TOML + 1)
        if len(content) > _LARGEST_TOML:
            raise error(f"{path} is no {what}: it is longer than {_LARGEST_TOML >> 20} MiB")
        text = content.decode()
        if _LONG_KEY.search(text):  # the library's memory grows with the square of the parts
            raise RecursionError
        return tomllib.loads(text)
    except OSError as failure:
        raise error(f"cannot read the {what} {path}: {failure.strerror}") from None
    except UnicodeDecodeError:
        raise error(f"cannot read the {what} {path}: not UTF-8 text") from None
    except ValueError as failure:  # the library's own kind, and Python's of a number too long
        reason = str(failure).partition(";")[0]
        raise error(f"{path} is not TOML: {reason}; mend the file") from None
    except RecursionError:
        raise error(f"{path} is nested too deep; write it with fewer brackets and dots") from None


@contextmanager
def only_writer(out: str | Path) -> Iterator[None]:
    """Hold a directory, which is made where it is missing, until the block or the process ends.

    What is not in the list of the study stays as it is. The lock is the kernel's (flock on a file
    in it), so that a killed process holds nothing; who holds the directory may hold it again. One
    that may not be written to is not locked; of the processes of one torchrun the first locks.
    """
    name = os.path.realpath(out)
    not_ours = fcntl is None or os.environ.get("RANK", "0") != "0"
    if not_ours or name in _OURS.get() or (os.path.exists(name) and not os.path.isdir(name)):
        with _written.study(out):
            yield
        return
    with made_directory(Path(name)), _written.study(name):
        descriptor = _locked(Path(out), Path(name) / LOCK)
        token = _OURS.set(_OURS.get() | {name})
        try:
            yield
        finally:
            _OURS.reset(token)
            _unlock(Path(name) / LOCK, descriptor)
            _written.tidy(Path(name))


def is_held(out: Path) -> bool:
    """Whether a process holds a directory by `only_writer`; nothing is written there."""
    try:
        with open_regular(out / LOCK) as stream:
            if fcntl is not None:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as failure:
        return failure.errno == errno.EWOULDBLOCK
    return False


def _locked(out: Path, path: Path) -> int | None:
    """The descriptor that holds the lock; None where there can be none."""
    while True:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = _lock_file(path)
        except OSError as failure:
            if failure.errno in _NOT_WRITABLE:
                return None
            if failure.errno == errno.ENOENT:
                continue  # who made the directory took it away again
            with disk_errors(path):
                raise
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its holder removed the file before it let go: a lock counts on that of the name alone.
            if os.fstat(descriptor).st_ino == os.stat(path).st_ino:
                return descriptor
        except FileNotFoundError:
            pass
        except OSError as failure:
            os.close(descriptor)
            if failure.errno not in (errno.EWOULDBLOCK, errno.EACCES, *_NOT_HERE):
                with disk_errors(path):
                    raise
            if failure.errno in _NOT_HERE:
                import logging  # no help waits for it

                logging.getLogger(__name__).warning(
                    "%s is on a file system without locks (%s): do not start a second command on "
                    "it",
                    visible(out),
                    failure.strerror,
                )
                return None
            raise BusyError(
                f"another process is at work in {visible(out)}; wait until it has ended, or choose "
                "another directory"
            ) from None
        os.close(descriptor)


def _lock_file(path: Path) -> int:
    """The descriptor of the file that is locked, made where it is missing."""
    is_new = not os.path.lexists(path)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    if is_new:
        _LOCKS.add(os.fstat(descriptor).st_ino)
    return descriptor


def _unlock(path: Path, descriptor: int | None) -> None:
    """Remove the file while it is held, then let go, for forked children of ours too."""
    if descriptor is None:
        return
    try:
        state = os.fstat(descriptor)
        # Else a person's own file has the name.
        if state.st_ino in _LOCKS or _written.is_lock(state):
            path.unlink(missing_ok=True)
        _LOCKS.discard(state.st_ino)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def is_utf8(name: str) -> bool:
    """Whether the name of a file can be written down; on the disk it may hold any bytes."""
    return name == name.encode(errors="ignore").decode()
