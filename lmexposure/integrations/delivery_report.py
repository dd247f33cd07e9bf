"""What became of the canaries' repetitions on their way into a model, and what that points to.

Canaries are searched in rows of tokens, whatever tokens their context made of them. Tokens at the
edges of a text depend on what is next to it, the pieces of text that tokens mean do not. So pieces
are joined, and canaries are searched as strings of pieces.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate
from os.path import commonprefix
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lmexposure.errors import ModelError
from lmexposure.models import encode_in_context, is_tokenizer
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
                f"{max(heads, tails)} copies are split between rows ({which}): packing cuts "
                "canaries; use a packing that keeps documents whole, or none"
            )
        elif heads:
            yield (
                f"{heads} copies are cut off at the end of a row ({which}): truncation at "
                "max_length, or packing that cuts; raise max_length, or shorten what comes before"
            )
        elif tails:
            yield (
                f"{tails} copies lack their beginning ({which}): truncation from the left, or "
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
                f"({_named(once)}; {count} copies lost): exact deduplication; leave canaries "
                "out of it, or plan repetitions=1"
            )
            missing = [delivery for delivery in missing if delivery not in once]
        if missing:
            count = sum(delivery.missing for delivery in missing)
            yield (
                f"{count} copies never came ({_named(missing)}): dropped before the batches "
                "were made, by a filter, by deduplication, by truncation that leaves too little of "
                "them, or by a loader that drops its last batch"
            )

    def _never_inserted(self) -> Iterator[str]:
        found = [
            delivery for delivery in self.canaries if not delivery.repetitions and delivery.whole
        ]
        if found:
            yield (
                f"{len(found)} controls or held-out canaries are in the batches "
                f"({_named(found)}), although they were never inserted; train on the data that the "
                "manifest belongs to"
            )


_COUNTED = {
    "without_loss": (
        "{count} copies carry no loss ({which}): completion-only or assistant-only loss with "
        "the canary in the prompt; nothing of them is learned: put canaries into the assistant "
        "turn, or train on all tokens"
    ),
    "partly_without_loss": (
        "{count} copies carry loss on a part of the secret only ({which}); check the mask, "
        "and score with the same one"
    ),
    "otherwise": (
        "{count} copies are behind other tokens than they will be scored behind ({which}): in "
        "plain text another separator of documents, a start token or packing without borders, in "
        "chats another template, system prompt, tools or turn; scored so, they would look less "
        "known than they are: give the wrapping of the training"
    ),
    "extra": (
        "{count} copies too many ({which}): a loader that repeats rows to fill its last "
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


_LEAST = 4  # pieces' characters of a canary, at the least, that begin or end a row
_SPACES = "\u0120\u2581"  # how byte-level and SentencePiece vocabularies write a space
_LAST = "\U0010ffff"


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A canary, or a part of one, in a row."""

    id: str  # of the canary; of the format, where too little is there to know which canary
    # "whole"; "head", the row ends within it; "tail", the row begins within it
    kind: Literal["whole", "head", "tail"]
    begin: int  # number of the first token that holds some of it
    secret: int  # number of the first token behind what all fills begin with
    end: int  # number of the token behind it


@dataclass(frozen=True, kw_only=True)
class _Group:
    """The canaries of one format, as strings of pieces."""

    name: str
    whole: Mapping[str, str]  # pieces -> id
    prefix: str  # what all fills begin with
    suffix: int  # how many characters all fills end with

    @cached_property
    def lengths(self) -> Sequence[int]:
        """How long canaries are, the longest first."""
        return sorted({len(canary) for canary in self.whole}, reverse=True)

    @cached_property
    def forwards(self) -> Sequence[str]:
        """The canaries, sorted."""
        return sorted(self.whole)

    @cached_property
    def backwards(self) -> Sequence[str]:
        """The canaries from their ends, sorted."""
        return sorted(canary[::-1] for canary in self.whole)

    def places(self, row: str) -> Iterator[int]:
        """Where a canary may begin."""
        for wanted in [self.prefix] if self.prefix else self.forwards:
            place = row.find(wanted)
            while place >= 0:
                yield place
                place = row.find(wanted, place + 1)

    def whole_at(self, row: str, place: int) -> tuple[str, int] | None:
        """(id, end) of the longest canary that is there."""
        for length in self.lengths:
            found = self.whole.get(row[place : place + length])
            if found is not None:
                return found, place + length
        return None

    def head(self, rest: str) -> str | None:
        """The canary that this end of a row begins; the format's name for one of several."""
        if len(rest) < max(_LEAST, len(self.prefix)):
            return None
        found = _beginning_with(self.forwards, rest)
        if not found:
            return None
        single = len(found) == 1 and len(rest) > len(self.prefix)
        return self.whole[found[0]] if single else self.name

    def tail(self, row: str) -> str | None:
        """The canary whose end this row begins with."""
        least = max(_LEAST, self.suffix + 1)
        for length in range(min(len(row), self.lengths[0] - 1), least - 1, -1):
            found = [canary[::-1] for canary in _beginning_with(self.backwards, row[:length][::-1])]
            if len(found) == 1 and len(found[0]) > length:
                return self.whole[found[0]]
        return None


class TokenSearch:
    """Looks for canaries in rows of tokens."""

    def __init__(
        self,
        tokenizer: Any,
        groups: Mapping[str, Mapping[str, str]],
        others: Mapping[str, Sequence[str]],
    ) -> None:
        if not is_tokenizer(tokenizer):
            raise ModelError(
                f"{type(tokenizer).__name__} is no tokenizer of transformers; give that of the "
                "training"
            )
        self._tokenizer, self._special = tokenizer, tokenizer.all_special_ids
        # Where numbers were left out, the last is more than there are tokens.
        last = max(tokenizer.get_vocab().values())
        pieces = tokenizer.convert_ids_to_tokens(list(range(last + 1)))
        self._pieces = [piece or "" for piece in pieces] + [""]
        self._groups = [
            self._group(name, texts, others[name]) for name, texts in groups.items() if texts
        ]

    def hits(self, ids: NDArray[np.int64]) -> list[Hit]:
        """Every canary in a row of tokens, and parts of canaries at its two ends."""
        inside = np.flatnonzero(~np.isin(ids, self._special))
        if not inside.size:
            return []
        first, last = int(inside[0]), len(self._pieces) - 1
        own = ids[first : inside[-1] + 1]
        # A number without a token means no text.
        pieces = [self._pieces[i] for i in np.where((own < 0) | (own > last), last, own).tolist()]
        row = "".join(pieces)
        found = [hit for group in self._groups for hit in _hits(group, row)]
        starts = [0, *accumulate(map(len, pieces))] if found else []
        return [
            Hit(
                id=name,
                kind=kind,
                begin=first + bisect_right(starts, begin) - 1,
                secret=first + bisect_right(starts, secret) - 1,
                end=first + bisect_left(starts, end),
            )
            for name, kind, begin, secret, end in found
        ]

    def _group(self, name: str, texts: Mapping[str, str], others: Sequence[str]) -> _Group:
        text = next(iter(texts.values()))
        encode_in_context(self._tokenizer, [text], context=None)  # refuses what it does not know
        if self._joined(f"{text} {text}").count(self._written(text)) < 2:
            raise ModelError(
                f"the tokenizer writes a canary of format {name!r} otherwise in another place, so "
                "that it cannot be counted in batches; count it in the corpus: lmexposure verify"
            )
        whole = {self._written(text): canary for canary, text in texts.items()}
        if len(whole) < len(texts):
            raise ModelError(
                f"the tokenizer writes two canaries of format {name!r} alike, so that they cannot "
                "be distinguished in batches; use a format whose characters it keeps"
            )
        fills = [*whole, *map(self._written, others)]
        prefix = commonprefix(fills)  # noqa: RUF071 (characters)
        suffix = commonprefix([fill[::-1] for fill in fills])  # noqa: RUF071
        return _Group(name=name, whole=whole, prefix=prefix, suffix=len(suffix))

    def _written(self, text: str) -> str:
        """A text's pieces; a space that the tokenizer puts before it does not belong to it."""
        joined = self._joined(text)
        return joined if text[:1].isspace() else joined.lstrip(_SPACES)

    def _joined(self, text: str) -> str:
        ids = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return "".join(self._pieces[i] for i in ids)


_Found = tuple[str, Literal["whole", "head", "tail"], int, int, int]


def _hits(group: _Group, row: str) -> Iterator[_Found]:
    """(id, kind, first character, first character of the secret, end) of each."""
    for place in group.places(row):
        secret, whole = place + len(group.prefix), group.whole_at(row, place)
        if whole is not None:
            yield whole[0], "whole", place, secret, whole[1]
        elif (name := group.head(row[place:])) is not None:
            yield name, "head", place, secret, len(row)
    if not group.prefix:
        yield from _bare_head(group, row)
    if (name := group.tail(row)) is not None:
        yield name, "tail", 0, 0, 0


def _bare_head(group: _Group, row: str) -> Iterator[_Found]:
    """The longest end of a row that begins a canary of a format with nothing fixed before it."""
    for length in range(min(len(row), group.lengths[0] - 1), _LEAST - 1, -1):
        found = _beginning_with(group.forwards, row[-length:])
        if found and len(found[0]) > length:
            name = group.whole[found[0]] if len(found) == 1 else group.name
            yield name, "head", len(row) - length, len(row) - length, len(row)
            return


def _beginning_with(ordered: Sequence[str], text: str) -> Sequence[str]:
    """The strings of a sorted sequence that begin with this one."""
    return ordered[bisect_left(ordered, text) : bisect_right(ordered, text + _LAST)]
