"""Canaries into any batch of numbered rows: what streams and engines call, wherever a batch lies.

A step knows the manifest and nothing of other batches, so a table may be cut into parts in any way.
"""

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lmexposure._validate import integer
from lmexposure.canaries.format import count_fills
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.placing import Placement, manifest_without_corpus
from lmexposure.canaries.plan import Plan
from lmexposure.errors import CorpusError, ManifestError


def manifest_of_rows(
    plan: Plan | Manifest,
    *,
    documents: int | None = None,
    text_field: str = "text",
    fields: Collection[str] = (),
) -> Manifest:
    """The manifest of an insertion into rows that nobody has read as a whole.

    Args:
        plan: what to insert; or the manifest of an earlier insertion, which is checked to fit.
        documents: how many rows there are in all; with a manifest it may stay out.
        text_field: the column that holds the text.
        fields: columns of inserted rows that are constants.

    Raises:
        CorpusError: no number of documents, or constants for the text column.
        ManifestError: a manifest of other documents or columns.
        PlanError: too few documents or secrets.
    """
    if text_field in fields:
        raise CorpusError(
            f"fields must leave out the text column {text_field!r}: the canary goes there"
        )
    if isinstance(plan, Manifest):
        _check_fits(plan, documents, text_field, fields)
        return plan
    if documents is None:
        raise CorpusError(
            "the number of documents decides where canaries stand, and nobody reads the whole "
            "corpus here: count its rows and give documents"
        )
    return manifest_without_corpus(
        plan,
        documents=integer("documents", documents, low=1, error=CorpusError),
        layout="dataset",
        text_field=text_field,
        constant_fields=fields,
    )


def _check_fits(
    manifest: Manifest, documents: int | None, text_field: str, fields: Collection[str]
) -> None:
    record = manifest.corpus
    for name, given, recorded in (
        ("documents", record.documents if documents is None else documents, record.documents),
        ("text_field", text_field, record.text_field),
        ("fields", sorted(fields), sorted(record.constant_fields)),
    ):
        if given != recorded:
            raise ManifestError(
                f"{name}={given!r}, but the manifest was made for {recorded!r}; give what it was "
                "made for, or the plan in its place"
            )


@dataclass(frozen=True, kw_only=True)
class Merge:
    """How a batch takes its canaries in: rows to add, and the order of all.

    Attributes:
        neighbours: per row to add, the row of the batch that it stands before and copies.
        texts: per row to add, its text.
        order: the merged batch, as places in (rows of the batch, then rows to add).
    """

    neighbours: list[int]
    texts: list[str] = field(repr=False)
    order: list[int]


@dataclass(frozen=True, kw_only=True)
class InsertionStep:
    """Puts canary rows before their documents, batch by batch; it can be pickled.

    For `datasets`: `dataset.map(step, batched=True, with_indices=True)`, also with `num_proc`, or
    without indices where an id column is named. Of a DatasetDict map the train split alone: each
    split would count from 0 and take canaries in. An IterableDataset counts anew in every loader
    worker and node: there name an id column, or use `insert_into_stream`.

    What one batch cannot show, the step cannot refuse: rows that are missing, or that come twice in
    different batches. `verify_texts` over the result does.

    Args:
        manifest: of these rows; see `manifest_of_rows`.
        text_field: the column that holds the text.
        fields: constants for other columns of inserted rows; the rest is copied from the row that
            follows.
        id_column: the column that holds the number of each document, from 0 in the whole corpus;
            None: the numbers come with the batch.

    Raises:
        CorpusError: constants for the text column.
        ManifestError: the manifest is of other columns.

    >>> from lmexposure.canaries import load_format
    >>> plan = Plan(formats=[load_format("pin")], canaries=1, repetitions=[3], controls=0, seed=7)
    >>> step = InsertionStep(manifest=manifest_of_rows(plan, documents=3), id_column="id")
    >>> step({"id": [2, 0], "text": ["the last", "the first"]})["id"]
    [2, 2, 0, 0]
    """

    manifest: Manifest
    text_field: str = "text"
    fields: Mapping[str, Any] = field(default_factory=dict)
    id_column: str | None = None

    def __post_init__(self) -> None:
        manifest_of_rows(self.manifest, text_field=self.text_field, fields=self.fields)
        object.__setattr__(self, "_placement", Placement(self.manifest.canaries))

    def __call__(
        self, batch: Mapping[str, Sequence[Any]], numbers: Sequence[int] | None = None
    ) -> dict[str, list[Any]]:
        """The batch with its canary rows.

        Args:
            batch: columns of equal length.
            numbers: of the documents; left unread where an id column is named.

        Raises:
            CorpusError: see `numbered`; no batch of columns by name; or nobody says which documents
                these are.
        """
        _check_batch(batch)
        if self.id_column is not None:
            self.check_columns(list(batch))
            return self.numbered(batch, batch[self.id_column])
        if numbers is None:
            raise CorpusError(
                "the step was given no document numbers; map with with_indices=True, or name an "
                "id_column"
            )
        if _one_of_several_loader_workers():
            raise CorpusError(
                "several loader workers each count their rows from 0, so no document has its "
                "number; use insert_into_stream, an id_column, or at most one worker"
            )
        return self.numbered(batch, numbers)

    def numbered(
        self, batch: Mapping[str, Sequence[Any]], numbers: Sequence[int]
    ) -> dict[str, list[Any]]:
        """The batch with its canary rows, wherever its numbers come from.

        Raises:
            CorpusError: see `merge` and `check_columns`.
        """
        self.check_columns(list(batch))
        merge = self.merge(batch[self.text_field], numbers)
        merged = {}
        for name in batch:
            column = list(batch[name])
            values = [*column, *self.added(name, merge, column)]
            merged[name] = [values[place] for place in merge.order]
        return merged

    def added(self, name: str, merge: Merge, column: Sequence[Any]) -> list[Any]:
        """One column of the rows to add."""
        if name == self.text_field:
            return list(merge.texts)
        if name in self.fields:
            return [self.fields[name]] * len(merge.texts)
        return [column[place] for place in merge.neighbours]

    def check_columns(self, names: Collection[str]) -> None:
        """Refuse rows without the text, the ids, or a column that constants are given for.

        Raises:
            CorpusError: it names the column, and those that are there.
        """
        for name in (self.text_field, *self.fields, *([self.id_column] if self.id_column else [])):
            if name not in names:
                raise CorpusError(f"no column {name!r}; there are {', '.join(names) or 'none'}")

    def merge(self, texts: Sequence[str], numbers: Sequence[int]) -> Merge:
        """Which rows to add to documents with these numbers, and where.

        Raises:
            CorpusError: a number that is none, outside the corpus or there twice; a text that is no
                string; or a fill that stands there already. It names the document.
        """
        check_numbers(numbers, self.manifest.corpus.documents)
        self._check_texts(texts, numbers)
        placement: Placement = vars(self)["_placement"]
        neighbours: list[int] = []
        added: list[str] = []
        order: list[int] = []
        for row, number in enumerate(numbers):
            for canary in placement.before(number):
                order.append(len(texts) + len(added))
                neighbours.append(row)
                added.append(canary.text)
            order.append(row)
        return Merge(neighbours=neighbours, texts=added, order=order)

    def _check_texts(self, texts: Sequence[str], numbers: Sequence[int]) -> None:
        for text, number in zip(texts, numbers, strict=True):
            if not isinstance(text, str):
                raise CorpusError(
                    f"document {number} is of type {type(text).__name__}, not a string; name the "
                    "column that holds the text, or leave such rows out"
                )
        pairs = zip(map(int, numbers), texts, strict=True)
        found = count_fills(self.manifest.plan.formats, pairs, whole_lines=False)
        for name, fills in found.items():
            strange = fills.counts.keys() - set(self.manifest.set_aside.get(name, ()))
            if strange:
                raise CorpusError(
                    f"the corpus already holds fills: {name} {fills.named(strange, 'document')}, "
                    "counted from 0; choose another format, or leave these documents out"
                )


def _check_batch(batch: Any) -> None:
    if not hasattr(batch, "keys"):
        raise CorpusError(
            f"a batch is of type {type(batch).__name__}, and must be columns by name; map the data "
            "set with_format(None)"
        )
    if any(isinstance(batch[name], str) for name in batch):
        raise CorpusError("this is one row, and the step takes batches; map with batched=True")


def check_numbers(numbers: Sequence[int], documents: int) -> None:
    """Refuse what numbers no document, and two rows of one number.

    Raises:
        CorpusError: it names the number, and the range where it left that.
    """
    seen = set()
    for number in numbers:
        if not isinstance(number, int | np.integer) or isinstance(number, bool):
            raise CorpusError(
                f"a document has the number {number!r} of type {type(number).__name__}; "
                f"documents are numbered by whole numbers from 0 to {documents - 1}"
            )
        if not 0 <= number < documents:
            raise CorpusError(
                f"there is a document {number}, but with documents={documents} the last one is "
                f"{documents - 1}; number them from 0, and count them again"
            )
        if number in seen:
            raise CorpusError(f"two rows are document {number}; give each a number of its own")
        seen.add(number)


def _one_of_several_loader_workers() -> bool:
    # Looked up, not imported: where torch is not loaded there are no such workers.
    data = sys.modules.get("torch.utils.data")
    worker = data.get_worker_info() if data else None
    return worker is not None and worker.num_workers > 1
