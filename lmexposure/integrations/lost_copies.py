"""What the rows of a training lack of the canaries, and the cause where rows show one.

A cause is read off what it leaves behind. Truncation leaves rows that end at one length. Removing
duplicates leaves one copy of each.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from lmexposure.integrations.delivery_report import Delivery
from lmexposure.studies import RowsClass

_NEARLY_ALL = 0.9  # of the rows that cut a canary end at one length
_RAISE = "raise max_length (TRL), cutoff_len (LLaMA-Factory) or sequence_len (Axolotl)"


def lost_copies(
    classes: Sequence[RowsClass], deliveries: Sequence[Delivery], cut_at: Counter[int]
) -> Iterator[str]:
    """A sentence for each cause, with the classes that it concerns and what to do next."""
    for lost, cause in (("cut", _cut(deliveries, cut_at)), ("missing", _missing(deliveries))):
        lacking = [each for each in classes if getattr(each, lost)]
        if lacking:
            copies = sum(getattr(each, lost) for each in lacking)
            yield f"{_named(lacking)}: {cause.format(copies=f'{copies:,}')}"


def _cut(deliveries: Sequence[Delivery], cut_at: Counter[int]) -> str:
    begun = any(min(each.tail, each.cut) for each in deliveries)  # rows that begin within a canary
    length, times = max(cut_at.items(), key=lambda pair: pair[1], default=(0, 0))
    if not begun and times and times >= _NEARLY_ALL * cut_at.total():
        return f"{{copies}} copies are cut: their rows end at {length:,} tokens; {_RAISE}"
    return (
        "{copies} copies are cut, by truncation, or by packing that cuts documents (TRL: "
        f"packing_strategy='bfd' keeps them whole); {_RAISE}"
    )


def _missing(deliveries: Sequence[Delivery]) -> str:
    several = [each for each in deliveries if each.repetitions > 1]
    if several and all(each.whole == 1 and not each.cut for each in several):
        return (
            "of each canary one copy is left, {copies} are lost: the data were deduplicated; "
            "switch that off (Axolotl: dataset_exact_deduplication), or insert each once"
        )
    return (
        "{copies} copies never came: their rows were dropped, as too long or by a filter, cut in "
        "front of the canary, held out, sampled or sharded; read the trainer's log, or "
        f"{_RAISE}"
    )


def _named(lacking: Sequence[RowsClass]) -> str:
    by_format: dict[str, list[str]] = {}
    for each in lacking:
        by_format.setdefault(each.format, []).append(f"{each.repetitions}×")
    return ", ".join(f"{name} {' and '.join(times)}" for name, times in by_format.items())
