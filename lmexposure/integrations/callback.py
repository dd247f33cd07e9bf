"""Exposure while a model trains: a callback for the Trainer of transformers."""

import inspect
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isinf, log2
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase, Trainer, TrainerCallback

from lmexposure._validate import flag, integer, of_type, one_of, positive
from lmexposure.audit import MeasureSettings
from lmexposure.canaries import Manifest, Wrapping
from lmexposure.errors import CorpusError, FileError, LmexposureError, ModelError, SettingsError
from lmexposure.integrations.final_report import FinalReport
from lmexposure.integrations.pacing import (
    PacedScoring,
    TimeBudget,
    from_first,
    uncollected,
    undisturbed,
)
from lmexposure.integrations.preflight import Preflight
from lmexposure.integrations.preflight import preflight as look_ahead
from lmexposure.integrations.training_evidence import step_of_weights
from lmexposure.integrations.watched import (
    LEAST_REFERENCES,
    ClassExposure,
    Observation,
    Watched,
    read_rows,
    watch,
    write_rows,
)
from lmexposure.models import Context, encode_in_context
from lmexposure.records import RowsRecord

_LOG = logging.getLogger(__name__)
_OTHER_ROWS = (
    "the training's rows have other tokens in front of the canaries than is usual for such a "
    "trainer and manifest; they are scored behind those"
)
_BY_HAND = "the trained model is as it was; save it, and measure it with `lmexposure measure`"


class ExposureCallback(TrainerCallback):  # type: ignore[misc]
    """Follows the exposure of canaries while a `transformers.Trainer` trains.

    At each evaluation, and at the end of a training that was not evaluated last, the canaries, the
    controls and a fixed sample of references are scored under the model as it is. Exposure is by
    rank among the references, in bits, higher = more memorised, capped at log2 of them; nothing is
    extrapolated. It is logged through the Trainer, as `exposure/FORMAT/xREPETITIONS/median`,
    `.../max`, `.../capped` (the share of canaries at the cap) and `.../n` (how many canaries that
    is), and written to `exposure.jsonl` in `output_dir`. A time budget that does not suffice for
    all texts cuts all formats and classes alike, always to the same canaries; logs and rows say how
    many were scored. The trained model is scored in full; the log says before how long that takes.

    Before the first step the rows of the training are counted, for a minute at most: a training
    that would cut its canaries, or give them no loss, does not begin.

    Training goes on as if nothing had happened: random numbers, modes, gradients and buffers are
    as before, and the weights at the end are those of a training without the callback.

    Args:
        manifest: what was inserted, or the path of manifest.json.
        budget_share: of the training's time so far that all scorings together may take, in (0, 1).
        budget_seconds: what each scoring may take instead of a share; None: the share.
        references: per format at most, at least 64.
        stop_above: stop training when the median exposure of a class passes this many bits; None:
            never. Below log2(references).
        wrapping: how the training presents a canary. None: as the manifest says; under TRL's
            SFTTrainer with its loss in chats, and plain texts as rows of their own, packed or not.
        full_at_end: score all texts under the trained model, whatever the budget has left.
        preflight: what canaries that would not be learned do: "stop" the training before its first
            step, "warn" in the log, or "off": they are not counted.
        report: a directory for what `lmexposure measure` writes of the trained model, scored in the
            rows that were counted before the first step, and its report; None: there is none. Of
            several processes the first makes it while the others go on. Where it fails, the log
            says why, and the training ends as it would have. That a private training read the
            canaries is shown by a whole epoch, with evaluations of one set before the first step
            (`eval_on_start=True`) and of the trained weights.
        measure: settings of that measurement; None: the defaults.

    Raises:
        ManifestError: the manifest cannot be read or was edited, or a report is asked for of
            canaries in chats.
        SettingsError: a value of another type or out of range; a threshold that no exposure can
            pass, or one together with tossed coins; settings of a measurement without a report.
    """

    def __init__(  # noqa: PLR0913 (a public door: each is an option of the callback)
        self,
        manifest: str | Path | Manifest,
        *,
        budget_share: float = 0.025,
        budget_seconds: float | None = None,
        references: int = 1000,
        stop_above: float | None = None,
        wrapping: Wrapping | None = None,
        full_at_end: bool = True,
        preflight: Literal["stop", "warn", "off"] = "stop",
        report: str | Path | None = None,
        measure: MeasureSettings | None = None,
    ) -> None:
        self._manifest = Manifest.of(manifest)
        self._budget = TimeBudget(share=budget_share, seconds=budget_seconds)
        self._references = integer("references", references, low=LEAST_REFERENCES)
        self._stop_above = _threshold(stop_above, self._references, self._manifest)
        if wrapping is not None:
            of_type("wrapping", wrapping, Wrapping, "Wrapping(...), or leave it out")
        self._wrapping = wrapping
        self._full_at_end = flag("full_at_end", full_at_end)
        self._preflight = one_of("preflight", preflight, ("stop", "warn", "off"))
        self._report = _final_report(report, self._manifest, measure)
        self._watched: Watched | None = None
        self._scoring: PacedScoring | None = None
        self._rows: list[dict[str, Any]] = []

    @property
    def spent_seconds(self) -> float:
        """What all of its hooks took so far in this training, getting ready included."""
        return self._budget.spent + self._budget.running()

    def on_train_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """Find out before the first step whether all can be learned and scored.

        Raises:
            CorpusError: the training would cut canaries, or give them no loss.
            ManifestError: there is no inserted canary, or it is in a chat and the wrapping
                says otherwise.
            ModelError: there is no tokenizer, the weights are spread over processes, or a fill
                meets an unknown token or is longer than the context window.
            ResultError: exposure.jsonl of the training to go on with cannot be read, or the
                directory of the report holds another one.
            SettingsError: it is no Trainer that calls.
        """
        self._budget.begin()
        with self._budget.spending(), uncollected():
            trainer = _calling_trainer()
            _refuse_sharded(trainer)
            self._looked_at, self._full_at, self._told = -1, -1, set[str]()
            tokenizer = _tokenizer_of(trainer)
            wrapping = self._wrapping or usual_wrapping(trainer, self._manifest)
            watched = self._watch(trainer, tokenizer, wrapping)
            with self._budget.aside():
                self._prepare_report(trainer)
                found = self._look_ahead(trainer, tokenizer, named.get("train_dataloader"))
                self._say_rows(state, found, tokenizer, wrapping)
            rows = found.rows
            if self._are_others(rows, watched, tokenizer):
                watched = self._watch(trainer, tokenizer, wrapping, row=_row_of(rows))
                _say(state, _OTHER_ROWS)
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
            last = state.global_step >= state.max_steps and not args.load_best_model_at_end
            with self._budget.spending():
                trainer = _calling_trainer()
                loss = (metrics or {}).get("eval_loss")
                self._look(trainer, control, loss, full=last and self._full_at_end)
                self._say_end(trainer)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Measure the last state, unless an evaluation did; in full, unless that is turned off."""
        if self._watched is None:
            return
        with self._budget.spending():
            trainer = _calling_trainer()
            self._look_at_end(trainer, control)
            if not any(row["exposure"] for row in self._rows):
                why = self._rows[-1]["note"] if self._rows else "there was no evaluation"
                _say(state, f"exposure was never measured in this training; at the end: {why}")
            if self._report is not None and state.is_world_process_zero:
                self._write_report(trainer, self._report)
            self._watched = None

    def _look_at_end(self, trainer: Any, control: Any) -> None:
        """Score the trained model; a best model that was loaded again is of an earlier step."""
        step = step_of_weights(trainer)
        row = next((row for row in self._rows if row["step"] == step), None)
        lacking = row is None or row["texts"] < row["texts_planned"]
        if self._full_at_end:
            if lacking and self._full_at != step:
                self._look(trainer, control, None, step=step, full=True)
        elif step == trainer.state.global_step != self._looked_at:
            self._look(trainer, control, None)

    def _watch(
        self, trainer: Any, tokenizer: Any, wrapping: Wrapping, *, row: Context | None = None
    ) -> Watched:
        config, references = trainer.model.config, self._references
        return watch(
            self._manifest, tokenizer, config, references=references, wrapping=wrapping, row=row
        )

    def _are_others(self, rows: RowsRecord | None, watched: Watched, tokenizer: Any) -> bool:
        """Whether the training's rows are seen to be others than the usual; a given one counts."""
        row, canary = _row_of(rows), watched.owners[0][1]
        if self._wrapping is not None or row is None or canary is None:
            return False
        (own,) = encode_in_context(tokenizer, [canary.text], context=row)
        usual = watched.encoded[0]
        return (own.ids, own.scored_from) != (usual.ids, usual.scored_from)

    def _look_ahead(self, trainer: Any, tokenizer: Any, loader: Any) -> Preflight:
        """Count the canaries in the rows to train on, in the first process for all."""
        if self._preflight == "off":
            return Preflight()
        state = trainer.state
        given = self._wrapping  # without one, canaries are scored as the rows have them
        # A loss before the first step is what tokens' frequencies are compared with.
        asked = self._report is not None and trainer.args.eval_on_start
        held = trainer.get_eval_dataloader if asked else None
        found = from_first(
            lambda: look_ahead(self._manifest, tokenizer, given, loader, evaluation=held)
        )
        of_rows = () if given or not found.rows or found.stop else found.rows.warnings
        for line in dict.fromkeys((*found.warnings, *of_rows)):
            _say(state, line)
        if found.stop and self._preflight == "warn":
            _say(state, found.stop)
        elif found.stop:
            raise CorpusError(
                f"{found.stop}; nothing was trained: change that, or train all the same with "
                "ExposureCallback(..., preflight='warn')"
            )
        return found

    def _prepare_report(self, trainer: Any) -> None:
        if self._report is not None:
            report, resumed = self._report, trainer.state.global_step > 0
            from_first(lambda: report.prepare(trainer, resumed=resumed))

    def _say_rows(self, state: Any, found: Preflight, tokenizer: Any, wrapping: Wrapping) -> None:
        """The report scores the canaries in the rows that were seen, else as far as is known."""
        if self._report is not None:
            report = self._report
            line = from_first(lambda: report.score_in(found, tokenizer, wrapping))
            if line:
                _say(state, f"report={str(report.out)!r}: {line}")

    def _write_report(self, trainer: Any, report: FinalReport) -> None:
        """The training is done, and what goes wrong here must not take its model away."""
        _say(trainer.state, f"measuring the trained model for {report.out}")
        try:
            for line in report.write(trainer, _tokenizer_of(trainer), self._rows):
                _say(trainer.state, line)
        except LmexposureError as failure:
            _say(trainer.state, f"no report in {report.out}: {failure}; {_BY_HAND}")
        except KeyboardInterrupt:  # of the measurement: what follows the training is to come yet
            _say(trainer.state, f"no report in {report.out}: ended by Ctrl-C; {_BY_HAND}")
        except Exception:  # out of memory, or a bug of ours: the log has all of it
            _LOG.exception("no report in %s; %s", report.out, _BY_HAND)

    def _look(
        self,
        trainer: Any,
        control: Any,
        eval_loss: float | None,
        *,
        step: int | None = None,
        full: bool = False,
    ) -> None:
        """Measure, log and write; `step` is the model's, where another was trained last."""
        state = trainer.state
        self._looked_at = state.global_step
        step = state.global_step if step is None else step
        self._full_at = step if full else self._full_at
        seen = self._observe(trainer, full=full)
        trainer.log(seen.logs())
        self._keep(seen, step, state, eval_loss)
        self._write(trainer.args)
        if seen.note and "note" not in self._told:
            self._told.add("note")
            _say(state, f"{seen.note}; {_path(trainer.args)} says so for each evaluation")
        if seen.few and seen.few not in self._told:
            self._told.add(seen.few)
            _say(
                state, f"at step {step} exposures of these classes are of few canaries: {seen.few}"
            )
        if seen.stops:
            _say(state, f"training stops at step {state.global_step}: {seen.stops}")
            control.should_training_stop = True

    def _keep(self, seen: Observation, step: int, state: Any, eval_loss: float | None) -> None:
        """Keep a row for each step; a later one of the same weights takes the place of another."""
        losses = {"train": _last(state.log_history, "loss"), "validation": eval_loss}
        row = seen.row(step, state.epoch, losses)
        before = [earlier for earlier in self._rows if earlier["step"] == step]
        for earlier in before:
            kept = ("epoch", "train_bits_per_token", "validation_bits_per_token")
            row |= {name: earlier[name] for name in kept}
        self._rows = [earlier for earlier in self._rows if earlier["step"] != step]
        self._rows = sorted([*self._rows, row], key=lambda earlier: int(earlier["step"]))

    def _say_end(self, trainer: Any) -> None:
        """Once: what the scoring at the end will take, where the budget did not pay for as much."""
        assert self._scoring is not None
        seconds, row = self._scoring.seconds, self._rows[-1]
        unpaid = self._full_at_end and row["texts"] < row["texts_planned"] and not row["full"]
        if not unpaid or "end" in self._told or isinf(seconds):
            return
        self._told.add("end")
        _say(
            trainer.state,
            f"at the end all {row['texts_planned']} texts are scored, which would take about "
            f"{_shown(seconds)} s; full_at_end=False keeps the end to the budget",
        )

    def _observe(self, trainer: Any, *, full: bool) -> Observation:
        """Score as many texts as the budget allows, or all, and say what they mean."""
        assert self._watched is not None
        watched, allowed = self._watched, from_first(self._budget.left)
        bits, note = np.empty(0), ""
        try:
            with undisturbed(trainer.model):
                bits = self._scored(trainer, full=full)
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
            full=full,
        )

    def _scored(self, trainer: Any, *, full: bool) -> NDArray[np.float64]:
        assert self._scoring is not None
        assert self._watched is not None
        if not full:
            return self._scoring.score(trainer.model)
        texts = len(self._watched.owners)
        return self._scoring.score_all(
            trainer.model,
            lambda seconds: _say(
                trainer.state,
                f"scoring all {texts} texts under the trained model: about {_shown(seconds)} s",
            ),
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
        bound, undecided = self._stop_above, ""
        if bound is not None:
            undecided = f"; with {2**bound:.0f} references or fewer no class can pass stop_above"
        return (
            f"the time budget of {allowed:.2f} s sufficed for {scored} of {planned} texts, among "
            f"them {watched.canaries_within(scored)} of {watched.canaries} canaries and controls"
            f"{undecided}; for all of them {wanted}"
        )

    def _wanted(self, lacking: float) -> str:
        """What to change so that this scoring, and those before it, could take that much longer."""
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


def _row_of(rows: RowsRecord | None) -> Context | None:
    """The row that a training was seen to have its canaries in."""
    if rows is None or rows.start is None:
        return None
    return Context(start=rows.start, before=rows.before, behind=rows.behind, unscored=rows.unscored)


def _say(state: Any, message: str) -> None:
    if state.is_world_process_zero:
        _LOG.warning("%s", message)


def _shown(seconds: float) -> str:
    return f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}"


def _final_report(
    out: str | Path | None, manifest: Manifest, settings: MeasureSettings | None
) -> FinalReport | None:
    if out is not None:
        return FinalReport(out, manifest, settings)
    if settings is not None:
        raise SettingsError(
            "measure=... is for the report at the end; give report=DIRECTORY, or leave it out"
        )
    return None


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
    if manifest.plan.inclusion_probability is not None:
        raise SettingsError(
            f"stop_above={bits} would let the training depend on the coins of the manifest, and no "
            "bound could be proven from it; leave stop_above out"
        )
    return bits


def _passed(classes: Sequence[ClassExposure], threshold: float | None) -> str:
    """The class of inserted canaries whose median passed the threshold, in words; "" for none."""
    for exposure in classes:
        if threshold is not None and exposure.repetitions and exposure.median > threshold:
            return f"{exposure.name}: median {exposure.median:.2f} bits > stop_above={threshold:g}"
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


def usual_wrapping(trainer: Any, manifest: Manifest) -> Wrapping:
    """How a training presents the canaries of a manifest, as far as it shows.

    TRL's SFTTrainer decides itself which tokens carry loss, and in its rows nothing comes before a
    plain text; packed, the end of the row before. Elsewhere it is as the manifest says.
    """
    known, trl = manifest.wrapping, any(c.__name__ == "SFTTrainer" for c in type(trainer).__mro__)
    if known is None:
        usual = (None if trainer.args.packing else "") if trl else manifest.separator
        return Wrapping(context=usual)
    if not trl or known.turn != "assistant":
        # With loss on answers alone a canary of the user's is not learned, and counted as such.
        return known
    args = trainer.args
    loss: Literal["all", "assistant", "completion"] = "all"
    if args.assistant_only_loss:
        loss = "assistant"
    elif getattr(trainer, "completion_only_loss", False):
        loss = "completion"
    template = trainer.chat_template if loss == "assistant" else None
    return replace(known, loss=loss, chat_template=template)


def _tokenizer_of(trainer: Any) -> Any:
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
