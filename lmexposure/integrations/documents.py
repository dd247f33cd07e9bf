"""Canaries into documents in memory: one call for lists, records, frames, data sets and streams."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from lmexposure._validate import of_type
from lmexposure.canaries import Manifest, Plan
from lmexposure.canaries.corpora.counting import CorpusCount, count_fills_in, count_of
from lmexposure.canaries.corpora.in_memory import (
    ROWS_AT_ONCE,
    InMemory,
    Reading,
    held,
    insert_documents,
    is_a,
    refuse_wrapping,
    remove_documents,
)
from lmexposure.canaries.insertion import Existing, constants_of
from lmexposure.errors import CorpusError

if TYPE_CHECKING:
    from lmexposure.integrations.wrapping import Wrapping

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_STREAM = "datasets.IterableDataset"
# What is read later -> module and function that insert into it.
_LATER = {
    _STREAM: ("streaming", "insert_into_stream"),
    "ray.data.Dataset": ("ray_data", "insert_into_ray"),
}


class Inserted(NamedTuple, Generic[_T]):
    """What an insertion gives: the documents with canaries among them, and what must be kept.

    Attributes:
        documents: of the kind that was given.
        manifest: which canaries there are and where; it holds the secrets.
    """

    documents: _T
    manifest: Manifest


def insert(
    documents: _T,
    plan: Plan | Manifest | None = None,
    *,
    wrapping: "Wrapping | None" = None,
    text_field: str = "text",
    fields: Mapping[str, Any] | None = None,
    existing: Existing = "refuse",
    total: int | None = None,
    id_column: str | None = None,
    **plan_fields: Any,
) -> Inserted[_T]:
    """Insert canaries among documents in memory, each as a document of its own.

    Args:
        documents: a list, a tuple or another iterable of texts; a list of records (dicts) with a
            text in each, or with chats, where `wrapping` says so; a pandas DataFrame; a
            `datasets.Dataset`, also of chats, or a DatasetDict, whose "train" split alone is
            changed; or what is read later: a `datasets.IterableDataset`, a `ray.data.Dataset`.
        plan: what to insert; or give its fields: `formats=["pin"], repetitions=(1, 16)`. For what
            is read later also the manifest of an earlier insertion into the same rows.
        wrapping: where in a record a canary goes: as a turn of a chat, or behind a prompt. Keep it:
            `wrapped_exposures` needs the same one.
        text_field: of records and columns, the one that holds the text.
        fields: constants for other fields of inserted records; the rest is copied from the record
            that follows.
        existing: fills of a format that a document holds already: "refuse", or "set_aside": never
            draw them, and say so in the manifest.
        total: how many documents there are in what is read later, where they cannot be counted.
        id_column: of what is read later, the column with each document's number, from 0.
        plan_fields: of `Plan`, in place of `plan`.

    Returns:
        (documents, manifest). A list for any iterable that is no tuple; the index of a frame begins
        anew. Hashes and fills of chats are those of all the strings of a record together.

    Raises:
        CorpusError: no documents of these kinds, documents without text, fills already there, or a
            record that changes how chats are rendered (tools, chat_template_kwargs).
        FormatError: a format that cannot be found or read.
        PlanError: a plan that cannot be, or that the documents or a format cannot hold.

    >>> texts, manifest = insert(["one", "two"], formats=["pin"], canaries=1, repetitions=(2,))
    >>> len(texts), len(manifest.canaries)
    (4, 1)
    """
    given: Any = plan
    later = _later(documents)
    if later is None:
        for name, value in (("total", total), ("id_column", id_column)):
            if value is not None:
                raise CorpusError(
                    f"{name}={value} is for a stream; leave it out: these are counted"
                )
        chosen = Plan.of(given, plan_fields)
        corpus = held(documents, _reading(text_field, fields, wrapping))
        return Inserted(*insert_documents(corpus, chosen, existing))
    again = isinstance(plan, Manifest) and not plan_fields
    known = plan if again else Plan.of(given, plan_fields)
    refuse_wrapping(wrapping, "the records of a data set that fits in memory")
    if existing != "refuse":
        raise CorpusError(
            "what a stream holds already is found while it is read, too late to set it aside; "
            "leave existing out, or give a Dataset"
        )
    if total is None and isinstance(known, Plan) and is_a(documents, _STREAM):
        raise CorpusError(
            "how many documents a stream has cannot be looked up, and that decides where canaries "
            "stand; count them once, and give total"
        )
    where = {"text_field": text_field, "fields": fields, "id_column": id_column}
    return Inserted(*later(documents, known, total=total, **where))


def count_documents(
    documents: Any, manifest: Manifest, *, text_field: str | None = None
) -> CorpusCount:
    """Count what of the canaries is in documents of any kind that `insert` takes; see `verify`."""
    sources = _sources(documents, _reading_again(manifest, text_field))
    return count_of(manifest, count_fills_in(sources, manifest), where="record")


def restored_documents(documents: _T, manifest: Manifest) -> _T:
    """Documents in memory as they were before insertion, and checked where there is a hash.

    Raises:
        CorpusError: they changed since, or are not in memory.
    """
    if _later(documents) is not None:
        raise CorpusError(
            "documents that are read later are not in memory; give a Dataset, a frame or a list"
        )
    known = _reading_again(manifest)
    # A plain wrapping hashes all strings of a record, too, and its layout does not tell.
    both = [known, replace(known, chat=True)] if manifest.layout == "dataset" else [known]
    failures = []
    for reading in both:
        try:
            restored: _T = remove_documents(held(documents, reading), manifest)
        except CorpusError as failure:
            failures.append(failure)
        else:
            if not manifest.corpus.sha256:
                _LOG.warning(
                    "the manifest has no hash of the documents before insertion, so it was not "
                    "checked that the rest is what they were"
                )
            return restored
    raise failures[0]


def _sources(documents: Any, reading: Reading) -> Iterator[InMemory]:
    """Documents to be read once."""
    if _later(documents) is None:
        yield held(documents, reading)
        return
    rows = iter(documents.iter_rows() if hasattr(documents, "iter_rows") else documents)
    first = 1
    while some := list(islice(rows, ROWS_AT_ONCE)):
        yield InMemory(some, reading, first=first)
        first += len(some)


def _reading(
    text_field: str, fields: Mapping[str, Any] | None, wrapping: "Wrapping | None"
) -> Reading:
    constants = constants_of(fields)
    if wrapping is None:
        return Reading(text_field, constants)
    from lmexposure.integrations.wrapping import Wrapping

    example = 'Wrapping(...), such as Wrapping(turn="assistant")'
    of_type("wrapping", wrapping, Wrapping, example, error=CorpusError)
    return Reading(wrapping.place, constants, chat=True, wrapping=wrapping)


def _reading_again(manifest: Manifest, text_field: str | None = None) -> Reading:
    name = text_field or manifest.corpus.text_field or "text"
    return Reading(name, chat=manifest.layout == "chat" and text_field is None)


def _later(documents: Any) -> Callable[..., tuple[Any, Manifest]] | None:
    """What inserts into documents that are read later; None: they are in memory."""
    for kind, (module, name) in _LATER.items():
        if is_a(documents, kind):
            inserter: Callable[..., tuple[Any, Manifest]] = getattr(
                import_module(f"lmexposure.integrations.{module}"), name
            )
            return inserter
    return None
