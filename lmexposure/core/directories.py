"""Which study a directory or a file holds, done or begun: opened, or refused to another kind."""

import errno
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from lmexposure._files import is_held, open_regular
from lmexposure._integrity import check_seal, read_sealed
from lmexposure._record import JsonValue
from lmexposure._style import visible
from lmexposure.core.registry import begun_by, kinds, others, own_records, parts_of_others
from lmexposure.core.study import Study
from lmexposure.errors import ResultError, SettingsError

HOME: str = ".work"  # of work under way, in the directory of its study
ASKED = "asked.json"
_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_SCHEMA = re.compile(rb'"schema": ?"lmexposure\.([\w-]+)/\d')
_LOOKED_AT = 2**20  # bytes of a file, whose schema may come after longer parts


def kind_of(name: str) -> type[Study]:
    """The class of a kind."""
    module, _, cls = kinds()[name].partition(":")
    found: type[Study] = getattr(import_module(module), cls)
    if name != found.KIND:
        raise SettingsError(
            f"{module}:{cls} is registered as {name!r} and has KIND={found.KIND!r}; give both one "
            "name"
        )
    return found


def open_study(path: str | Path) -> Study:
    """Read a study of any kind: its directory, or its file."""
    _refuse_no_path(path)
    kind = _kind_at(Path(path))
    if kind is None:
        files = ", ".join(own_records())
        raise ResultError(f"{visible(path)} holds no study; give one of {files}, or its directory")
    _refuse_begun(Path(path), kind)
    return kind_of(kind).read(path)


def _refuse_no_path(path: str | Path) -> None:
    """Refuse a path where nothing is, or that no disk can have."""
    try:
        Path(path).stat()
    except (OSError, ValueError) as failure:  # a null character is Python's own ValueError
        why = f"which cannot be read ({getattr(failure, 'strerror', failure)}); give another path"
        if getattr(failure, "errno", None) in _NOTHING:
            why = "where nothing is; give the directory of a study"
        raise ResultError(f"no study at {visible(path)[:1000]}, {why}") from None


def _kind_at(path: Path) -> str | None:
    """The kind of study that a directory or a file holds; None: none of those that there are."""
    if not path.is_dir():
        return _kind_in(path)
    every = [kind for kind in kinds() if (path / f"{kind}.json").exists()]
    there = [kind for kind in every if kind not in parts_of_others()]
    begun = _begun_in(path)
    there = there or ([] if begun else every)  # parts of a study that is not done are none
    if len(there) > 1:
        files = ", ".join(f"{kind}.json" for kind in there)
        raise ResultError(f"{visible(path)} holds several studies ({files}); name one file")
    return next(iter(there), begun)


def _kind_in(path: Path) -> str | None:
    """The kind that a file is of: as it says; as it is called where it is torn."""
    try:
        with open_regular(path) as stream:
            schema = _SCHEMA.search(stream.read(_LOOKED_AT))
    except OSError:
        schema = None
    known = kinds()
    called = path.stem if path.suffix == ".json" and path.stem in known else None
    kind = called if schema is None else schema[1].decode()
    if kind not in known:
        return None
    if called not in (None, kind):
        raise ResultError(
            f"{visible(path)} has the name of {kind_of(str(called)).WHAT}, and holds "
            f"{kind_of(str(kind)).WHAT}; put back the one that belongs there, or call it "
            f"{kind}.json"
        )
    return kind


def _begun_in(path: Path) -> str | None:
    """The kind that a directory was begun for, whether it is done or not."""
    by_file = (kind for kind, name in begun_by().items() if (path / name).exists())
    work = read_asked(path)
    return next(by_file, work.kind if work is not None and work.kind in kinds() else None)


def _refuse_begun(path: Path, kind: str) -> None:
    """Say of work that is not done what there is to do."""
    if not path.is_dir() or (path / f"{kind}.json").exists() or read_asked(path) is None:
        return
    if is_held(path):
        why = "another process is at work there; wait until it has ended"
    else:
        why = "it is not done: give its command again"
    raise ResultError(f"{visible(path)} holds {kind_of(kind).WHAT} without {kind}.json; {why}")


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


def refuse_other_study(out: Path, own: Collection[str], name: str) -> None:
    """Refuse a directory that holds another kind of study, whose files this one would replace."""
    by_file = _by_file()
    ours = {by_file[file] for file in own if file in by_file}
    for file, kind in _held(out, by_file):
        if kind not in ours:
            what = kind_of(kind).WHAT if kind in kinds() else visible(kind)
            raise ResultError(
                f"{visible(out)} holds {what} ({file}), whose files this would replace; give "
                f"another directory, such as {visible(out / name)}"
            )


def _held(out: Path, by_file: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The kinds that a directory holds, each with the file that says so."""
    yield from ((file, kind) for file, kind in by_file.items() if (out / file).exists())
    begun = read_asked(out)
    if begun is not None:
        yield f"{HOME}/{ASKED}", begun.kind


def _by_file() -> dict[str, str]:
    """Of which kind a file is; what lies next to other studies is of none by itself."""
    begun = {file: kind for kind, file in begun_by().items()}
    records = {f"{kind}.json": kind for kind in kinds() if kind not in parts_of_others()}
    return {**others(), **begun, **records}
