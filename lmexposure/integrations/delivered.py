"""How often each canary reaches the model in the batches of anyone's training, and with loss.

A training loses canaries without a word: it truncates, packs, masks and removes duplicates. So the
counter reads the batches themselves and says what became of every repetition.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from transformers import TrainerCallback

from lmexposure.canaries import Manifest, Wrapping
from lmexposure.core import Encoded
from lmexposure.errors import InputError, SettingsError
from lmexposure.integrations.delivery_report import Delivery, DeliveryReport, Hit, TokenSearch
from lmexposure.integrations.wrapped_scoring import encode_wrapped
from lmexposure.models import IGNORED, has_length
from lmexposure.scoring import from_all, in_loader_worker

_Row: TypeAlias = NDArray[np.int64]
_Counts: TypeAlias = Counter[tuple[str, str]]  # (canary, kind)

_FIELDS = ("input_ids", "labels", "attention_mask", "position_ids")
_KINDS = ("whole", "head", "tail", "without_loss", "partly_without_loss", "otherwise")
_OTHERS = 16  # fills by which a format's fixed beginning and end are known
_PROMPT = 256  # tokens at the end of a prompt that are searched for a canary's beginning
_ROUNDING = 1e-6  # of an epoch, as trainers add them up from fractions


class _Epochs(NamedTuple):
    """How often a training went through its data."""

    # fewest, most: whole times, at the least and at the most: a part of an epoch may or may not
    # have brought a canary
    fewest: int
    most: int
    seen: float  # how many are known of


class DeliveredCounter:
    """Counts the canaries of a manifest in training batches.

    Feed it in one of three ways: `attach(trainer)`, `watch(loader)`, or `observe` yourself. Each
    process counts its own batches; `report` adds them up where torch.distributed is up.

    Args:
        manifest: what was inserted. Controls and held-out candidates are looked for as well: they
            must not be there.
        tokenizer: of the training.
        wrapping: in which the canaries will be scored; each occurrence is compared with it, token
            by token. None: they are only counted.

    Raises:
        ModelError: the tokenizer does not know a character of a canary, or writes canaries so that
            they cannot be found again; or see `wrapped_log_perplexity`.
    """

    def __init__(
        self, manifest: Manifest, tokenizer: Any, *, wrapping: Wrapping | None = None
    ) -> None:
        self._manifest, self._wrapping = manifest, wrapping
        groups: dict[str, dict[str, str]] = {name: {} for name in manifest.hidden_formats}
        for entry in manifest.entries:
            groups[entry.format][entry.id] = entry.text
        others = {
            name: [form.text(index) for index in manifest.references(name, _OTHERS)]
            for name, form in manifest.hidden_formats.items()
        }
        self._search = TokenSearch(tokenizer, groups, others)
        self._scored: dict[str, Encoded] = {}
        if wrapping is not None:
            wrapped = encode_wrapped(tokenizer, [c.text for c in manifest.entries], wrapping)
            self._scored = {c.id: w for c, w in zip(manifest.entries, wrapped, strict=True)}
        self._counts: _Counts = Counter()
        self._batches = 0
        self._trainers: list[Any] = []
        self._passes: list[_Trainings | _Watched] = []

    def observe(
        self,
        input_ids: Any,
        labels: Any = None,  # -100 where no loss is; None: loss everywhere
        # 0 where padding is; other numbers are those of a packed row's documents, as LLaMA-Factory
        # has them. None: padding is where the tokenizer's pad token is
        attention_mask: Any = None,
        position_ids: Any = None,  # where they begin again at 0, another document begins
    ) -> None:
        """Count one batch: rows of tokens, shape (B, T), and what belongs to each of them."""
        rows = _rows(input_ids)
        given = {"labels": labels, "attention_mask": attention_mask, "position_ids": position_ids}
        columns = [_aligned(name, values, rows) for name, values in given.items()]
        self._batches += 1
        for ids, *of_row in zip(rows, *columns, strict=True):
            self._count_row(ids, *of_row)

    def watch(self, loader: Any) -> Any:
        """The same loader of mappings with "input_ids", its batches counted as they are taken."""
        watched = _Watched(loader, self._observe_batch)
        self._passes.append(watched)
        return watched

    def collator(self, collate: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The same collator, its batches counted as they are made; not in a loader's workers."""

        def counting(examples: Any) -> Any:
            if in_loader_worker():
                raise SettingsError(
                    "the counter runs in a worker process of the loader, where its counts are "
                    "lost; use num_workers=0, or counter.watch(loader)"
                )
            batch = collate(examples)
            self._observe_batch(batch)
            return batch

        return counting

    def attach(self, trainer: Any) -> None:
        """Count what a `transformers.Trainer`, or TRL's SFTTrainer, gives to its model to learn."""
        if any(attached is trainer for attached in self._trainers):
            raise SettingsError(
                "this counter is attached to this trainer already, and would count each batch "
                "twice; attach it once"
            )
        step, trainings = trainer.training_step, _Trainings()

        def counted(model: Any, inputs: Mapping[str, Any], *rest: Any, **named: Any) -> Any:
            self._observe_batch(inputs)
            return step(model, inputs, *rest, **named)

        trainer.training_step = counted
        trainer.add_callback(trainings)
        self._trainers.append(trainer)
        self._passes.append(trainings)

    def report(self, epochs: float | None = None, *, alone: bool = False) -> DeliveryReport:
        """What became of every repetition in these epochs; None: as trainers and loaders say.

        A part of an epoch may or may not have brought a canary. `alone`: what other processes
        counted is left out, and they are not waited for.
        """
        if epochs is not None and (not np.isfinite(epochs) or epochs < 0):
            raise SettingsError(f"epochs={epochs!r} must be a number of at least 0")
        known = _sum(seen.epochs for seen in self._passes) if epochs is None else _span(0.0, epochs)
        counts, batches = self._counts, self._batches
        if not alone:
            counts, batches, known = _gathered(counts, batches, known)
        if batches and epochs is None and not self._passes:
            raise SettingsError(
                f"{batches} batches were observed, and of how many epochs is not known; give "
                "report(epochs=...)"
            )
        deliveries = tuple(
            Delivery(
                id=entry.id,
                format=entry.format,
                repetitions=entry.inserted,
                fewest=known.fewest * entry.inserted,
                most=known.most * entry.inserted,
                **{kind: counts[entry.id, kind] for kind in _KINDS},
            )
            for entry in self._manifest.entries
        )
        return DeliveryReport(
            canaries=deliveries,
            unattributed=sum(counts[name, "head"] for name in self._manifest.hidden_formats),
            epochs=known.seen,
            batches=batches,
        )

    def _observe_batch(self, batch: Any) -> None:
        if "input_ids" not in batch:
            raise InputError(
                f"a batch has no input_ids; it has {', '.join(map(str, batch)) or 'nothing'}: call "
                "observe(input_ids, labels) yourself"
            )
        self.observe(**{name: batch[name] for name in _FIELDS if name in batch})

    def _count_row(self, ids: _Row, labels: _Row, mask: _Row, positions: _Row) -> None:
        kept = mask != 0
        ids, carried, positions = ids[kept], labels[kept] != IGNORED, positions[kept]
        begins = (positions == 0) | (np.diff(mask[kept], prepend=mask[kept][:1]) != 0)
        borders = sorted({0, *np.flatnonzero(begins).tolist(), len(ids)})
        for start, end in pairwise(borders):
            self._count_document(ids[start:end], carried[start:end], alone=len(borders) == 2)

    def _count_document(self, ids: _Row, carried: NDArray[np.bool_], *, alone: bool) -> None:
        """A row, or a part of one between borders; `alone`: it is all of its row."""
        for hit in self._hits(ids, carried):
            self._counts[hit.id, hit.kind] += 1
            if hit.kind == "whole":
                self._count_whole(hit, ids, carried)

    def _hits(self, ids: _Row, carried: NDArray[np.bool_]) -> list[Hit]:
        """Canaries of a document; those, too, that the end of its last prompt cuts."""
        hits = self._search.hits(ids)
        begins = np.flatnonzero(carried[1:] & ~carried[:-1]) + 1
        end = int(begins[-1]) if begins.size else 0
        if end and not any(hit.kind == "whole" and hit.begin < end < hit.end for hit in hits):
            prompt = self._search.hits(ids[max(0, end - _PROMPT) : end])
            hits += [hit for hit in prompt if hit.kind == "head"]
        return hits

    def _count_whole(self, hit: Hit, ids: _Row, carried: NDArray[np.bool_]) -> None:
        # Nothing predicts the first token of a row.
        secret = carried[max(hit.secret, 1) : hit.end]
        if not secret.all():
            kind = "partly_without_loss" if secret.any() else "without_loss"
            self._counts[hit.id, kind] += 1
        elif self._wrapping is not None:
            scored = self._scored[hit.id]
            self._counts[hit.id, "otherwise"] += not _alike(
                scored,
                ids[: hit.end],
                carried[: hit.end],
                packed=self._wrapping.turn == "plain" and self._wrapping.context != "",
            )


class _Trainings(TrainerCallback):  # type: ignore[misc]
    """Hears from a Trainer how far each of its trainings went."""

    def __init__(self) -> None:
        self._spans: list[tuple[float, float]] = []
        self._streamed: list[tuple[float, int]] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """A training begins, or goes on from a checkpoint."""
        begun = float(state.epoch or 0.0)
        if has_length(named.get("train_dataloader")):
            self._spans.append((begun, begun))
        else:
            self._streamed.append((begun, 0))

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """The data are gone through once more."""
        if not has_length(named.get("train_dataloader")):
            begun, passes = self._streamed[-1]
            self._streamed[-1] = (begun, passes + 1)

    def on_step_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """So far it went."""
        if has_length(named.get("train_dataloader")):
            self._spans[-1] = (self._spans[-1][0], float(state.epoch))

    @property
    def epochs(self) -> _Epochs:
        """Of all trainings; of a stream, whose end is not seen, the passes before the last."""
        spans = [_span(*span) for span in self._spans]
        for begun, passes in self._streamed:
            # A checkpoint's first pass lacks what was trained before.
            finished = max(0, passes - 1 - (begun > 0))
            spans.append(_Epochs(finished, passes, finished))
        return _sum(spans)


class _Watched:
    """A loader whose batches are seen on their way."""

    def __init__(self, loader: Any, seen: Callable[[Any], None]) -> None:
        self._loader, self._seen = loader, seen
        self._begun = self._finished = 0

    def __iter__(self) -> Iterator[Any]:
        self._begun += 1
        for batch in self._loader:
            self._seen(batch)
            yield batch
        self._finished += 1

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    @property
    def epochs(self) -> _Epochs:
        """How often it was gone through, to the end or not."""
        return _Epochs(self._finished, self._begun, self._finished)


def _span(begun: float, ended: float) -> _Epochs:
    """From a place in one epoch to a place in another."""
    return _Epochs(
        fewest=max(0, math.floor(ended + _ROUNDING) - math.ceil(begun - _ROUNDING)),
        most=math.ceil(ended - _ROUNDING) - math.floor(begun + _ROUNDING),
        seen=ended - begun,
    )


def _sum(parts: Iterable[_Epochs]) -> _Epochs:
    fewest, most, seen = (sum(values) for values in zip(_Epochs(0, 0, 0.0), *parts, strict=True))
    return _Epochs(int(fewest), int(most), float(seen))


def _alike(scored: Encoded, ids: _Row, carried: NDArray[np.bool_], *, packed: bool) -> bool:
    """Whether a row up to the end of a canary is what is scored, with loss on the same tokens."""
    begin = len(ids) - len(scored.ids)
    if begin < 0 or (begin and not packed) or ids[begin:].tolist() != scored.ids:
        return False
    return bool(carried[begin + scored.scored_from :].all())


def _rows(values: Any) -> list[_Row]:
    """The rows of a batch, each of shape (T,)."""
    values = values.detach().cpu().numpy() if hasattr(values, "detach") else values
    rows = [np.asarray(row, dtype=np.int64) for row in values]
    if not rows or any(row.ndim != 1 for row in rows):
        raise InputError("a batch must hold rows of tokens, shape (B, T); give such a one")
    return rows


def _aligned(name: str, values: Any, rows: Sequence[_Row]) -> list[_Row]:
    """What belongs to each token; a value that says nothing where none is given."""
    # A mask of other shape says which token sees which; positions, where in an image.
    if values is None or (name != "labels" and getattr(values, "ndim", 2) != 2):
        return [np.ones_like(row) for row in rows]
    columns = _rows(values)
    if len(columns) == 1 < len(rows):
        columns = columns * len(rows)
    if [len(row) for row in columns] != [len(row) for row in rows]:
        raise InputError(
            f"{name} and input_ids have different shapes; give one value per token (rows of an "
            "encoder-decoder have none: measure it when it is trained, its records verified)"
        )
    return columns


def _gathered(counts: _Counts, batches: int, epochs: _Epochs) -> tuple[_Counts, int, _Epochs]:
    """The counts of all processes together; all must call this alike."""
    parts = from_all((counts, batches, epochs))
    total: _Counts = Counter()
    for part, _, _ in parts:
        total.update(part)
    # All go through the data together, each through its share.
    fewest, most = min(part[2].fewest for part in parts), max(part[2].most for part in parts)
    return total, sum(part[1] for part in parts), _Epochs(fewest, most, parts[0][2].seen)
