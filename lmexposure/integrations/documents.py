"""Canaries into documents in memory: one call for lists, records, frames and data sets.

What holds the documents is recognised and given back as the same kind, by the functions that know
it. Neither `datasets` nor pandas is imported here: who gives a data set has loaded the library.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from lmexposure._validate import of_type
from lmexposure.canaries import Manifest, Plan, dataset_texts, insert_into_texts
from lmexposure.canaries.insertion import Existing
from lmexposure.canaries.placing import Placement
from lmexposure.errors import CorpusError, PlanError

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
    plan: Plan | None = None,
    *,
    wrapping: "Wrapping | None" = None,
    text_field: str = "text",
    existing: Existing = "refuse",
    total: int | None = None,
    **plan_fields: Any,
) -> Inserted[_T]:
    """Insert canaries among documents in memory, each as a document of its own.

    Args:
        documents: a list, a tuple or another iterable of texts; a list of records (dicts) with a
            text in each, or with chats, where `wrapping` says so; a pandas DataFrame; a
            `datasets.Dataset`, a DatasetDict, whose "train" split alone is changed, or an
            IterableDataset, which needs `total`.
        plan: what to insert; or give its fields: `formats=["pin"], repetitions=(1, 16)`.
        wrapping: where in a record a canary goes: as a turn of a chat, or behind a prompt.
        text_field: of records and columns, the one that holds the text.
        existing: fills of a format that a document holds already: "refuse", or "set_aside": never
            draw them, and say so in the manifest.
        total: how many documents a stream has, which cannot be looked up.
        plan_fields: of `Plan`, in place of `plan`.

    Returns:
        (documents, manifest). A list for any iterable that is no tuple; other fields of an inserted
        record are copied from the record that follows.

    Raises:
        CorpusError: no documents of these kinds, documents without text, or fills already there.
        FormatError: a format that cannot be found or read.
        PlanError: a plan that cannot be, or that the documents or a format cannot hold.

    >>> texts, manifest = insert(["one", "two"], formats=["pin"], canaries=1, repetitions=(2,))
    >>> len(texts), len(manifest.canaries)
    (4, 1)
    """
    chosen = plan_from(plan, plan_fields)
    made = _insert(documents, chosen, wrapping, text_field, existing, total)
    return Inserted(*made)


def plan_from(plan: Plan | None, values: Mapping[str, Any]) -> Plan:
    """The plan that is given, or that its fields make.

    Raises:
        FormatError: a format that cannot be found or read.
        PlanError: both, neither, or a field that no plan has.
    """
    if plan is None:
        known = [field.name for field in fields(Plan)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise PlanError(f"a plan has no {unknown[0]!r}; it has {', '.join(known)}")
        if "formats" not in values:
            raise PlanError('say what to insert, such as formats=["pin"]')
        return Plan(**values)
    if not isinstance(plan, Plan):
        raise PlanError(
            f"plan is of type {type(plan).__name__}; give a Plan, or its fields by name"
        )
    if values:
        raise PlanError(
            f"give a plan or its fields, not both; replace(plan, {next(iter(values))}=...) of "
            "dataclasses changes a plan"
        )
    return plan


def _insert(
    documents: Any,
    plan: Plan,
    wrapping: "Wrapping | None",
    text_field: str,
    existing: Existing,
    total: int | None,
) -> tuple[Any, Manifest]:
    if _is(documents, "datasets", "IterableDataset"):
        return _into_stream(documents, plan, wrapping, text_field, existing, total)
    if total is not None:
        raise CorpusError(f"total={total} is for a stream; leave it out: these are counted")
    if _is(documents, "datasets", "Dataset", "DatasetDict"):
        from lmexposure.canaries import insert_into_dataset

        _refuse_wrapping(wrapping, "dataset.to_list()")
        return insert_into_dataset(documents, plan, text_field=text_field, existing=existing)
    if _is(documents, "pandas", "DataFrame"):
        _refuse_wrapping(wrapping, "frame.to_dict('records')")
        return _into_frame(documents, plan, text_field, existing)
    first, listed = _listed(documents)
    if isinstance(first, Mapping):
        inserted, manifest = _into_records(listed, plan, wrapping, text_field, existing)
    else:
        _refuse_wrapping(wrapping, "records with the fields of the wrapping")
        inserted, manifest = insert_into_texts(listed, plan, existing=existing)
    return tuple(inserted) if isinstance(documents, tuple) else inserted, manifest


def _is(documents: Any, library: str, *names: str) -> bool:
    """Whether it is of a class of this library, which is not imported for it."""
    module = sys.modules.get(library)
    return any(isinstance(documents, getattr(module, name, ())) for name in names)


def _listed(documents: Any) -> tuple[Any, list[Any]]:
    """The first document, which says what they are, and all of them.

    Raises:
        CorpusError: something that holds no documents.
    """
    if isinstance(documents, str | bytes | Path):
        raise CorpusError(
            f"documents is {_kind(documents)}; give a list of texts, one a document; {_FILES}"
        )
    if isinstance(documents, Mapping | set | frozenset) or not isinstance(documents, Iterable):
        raise CorpusError(
            f"documents is {_kind(documents)}; give a list of texts or of records, a DataFrame, or "
            "a data set of datasets"
        )
    listed = list(documents)
    first = listed[0] if listed else ""
    if isinstance(first, Path) or _are_paths(listed):
        raise CorpusError(f"documents holds names of files, such as {str(first)!r}; {_FILES}")
    if not isinstance(first, str | Mapping):
        raise CorpusError(
            f"the first document is {_kind(first)}; give texts (str) or records (dict); of token "
            "ids, give the texts that they were made from"
        )
    return first, listed


def _are_paths(listed: Sequence[Any]) -> bool:
    """Whether each text is the name of a file that is there."""
    if not 0 < len(listed) <= _MOST_PATHS:
        return False
    short = all(isinstance(text, str) and len(text) <= _LONGEST_PATH for text in listed)
    return short and all(map(os.path.isfile, listed))


def _kind(value: Any) -> str:
    return "one text" if isinstance(value, str) else f"of type {type(value).__name__}"


def _refuse_wrapping(wrapping: "Wrapping | None", instead: str) -> None:
    if wrapping is not None:
        raise CorpusError(f"a wrapping is for a list of records (dicts); give {instead}")


def _into_stream(
    stream: Any,
    plan: Plan,
    wrapping: "Wrapping | None",
    text_field: str,
    existing: Existing,
    total: int | None,
) -> tuple[Any, Manifest]:
    from lmexposure.integrations.streaming import insert_into_stream

    _refuse_wrapping(wrapping, "the records of a data set that fits in memory")
    if existing != "refuse":
        raise CorpusError(
            "what a stream holds already is found while it is read, too late to set it aside; "
            "leave existing out, or give a Dataset"
        )
    if total is None:
        raise CorpusError(
            "nobody knows how many documents a stream has, and that decides where canaries stand; "
            "count them once, and give total"
        )
    return insert_into_stream(stream, plan, documents=total, text_field=text_field)


def _into_frame(
    frame: Any, plan: Plan, text_field: str, existing: Existing
) -> tuple[Any, Manifest]:
    """Rows get a number for a moment; the index begins anew."""
    from lmexposure.canaries import insert_into_pandas

    if text_field not in frame.columns:
        raise _no_field(text_field, map(str, frame.columns))
    manifest = _manifest_of(frame[text_field].tolist(), plan, text_field, existing)
    number = "number"
    while number in frame.columns:
        number += "_"
    numbered = frame.assign(**{number: range(len(frame))})
    (inserted,) = insert_into_pandas([numbered], manifest, id_column=number, text_field=text_field)
    return inserted.drop(columns=number), manifest


def _into_records(
    records: Sequence[Any],
    plan: Plan,
    wrapping: "Wrapping | None",
    text_field: str,
    existing: Existing,
) -> tuple[list[Any], Manifest]:
    if wrapping is not None:
        from lmexposure.integrations.records import insert_into_records
        from lmexposure.integrations.wrapping import Wrapping

        example = 'Wrapping(...), such as Wrapping(turn="assistant")'
        of_type("wrapping", wrapping, Wrapping, example, error=CorpusError)
        return insert_into_records(records, plan, wrapping, existing=existing)
    for number, record in enumerate(records, 1):
        if not isinstance(record, Mapping):
            raise CorpusError(f"record {number} is {_kind(record)}, and must be fields by name")
        if text_field not in record:
            raise _no_field(text_field, map(str, record), where=f"record {number}")
    texts = [record[text_field] for record in records]
    manifest = _manifest_of(texts, plan, text_field, existing)
    placed = Placement(manifest.canaries)
    return list(
        chain.from_iterable(
            (*({**record, text_field: one.text} for one in placed.before(number)), record)
            for number, record in enumerate(records)
        )
    ), manifest


def _manifest_of(texts: list[Any], plan: Plan, text_field: str, existing: Existing) -> Manifest:
    """As of texts, which is what is hashed and searched, and with the name of their field."""
    _, manifest = insert_into_texts(texts, plan, existing=existing)
    said = {"layout": "dataset", "text_field": text_field}
    return replace(manifest, corpus=manifest.corpus.model_copy(update=said))


def _no_field(name: str, there: Iterable[str], *, where: str = "the frame") -> CorpusError:
    listed = list(there)
    chat = "; chats take a wrapping" if {"messages", "prompt"} & set(listed) else ""
    return CorpusError(
        f"{where} has no {name!r}; it has {', '.join(listed) or 'nothing'}: name the text_field"
        f"{chat}"
    )


def document_texts(
    documents: Any, *, text_field: str = "text", chat: bool = False
) -> Iterator[str]:
    """The texts of documents of any kind that `insert` takes; of chats, all strings of a record.

    Args:
        documents: as for `insert`.
        text_field: of records and columns.
        chat: records are chats.

    Raises:
        CorpusError: no documents of these kinds, or no such field.
    """
    if _is(documents, "datasets", "DatasetDict"):
        if "train" not in documents:
            raise CorpusError(f"no 'train' split; there are {', '.join(documents) or 'none'}")
        documents = documents["train"]
    if _is(documents, "datasets", "Dataset") and not chat:
        if text_field not in documents.column_names:
            raise _no_field(text_field, documents.column_names, where="the data set")
        yield from dataset_texts(documents, text_field)
        return
    if _is(documents, "pandas", "DataFrame"):
        documents = documents.to_dict("records")
    if not _is(documents, "datasets", "Dataset", "IterableDataset"):
        documents = _listed(documents)[1]
    for number, record in enumerate(documents, 1):
        if chat or not isinstance(record, Mapping):
            yield record_text(record)
        elif text_field not in record:
            raise _no_field(text_field, map(str, record), where=f"record {number}")
        else:
            yield record[text_field]


def record_text(record: Any) -> str:
    """All strings of a record, one a line: a fill in any of them is one in the corpus."""
    return "\n".join(_strings(record))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _strings(one)
    elif isinstance(value, Sequence):
        for one in value:
            yield from _strings(one)
