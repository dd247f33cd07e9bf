"""One process at a time in a directory: a lock that a killed process does not leave behind."""

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from lmexposure._files import disk_errors, made_directory
from lmexposure._text import visible
from lmexposure.errors import ResultError

try:
    import fcntl
except ImportError:  # no POSIX: no locks
    fcntl = None  # type: ignore[assignment]

LOCK = ".lmexposure.lock"
_LOG = logging.getLogger(__name__)
# What a step finds locked by the run that it belongs to; a thread of its own begins with nothing.
_OURS: ContextVar[frozenset[str]] = ContextVar("locked", default=frozenset())
_NOT_HERE = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_NOT_WRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)


@contextmanager
def only_writer(out: str | Path) -> Iterator[None]:
    """Hold a directory for this process until the block ends, or the process does.

    The directory is made where it is missing, and taken away again if nothing was put into it. The
    lock is the kernel's (flock on a file in it), so that a killed process holds nothing, whatever
    file it leaves. Steps of a run that holds the directory go on. A directory that may not be
    written to is not locked: nothing can be written over there. Nor is a file: whoever wants a
    directory says so. Of the processes of one torchrun only the first locks.

    Raises:
        ResultError: another process, or another thread of this one, holds it.
        FileError: the disk refused.
    """
    name = os.path.realpath(out)
    not_ours = fcntl is None or os.environ.get("RANK", "0") != "0"
    if not_ours or name in _OURS.get() or (os.path.exists(name) and not os.path.isdir(name)):
        yield
        return
    with made_directory(Path(name)):
        descriptor = _locked(Path(out), Path(name) / LOCK)
        token = _OURS.set(_OURS.get() | {name})
        try:
            yield
        finally:
            _OURS.reset(token)
            _unlock(Path(name) / LOCK, descriptor)


def _locked(out: Path, path: Path) -> int | None:
    """The descriptor that holds the lock; None where there can be none.

    The holder removes the file before it lets go, so the one that was locked may be gone by then,
    or be another's: only a lock on the file that has the name counts.
    """
    while True:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as failure:
            if failure.errno in _NOT_WRITABLE:
                return None
            if failure.errno == errno.ENOENT:
                continue  # who made the directory took it away again
            with disk_errors(path):
                raise
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
                _warn_unlocked(out, failure)
                return None
            raise ResultError(
                f"another process is at work in {visible(out)}; wait until it has ended, or choose "
                "another directory"
            ) from None
        os.close(descriptor)


def _warn_unlocked(out: Path, failure: OSError) -> None:
    _LOG.warning(
        "%s is on a file system without locks (%s): do not start a second command on it",
        visible(out),
        failure.strerror,
    )


def _unlock(path: Path, descriptor: int | None) -> None:
    """Remove the file while it is held, then let go, for forked children of ours too."""
    if descriptor is None:
        return
    try:
        path.unlink(missing_ok=True)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)
