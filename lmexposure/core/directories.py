"""Which study a directory holds, done or begun: no other writes its files there."""

from collections.abc import Collection, Iterator
from pathlib import Path

from lmexposure._text import visible
from lmexposure.core.begun import ASKED, HOME, read_asked
from lmexposure.core.registry import begun_by, kinds, others, parts_of_others
from lmexposure.core.study import kind_of
from lmexposure.errors import ResultError


def refuse_other_study(out: Path, own: Collection[str], name: str) -> None:
    """Refuse a directory that holds another kind of study, whose files this one would replace."""
    by_file = _by_file()
    ours = {by_file[file] for file in own if file in by_file}
    for file, kind in _held(out, by_file):
        if kind not in ours:
            what = kind_of(kind).WHAT if kind in kinds() else visible(kind)
            raise ResultError(
                f"{visible(out)} holds {what} ({file}), whose files this would replace; give "
                f"another --out, such as {visible(out / name)}"
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
