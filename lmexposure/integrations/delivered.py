"""How often each canary reaches the model in the batches of anyone's training, and with loss.

A training loses canaries without a word: it truncates, packs, masks and removes duplicates. So the
counter reads the batches themselves and says what became of every repetition.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from lmexposure.canaries import Manifest
from lmexposure.errors import InputError, SettingsError
from lmexposure.integrations.delivery_report import Delivery, DeliveryReport
from lmexposure.integrations.token_search import TokenSearch
from lmexposure.models.packing import IGNORED

__all__ = ["DeliveredCounter"]

_Row: TypeAlias = NDArray[np.int64]
_Counts: TypeAlias = Counter[tuple[str, str]]  # (canary, kind)

_FIELDS = ("input_ids", "labels", "attention_mask", "position_ids")
_KINDS = ("whole", "head", "tail", "without_loss", "partly_without_loss")
_OTHERS = 16  # fills by which a format's fixed beginning and end are told
_ROUNDING = 1e-6  # of an epoch, as trainers add them up from fractions


class DeliveredCounter:
    """Counts the canaries of a manifest in training batches.

    Feed it in one of three ways: `attach(trainer)`, `watch(loader)`, or `observe` yourself. Each
    process counts its own batches; `report` adds them up where torch.distributed is up.

    Args:
        manifest: what was inserted. Controls and excluded candidates are looked for as well: they
            must not be there.
        tokenizer: of the training.

    Raises:
        ModelError: the tokenizer does not know a character of a canary, or writes canaries so that
            they cannot be found again.
    """

    def __init__(self, manifest: Manifest, tokenizer: Any) -> None:
        self._manifest = manifest
        self._search = TokenSearch(tokenizer, _groups(manifest), _others(manifest))
        self._counts: _Counts = Counter()
        self._batches = 0
        self._trainer: Any = None

    def observe(
        self,
        input_ids: Any,
        labels: Any = None,
        attention_mask: Any = None,
        position_ids: Any = None,
    ) -> None:
        """Count one batch.

        Args:
            input_ids: tokens, shape (B, T), or a list of rows.
            labels: aligned with them, -100 where no loss is; None: loss everywhere.
            attention_mask: 0 where padding is; None: padding is told by the tokenizer's pad token.
            position_ids: where they begin again at 0, another document begins.

        Raises:
            InputError: no rows, or shapes that do not go together.
        """
        rows = _rows(input_ids)
        beside = [
            _beside(name, values, rows)
            for name, values in (
                ("labels", labels),
                ("attention_mask", attention_mask),
                ("position_ids", position_ids),
            )
        ]
        self._batches += 1
        for ids, *columns in zip(rows, *beside, strict=True):
            self._count_row(ids, *columns)

    def watch(self, loader: Any) -> Any:
        """The same loader, its batches counted as they are taken.

        Batches are mappings with "input_ids"; length and other attributes are the loader's own.
        """
        return _Watched(loader, self._observe_batch)

    def collator(self, collate: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The same collator, its batches counted as they are made.

        Raises:
            SettingsError: when called in a worker process of a loader, whose counts nobody sees.
        """

        def counting(examples: Any) -> Any:
            if torch.utils.data.get_worker_info() is not None:
                raise SettingsError(
                    "the counter runs in a worker process of the loader, where its counts are "
                    "lost; use num_workers=0, or counter.watch(loader)"
                )
            batch = collate(examples)
            self._observe_batch(batch)
            return batch

        return counting

    def attach(self, trainer: Any) -> None:
        """Count what a `transformers.Trainer`, or TRL's SFTTrainer, gives to its model.

        Evaluation does not count. `report` then knows the epochs.
        """
        self._trainer, step = trainer, trainer.training_step

        def counted(model: Any, inputs: Mapping[str, Any], *rest: Any, **named: Any) -> Any:
            self._observe_batch(inputs)
            return step(model, inputs, *rest, **named)

        trainer.training_step = counted

    def report(self, epochs: float | None = None) -> DeliveryReport:
        """What became of every repetition.

        Args:
            epochs: how often the training went through its data; a part of an epoch may or may not
                have brought a canary. None: what the attached trainer says, else 1.

        Raises:
            SettingsError: `epochs` is negative or no number.
        """
        if epochs is None:
            epochs = 1.0 if self._trainer is None else float(self._trainer.state.epoch or 0.0)
        if not np.isfinite(epochs) or epochs < 0:
            raise SettingsError(f"epochs={epochs!r} must be a number of at least 0")
        counts, batches = _gathered(self._counts, self._batches)
        deliveries = tuple(
            Delivery(
                id=one.id,
                format=one.format,
                repetitions=one.inserted,
                fewest=math.floor(epochs + _ROUNDING) * one.inserted,
                most=math.ceil(epochs - _ROUNDING) * one.inserted,
                **{kind: counts[one.id, kind] for kind in _KINDS},
            )
            for one in self._manifest.canaries
        )
        return DeliveryReport(
            canaries=deliveries,
            unattributed=sum(counts[name, "head"] for name in self._manifest.formats),
            epochs=epochs,
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
        for start, end in pairwise(sorted({0, *np.flatnonzero(positions == 0), len(ids)})):
            for hit in self._search.hits(ids[start:end]):
                self._counts[hit.id, hit.kind] += 1
                # Nothing predicts the first token of a row.
                secret = carried[start + max(hit.secret, 1) : start + hit.end]
                if hit.kind == "whole" and not secret.all():
                    kind = "partly_without_loss" if secret.any() else "without_loss"
                    self._counts[hit.id, kind] += 1


class _Watched:
    """A loader whose batches are seen on their way."""

    def __init__(self, loader: Any, seen: Callable[[Any], None]) -> None:
        self._loader, self._seen = loader, seen

    def __iter__(self) -> Iterator[Any]:
        for batch in self._loader:
            self._seen(batch)
            yield batch

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _groups(manifest: Manifest) -> dict[str, dict[str, str]]:
    groups: dict[str, dict[str, str]] = {name: {} for name in manifest.formats}
    for one in manifest.canaries:
        groups[one.format][one.id] = one.text
    return groups


def _others(manifest: Manifest) -> dict[str, list[str]]:
    return {
        name: [one.text(index) for index in manifest.references(name, _OTHERS)]
        for name, one in manifest.formats.items()
    }


def _rows(values: Any) -> list[_Row]:
    """The rows of a batch, each of shape (T,)."""
    values = values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else values
    rows = [np.asarray(row, dtype=np.int64) for row in values]
    if not rows or any(row.ndim != 1 for row in rows):
        raise InputError("a batch must hold rows of tokens, shape (B, T); give such a one")
    return rows


def _beside(name: str, values: Any, rows: Sequence[_Row]) -> list[_Row]:
    """What belongs to each token; a value that says nothing where none is given."""
    # A mask of other shape says which token sees which, not which is padding.
    if values is None or (name == "attention_mask" and getattr(values, "ndim", 2) != 2):
        return [np.ones_like(row) for row in rows]
    columns = _rows(values)
    if len(columns) == 1 < len(rows):
        columns = columns * len(rows)
    if [len(row) for row in columns] != [len(row) for row in rows]:
        raise InputError(f"{name} and input_ids have different shapes; give one value per token")
    return columns


def _gathered(counts: _Counts, batches: int) -> tuple[_Counts, int]:
    """The counts of all processes together; all must call this alike."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return counts, batches
    parts: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(parts, (counts, batches))
    total: _Counts = Counter()
    for part, _ in parts:
        total.update(part)
    return total, sum(number for _, number in parts)
