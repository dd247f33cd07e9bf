"""Which study a directory holds, by the name of its record: no other writes its report there."""

from collections.abc import Collection
from pathlib import Path

from lmexposure._text import visible
from lmexposure.errors import ResultError

_STUDIES = {
    "training.json": "a training",
    "checkpoint.pt": "a training",
    "run.json": "a run",
    "result.json": "a measurement",
    "plan.json": "a sweep",
    "sweep.json": "a sweep",
    "asked.json": "a comparison of defences",
    "defences.json": "a comparison of defences",
    "verbatim.json": "a look at memorised text",
    "canife.json": "a federated training",
    "identifiers.json": "a comparison of identifiers",
}


def refuse_other_study(out: Path, own: Collection[str], name: str) -> None:
    """Refuse a directory that holds another kind of study, whose files this one would replace."""
    kinds = {
        _STUDIES[record] for record in own if record in _STUDIES
    }  # others: of a package outside
    for record, what in _STUDIES.items():
        if what not in kinds and (out / record).exists():
            raise ResultError(
                f"{visible(out)} holds {what} ({record}), whose files this would replace; give "
                f"another --out, such as {visible(out / name)}"
            )
