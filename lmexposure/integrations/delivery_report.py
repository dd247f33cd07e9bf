"""What became of the canaries' repetitions on their way into a model, and what that points to."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lmexposure.studies import RowsClass


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """How often one canary, held-out candidate or control was in the training batches."""

    # id, format, repetitions: as in the manifest; 0 repetitions for what is never inserted
    id: str
    format: str
    repetitions: int
    # fewest, most: how often it should have come in the epochs that were trained
    fewest: int
    most: int
    whole: int  # times it was in a row as a whole
    head: int  # times a row ended within it
    tail: int  # times a row began within it
    without_loss: int  # of `whole`, those where no token of its secret carried loss
    partly_without_loss: int  # of `whole`, those where some did and some did not
    # of `whole`, those whose row is not what will be scored, where that is known
    otherwise: int = 0

    @property
    def cut(self) -> int:
        """Repetitions that came in part: a head and a tail may be of the same one."""
        return min(max(self.head, self.tail), max(0, self.most - self.whole))

    @property
    def missing(self) -> int:
        """Repetitions that did not come at all."""
        return max(0, self.fewest - self.whole - self.cut)

    @property
    def extra(self) -> int:
        """Times it came whole beyond what was planned."""
        return max(0, self.whole - self.most)

    @property
    def learnable(self) -> int:
        """Times it came whole and all of its secret carried loss."""
        return self.whole - self.without_loss - self.partly_without_loss

    def to_dict(self) -> dict[str, Any]:
        """All attributes and what follows from them."""
        derived = ("cut", "missing", "extra", "learnable")
        return {**asdict(self), **{name: getattr(self, name) for name in derived}}


@dataclass(frozen=True, kw_only=True)
class DeliveryReport:
    """What a training's batches held of each canary."""

    # in the manifest's order, held-out candidates and controls among them
    canaries: tuple[Delivery, ...]
    unattributed: int  # times a row ended within a canary, too early to tell which one
    epochs: float  # how often the training went through its data
    batches: int  # how many were seen

    @property
    def complete(self) -> bool:
        """Whether at least one epoch was seen and nothing was lost, masked or added."""
        return not self.warnings

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was lost and what that points to, a sentence each."""
        if not self.batches:
            return (
                "no batch was seen, so nothing is known of what was delivered; attach the counter "
                "before training",
            )
        planned = self._planned
        if any(delivery.fewest for delivery in planned) or not planned:
            return self.findings
        return (
            f"only {self.epochs:.3g} of an epoch is known to have been seen, so that no canary is "
            "known to be missing; report after a whole epoch, or say of a stream without a length "
            "how many there were: report(epochs=...)",
            *self.findings,
        )

    @property
    def findings(self) -> tuple[str, ...]:
        """What was lost so far and what that points to, however much was seen."""
        return (
            *self._cut(),
            *self._counted("without_loss", "partly_without_loss", "otherwise"),
            *self._missing(),
            *self._counted("extra"),
            *self._never_inserted(),
        )

    @property
    def not_lost(self) -> tuple[str, ...]:
        """What of the findings is not about copies that were cut or never came."""
        return (*self._counted(*_COUNTED), *self._never_inserted())

    def to_dict(self) -> dict[str, Any]:
        """Plain Python values, with the warnings."""
        return {
            "epochs": self.epochs,
            "batches": self.batches,
            "unattributed": self.unattributed,
            "complete": self.complete,
            "warnings": list(self.warnings),
            "canaries": [delivery.to_dict() for delivery in self.canaries],
        }

    @property
    def _planned(self) -> list[Delivery]:
        return [delivery for delivery in self.canaries if delivery.repetitions]

    def _cut(self) -> Iterator[str]:
        cut = [delivery for delivery in self.canaries if delivery.cut]
        lost = sum(delivery.missing for delivery in self.canaries)
        heads = sum(min(delivery.head, delivery.cut) for delivery in cut) + min(
            self.unattributed, lost
        )
        tails = sum(min(delivery.tail, delivery.cut) for delivery in cut)
        which = _named(cut)
        if heads and tails:
            yield (
                f"{max(heads, tails)} occurrences are split between rows ({which}): packing cuts "
                "canaries; use a packing that keeps documents whole, or none"
            )
        elif heads:
            yield (
                f"{heads} occurrences are cut off at the end of a row ({which}): truncation at "
                "max_length, or packing that cuts; raise max_length, or shorten what comes before"
            )
        elif tails:
            yield (
                f"{tails} occurrences lack their beginning ({which}): truncation from the left, or "
                "packing that cuts; raise max_length, or shorten what comes after"
            )

    def _counted(self, *kinds: str) -> Iterator[str]:
        for kind in kinds:
            among = self._planned if kind == "extra" else self.canaries
            found = [delivery for delivery in among if getattr(delivery, kind)]
            if found:
                count = sum(getattr(delivery, kind) for delivery in found)
                yield _COUNTED[kind].format(count=count, which=_named(found))

    def _missing(self) -> Iterator[str]:
        missing = [delivery for delivery in self._planned if delivery.missing]
        # Once an epoch, however often it was inserted: that is what removing duplicates leaves.
        once = [
            delivery
            for delivery in missing
            if delivery.whole + delivery.cut == delivery.fewest // delivery.repetitions
        ]
        repeated = [delivery for delivery in self._planned if delivery.repetitions > 1]
        if once and len(once) == len(repeated):
            count = sum(delivery.missing for delivery in once)
            yield (
                f"{len(once)} canaries with several repetitions came once an epoch "
                f"({_named(once)}; {count} occurrences lost): exact deduplication; leave canaries "
                "out of it, or plan repetitions=1"
            )
            missing = [delivery for delivery in missing if delivery not in once]
        if missing:
            count = sum(delivery.missing for delivery in missing)
            yield (
                f"{count} occurrences never came ({_named(missing)}): dropped before the batches "
                "were made, by a filter, by deduplication, by truncation that leaves too little of "
                "them, or by a loader that drops its last batch"
            )

    def _never_inserted(self) -> Iterator[str]:
        found = [
            delivery for delivery in self.canaries if not delivery.repetitions and delivery.whole
        ]
        if found:
            yield (
                f"{len(found)} controls or held-out candidates are in the batches "
                f"({_named(found)}), although they were never inserted; train on the data that the "
                "manifest belongs to"
            )


_COUNTED = {
    "without_loss": (
        "{count} occurrences carry no loss ({which}): completion-only or assistant-only loss with "
        "the canary in the prompt; nothing of them is learned: put canaries into the assistant "
        "turn, or train on all tokens"
    ),
    "partly_without_loss": (
        "{count} occurrences carry loss on a part of the secret only ({which}); check the mask, "
        "and score with the same one"
    ),
    "otherwise": (
        "{count} occurrences are behind other tokens than they will be scored behind ({which}): in "
        "plain text another separator of documents, a start token or packing without borders, in "
        "chats another template, system prompt, tools or turn; scored so, they would look less "
        "known than they are: give the wrapping of the training"
    ),
    "extra": (
        "{count} occurrences too many ({which}): a loader that repeats rows to fill its last "
        "batch, or more epochs than were said"
    ),
}


def _named(found: Iterable[Delivery]) -> str:
    """Which canaries: three ids, and how many more."""
    ids = [delivery.id for delivery in found]
    more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
    return ", ".join(ids[:3]) + more or "it is not known which"


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
            by_format: dict[str, list[str]] = {}
            for each in lacking:
                by_format.setdefault(each.format, []).append(f"{each.repetitions}×")
            named = ", ".join(f"{name} {' and '.join(times)}" for name, times in by_format.items())
            yield f"{named}: {cause.format(copies=f'{copies:,}')}"


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
