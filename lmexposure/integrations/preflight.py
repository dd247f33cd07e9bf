"""Before the first step: will the canaries reach the model whole, and with loss?

What a training would silently lose is better known before it than after. So the rows of the first
epoch are collated once more, in another order, and looked at as `verify --rows` looks at rows; the
loader itself is not touched.
"""

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

from lmexposure.canaries import Manifest, Wrapping, permutation
from lmexposure.errors import LmexposureError
from lmexposure.integrations.row_contexts import RowsCounter, each_row
from lmexposure.integrations.training_evidence import LabelFrequencies, predicted
from lmexposure.models import is_stream
from lmexposure.scoring import same_random_numbers
from lmexposure.studies import RowsRecord

_SECONDS = 60.0  # and the batch that is being read then
_BATCH = 8  # rows, where the loader does not say


@dataclass(frozen=True, kw_only=True)
class RowsAhead:
    """What the rows of a training say before it begins; no secrets."""

    in_vain: str = ""  # why training would be, and what to change; "" where it is not
    warnings: tuple[str, ...] = ()  # what else is not as planned, or could not be looked at
    record: RowsRecord | None = None  # None where no row could be read
    # Of the evaluation's rows, by how often each token is in these, bits per token; None where it
    # was not asked for, or there was no time for all rows.
    unigram_bits: float | None = None


def rows_ahead(
    manifest: Manifest,
    tokenizer: Any,
    wrapping: Wrapping | None,
    loader: Any,
    *,
    evaluation: Callable[[], Any] | None = None,
    seconds: float = _SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> RowsAhead:
    """Look at the rows of a training's loader for some seconds, and leave the loader as it is."""
    data: Any = getattr(loader, "dataset", None)
    if is_stream(data):
        return _unchecked("its data is a stream, or has no rows to read by number")
    until, rows = clock() + seconds, 0
    try:
        counter = RowsCounter(manifest, tokenizer, wrapping=wrapping)
        frequencies = LabelFrequencies()
        with same_random_numbers():
            for of_batch, batch in _collated(loader, until, clock):
                rows += of_batch
                for row in each_row([batch]):
                    counter.row(row)
                if evaluation is not None:
                    frequencies.add(batch)
            whole = rows == len(data)
            unigram_bits = _unigram_bits(frequencies, evaluation, until, clock) if whole else None
        record, in_vain = counter.record(whole=whole), counter.in_vain(whole=whole)
    except LmexposureError as failure:
        return _unchecked(str(failure))
    except Exception as failure:  # a data set or a collator raises what it likes, secrets in it
        return _unchecked(f"its rows could not be read and collated ({type(failure).__name__})")
    not_read = (
        f"{rows:,} of {len(data):,} rows were checked for canaries in {seconds:g} s; the others "
        "were not, nor whether all canaries come"
    )
    return RowsAhead(
        in_vain="; ".join((in_vain, *record.warnings)) if in_vain else "",
        warnings=(*(() if in_vain else record.warnings), *(() if whole else (not_read,))),
        record=record,
        unigram_bits=unigram_bits,
    )


def _unchecked(why: str) -> RowsAhead:
    return RowsAhead(
        warnings=(
            f"whether the training's rows hold the canaries whole and with loss was not checked: "
            f"{why}; DeliveredCounter(manifest, tokenizer).attach(trainer) counts them while it "
            "trains",
        )
    )


def _collated(loader: Any, until: float, clock: Callable[[], float]) -> Iterator[tuple[int, Any]]:
    """Batches, and of how many rows each is, until all are read or the time is over."""
    # A copy, for it may hold random numbers of its own.
    collate = copy.deepcopy(loader.collate_fn)
    for rows in _batches(loader):
        yield len(rows), collate(rows)
        if clock() > until:
            break


def _batches(loader: Any) -> Iterator[list[Any]]:
    """All rows once: neighbours together, batches in an order that mixes them."""
    data, size = loader.dataset, getattr(loader, "batch_size", None) or _BATCH
    several = getattr(data, "__getitems__", None)
    for place in permutation(ceil(len(data) / size), seed=1):
        numbers = list(range(place * size, min((place + 1) * size, len(data))))
        yield [data[i] for i in numbers] if several is None else list(several(numbers))


def _unigram_bits(
    frequencies: LabelFrequencies,
    evaluation: Callable[[], Any] | None,
    until: float,
    clock: Callable[[], float],
) -> float | None:
    """What token frequencies say of the rows to evaluate on; None where not all are read."""
    if evaluation is None:
        return None
    try:
        loader = evaluation()
        held_out = [(rows, predicted(batch)) for rows, batch in _collated(loader, until, clock)]
        whole = sum(rows for rows, _ in held_out) == len(loader.dataset)
        return frequencies.bits(held_out) if whole else None
    except Exception:
        return None
