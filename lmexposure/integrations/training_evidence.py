"""What a training elsewhere shows by itself: that its rows held all canaries, and that it learned.

A private training's witnesses need not show, so its record must: rows that were all counted before
the first step, a whole epoch, and a loss below its beginning's and below that of token frequencies.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure.models import IGNORED
from lmexposure.studies import LEAST_GAIN, RowsRecord, Validation


class LabelFrequencies:
    """How often each token is predicted in the rows to train on."""

    def __init__(self) -> None:
        self._counts: NDArray[np.int64] | None = np.zeros(1, dtype=np.int64)

    def add(self, batch: Any) -> None:
        """Count the labels of a collated batch; one without any leaves nothing known."""
        if self._counts is None:
            return
        try:
            found = np.bincount(predicted(batch))
        except (KeyError, TypeError, ValueError):
            self._counts = None
            return
        self._counts = _padded(self._counts, found.size) + _padded(found, self._counts.size)

    def bits(self, held: Sequence[tuple[int, NDArray[np.int64]]]) -> float | None:
        """Loss of these frequencies on other batches, bits per token, as a Trainer averages it.

        That is the mean over the tokens of each batch, then over batches by their rows. Each token
        counts one more than it is there, so that none is impossible.
        """
        held = [(rows, labels) for rows, labels in held if labels.size]
        if self._counts is None or not held:
            return None
        counts = _padded(self._counts, 1 + max(int(labels.max()) for _, labels in held)) + 1
        bits = np.log2(counts.sum()) - np.log2(counts)
        means = [bits[labels].mean() for _, labels in held]
        return float(np.average(means, weights=[rows for rows, _ in held]))


def predicted(batch: Any) -> NDArray[np.int64]:
    """The tokens of a batch that carry loss, shape (N,); nothing predicts the first of a row."""
    rows = [np.asarray(row, dtype=np.int64)[1:] for row in batch["labels"]]
    labels = np.concatenate(rows)
    kept: NDArray[np.int64] = labels[labels != IGNORED]
    return kept


def _padded(counts: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    return np.pad(counts, (0, max(0, size - counts.size)))


def step_of_weights(trainer: Any) -> int:
    """The step of the trained model's weights: a best model that was loaded again is of another."""
    state = trainer.state
    best = trainer.args.load_best_model_at_end and state.best_model_checkpoint
    return int(state.best_global_step if best else state.global_step)


def training_record(
    trainer: Any, rows: RowsRecord | None, unigram_bits: float | None, *, resumed: bool = False
) -> Validation | str:
    """What a training that ended says of itself, or what it lacks to say it, in words."""
    args, state = trainer.args, trainer.state
    before, after = (_evaluated(state.log_history, n) for n in (0, step_of_weights(trainer)))
    epoch = _epoch_of_weights(state, step_of_weights(trainer))
    if epoch < 1:
        return _unfinished(state, epoch)
    if resumed:
        return "it went on from a checkpoint, and what came before is not known"
    if rows is None or not rows.whole or rows.lacking:
        return "not all rows were counted before the first step, or they lack canaries"
    if not before or not after:
        return (
            "its Trainer needs an evaluation before the first step (eval_on_start=True) and one of "
            "the trained weights, with a single set"
        )
    if unigram_bits is None or args.label_smoothing_factor or trainer.compute_loss_func:
        return "its evaluation's loss could not be compared with that of token frequencies"
    bits, initial = (row["eval_loss"] / math.log(2) for row in (after, before))
    early = state.global_step < state.max_steps
    return Validation(
        validation_bits=bits,
        initial_validation_bits=initial,
        best_epoch=after["epoch"],
        epochs=state.epoch,
        stopped="early" if early else "steps" if args.max_steps > 0 else "epochs",
        improved=bits < initial - LEAST_GAIN,
        unigram_bits=unigram_bits,
        delivered=sum(each.planned for each in rows.classes),
        foreign=True,
    )


def _epoch_of_weights(state: Any, step: int) -> float:
    epochs = float(state.epoch or 0.0)
    return epochs * step / max(1, int(state.global_step))


def _unfinished(state: Any, epoch: float) -> Validation:
    """Of less than an epoch: not every canary was read, whatever its loss."""
    return Validation(
        validation_bits=None,
        initial_validation_bits=None,
        best_epoch=epoch,
        epochs=float(state.epoch or 0.0),
        stopped="early" if state.global_step < state.max_steps else "steps",
        improved=False,
        foreign=True,
    )


def _evaluated(history: Iterable[Mapping[str, Any]], step: int) -> Mapping[str, Any] | None:
    """What was logged of the evaluation at a step; None where there was none."""
    rows = (row for row in history if row["step"] == step and "eval_loss" in row)
    return next((row for row in rows if math.isfinite(row["eval_loss"])), None)
