"""Canaries into documents in memory: one call for lists, records, frames, data sets and streams.

What holds the documents is recognised here and given back as the same kind by its adapter. Neither
`datasets` nor pandas is imported: who gives a data set has loaded the library.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from lmexposure._validate import of_type
from lmexposure.canaries import Manifest, Plan
from lmexposure.canaries.corpora.counting import CorpusCount, count_fills_in, count_of
from lmexposure.canaries.corpora.in_memory import (
    ROWS_AT_ONCE,
    DataSet,
    Frame,
    InMemory,
    Reading,
    TextField,
    Turn,
    insert_documents,
    kind_of,
    remove_documents,
)
from lmexposure.canaries.insertion import Existing
from lmexposure.errors import CorpusError

if TYPE_CHECKING:
    from lmexposure.integrations.wrapping import Wrapping

_T = TypeVar("_T")
_FILES = "files go into insert_files, and as Path objects into verify"
_MOST_PATHS = 1000  # strings; of more it is not looked up whether all are files
_LONGEST_PATH = 255


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
    again = isinstance(plan, Manifest) and not plan_fields
    later = _later(documents)
    if later is not None:
        known = plan if again else Plan.of(given, plan_fields)
        _check_later(known, wrapping, existing, total)
        where = {"text_field": text_field, "fields": fields, "id_column": id_column}
        return Inserted(*later(documents, known, total=total, **where))
    for name, value in (("total", total), ("id_column", id_column)):
        if value is not None:
            raise CorpusError(f"{name}={value} is for a stream; leave it out: these are counted")
    chosen = Plan.of(given, plan_fields)
    corpus = held(documents, _reading(text_field, fields, wrapping))
    return Inserted(*insert_documents(corpus, chosen, existing))


def count_documents(
    documents: Any, manifest: Manifest, *, text_field: str | None = None
) -> CorpusCount:
    """Count what of the canaries is in documents of any kind that `insert` takes.

    Args:
        documents: as for `insert`.
        manifest: what should be there.
        text_field: of records and columns; None: the manifest's, else "text".

    Raises:
        CorpusError: no documents of these kinds, or no such field.
    """
    sources = _sources(documents, _reading_again(manifest, text_field))
    return count_of(manifest, count_fills_in(sources, manifest), where="record")


def restored_documents(documents: _T, manifest: Manifest) -> _T:
    """Documents in memory as they were before insertion, and checked.

    Raises:
        CorpusError: they changed since, or are not in memory.
    """
    known = _reading_again(manifest)
    # A plain wrapping hashes all strings of a record, too, and its layout does not tell.
    both = [known, Turn(name=known.name)] if manifest.layout == "dataset" else [known]
    failures = []
    for reading in both:
        try:
            restored: _T = remove_documents(held(documents, reading), manifest)
        except CorpusError as failure:
            failures.append(failure)
        else:
            return restored
    raise failures[0]


def held(documents: Any, reading: Reading) -> InMemory:
    """Documents in memory, as a corpus.

    Args:
        documents: as for `insert`, but not what is read later.
        reading: of records and columns.

    Raises:
        CorpusError: no documents of these kinds.
    """
    if _later(documents) is not None:
        raise CorpusError(
            "documents that are read later are not in memory; give a Dataset, a frame or a list"
        )
    wrapping = reading.wrapping if isinstance(reading, Turn) else None
    if _is(documents, "datasets", "DatasetDict"):
        if "train" not in documents:
            raise CorpusError(
                f"no 'train' split; this data set has {', '.join(documents) or 'none'}"
            )
        return DataSet(rows=documents["train"], reading=reading, splits=documents)
    if _is(documents, "datasets", "Dataset"):
        return DataSet(rows=documents, reading=reading)
    if _is(documents, "pandas", "DataFrame"):
        _refuse_wrapping(wrapping, "frame.to_dict('records')")
        return Frame(rows=documents, reading=reading)
    first, listed = _listed(documents)
    if not isinstance(first, Mapping):
        _refuse_wrapping(wrapping, "records with the fields of the wrapping")
        if reading.fields:
            raise CorpusError("texts have no fields; give records (dicts), or leave fields out")
        reading = Reading()
    return InMemory(rows=listed, reading=reading)


def _sources(documents: Any, reading: Reading) -> Iterator[InMemory]:
    """Documents to be read once."""
    if _later(documents) is None:
        yield held(documents, reading)
        return
    rows = iter(documents.iter_rows() if hasattr(documents, "iter_rows") else documents)
    first = 1
    while some := list(islice(rows, ROWS_AT_ONCE)):
        yield InMemory(rows=some, reading=reading, first=first)
        first += len(some)


def _reading(
    text_field: str, fields: Mapping[str, Any] | None, wrapping: "Wrapping | None"
) -> Reading:
    constants = dict(fields or {})
    if wrapping is None:
        return TextField(name=text_field, fields=constants)
    from lmexposure.integrations.wrapping import Wrapping

    example = 'Wrapping(...), such as Wrapping(turn="assistant")'
    of_type("wrapping", wrapping, Wrapping, example, error=CorpusError)
    return Turn(name=wrapping.place, fields=constants, wrapping=wrapping)


def _reading_again(manifest: Manifest, text_field: str | None = None) -> TextField:
    name = text_field or manifest.corpus.text_field or "text"
    chat = manifest.layout == "chat" and text_field is None
    return Turn(name=name) if chat else TextField(name=name)


def _later(documents: Any) -> Callable[..., tuple[Any, Manifest]] | None:
    """What inserts into documents that are read later; None: they are in memory."""
    if _is(documents, "datasets", "IterableDataset"):
        from lmexposure.integrations.streaming import insert_into_stream

        return insert_into_stream
    if _is(documents, "ray.data", "Dataset"):
        from lmexposure.integrations.ray_data import insert_into_ray

        return insert_into_ray
    return None


def _is(documents: Any, library: str, *names: str) -> bool:
    """Whether it is of a class of this library, which is not imported for it."""
    module = sys.modules.get(library)
    return any(isinstance(documents, getattr(module, name, ())) for name in names)


def _listed(documents: Any) -> tuple[Any, Sequence[Any]]:
    """The first document, which says what they are, and all of them.

    Raises:
        CorpusError: something that holds no documents.
    """
    if isinstance(documents, str | bytes | Path):
        raise CorpusError(
            f"documents is {kind_of(documents)}; give a list of texts, one a document; {_FILES}"
        )
    if isinstance(documents, Mapping | set | frozenset) or not isinstance(documents, Iterable):
        raise CorpusError(
            f"documents is {kind_of(documents)}; give a list of texts or of records, a DataFrame, "
            "or a data set of datasets"
        )
    listed = tuple(documents) if isinstance(documents, tuple) else list(documents)
    first = listed[0] if listed else ""
    if isinstance(first, Path) or _are_paths(listed):
        raise CorpusError(f"documents holds names of files, such as {str(first)!r}; {_FILES}")
    if not isinstance(first, str | Mapping):
        raise CorpusError(
            f"the first document is {kind_of(first)}; give texts (str) or records (dict); of token "
            "ids, give the texts that they were made from"
        )
    return first, listed


def _are_paths(listed: Sequence[Any]) -> bool:
    """Whether each text is the name of a file that is there."""
    if not 0 < len(listed) <= _MOST_PATHS:
        return False
    short = all(isinstance(text, str) and len(text) <= _LONGEST_PATH for text in listed)
    return short and all(map(os.path.isfile, listed))


def _refuse_wrapping(wrapping: "Wrapping | None", instead: str) -> None:
    if wrapping is not None:
        raise CorpusError(f"a wrapping is for a list of records (dicts); give {instead}")


def _check_later(
    plan: Plan | Manifest | None,
    wrapping: "Wrapping | None",
    existing: Existing,
    total: int | None,
) -> None:
    _refuse_wrapping(wrapping, "the records of a data set that fits in memory")
    if existing != "refuse":
        raise CorpusError(
            "what a stream holds already is found while it is read, too late to set it aside; "
            "leave existing out, or give a Dataset"
        )
    if total is None and isinstance(plan, Plan):
        raise CorpusError(
            "nobody knows how many documents a stream has, and that decides where canaries stand; "
            "count them once, and give total"
        )
