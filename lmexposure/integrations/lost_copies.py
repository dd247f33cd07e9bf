"""What the rows of a training lack of the canaries, and the likely cause: one sentence for each.

A cause is read off what it leaves behind. Truncation leaves rows that end at one length. Removing
duplicates leaves one copy of each. Rows that are dropped as too long take all copies of a canary
along, for these are alike; holding out and sampling leave some.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from lmexposure.integrations.delivery_report import Delivery

_NEARLY_ALL = 0.9  # of the rows that cut a canary end at one length
_NEAR, _MORE = 10, 4  # rows of the greatest length, against each of those that are a bit shorter
_RAISE = "raise max_length (TRL), cutoff_len (LLaMA-Factory) or sequence_len (Axolotl)"

Classes: TypeAlias = Mapping[tuple[str, int], Sequence[Delivery]]  # (format, repetitions) ->


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What rows show apart from the counts of each canary."""

    lengths: Counter[int] = field(default_factory=Counter)  # tokens of a document -> documents
    cut_at: Counter[int] = field(default_factory=Counter)  # the same, of those that cut a canary
    unknown: Counter[str] = field(default_factory=Counter)  # format -> beginnings of some canary
    held_out: Mapping[str, Counter[str]] = field(default_factory=dict)  # split -> id -> copies

    def only_cut(self, name: str, classes: Classes) -> bool:
        """Whether beginnings of a format's canaries, too short to say of which, are all missing."""
        of_format = (each for key, some in classes.items() if key[0] == name for each in some)
        return 0 < sum(each.missing for each in of_format) <= self.unknown[name]

    @property
    def limit(self) -> int | None:
        """The length at which nearly all rows end that cut a canary."""
        if not self.cut_at:
            return None
        length, times = self.cut_at.most_common(1)[0]
        return length if times >= _NEARLY_ALL * self.cut_at.total() else None

    def at_limit(self, least: int) -> int | None:
        """The greatest length, where at least as many rows have it as no chance would give."""
        longest = max(self.lengths, default=0)
        near = max((self.lengths[longest - i] for i in range(1, _NEAR + 1)), default=0)
        many = self.lengths[longest] >= max(least, _MORE * near)
        ends = self.cut_at[longest] > 0 and self.lengths[longest] >= least
        return longest if many or ends else None


def lost_copies(classes: Classes, evidence: Evidence) -> tuple[str, ...]:
    """A sentence for each cause, with the classes that it concerns and what to do next."""
    found: dict[str, list[tuple[str, int, int]]] = {}
    once, lost = _once(classes), sum(d.missing for some in classes.values() for d in some)
    for (name, repetitions), some in classes.items():
        cut_too = evidence.only_cut(name, classes)
        came = any(each.whole for key, all_ in classes.items() if key[0] == name for each in all_)
        # Rows of one format are about alike: where some are whole, no limit took the others.
        for cause, copies in _causes(some, evidence, once, 0 if came else lost, cut_too):
            found.setdefault(cause, []).append((name, repetitions, copies))
    return tuple(
        f"{_named(where)}: {cause.replace('{copies}', f'{sum(n for *_, n in where):,}')}"
        for cause, where in found.items()
    )


def _causes(
    some: Sequence[Delivery], evidence: Evidence, once: bool, lost: int, cut_too: bool
) -> Iterator[tuple[str, int]]:
    """(sentence with a place for the number, copies) of one class; `lost`: missing of all, or 0."""
    missing = 0 if cut_too else sum(each.missing for each in some)
    cut = sum(each.cut for each in some) + cut_too * sum(each.missing for each in some)
    if cut:
        yield _cut(some, evidence, cut_too), cut
    if not missing:
        return
    for split, held in evidence.held_out.items():
        there = min(missing, sum(held[each.id] for each in some))
        if there:
            missing -= there
            yield _held_out(split), there
    if missing:
        yield _missing(some, evidence, once, lost), missing


def _held_out(split: str) -> str:
    return (
        f"{{copies}} copies are in the split {split!r}, which is not trained on; hold out nothing "
        "(LLaMA-Factory: val_size), or plan more repetitions"
    )


def _cut(some: Sequence[Delivery], evidence: Evidence, cut_too: bool) -> str:
    head = cut_too or any(min(each.head, each.cut) for each in some)
    tail = any(min(each.tail, each.cut) for each in some)
    if head and tail:
        return (
            "{copies} copies are split between rows: packing cuts documents; use one that keeps "
            "them whole (TRL: packing_strategy='bfd'), or none"
        )
    if tail:
        return (
            "{copies} copies lack their beginning: truncation from the left (TRL: "
            f"truncation_mode='keep_end'); {_RAISE}"
        )
    if evidence.limit is None:
        return f"{{copies}} copies are cut off at the end of a row: {_RAISE}"
    return f"{{copies}} copies are cut: their rows end at {evidence.limit:,} tokens; {_RAISE}"


def _missing(some: Sequence[Delivery], evidence: Evidence, once: bool, lost: int) -> str:
    if once:
        return (
            "of each canary one copy is left, {copies} are lost: the data were deduplicated; "
            "switch that off (Axolotl: dataset_exact_deduplication), or insert each once: "
            "--repetitions 1"
        )
    limit = evidence.at_limit(lost) if lost else None
    if limit is not None:
        return (
            f"{{copies}} copies never came, and {evidence.lengths[limit]:,} rows end at "
            f"{limit:,} tokens, the most there are: probably cut in front of the canary; {_RAISE}"
        )
    if any(each.missing and each.whole + each.cut for each in some) or (
        all(each.repetitions == 1 for each in some) and any(each.whole for each in some)
    ):
        return (
            "{copies} copies never came, and others like them did: rows were held out, "
            "sampled (LLaMA-Factory: max_samples) or sharded; prepare all of them"
        )
    return (
        "{copies} copies never came, and nothing of their canaries is left: rows were dropped, as "
        f"too long (no row has more than {max(evidence.lengths, default=0):,} tokens; Axolotl "
        "drops what exceeds sequence_len) or by a filter; raise sequence_len, or read the "
        "trainer's log"
    )


def _once(classes: Classes) -> bool:
    """Whether of every canary that was inserted several times exactly one copy is there."""
    several = [each for (_, times), some in classes.items() if times > 1 for each in some]
    return bool(several) and all(each.whole == 1 and not each.cut for each in several)


def _named(where: Sequence[tuple[str, int, int]]) -> str:
    by_format: dict[str, list[str]] = {}
    for name, repetitions, _ in where:
        by_format.setdefault(name, []).append(f"{repetitions}×")
    return ", ".join(f"{name} {' and '.join(times)}" for name, times in by_format.items())
