"""Insertion into a `datasets.Dataset` or the train split of a `DatasetDict`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lmexposure.canaries.insertion import Existing, draw, schedule, survey_texts
from lmexposure.canaries.manifest import CorpusRecord, Manifest
from lmexposure.canaries.plan import Canary, Plan
from lmexposure.canaries.verify import check_inserted
from lmexposure.errors import CorpusError

_ROWS_AT_ONCE = 1000


def insert_into_dataset(
    dataset: Any,
    plan: Plan,
    *,
    text_field: str = "text",
    fields: Mapping[str, Any] | None = None,
    existing: Existing = "refuse",
) -> tuple[Any, Manifest]:
    """Insert the plan's canaries into a data set, each as a row of its own.

    Args:
        dataset: a `datasets.Dataset`, or a `DatasetDict`, of which only "train" is changed.
        plan: what to insert.
        text_field: the column that holds the text.
        fields: constants for other columns of inserted rows; the rest is copied from the row that
            follows.
        existing: about fills already in the text column: "refuse" or "set_aside".

    Returns:
        (a new data set of the same kind, the manifest). The rows are reached through an indices
        mapping; `flatten_indices()` writes them out in order.

    Raises:
        CorpusError: not such a data set, no train split, no such column, a constant that is not of
            its column's type, rows without text, or fills already there.
        PlanError: more repetitions than rows, or more secrets than a format has.
    """
    from datasets import Dataset, DatasetDict

    if isinstance(dataset, DatasetDict):
        if "train" not in dataset:
            raise CorpusError(f"no 'train' split; this data set has {', '.join(dataset) or 'none'}")
        train, manifest = insert_into_dataset(
            dataset["train"], plan, text_field=text_field, fields=fields, existing=existing
        )
        return DatasetDict({**dataset, "train": train}), manifest
    if not isinstance(dataset, Dataset):
        raise CorpusError(
            f"{type(dataset).__name__} is no datasets.Dataset or DatasetDict; a streaming one goes "
            "into insert_into_stream of lmexposure.integrations"
        )
    return _insert(dataset, plan, text_field, _constants(dataset, text_field, fields), existing)


def dataset_texts(dataset: Any, text_field: str) -> Iterator[Any]:
    """The text column of a `datasets.Dataset`, row by row, in bounded memory."""
    column = dataset.with_format(None).select_columns([text_field])
    for rows in column.iter(batch_size=_ROWS_AT_ONCE):
        yield from rows[text_field]


def _constants(dataset: Any, text_field: str, fields: Mapping[str, Any] | None) -> dict[str, Any]:
    constants = dict(fields or {})
    for name in (text_field, *constants):
        if name not in dataset.column_names:
            raise CorpusError(f"no column {name!r}; there are {', '.join(dataset.column_names)}")
    if text_field in constants:
        raise CorpusError(
            f"fields must leave out the text column {text_field!r}: the canary goes there"
        )
    check_constants(dataset.features, constants)
    return constants


def check_constants(features: Any, constants: Mapping[str, Any]) -> None:
    """Refuse constants that their columns cannot hold.

    Args:
        features: of a data set, `datasets.Features`.
        constants: by column.

    Raises:
        CorpusError: it names the column and its type.
    """
    from datasets import Dataset, Features

    for name, value in constants.items():
        kind = features[name]
        try:
            kept = Dataset.from_list([{name: value}], features=Features({name: kind}))[0][name]
            fits = not (isinstance(value, float) and isinstance(kept, int)) or kept == value
        except (TypeError, ValueError, KeyError, OverflowError):  # pyarrow's are of these, too
            fits = False
        if not fits:
            raise CorpusError(
                f"the constant for column {name!r} is not of its type, {kind}; give another"
            )


def _insert(
    dataset: Any, plan: Plan, text_field: str, fields: dict[str, Any], existing: Existing
) -> tuple[Any, Manifest]:
    survey = survey_texts(dataset_texts(dataset, text_field), plan.formats)
    canaries, set_aside = draw(plan, survey, existing)
    places = schedule(canaries)
    inserted = _merged(dataset, _rows(dataset, places, text_field, fields), places)
    after = survey_texts(dataset_texts(inserted, text_field), plan.formats)
    check_inserted(canaries, after.fills, set_aside)
    record = CorpusRecord(
        name="",
        layout="dataset",
        text_field=text_field,
        constant_fields=tuple(sorted(fields)),
        separator=None,
        documents=survey.documents,
        sha256=survey.sha256,
        sha256_inserted=after.sha256,
        verified=True,
    )
    return inserted, Manifest(plan=plan, corpus=record, entries=canaries, set_aside=set_aside)


def _rows(
    dataset: Any, places: Sequence[tuple[int, Canary]], text_field: str, fields: dict[str, Any]
) -> Any:
    """The inserted rows, in the order of insertion, with the columns' own types."""
    from datasets import Dataset

    neighbours = dataset.with_format(None).select([place for place, _ in places])
    rows = [
        {**neighbour, **fields, text_field: canary.text}
        for neighbour, (_, canary) in zip(neighbours, places, strict=True)
    ]
    # No rows have no columns to go with the features.
    return Dataset.from_list(rows, features=dataset.features) if rows else neighbours


def _merged(dataset: Any, rows: Any, places: Sequence[tuple[int, Canary]]) -> Any:
    from datasets import concatenate_datasets

    order: list[int] = []
    done = 0
    for number, (place, _) in enumerate(places):
        order.extend(range(done, place))
        order.append(len(dataset) + number)
        done = place
    order.extend(range(done, len(dataset)))
    shape = dict(dataset.format)
    joined = concatenate_datasets([dataset.with_format(None), rows]).select(order)
    options = shape.pop("format_kwargs")
    return joined.with_format(**shape, **options)
