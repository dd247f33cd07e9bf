"""In which rows a training really has its canaries: what is in front, behind, cut and masked.

The rows are read as they are; the context in which `measure` is to score is what nearly all
occurrences have in common, and it counts only where encoding a canary in it gives their very
tokens.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lmexposure._style import count
from lmexposure.canaries import Manifest, Wrapping
from lmexposure.errors import CorpusError
from lmexposure.integrations.delivered import DeliveredCounter
from lmexposure.integrations.delivery_report import Delivery, DeliveryReport, Hit, lost_copies
from lmexposure.models import Context, encode_rows, tokenizer_sha256
from lmexposure.scoring import same_random_numbers
from lmexposure.studies import RowsClass, RowsRecord

_FEW_RIGHT = 64  # tokens behind a canary that are looked at
_MOST_LEFT = 4096  # tokens in front
_MOST_DECODED = 256  # occurrences whose text behind is read
_HALF, _NEARLY_ALL = 0.5, 0.95  # shares of occurrences
_COLUMNS = ("input_ids", "labels", "attention_mask", "position_ids")
_MASKS = ("completion_mask", "assistant_masks")  # what trainers fold into labels later
_LENGTHS = "seq_lengths"  # of the documents in a packed row, as TRL has them
_FEW_ROWS = 32  # that are held against the tokenizer, where no canary is found
_BEGIN = -1  # in the place of a token: the row begins

_Loss = Literal["all", "assistant", "completion"]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """An occurrence that is whole and carries loss on all of its secret."""

    id: str  # of the canary
    left: tuple[int, ...]  # tokens in front, from the beginning of its document in the row
    own: tuple[int, ...]  # its tokens; at the edges they may hold some of what is next to it
    right: tuple[int, ...]  # some of the tokens behind
    unscored: int  # how many of its first tokens carry no loss
    loss: _Loss  # which tokens of its row carry it


class RowsCounter(DeliveredCounter):
    """Counts canaries, and keeps what is around each in its row."""

    def __init__(
        self, manifest: Manifest, tokenizer: Any, *, wrapping: Wrapping | None = None
    ) -> None:
        super().__init__(manifest, tokenizer, wrapping=wrapping)
        self._tokenizer = tokenizer
        self._inserted = {entry.id for entry in manifest.canaries}
        self._seen: Counter[_Seen] = Counter()
        self._several = False  # documents in a row, with borders
        self._cut_at = Counter[int]()  # tokens of a document that cuts a canary -> documents
        self._labels = False
        self.rows = 0  # how many were read

    def row(self, row: Mapping[str, Any]) -> None:
        """Count a row of tokens, with what belongs to each of them."""
        columns = _aligned(row, self.rows + 1)
        self._labels |= "labels" in columns
        self.observe(**{name: [values] for name, values in columns.items()})

    @property
    def empty(self) -> bool:
        """Whether there is no canary, nor a part of one."""
        return not self._counts

    def record(self, *, whole: bool = True) -> RowsRecord:
        """What these rows say."""
        report = self._delivery(whole)
        unknown = Counter({f: self._counts[f, "head"] for f in self._manifest.hidden_formats})
        by_class: dict[tuple[str, int], list[Delivery]] = {}
        for delivery in report.canaries:
            by_class.setdefault((delivery.format, delivery.repetitions), []).append(delivery)
        texts = {entry.id: entry.text for entry in self._manifest.entries}
        seen: Counter[str] = _votes(self._seen, lambda each: each.id)
        common = _Common.of(self._seen, self._manifest, self._tokenizer)
        agree = common.agreeing(texts, self._tokenizer) if common else Counter[str]()
        classes = tuple(_classes(by_class, unknown, seen, agree if common else seen))
        context = common.context if common else Context(start=None)
        others, found = sum(each.otherwise for each in classes), seen.total()
        planned, notes = self._manifest.wrapping, []
        if self.rows and not self._labels and planned is not None and planned.loss != "all":
            notes.append(
                f"the rows have no labels, so that loss is taken to be on all tokens, where the "
                f"insertion was told loss={planned.loss!r}; give the rows with the labels that the "
                "training has"
            )
        if found and not common:
            notes.append(
                f"the rows of {count(found, 'copy', 'copies')} have no single context, or none in "
                "which encoding a canary gives their tokens; say what is left of each when you "
                "measure"
            )
        if others:
            notes.append(
                f"{others} of {found} copies are in other rows than most; canaries are scored "
                "in the row of most, where those are less known than they could be"
            )
        return RowsRecord(
            manifest_sha256=self._manifest.sha256,
            tokenizer_sha256=tokenizer_sha256(self._tokenizer),
            rows=self.rows,
            found=found,
            agreeing=agree.total(),
            start=context.start,
            before=context.before,
            behind=context.behind,
            unscored=context.unscored,
            loss=_agreed_loss(self._seen, self._manifest),
            packed=self._several or bool(common and not common.begun),
            classes=classes,
            warnings=(
                *lost_copies(classes, report.canaries, self._cut_at),
                *report.not_lost,
                *notes,
            ),
            whole=whole,
        )

    def in_vain(self, *, whole: bool) -> str:
        """Which canaries would be learned less than half as often as planned; "" for none."""
        report = self._delivery(whole)
        planned = [delivery for delivery in report.canaries if delivery.repetitions]
        wholes = sum(delivery.whole for delivery in planned)
        parts = sum(max(delivery.head, delivery.tail) for delivery in planned)
        if whole and planned and not wholes + parts + report.unattributed:
            return "the training's rows hold no canary of the manifest"
        # What looks like a part may be other text, as long as not all was seen.
        cutting = whole or parts + report.unattributed > wholes

        def come(delivery: Delivery) -> int:
            if not cutting:
                return delivery.whole
            # Where rows end too early to tell which canary they cut, it is the missing ones.
            missing = delivery.missing if report.unattributed else 0
            return delivery.whole + delivery.cut + missing

        lost = [delivery for delivery in planned if 2 * delivery.learnable < come(delivery)]
        if cutting and not whole and report.unattributed > wholes:
            lost = planned
        if not lost:
            return ""
        return (
            f"{len(lost)} of {len(planned)} canaries would be learned less than half as often as "
            "planned"
        )

    def _delivery(self, whole: bool) -> DeliveryReport:
        return self.report(1.0 if whole else 0.5, alone=True)

    def _count_row(self, ids: Any, labels: Any, mask: Any, positions: Any) -> None:
        self.rows += 1
        super()._count_row(ids, labels, mask, positions)

    def _count_document(self, ids: Any, carried: NDArray[np.bool_], *, alone: bool) -> None:
        self._several |= not alone
        super()._count_document(ids, carried, alone=alone)

    def _hits(self, ids: Any, carried: NDArray[np.bool_]) -> list[Hit]:
        hits = super()._hits(ids, carried)
        self._cut_at[len(ids)] += sum(hit.kind == "head" for hit in hits)
        return hits

    def _count_whole(self, hit: Hit, ids: Any, carried: NDArray[np.bool_]) -> None:
        super()._count_whole(hit, ids, carried)
        secret = carried[max(hit.secret, 1) : hit.end]
        if hit.id not in self._inserted or not secret.all():
            return
        own = carried[max(hit.begin, 1) : hit.end]
        self._seen[
            _Seen(
                id=hit.id,
                left=tuple(ids[max(0, hit.begin - _MOST_LEFT) : hit.begin].tolist()),
                own=tuple(ids[hit.begin : hit.end].tolist()),
                right=tuple(ids[hit.end : hit.end + _FEW_RIGHT].tolist()),
                unscored=len(own) - int(own[::-1].argmin() or len(own)),
                loss=_loss(carried, np.isin(ids, self._tokenizer.all_special_ids)),
            )
        ] += 1


def delivered_rows(rows: Any, manifest: Manifest, tokenizer: Any) -> RowsRecord:
    """How the rows of a training deliver the canaries, and in which context."""
    counter = RowsCounter(manifest, tokenizer)
    first: list[Any] = []
    with same_random_numbers():
        for row in each_row(rows):
            counter.row(row)
            if len(first) < _FEW_ROWS:
                first.append(row["input_ids"])
    if not counter.rows:
        raise CorpusError("there is no row of tokens; give the rows that the training reads")
    strange = 0
    if counter.empty:  # else they are of this one
        strange = sum(not _is_of(tokenizer, [int(i) for i in row]) for row in first)
    if strange > _HALF * len(first):
        raise CorpusError(
            f"the rows hold no canary, and encoding the text of {strange} of the first "
            f"{len(first)} again gives other tokens: they were made with another tokenizer; give "
            "that one"
        )
    return counter.record()


def _is_of(tokenizer: Any, ids: list[int]) -> bool:
    """Whether the longest text between special tokens gives its tokens again."""
    if max(ids, default=0) >= len(tokenizer):
        return False
    special = np.flatnonzero(np.isin([-1, *ids, -1], [-1, *tokenizer.all_special_ids]))
    begin, end = max(pairwise(special.tolist()), key=lambda ends: ends[1] - ends[0])
    own = ids[begin : end - 1]
    again = tokenizer(_decoded(tokenizer, own), add_special_tokens=False)["input_ids"]
    half = len(own) // 2
    return bool(again[len(again) - half :] == own[len(own) - half :])


def each_row(rows: Any) -> Iterator[Mapping[str, Any]]:
    """The rows of whatever holds them, one by one."""
    loader = getattr(rows, "get_train_dataloader", None)
    if isinstance(rows, Mapping):  # splits, or a batch
        rows = rows.get("train", [rows])
    for item in rows if loader is None else loader():
        if not isinstance(item, Mapping) and not hasattr(item, "keys"):
            yield {"input_ids": item}
        elif "input_ids" not in item:
            names = ", ".join(map(str, item)) or "nothing"
            raise CorpusError(f"no 'input_ids'; a row has {names}: tokenise the data first")
        elif np.ndim(_first(item["input_ids"])) == 0:
            yield item
        else:
            columns = {name: item[name] for name in (*_COLUMNS, *_MASKS, _LENGTHS) if name in item}
            for i in range(len(item["input_ids"])):
                # A mask of other shape says which token sees which; positions, where in an image.
                yield {
                    name: values[min(i, len(values) - 1)]
                    for name, values in columns.items()
                    if values is not None and (name == "labels" or getattr(values, "ndim", 2) == 2)
                }


def _first(values: Any) -> Any:
    return next(iter(values), 0) if values is not None else 0


def _aligned(row: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Labels and positions of a row, from what trainers make them of."""
    columns = {
        name: _numbers(row[name], name, number)
        for name in (*_COLUMNS, *_MASKS, _LENGTHS)
        if row.get(name) is not None
    }
    ids = columns["input_ids"]
    if (ids < 0).any():
        raise _no_numbers("input_ids", number)
    lengths = columns.pop(_LENGTHS, None)
    if lengths is not None and ((lengths < 0).any() or lengths.sum() != len(ids)):
        raise _no_numbers(_LENGTHS, number)
    masks = [(name, columns.pop(name)) for name in _MASKS if name in columns]
    if masks:
        labels = columns.get("labels", ids).copy()
        for name, mask in masks:
            if len(mask) != len(ids):
                raise _no_numbers(name, number)
            labels[mask == 0] = -100
        columns["labels"] = labels
    if lengths is not None and "position_ids" not in columns:
        columns["position_ids"] = np.concatenate([np.arange(n) for n in lengths] or [ids])
    return columns


def _numbers(values: Any, name: str, number: int) -> NDArray[np.int64]:
    """What belongs to the tokens of a row; a value is never shown, for it may be a secret."""
    try:
        found = np.asarray(values)
        if found.ndim == 1 and found.dtype.kind in "iub":
            return found.astype(np.int64)
        if found.size == 0 and found.ndim == 1:
            return np.empty(0, dtype=np.int64)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        pass
    raise _no_numbers(name, number)


def _no_numbers(name: str, number: int) -> CorpusError:
    if name == "input_ids":
        return CorpusError(
            f"row {number} holds no list of tokens, and a row is a list of numbers from 0; leave "
            "it out"
        )
    return CorpusError(
        f"row {number}: {name!r} is no list of whole numbers, one for each token; mend the "
        "column, or leave it out"
    )


def _loss(carried: NDArray[np.bool_], special: NDArray[np.bool_]) -> _Loss:
    """Which tokens of a document carry loss, special ones aside: collators mask some as padding."""
    places = np.flatnonzero(carried[1:][~special[1:]])  # nothing predicts the first
    plain = int((~special[1:]).sum())
    if not places.size or places.size < plain - places[0]:
        return "assistant"
    return "all" if places[0] == 0 else "completion"


def _agreed_loss(seen: Mapping[_Seen, int], manifest: Manifest) -> _Loss:
    """What most rows show; a chat of a single answer looks like a completion."""
    votes: Counter[_Loss] = _votes(seen, lambda each: each.loss)
    planned: _Loss = manifest.wrapping.loss if manifest.wrapping else "all"
    if not votes:
        return planned
    found = votes.most_common(1)[0][0]
    return planned if "all" not in (found, planned) else found


def _votes(seen: Mapping[_Seen, int], what: Callable[[_Seen], Any]) -> Counter[Any]:
    """How many occurrences have each value of this."""
    votes: Counter[Any] = Counter()
    for each, times in seen.items():
        votes[what(each)] += times
    return votes


@dataclass(frozen=True, kw_only=True)
class _Common:
    """What the rows of most occurrences have in common."""

    context: Context  # the row around a text, by which encoding gives their tokens
    left: tuple[int, ...]  # the tokens in front, that the rows share
    begun: bool  # whether these are all, from the beginning of a document
    seen: Mapping[_Seen, int]  # all occurrences

    @classmethod
    def of(cls, seen: Mapping[_Seen, int], manifest: Manifest, tokenizer: Any) -> "_Common | None":
        """None where the rows have nothing in common, or no context gives their tokens."""
        if not seen or not tokenizer.is_fast:
            return None
        ends = {i for i in (tokenizer.eos_token_id, tokenizer.bos_token_id) if i is not None}
        left, begun = _shared_left(seen, ends if manifest.wrapping else None)
        if not (left or begun):
            return None
        like = {each: n for each, n in seen.items() if _is_behind(each, left, begun)}
        texts = {entry.id: entry.text for entry in manifest.entries}
        best: _Common | None = None
        most = 0
        for context in _candidates(tokenizer, left, like, texts):
            tried = cls(context=context, left=left, begun=begun, seen=seen)
            agreeing = tried.agreeing(texts, tokenizer).total()
            if agreeing > most:
                best, most = tried, agreeing
            if agreeing == sum(like.values()):
                break
        return best

    def agreeing(self, texts: Mapping[str, str], tokenizer: Any) -> Counter[str]:
        """How often each canary has the very tokens that encoding it in the context gives."""
        behind = [each for each in self.seen if _is_behind(each, self.left, self.begun)]
        ids = sorted({each.id for each in behind})
        rows = encode_rows(tokenizer, [texts[name] for name in ids], self.context)
        made = {name: row.ids[: row.stop] for name, row in zip(ids, rows, strict=True)}
        agree: Counter[str] = Counter()
        for each in behind:
            here, wanted = (*self.left, *each.own, *each.right), made[each.id]
            if list(here[: len(wanted)]) == wanted and each.unscored == self.context.unscored:
                agree[each.id] += self.seen[each]
        return agree


def _shared_left(seen: Mapping[_Seen, int], ends: set[int] | None) -> tuple[tuple[int, ...], bool]:
    """The tokens in front that most occurrences share, and whether nothing else is there."""
    left: list[int] = []
    among = dict(seen)
    while True:
        votes: Counter[int] = _votes(among, partial(_in_front, place=len(left)))
        token, times = votes.most_common(1)[0]
        in_chat = ends is not None and not (left and left[0] in ends)
        if times < (_HALF if not left or in_chat else _NEARLY_ALL) * votes.total():
            return tuple(left), False
        if token == _BEGIN:
            return tuple(left), True
        if len(left) == _MOST_LEFT:
            return tuple(left), False
        among = {each: n for each, n in among.items() if _in_front(each, len(left)) == token}
        left.insert(0, token)


def _in_front(seen: _Seen, place: int) -> int:
    return seen.left[-1 - place] if place < len(seen.left) else _BEGIN


def _is_behind(seen: _Seen, left: tuple[int, ...], begun: bool) -> bool:
    return seen.left == left if begun else seen.left[len(seen.left) - len(left) :] == left


def _candidates(
    tokenizer: Any, left: tuple[int, ...], like: Mapping[_Seen, int], texts: Mapping[str, str]
) -> Iterator[Context]:
    """Contexts that may give these rows: which tokens stay tokens, and which become text."""
    added = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    example = max(like, key=lambda each: like[each])
    unscored: Counter[int] = _votes(like, lambda each: each.unscored)
    last = max((i + 1 for i, token in enumerate(left) if token in added), default=0)
    begin = next((i for i, token in enumerate(left) if token not in added), len(left))
    for cut in dict.fromkeys((last, begin, 0, len(left))):
        text = _decoded(tokenizer, [*left[cut:], *example.own])
        place = text.rfind(texts[example.id])
        if place < 0:
            continue
        behind = _shared_behind(tokenizer, left[cut:], like, texts, added)
        made = Context(start=left[:cut], before=text[:place], behind=behind)
        yield replace(made, unscored=unscored.most_common(1)[0][0])


def _shared_behind(
    tokenizer: Any,
    left: tuple[int, ...],
    like: Mapping[_Seen, int],
    texts: Mapping[str, str],
    added: set[int],
) -> str:
    """The text behind that nearly all share, up to the first special token."""
    votes: Counter[str] = Counter()
    for each, times in sorted(like.items(), key=lambda pair: -pair[1])[:_MOST_DECODED]:
        stop = next((i + 1 for i, token in enumerate(each.right) if token in added), _FEW_RIGHT)
        text = _decoded(tokenizer, [*left, *each.own])
        whole = _decoded(tokenizer, [*left, *each.own, *each.right[:stop]])
        place = text.rfind(texts[each.id])
        known = place >= 0 and whole.startswith(text)
        votes[whole[place + len(texts[each.id]) :].rstrip("\ufffd") if known else ""] += times
    shared = ""
    for length in range(1, max(map(len, votes)) + 1):
        beginnings: Counter[str] = Counter()
        for text, times in votes.items():
            if len(text) >= length:
                beginnings[text[:length]] += times
        text, times = beginnings.most_common(1)[0]
        if times < _NEARLY_ALL * votes.total():
            break
        shared = text
    return shared


def _decoded(tokenizer: Any, ids: Sequence[int]) -> str:
    return str(
        tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    )


def _classes(
    by_class: Mapping[tuple[str, int], Sequence[Delivery]],
    unknown: Mapping[str, int],
    whole: Mapping[str, int],
    agree: Mapping[str, int],
) -> Iterator[RowsClass]:
    """Counts class by class, in the manifest's order."""
    of_format = Counter[str]()
    for (name, _), some in by_class.items():
        of_format[name] += sum(each.missing for each in some)
    for (name, repetitions), some in by_class.items():
        missing = sum(each.missing for each in some)
        cut = missing if of_format[name] <= unknown[name] else 0
        yield RowsClass(
            format=name,
            repetitions=repetitions,
            canaries=len(some),
            planned=repetitions * len(some),
            whole=sum(each.whole for each in some),
            cut=sum(each.cut for each in some) + cut,
            missing=missing - cut,
            without_loss=sum(each.whole - each.learnable for each in some),
            otherwise=sum(whole.get(each.id, 0) - agree.get(each.id, 0) for each in some),
        )
