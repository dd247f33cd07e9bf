"""What of a manifest is in a tokenised data set: its tokens turned back into text."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lmexposure.canaries.corpora.counting import CorpusCount, count_of
from lmexposure.canaries.format import Found, find_fills
from lmexposure.canaries.manifest import Manifest
from lmexposure.errors import CorpusError

_ROWS_AT_ONCE = 1000


def saved_tokens(path: str | Path, *, column: str = "input_ids") -> Iterator[Sequence[int] | None]:
    """The token ids of a saved `datasets.Dataset`, or of the train split of a `DatasetDict`."""
    from datasets import DatasetDict, load_from_disk

    try:
        dataset: Any = load_from_disk(str(path))
    except Exception as failure:  # damaged and empty ones raise whatever reading them ran into
        reason = str(failure).strip().split("\n")[0] or type(failure).__name__
        raise CorpusError(
            f"cannot read the data set {path}: {reason}; give a directory of save_to_disk with rows"
        ) from failure
    if isinstance(dataset, DatasetDict):
        if "train" not in dataset:
            raise CorpusError(f"no 'train' split; {path} has {', '.join(dataset) or 'none'}")
        dataset = dataset["train"]
    if column not in dataset.column_names:
        raise CorpusError(
            f"no column {column!r}; {path} has {', '.join(dataset.column_names)}: tokenise it first"
        )
    kind = dataset.features.arrow_schema.field(column).type
    if not _are_tokens(kind):
        raise CorpusError(
            f"column {column!r} of {path} is of type {kind}, and tokens are lists of whole "
            "numbers; tokenise it first"
        )
    rows = dataset.with_format(None).select_columns([column])
    return (row for rows in rows.iter(batch_size=_ROWS_AT_ONCE) for row in rows[column])


def _are_tokens(kind: Any) -> bool:
    from pyarrow import types

    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    return any(is_one(kind) for is_one in lists) and bool(types.is_integer(kind.value_type))


def count_tokenised(
    pieces: Iterable[Sequence[int] | None],
    manifest: Manifest,
    *,
    decode: Callable[[Sequence[int]], str],
) -> CorpusCount:
    """Count the fills in pieces of token ids, in the order of the data set.

    A fill counts as found where it is whole in one piece: a model learns from a piece at a time.
    One that the border of two pieces cuts is told apart. `decode` leaves out special tokens.
    """
    found = {name: Found() for name in manifest.formats}
    cut: Counter[str] = Counter()
    ids = {(one.format, one.index): one.id for one in manifest.entries}
    # No token of a byte-level vocabulary is less than a byte.
    reach = max(len(one.text.encode()) for one in manifest.entries) + 1
    before: Sequence[int] = ()
    for number, piece in enumerate(pieces, 1):
        if piece is None or min(piece, default=0) < 0:
            what = "no list of tokens" if piece is None else f"the token {min(piece)}"
            raise CorpusError(
                f"row {number} holds {what}, and a row is a list of numbers from 0; leave it out"
            )
        text, tail, head = decode(piece), decode(before), decode(piece[:reach])
        for one in manifest.plan.formats:
            for fill in find_fills(one, text):
                found[one.name].add(number, fill.index)
            for fill in find_fills(one, tail + head):
                if fill.start < len(tail) < fill.end and (one.name, fill.index) in ids:
                    cut[ids[one.name, fill.index]] += 1
        before = piece[-reach:]
    return count_of(manifest, found, cut=cut, where="row")
