"""Before the first step: will the canaries reach the model whole, and with loss?

What a training would silently lose is better known before it than after. So the rows of the first
epoch are collated once more, in another order, and counted; the loader itself is not touched.
"""

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from torch.utils.data import IterableDataset
from transformers.trainer_utils import has_length

from lmexposure.canaries import Manifest, Wrapping, permutation
from lmexposure.errors import LmexposureError
from lmexposure.integrations.delivery_report import Delivery, DeliveryReport
from lmexposure.integrations.row_contexts import RowsCounter
from lmexposure.integrations.training_evidence import LabelFrequencies, predicted
from lmexposure.records import RowsRecord
from lmexposure.scoring import same_random_numbers

_SECONDS = 60.0  # and the batch that is being read then
_BATCH = 8  # rows, where the loader does not say


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """What the rows of a training say before it begins; no secrets.

    Attributes:
        stop: why training would be in vain, and what to change; "" where it is not.
        warnings: what else is not as planned, or could not be checked, a sentence each.
        rows: in which rows the canaries are; None where none could be read.
        unigram_bits: of the evaluation's rows, by how often each token is in these, bits per token;
            None where it was not asked for, or there was no time for all rows.
    """

    stop: str = ""
    warnings: tuple[str, ...] = ()
    rows: RowsRecord | None = None
    unigram_bits: float | None = None


def preflight(
    manifest: Manifest,
    tokenizer: Any,
    wrapping: Wrapping | None,
    loader: Any,
    *,
    evaluation: Callable[[], Any] | None = None,
    seconds: float = _SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> Preflight:
    """Count the canaries in the rows of a training's loader, and leave the loader as it is.

    The loader's data set is read by row numbers and collated in this process, with a copy of the
    collator; sampler and random numbers stay as they are. A data set whose rows depend on random
    numbers of its own would be disturbed, and is better left out.

    Args:
        manifest: what was inserted.
        tokenizer: of the training.
        wrapping: in which the canaries will be scored; None: in the rows as they are.
        loader: a `DataLoader`, or what accelerate made of one.
        evaluation: gives such a loader of the rows to evaluate on, whose tokens are to be compared
            with these; None: they are not.
        seconds: that it takes at most; rows that are left then are named.
        clock: gives seconds that only grow.

    Returns:
        what was found; a failure to check is a warning, and stops nothing.
    """
    data: Any = getattr(loader, "dataset", None)
    if isinstance(data, IterableDataset) or not (has_length(data) and hasattr(data, "__getitem__")):
        return _unchecked("its data is a stream, or has no rows to read by number")
    try:
        counter = RowsCounter(manifest, tokenizer, wrapping=wrapping)
        tokens = None if evaluation is None else LabelFrequencies()
        until, rows = clock() + seconds, 0
        with same_random_numbers():
            for some, batch in _collated(loader, until, clock, counter.collator):
                rows += some
                if tokens is not None:
                    tokens.add(batch)
            whole = rows == len(data)
            unigram_bits = _unigram_bits(tokens, evaluation, until, clock) if whole else None
        seen = counter.record(whole=whole)
    except LmexposureError as failure:
        return _unchecked(str(failure))
    except Exception as failure:  # a data set or a collator raises what it likes, secrets in it
        return _unchecked(f"its rows could not be read and collated ({type(failure).__name__})")
    report = counter.report(1.0 if whole else 0.5, alone=True)
    left = "" if whole else _left(rows, len(data), seconds)
    judged = _judged(report, whole=whole, left=left)
    return replace(judged, rows=seen, unigram_bits=unigram_bits)


def _unchecked(why: str) -> Preflight:
    return Preflight(
        warnings=(
            f"whether the training's rows hold the canaries whole and with loss was not checked: "
            f"{why}; DeliveredCounter(manifest, tokenizer).attach(trainer) counts them while it "
            "trains",
        )
    )


def _left(rows: int, planned: int, seconds: float) -> str:
    return (
        f"{rows:,} of {planned:,} rows were checked for canaries in {seconds:g} s; the others were "
        "not, nor whether all canaries come"
    )


def _collated(
    loader: Any,
    until: float,
    clock: Callable[[], float],
    counting: Callable[[Any], Any] = lambda collate: collate,
) -> Iterator[tuple[int, Any]]:
    """Batches, and of how many rows each is, until all are read or the time is over."""
    # A copy, for it may hold random numbers of its own.
    collate = counting(copy.deepcopy(loader.collate_fn))
    for rows in _batches(loader):
        yield len(rows), collate(rows)
        if clock() > until:
            break


def _unigram_bits(
    tokens: LabelFrequencies | None,
    evaluation: Callable[[], Any] | None,
    until: float,
    clock: Callable[[], float],
) -> float | None:
    """What the frequencies of tokens say of the rows to evaluate on; None where not all are read.

    What fails here will fail, or be told, where the training is evaluated.
    """
    if tokens is None or evaluation is None:
        return None
    try:
        loader = evaluation()
        held = [(rows, predicted(batch)) for rows, batch in _collated(loader, until, clock)]
        whole = sum(rows for rows, _ in held) == len(loader.dataset)
        return tokens.bits(held) if whole else None
    except Exception:
        return None


def _batches(loader: Any) -> Iterator[list[Any]]:
    """All rows once: neighbours together, batches in an order that mixes them."""
    data, size = loader.dataset, getattr(loader, "batch_size", None) or _BATCH
    several = getattr(data, "__getitems__", None)
    for place in permutation(ceil(len(data) / size), seed=1):
        numbers = list(range(place * size, min((place + 1) * size, len(data))))
        yield [data[i] for i in numbers] if several is None else list(several(numbers))


def _judged(report: DeliveryReport, *, whole: bool, left: str) -> Preflight:
    found = report.findings
    stop = _why_in_vain(report, whole)
    if stop:
        return Preflight(stop="; ".join((stop, *found)), warnings=(left,) if left else ())
    return Preflight(warnings=(*found, left) if left else found)


def _why_in_vain(report: DeliveryReport, whole: bool) -> str:
    """Which canaries would be learned less than half as often as planned, in words; "" for none.

    Less than half, for classes of repetitions lie farther apart. Rows that lack some canaries are
    no reason: a part of the data may have been held out.
    """
    planned = [delivery for delivery in report.canaries if delivery.repetitions]
    wholes = sum(delivery.whole for delivery in planned)
    parts = sum(max(delivery.head, delivery.tail) for delivery in planned) + report.unattributed
    if whole and planned and not wholes + parts:
        return "the training's rows hold no canary of the manifest"
    # What looks like a part may be other text, as long as not all was seen.
    cutting = whole or parts > wholes
    lost = [
        delivery
        for delivery in planned
        if 2 * delivery.learnable < _come(delivery, report, cutting=cutting)
    ]
    if cutting and not whole and report.unattributed > wholes:
        lost = planned
    if not lost:
        return ""
    return (
        f"{len(lost)} of {len(planned)} canaries would be learned less than half as often as "
        "planned"
    )


def _come(delivery: Delivery, report: DeliveryReport, *, cutting: bool) -> int:
    """How often a canary was seen, whole or in part."""
    if not cutting:
        return delivery.whole
    # Where rows end too early to tell which canary they cut, it is the missing ones.
    return delivery.whole + delivery.cut + (delivery.missing if report.unattributed else 0)
