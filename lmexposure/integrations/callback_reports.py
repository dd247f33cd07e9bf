"""What the callback says before the first step and after the last, and what a training shows.

Before it, the rows of the first epoch are collated once more, in another order, and looked at as
`verify --rows` looks at rows; the loader itself is not touched. A private training's witnesses need
not show, so its record must: rows that were all counted before the first step, a whole epoch, and a
loss below its beginning's and below that of token frequencies.
"""

import copy
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure import _written
from lmexposure._files import only_writer
from lmexposure._validate import of_type
from lmexposure.audit import MeasureSettings, measure, refuse_foreign
from lmexposure.canaries import Manifest, Wrapping, permutation
from lmexposure.errors import LmexposureError, ModelError, ResultError, SettingsError
from lmexposure.integrations.row_contexts import RowsCounter, each_row
from lmexposure.integrations.wrapped_scoring import write_rows
from lmexposure.models import IGNORED, LoadedModel, is_stream
from lmexposure.scoring import evaluation_mode, same_random_numbers, single_process
from lmexposure.studies import LEAST_GAIN, Result, RowsRecord, Validation


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
    epochs = float(state.epoch or 0.0)
    epoch = epochs * step_of_weights(trainer) / max(1, int(state.global_step))
    early = state.global_step < state.max_steps
    if epoch < 1:  # not every canary was read, whatever its loss
        return Validation(
            validation_bits=None,
            initial_validation_bits=None,
            best_epoch=epoch,
            epochs=epochs,
            stopped="early" if early else "steps",
            improved=False,
            foreign=True,
        )
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


def _evaluated(history: Iterable[Mapping[str, Any]], step: int) -> Mapping[str, Any] | None:
    """What was logged of the evaluation at a step; None where there was none."""
    rows = (row for row in history if row["step"] == step and "eval_loss" in row)
    return next((row for row in rows if math.isfinite(row["eval_loss"])), None)


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
    data, size = loader.dataset, getattr(loader, "batch_size", None) or _BATCH
    several = getattr(data, "__getitems__", None)
    # All rows once: neighbours together, batches in an order that mixes them.
    for place in permutation(ceil(len(data) / size), seed=1):
        numbers = list(range(place * size, min((place + 1) * size, len(data))))
        rows = [data[i] for i in numbers] if several is None else list(several(numbers))
        yield len(rows), collate(rows)
        if clock() > until:
            break


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


_LOG = logging.getLogger(__name__)
_WRITTEN = ("exposure.jsonl", "rows.json", "report.html", "report.md")
_LITTLE = "its loss did not come below its first, and below that of token frequencies"
_EVERY = 60.0  # seconds between two lines of progress


class FinalReport:
    """What `lmexposure measure` would find and write, of a model that was just trained."""

    def __init__(
        self, out: str | Path, manifest: Manifest, settings: MeasureSettings | None
    ) -> None:
        if not isinstance(out, str | Path) or not str(out):
            raise SettingsError(f"report={out!r} is no path; give a directory's")
        settings = MeasureSettings() if settings is None else settings
        of_type("measure", settings, MeasureSettings, "MeasureSettings(...), or leave it out")
        self.out = Path(out)
        self._manifest, self._settings = manifest, settings
        self.ahead, self._resumed = RowsAhead(), False

    def prepare(self, trainer: Any, *, resumed: bool) -> None:
        """Find out before the first step whether the report can be made."""
        self._resumed = resumed
        _bare(trainer.model)
        if self.out.exists() and not self.out.is_dir():
            raise ResultError(f"report={str(self.out)!r} is a file; choose a directory")
        if (self.out / "result.json").exists() and not resumed:
            raise ResultError(
                f"report={str(self.out)!r} holds the result of another training; choose another "
                "directory, or move it away"
            )
        if not resumed:
            refuse_foreign(self.out)
            _written.refuse_foreign(self.out, _WRITTEN)

    def write(self, trainer: Any, tokenizer: Any, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """Measure and write, in this process alone; the model is left as it was."""
        from lmexposure.core import judged, write_report

        model = _bare(trainer.model)
        loaded = LoadedModel(model=model, tokenizer=tokenizer, name=trainer.args.output_dir)
        seen, unigram_bits = self.ahead.record, self.ahead.unigram_bits
        record = training_record(trainer, seen, unigram_bits, resumed=self._resumed)
        said = self._settings.left_context is not None
        seen = None if seen is None or seen.start is None or said else seen
        with (
            only_writer(self.out),
            single_process(),
            same_random_numbers(),
            evaluation_mode(trainer.model),
        ):
            measure(
                loaded,
                self._manifest,
                out=self.out,
                settings=self._settings,
                validation=None if isinstance(record, str) else record,
                rows=seen,
                progress=_Lines(),
            )
            if seen is not None:
                seen.save(self.out / RowsRecord.NAME)
            write_rows(self.out / "exposure.jsonl", rows)
            result = Result.read(self.out)
            written = write_report(result, self.out)
        verdict = judged(result)
        lines = [verdict.sentence]
        unseen = any(each.key == "accept_unseen_training" for each in verdict.findings)
        if unseen and (isinstance(record, str) or record.has_loss):
            why = record if isinstance(record, str) else _LITTLE
            lines.append(f"nor does the training's record show that it saw the canaries: {why}")
        return [*lines, *(f"report  {path}" for path in written)]


def _bare(model: Any) -> Any:
    """The causal LM itself, with an adapter's weights next to its own."""
    if not hasattr(model, "get_base_model"):
        return model
    config = model.active_peft_config
    if config.is_prompt_learning:
        raise ModelError(
            f"the model has an adapter of kind {config.peft_type.value}, which puts virtual tokens "
            "before the text, and `measure` does not read such a one; leave report out"
        )
    return model.get_base_model()


class _Lines:
    """A line of the log a minute."""

    def __init__(self) -> None:
        self._said = time.perf_counter()

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        if time.perf_counter() - self._said > _EVERY:
            self._said = time.perf_counter()
            _LOG.warning("%s: %d of %d%s", what, done, total, f"; {note}" if note else "")
