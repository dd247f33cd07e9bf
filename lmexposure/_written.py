"""Which files this package wrote: the list that each directory of a study keeps of them, by name.

A file is listed before it gets its name, so that a killed process leaves nothing of ours unlisted.
What is not listed is somebody else's: it is neither replaced nor removed, and a link is never
followed. A list may have come with somebody's directory: one that holds anything but names beneath
its own directory is refused as a whole, before anything is removed.
"""

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeGuard

from lmexposure._style import visible
from lmexposure.errors import FileError

LIST = ".lmexposure.files"
LOCK = ".lmexposure.lock"
_SCHEMA = b'{"schema": "lmexposure.files/1"}'
_TREE = "/"  # at the end of a directory's name: all in it is ours
# Lists that this process began, by their inodes.
_BEGUN: set[int] = set()
# The directories of studies that this thread writes into, their links followed.
_STUDIES: ContextVar[frozenset[str]] = ContextVar("studies", default=frozenset())


@dataclass(frozen=True)
class _Listed:
    """What the list says of a name."""

    sha256: frozenset[str] = frozenset()  # each that the file had; empty: any
    of: frozenset[str] = frozenset()  # what it tells of; empty: of the study


@contextmanager
def study(out: str | Path) -> Iterator[None]:
    """Take a directory for a study's: until the block ends, its list decides what is ours in it."""
    token = _STUDIES.set(_STUDIES.get() | {os.path.realpath(out)})
    try:
        yield
    finally:
        _STUDIES.reset(token)
        tidy(Path(out))


def root_of(path: Path) -> Path | None:
    """The innermost directory of a study that a path is in; None: it is in none."""
    found = _place(Path(path))
    return None if found is None else found[0]


def check(path: Path, *, of: Collection[str] = ()) -> None:
    """Refuse what is where a file or a directory is about to be written, unless it is ours."""
    place = _place(path)
    if place is None:
        if path.is_dir() and any(path.iterdir()):
            raise _in_the_way(path)
        return
    root, name = place
    if not _in_tree(name, known := _read(root)):
        _refuse_another(path, root, name, known, frozenset(of))


def claim(path: Path, *, sha256: str | None = None, of: Collection[str] = ()) -> None:
    """As `check`, and list the file, where it is in a study."""
    check(path, of=of)
    place = _place(path)
    if place is None:
        return
    root, name = place
    new = _Listed(frozenset(filter(None, [sha256])), frozenset(of))
    known = _read(root)
    before = known.get(name)
    if _in_tree(name, known):
        return
    if before is None or not (new.sha256 <= before.sha256 and new.of <= before.of):
        _append(root, {"name": name, "sha256": sha256, "of": sorted(of)})


def refuse_foreign(out: Path, names: Iterable[str]) -> None:
    """Refuse, before long work, what has a name that the work will write and is not ours."""
    root = Path(os.path.realpath(out))
    if not root.is_dir():
        return
    known = _read(root)
    for name in names:
        for path in sorted(root.glob(name)) if name.endswith("*") else [root / name]:
            instead = path.is_dir() and Path(name).suffix  # of a file: no directory of ours has one
            if os.path.lexists(path) and (instead or not _has_ours(path, root, known)):
                raise _in_the_way(Path(out) / path.relative_to(root))
            for inner in _lists_in(path):
                _read(inner)


def note(*paths: Path, tree: bool = False) -> None:
    """List what is being built, in a study."""
    by_root: dict[Path, list[str]] = {}
    for path in paths:
        if (place := _place(path)) is not None:
            by_root.setdefault(place[0], []).append(place[1] + _TREE * tree)
    for root, names in by_root.items():
        known = _read(root)
        new = [name for name in names if name not in known and not _in_tree(name, known)]
        if new:
            _append(root, *({"name": name} for name in new))


def may_go(path: Path) -> bool:
    """Whether there is nothing at a path, or something that is listed and may be removed."""
    if not os.path.lexists(path):
        return True
    place = _place(path)
    if place is None:
        return False
    root, name = place
    return (name + _TREE if path.is_dir() else name) in _read(root)


def check_tree(path: Path) -> None:
    """Refuse a directory that may not be removed."""
    if not may_go(path):
        raise _in_the_way(path)


def files_in(directory: Path) -> list[Path]:
    """All in a directory but the directories, links among them, by their paths from there."""
    found = []
    for home, below, names in os.walk(directory):
        links = [name for name in below if Path(home, name).is_symlink()]
        found += [Path(home, name).relative_to(directory) for name in (*names, *links)]
    return found


def listed(out: Path) -> set[str]:
    """The names in a directory that the list of its study has something of."""
    return {name.partition("/")[0] for name in _read(Path(os.path.realpath(out)))}


def remove(path: Path) -> None:
    """Remove a file, or of a directory what is listed; what else is in it stays, and it with it."""
    try:
        place = _place(Path(path))
    except FileError:  # a link in the way is not ours
        return
    lists = _lists_in(Path(path))
    for root in [*lists, *(() if place is None else place[:1])]:
        _read(root)
    with suppress(OSError):
        if place is not None:
            _remove_listed(*place)
        top = Path(os.path.realpath(path))
        for root in lists:
            _remove_listed(root, "")
            if not _read(root):
                (root / LIST).unlink(missing_ok=True)
            _remove_empty([root, *_up(root, top)])


def _lists_in(directory: Path) -> list[Path]:
    """The directories in one that hold lists, from the inside out; no link is followed."""
    if directory.is_symlink():
        return []
    walk = os.walk(os.path.realpath(directory), topdown=False)
    return [Path(home) for home, _, names in walk if LIST in names]


def tidy(out: Path) -> None:
    """Remove the list of a directory that holds nothing else, where this process began it."""
    with suppress(OSError):
        if os.listdir(out) == [LIST] and (out / LIST).lstat().st_ino in _BEGUN:
            (out / LIST).unlink()


def _remove_listed(root: Path, name: str) -> None:
    """Remove what a list has of a name and beneath it, and the directories that get empty."""
    beneath = name + "/" if name else ""
    known = _read(root)
    gone = [own for own in known if own == name or own.startswith(beneath)]
    for own in gone:
        path = root / own
        if os.path.realpath(path) != str(path):  # a link is on the way
            continue
        if own.endswith(_TREE):
            shutil.rmtree(path, ignore_errors=True)
        elif path.is_file() and _is_as_written(path, known[own]):
            path.unlink()
    homes = {home for own in gone for home in _up(root / own, root / name)}
    _remove_empty(sorted(homes, key=lambda home: -len(home.parts)))
    if gone:
        _append(root, {"gone": gone})


def _up(path: Path, top: Path) -> list[Path]:
    """The directories above a path, up to and with another."""
    return [home for home in path.parents if home.is_relative_to(top)]


def _remove_empty(homes: Iterable[Path]) -> None:
    """Remove directories that hold nothing but perhaps a lock."""
    for home in homes:
        with suppress(OSError):
            if os.listdir(home) == [LOCK] and is_lock((home / LOCK).lstat()):
                (home / LOCK).unlink()
            if not home.is_symlink():
                home.rmdir()


def is_lock(state: os.stat_result) -> bool:
    """Whether a file is as a killed process leaves its lock: empty, and its owner's alone."""
    return stat.S_ISREG(state.st_mode) and not state.st_size and not state.st_mode & 0o077


def _place(path: Path) -> tuple[Path, str] | None:
    """The study that a path is in, and its name there."""
    if not _STUDIES.get():
        return None
    path = Path(os.path.abspath(path)) if ".." in path.parts else path.absolute()
    above = [(home, os.path.realpath(home)) for home in path.parents]
    for home, real in above:  # from the inside out
        if real in _STUDIES.get():
            name = path.relative_to(home)
            links = [home / inner for inner in name.parents[:-1] if (home / inner).is_symlink()]
            if links or path.is_symlink():
                raise _in_the_way(links[-1] if links else path)
            return Path(real), name.as_posix()
    return None


def _in_tree(name: str, known: Collection[str]) -> bool:
    """Whether a name is beneath a directory that is all ours."""
    parts = name.split("/")
    return any("/".join(parts[:n]) + _TREE in known for n in range(1, len(parts)))


def _refuse_another(
    path: Path, root: Path, name: str, known: dict[str, _Listed], of: frozenset[str]
) -> None:
    """Refuse what is in the way of a write, unless the list has it just so."""
    real = root / name
    if not os.path.lexists(real):
        return
    if real.is_dir():
        for file in files_in(real):
            if f"{name}/{file.as_posix()}" not in known:
                raise _in_the_way(path / file)
        if os.listdir(real) and not any(other.startswith(name + "/") for other in known):
            raise _in_the_way(path)
        return
    if name not in known:
        raise _in_the_way(path)
    if not _is_as_written(real, known[name]):
        raise FileError(
            errno.EEXIST,
            f"{visible(path)} was changed since lmexposure wrote it; choose another directory, or "
            "move it away",
        )
    if of and not known[name].of:
        raise FileError(
            errno.EEXIST,
            f"{visible(path)} is a file of the study itself, and would be replaced; choose another "
            "name",
        )
    if of and not of & known[name].of:
        raise FileError(
            errno.EEXIST,
            f"{visible(path)} is of another study, and would be replaced; choose another directory",
        )


def _is_as_written(path: Path, listed: _Listed) -> bool:
    if not listed.sha256:
        return True
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() in listed.sha256


def _has_ours(path: Path, root: Path, known: dict[str, _Listed]) -> bool:
    """Whether a file is listed, or a directory has no file at all or something of ours in it."""
    name = path.relative_to(root).as_posix()
    if path.is_symlink():
        return False
    if not path.is_dir():
        return name in known
    return (
        not files_in(path)
        or any(other.startswith(name + "/") for other in known)
        or (path / LIST).exists()
        or any(path.glob(f"*/{LIST}"))
        or any(path.glob(f"*/*/{LIST}"))
    )


def _in_the_way(path: Path) -> FileError:
    if Path(path).is_symlink():
        why = "is a link, which is not followed"
    else:
        why = f"is there already, and lmexposure did not write it ({LIST} does not list it)"
    return FileError(
        errno.EEXIST, f"{visible(path)} {why}; choose another directory, or move it away"
    )


def _read(root: Path) -> dict[str, _Listed]:
    """The list of a directory, by name; empty where it has none."""
    path = root / LIST
    try:
        state = path.lstat()
    except OSError:
        return {}
    if not stat.S_ISREG(state.st_mode):
        raise FileError(errno.EEXIST, f"{path} is no list of ours; move it away")
    try:
        return _parsed(str(path), state.st_ino, state.st_size, state.st_mtime_ns)
    except OSError as failure:
        if isinstance(failure, FileError):
            raise
        raise FileError(
            failure.errno, f"cannot read {path}: {failure.strerror}; choose another directory"
        ) from failure


@lru_cache(maxsize=64)
def _parsed(path: str, inode: int, size: int, changed: int) -> dict[str, _Listed]:
    lines = Path(path).read_bytes().split(b"\n")
    if size and _SCHEMA not in lines:
        raise FileError(errno.EEXIST, f"{path} is no list of ours; move it away")
    known: dict[str, _Listed] = {}
    for line in lines:
        try:
            values = json.loads(line)
        except ValueError:
            continue  # cut short by a kill: what it would list was not written
        except RecursionError:
            values = None
        if not _is_entry(values):
            what = visible(line.decode(errors="replace"))[:200]
            raise FileError(
                errno.EEXIST, f"{visible(path)} is no list of ours, it has {what}; move it away"
            )
        for name in values.get("gone", ()):
            known.pop(name, None)
        if (name := values.get("name")) is not None:
            before = known.get(name, _Listed())
            hashes = before.sha256 | frozenset(filter(None, [values.get("sha256")]))
            known[name] = _Listed(hashes, before.of | frozenset(values.get("of", ())))
    return known


def _is_entry(values: object) -> TypeGuard[dict[str, Any]]:
    """Whether a line of a list is as ours are, and names nothing but what is beneath."""
    if not isinstance(values, dict):
        return False
    gone, of = values.get("gone", []), values.get("of", [])
    if not (isinstance(gone, list) and isinstance(of, list)):
        return False
    names = [*gone, *([values["name"]] if "name" in values else [])]
    texts = [*names, *of, values.get("sha256") or ""]
    return all(isinstance(text, str) for text in texts) and all(map(_is_beneath, names))


def _is_beneath(name: str) -> bool:
    """Whether a name is of something beneath a directory, however it is taken."""
    parts = name.removesuffix(_TREE).split("/")
    if os.path.isabs(name) or "\0" in name or not {"", ".", ".."}.isdisjoint(parts):
        return False
    try:
        os.fsencode(name)
    except ValueError:  # half a character, which no file's name holds
        return False
    return True


def _append(root: Path, *entries: Mapping[str, object]) -> None:
    """Add lines, in one piece, and have them on the disk before what they list."""
    root.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(root / LIST, flags, 0o600)
    try:
        lines = [json.dumps(entry).encode() for entry in entries]
        if not (before := os.fstat(descriptor).st_size):
            lines.insert(0, _SCHEMA)
            _BEGUN.add(os.fstat(descriptor).st_ino)
        content = b"".join(b"\n" + line for line in lines)
        if os.write(descriptor, content) < len(content):
            os.ftruncate(descriptor, before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
