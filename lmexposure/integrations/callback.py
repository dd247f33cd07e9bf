"""Exposure while a model trains: a callback for the Trainer of transformers."""

import inspect
import logging
from collections.abc import Mapping, Sequence
from math import isinf, log2
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase, Trainer, TrainerCallback

from lmexposure._validate import integer, positive
from lmexposure.canaries import Manifest
from lmexposure.errors import FileError, LmexposureError, ModelError, SettingsError
from lmexposure.integrations.budget import TimeBudget
from lmexposure.integrations.paced import PacedScoring
from lmexposure.integrations.processes import from_first
from lmexposure.integrations.trajectory import Observation, read_rows, write_rows
from lmexposure.integrations.undisturbed import uncollected, undisturbed
from lmexposure.integrations.watched import LEAST_REFERENCES, ClassExposure, Watched, watch
from lmexposure.integrations.wrapping import Wrapping

__all__ = ["ExposureCallback"]

_LOG = logging.getLogger(__name__)


class ExposureCallback(TrainerCallback):  # type: ignore[misc]
    """Follows the exposure of canaries while a `transformers.Trainer` trains.

    At each evaluation, and at the end of a training that was not evaluated last, the canaries, the
    controls and a fixed sample of references are scored under the model as it is. Exposure is by
    rank among the references, in bits, higher = more memorised, capped at log2 of them; nothing is
    extrapolated. It is logged through the Trainer, as `exposure/FORMAT/xREPETITIONS/median`,
    `.../max` and `.../capped` (the share of canaries at the cap), and written to `exposure.jsonl`
    in `output_dir`. A time budget that does not suffice for all texts cuts all formats and classes
    alike, always to the same canaries; logs and rows say how many were scored.

    Training goes on as if nothing had happened: random numbers, modes, gradients and buffers are
    as before, and the weights at the end are those of a training without the callback.

    Args:
        manifest: what was inserted, or the path of manifest.json.
        budget_share: of the training's time so far that all looks together may take, in (0, 1).
        budget_seconds: what each look may take instead of a share; None: the share.
        references: per format at most, at least 64.
        stop_above: stop training when the median exposure of a class passes so many bits; None:
            never. Below log2(references).
        wrapping: how the training presents a canary. None: under TRL's SFTTrainer as a row of its
            own, packed or not; else behind the manifest's separator, as `measure` scores it.

    Raises:
        ManifestError: the manifest cannot be read or was edited.
        SettingsError: a value out of range; a threshold that no exposure can pass, or one beside
            tossed coins.
    """

    def __init__(
        self,
        manifest: str | Path | Manifest,
        *,
        budget_share: float = 0.025,
        budget_seconds: float | None = None,
        references: int = 1000,
        stop_above: float | None = None,
        wrapping: Wrapping | None = None,
    ) -> None:
        self._manifest = manifest if isinstance(manifest, Manifest) else Manifest.read(manifest)
        self._budget = TimeBudget(share=budget_share, seconds=budget_seconds)
        self._references = integer("references", references, low=LEAST_REFERENCES)
        self._stop_above = _threshold(stop_above, self._references, self._manifest)
        self._wrapping = wrapping
        self._watched: Watched | None = None
        self._scoring: PacedScoring | None = None
        self._rows: list[dict[str, Any]] = []

    @property
    def spent_seconds(self) -> float:
        """What all of its hooks took so far in this training, getting ready included."""
        return self._budget.spent + self._budget.running()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Find out before the first step whether all can be scored.

        Raises:
            ManifestError: there is no inserted canary, or it stands in a chat and the wrapping
                says otherwise.
            ModelError: there is no tokenizer, the weights are spread over processes, or a fill
                meets an unknown token or is longer than the context window.
            ResultError: exposure.jsonl of the training to go on with cannot be read.
            SettingsError: it is no Trainer that calls.
        """
        self._budget.begin()
        with self._budget.spending(), uncollected():
            trainer = _calling_trainer()
            _refuse_sharded(trainer)
            self._looked_at, self._told = -1, False
            watched = watch(
                self._manifest,
                _tokenizer(trainer),
                trainer.model.config,
                references=self._references,
                wrapping=self._wrapping or _usual_wrapping(trainer),
            )
            self._rows = from_first(lambda: read_rows(_path(args), until=state.global_step))
            self._taken_over = len(self._rows)
            self._watched, self._scoring = watched, PacedScoring(watched, self._budget)
            if str(getattr(args.eval_strategy, "value", args.eval_strategy)) == "no":
                _say(state, "there are no evaluations, so exposure is measured at the end only")

    def on_evaluate(
        self,
        args: Any,
        state: Any,
        control: Any,
        metrics: Mapping[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Measure, log, and stop training where the threshold is passed."""
        # With several evaluation sets this is called for each; outside training, for none.
        if self._watched is not None and self._looked_at != state.global_step:
            with self._budget.spending():
                self._look(_calling_trainer(), control, (metrics or {}).get("eval_loss"))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Measure the last state, unless an evaluation did."""
        if self._watched is None:
            return
        with self._budget.spending():
            # A best model that was loaded again was measured when it was evaluated.
            best = args.load_best_model_at_end and state.best_model_checkpoint
            if self._looked_at != state.global_step and not best:
                self._look(_calling_trainer(), control, None)
            if not any(row["exposure"] for row in self._rows):
                why = self._rows[-1]["note"] if self._rows else "there was no evaluation"
                _say(state, f"exposure was never measured in this training; at the end: {why}")
            self._watched = None

    def _look(self, trainer: Any, control: Any, eval_loss: float | None) -> None:
        """One measurement, told to everyone who listens."""
        state = trainer.state
        self._looked_at = state.global_step
        seen = self._observe(trainer)
        trainer.log(seen.logs())
        losses = {"train": _last(state.log_history, "loss"), "validation": eval_loss}
        self._rows.append(seen.row(state.global_step, state.epoch, losses))
        self._write(trainer.args)
        if seen.note and not self._told:
            self._told = True
            _say(state, f"{seen.note}; {_path(trainer.args)} says so for each evaluation")
        if seen.stops:
            _say(state, f"training stops at step {state.global_step}: {seen.stops}")
            control.should_training_stop = True

    def _observe(self, trainer: Any) -> Observation:
        """Score as many texts as the budget allows, and say what they mean."""
        assert self._watched is not None
        assert self._scoring is not None
        watched, allowed = self._watched, from_first(self._budget.left)
        bits, note = np.empty(0), ""
        try:
            with undisturbed(trainer.model):
                bits = self._scoring.score(trainer.model)
        except LmexposureError as failure:  # the training is not ours to end
            note = f"the canaries could not be scored: {failure}"
        classes = watched.exposures(bits) if bits.size else []
        return Observation(
            classes=classes,
            texts=bits.size,
            texts_planned=len(watched.owners),
            canaries=watched.canaries_within(bits.size),
            canaries_planned=watched.canaries,
            seconds=from_first(self._budget.running),
            budget_seconds=allowed,
            spent_seconds=from_first(lambda: self.spent_seconds),
            note=note or self._left_out(watched, bits.size, allowed),
            stops=_passed(classes, self._stop_above),
        )

    def _left_out(self, watched: Watched, scored: int, allowed: float) -> str:
        """What the budget left out and what would have done, in words; "" where nothing."""
        assert self._scoring is not None
        planned = len(watched.owners)
        if scored == planned:
            return ""
        wanted = self._wanted(self._scoring.lacking(scored))
        if not scored:
            return (
                f"not measured: the time budget, {max(0.0, allowed):.2f} s so far, does not yet "
                f"pay for the least that is of use, {watched.least} texts; {wanted}"
            )
        bound = self._stop_above
        undecided = (
            ""
            if bound is None
            else f"; with {2**bound:.0f} references or fewer no class can pass stop_above"
        )
        return (
            f"the time budget of {allowed:.2f} s sufficed for {scored} of {planned} texts, among "
            f"them {watched.canaries_within(scored)} of {watched.canaries} canaries and controls"
            f"{undecided}; for all of them {wanted}"
        )

    def _wanted(self, lacking: float) -> str:
        """What to change so that this look, and those before it, could take so much longer."""
        if isinf(lacking):  # as much again as getting ready took is the least to try
            return f"give at least {self._budget.wanted(self.spent_seconds)}"
        each = self._budget.running() + lacking
        earlier = (row["seconds"] for row in self._rows[self._taken_over :])
        before = sum(max(0.0, each - seconds) for seconds in earlier)
        return f"give {self._budget.wanted(lacking, before=before)}"

    def _write(self, args: Any) -> None:
        """All rows so far; a disk that refuses now may take them next time."""
        if args.process_index == 0:
            try:
                write_rows(_path(args), self._rows)
            except FileError as failure:
                _LOG.warning("exposure.jsonl: %s", failure)


def _say(state: Any, message: str) -> None:
    if state.is_world_process_zero:
        _LOG.warning("%s", message)


def _path(args: Any) -> Path:
    return Path(args.output_dir) / "exposure.jsonl"


def _last(history: Sequence[Mapping[str, float]], name: str) -> float | None:
    """The latest value that was logged under this name."""
    return next((row[name] for row in reversed(history) if name in row), None)


def _threshold(bits: float | None, references: int, manifest: Manifest) -> float | None:
    if bits is None:
        return None
    positive("stop_above", bits)
    if bits >= log2(references):
        raise SettingsError(
            f"stop_above={bits} can never be passed: with references={references} no exposure is "
            f"above {log2(references):.2f} bits; lower it, or ask for more references"
        )
    if manifest.plan.coins != "fixed":
        raise SettingsError(
            f"stop_above={bits} would let the training depend on the coins of the manifest, and no "
            "bound could be proven from it; leave stop_above out"
        )
    return bits


def _passed(classes: Sequence[ClassExposure], threshold: float | None) -> str:
    """The class of inserted canaries whose median passed the threshold, in words; "" for none."""
    for one in classes:
        if threshold is not None and one.repetitions and one.median > threshold:
            return f"{one.name}: median {one.median:.2f} bits > stop_above={threshold:g}"
    return ""


def _calling_trainer() -> Any:
    """The Trainer whose call this is.

    A Trainer does not hand itself to its callbacks, but only it has the loggers, and the bare
    model. So it is looked for where it must be: among the callers.
    """
    frame = inspect.currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, Trainer):
            return caller
        frame = frame.f_back
    raise SettingsError(
        "ExposureCallback was called by no transformers.Trainer; give it to one: "
        "Trainer(..., callbacks=[ExposureCallback(manifest)])"
    )


def _usual_wrapping(trainer: Any) -> Wrapping | None:
    """In SFTTrainer's rows nothing stands before a text; packed, the end of the row before."""
    rows = any(one.__name__ == "SFTTrainer" for one in type(trainer).__mro__)
    return Wrapping(context=None if trainer.args.packing else "") if rows else None


def _tokenizer(trainer: Any) -> Any:
    """The Trainer's tokenizer, or that of its processor."""
    found = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    if isinstance(found, PreTrainedTokenizerBase):
        return found
    raise ModelError(
        f"the Trainer has processing_class={type(trainer.processing_class).__name__}, which is no "
        "tokenizer; without one no canary can be scored: Trainer(..., processing_class=tokenizer)"
    )


def _refuse_sharded(trainer: Any) -> None:
    """The bare model must hold all of its weights."""
    if trainer.is_fsdp_enabled or any(hasattr(p, "ds_id") for p in trainer.model.parameters()):
        raise ModelError(
            "the weights are spread over processes (FSDP, or DeepSpeed's ZeRO-3), so that the model"
            " cannot be scored while it trains; leave ExposureCallback out, and measure the "
            "checkpoints with `lmexposure measure`"
        )
