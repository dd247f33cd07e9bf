"""Insertion into documents in memory: lists, records, frames, data sets and streams by one call."""

from collections.abc import Mapping, Sized
from typing import Any, Generic, NamedTuple, TypeVar

from lmexposure.canaries.corpora.in_memory import (
    STREAM,
    InMemory,
    corpus_of,
    is_instance_of,
    is_read_later,
)
from lmexposure.canaries.corpora.streams import insert_into_ray, insert_into_stream
from lmexposure.canaries.fills import count_fills
from lmexposure.canaries.insertion import (
    Existing,
    Merge,
    Placement,
    Verification,
    check_inserted,
    constants_of,
    draw,
    same_hash,
    scan_corpus,
)
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.plan import Plan
from lmexposure.canaries.row_schema import RowSchema
from lmexposure.canaries.wrapping import Wrapping
from lmexposure.errors import CorpusError

_T = TypeVar("_T")


class Inserted(NamedTuple, Generic[_T]):
    """What an insertion gives: the documents with canaries among them, and what must be kept."""

    documents: _T  # of the kind that was given
    manifest: Manifest  # which canaries there are and where; it holds the secrets

    def __repr__(self) -> str:
        """Without the documents: the secrets are among them, and a notebook keeps what it shows."""
        several = isinstance(self.documents, Sized) and not isinstance(self.documents, Mapping)
        many = f"{len(self.documents):,} documents in " if several else ""  # type: ignore[arg-type]
        return f"<Inserted: {many}a {type(self.documents).__name__}, {self.manifest!r}>"


def insert(  # noqa: PLR0913 (a public door: each is an option of an insertion)
    documents: _T,
    plan: Plan | Manifest | None = None,
    *,
    wrapping: Wrapping | None = None,
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
        wrapping: where in a record a canary goes: as a turn of a chat, or behind a prompt; also as
            a manifest says it, with the training's chat template. The manifest keeps it.
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
        CorpusError: no documents of these kinds, documents without text, fills already there, a
            record that is no chat of texts (images, an unknown role, an empty turn), or constants
            that change how the canaries' chats are rendered (tools, chat_template_kwargs).
        FormatError: a format that cannot be found or read.
        PlanError: a plan that cannot be, or that the documents or a format cannot hold.

    >>> texts, manifest = insert(["one", "two"], formats=["pin"], canaries=1, repetitions=(2,))
    >>> len(texts), len(manifest.canaries)
    (4, 1)
    """
    given: Any = plan
    if not is_read_later(documents):
        for name, value in (("total", total), ("id_column", id_column)):
            if value is not None:
                raise CorpusError(
                    f"{name}={value} is for a stream; leave it out: these are counted"
                )
        chosen = Plan.of(given, plan_fields)
        corpus = corpus_of(documents, _schema(text_field, fields, wrapping))
        return Inserted(*_insert(corpus, chosen, existing))
    again = isinstance(plan, Manifest) and not plan_fields
    known: Plan | Manifest = given if again else Plan.of(given, plan_fields)
    if existing != "refuse":
        raise CorpusError(
            "what a stream holds already is found while it is read, too late to set it aside; "
            "leave existing out, or give a Dataset"
        )
    if total is None and isinstance(known, Plan) and is_instance_of(documents, STREAM):
        raise CorpusError(
            "how many documents a stream has cannot be looked up, and that decides where canaries "
            "go; count them once, and give total"
        )
    inserter = insert_into_stream if is_instance_of(documents, STREAM) else insert_into_ray
    where: dict[str, Any] = {"text_field": text_field, "fields": fields, "id_column": id_column}
    where["wrapping"] = wrapping
    return Inserted(*inserter(documents, known, total=total, **where))


def _insert(corpus: InMemory, plan: Plan, existing: Existing) -> tuple[Any, Manifest]:
    """(Documents of the kind that was given, each canary a row of its own; the manifest)."""
    for name in sorted(corpus.schema.fields.keys() & corpus.schema.wrapped("")):
        raise CorpusError(f"fields must leave out the text column {name!r}: the canary goes there")
    corpus.schema.check_around(plan.hidden_formats)
    scan = scan_corpus(corpus, plan.hidden_formats)
    entries, set_aside = draw(plan, scan, existing, place=corpus.place)
    placement = Placement(entries)
    inserted: Any = Merge(placement).part(corpus)
    verification = Verification(scan, entries, placement)
    assert scan.hashes is not None, "there is a format"
    verification.source(inserted, same_hash(scan.hashes.total))
    # A wrapping may hold fills of its own.
    numbers = [number for number, _ in placement.inserted()]
    texts = zip((number + 1 for number in numbers), inserted.picked(numbers).texts, strict=True)
    check_inserted(entries, count_fills(plan.hidden_formats, texts, whole_lines=False), set_aside)
    return inserted.given, verification.manifest(plan, corpus.about(), set_aside)


def _schema(
    text_field: str, fields: Mapping[str, Any] | None, wrapping: Wrapping | None
) -> RowSchema:
    if wrapping is None:
        return RowSchema(text_field, constants_of(fields))
    return RowSchema.around(wrapping, fields)
