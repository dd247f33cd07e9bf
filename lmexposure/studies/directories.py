"""Which study a directory holds, by the name of its record: no other writes its report there."""

from collections.abc import Collection
from pathlib import Path

from lmexposure._text import visible
from lmexposure.core import kind_of, kinds, parts_of_others
from lmexposure.errors import ResultError

# By files that are no record of a kind of study; what is begun has its words too.
_OTHERS = {
    "training.json": "a training",
    "checkpoint.pt": "a training",
    "run.json": "a run",
    "plan.json": "a sweep",
    "asked.json": "a comparison of defences",
}


def refuse_other_study(out: Path, own: Collection[str], name: str) -> None:
    """Refuse a directory that holds another kind of study, whose files this one would replace."""
    ours = {_what(record) for record in own}
    for record in (*_OTHERS, *(f"{kind}.json" for kind in kinds())):
        if not (out / record).exists():
            continue
        what = _what(record)
        if what is not None and what not in ours:
            raise ResultError(
                f"{visible(out)} holds {what} ({record}), whose files this would replace; give "
                f"another --out, such as {visible(out / name)}"
            )


def _what(record: str) -> str | None:
    """Of what a file is the record; None: of no study by itself."""
    kind = record.removesuffix(".json")
    if record in _OTHERS or kind not in kinds():
        return _OTHERS.get(record)
    return None if kind in parts_of_others() else kind_of(kind).WHAT
