"""Older names and signatures, kept for one version: the same work by the calls of today.

The face of this package warns whoever asks for one of them and says what to call instead. Options
that are not named here are those of the call of today.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lmexposure.canaries.corpora.copies import insert_files
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.plan import Plan
from lmexposure.integrations import ray_data
from lmexposure.integrations.documents import insert
from lmexposure.integrations.wrapping import Wrapping

__all__ = ["insert_files"]


def insert_into_records(
    records: Sequence[Mapping[str, Any]], plan: Plan, wrapping: Wrapping, **options: Any
) -> tuple[list[Any], Manifest]:
    """What `insert(records, plan, wrapping=wrapping)` gives."""
    return insert(list(records), plan, wrapping=wrapping, **options)


def insert_into_stream(
    dataset: Any, plan: Plan | Manifest, *, documents: int | None = None, **options: Any
) -> tuple[Any, Manifest]:
    """What `insert(dataset, plan, total=documents)` gives."""
    return insert(dataset, plan, total=documents, **options)


def insert_into_ray(
    dataset: Any, plan: Plan | Manifest, *, documents: int | None = None, **options: Any
) -> tuple[Any, Manifest]:
    """What `insert(dataset, plan, total=documents)` gives; there, ids are always looked at."""
    return ray_data.insert_into_ray(dataset, plan, total=documents, **options)


def number_documents(dataset: Any, *, id_column: str = "document") -> Any:
    """A Ray data set with a column more, 0, 1, 2, ... in the order of its source."""
    ray_data.check_new_column(dataset, id_column)
    return ray_data.number_documents(dataset, id_column=id_column)
