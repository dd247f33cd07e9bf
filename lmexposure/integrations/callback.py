"""Exposure while a model trains: a callback for the Trainer of transformers."""

import inspect
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from math import log2
from pathlib import Path
from typing import Any, Literal

from transformers import Trainer, TrainerCallback

from lmexposure._validate import integer, of_type, one_of, positive
from lmexposure.audit import MeasureSettings
from lmexposure.canaries import Manifest, Wrapping
from lmexposure.errors import CorpusError, FileError, LmexposureError, ModelError, SettingsError
from lmexposure.integrations.callback_reports import (
    FinalReport,
    RowsAhead,
    rows_ahead,
    step_of_weights,
)
from lmexposure.integrations.wrapped_scoring import (
    LEAST_REFERENCES,
    ClassExposure,
    Observation,
    Watched,
    losses_at,
    read_rows,
    watch,
    write_rows,
)
from lmexposure.models import Context, encode_in_context, is_sharded, is_tokenizer
from lmexposure.scoring import TorchModel, from_first, same_random_numbers, score_encoded
from lmexposure.studies import RowsRecord

_LOG = logging.getLogger(__name__)
_OTHER_ROWS = (
    "the training's rows have other tokens in front of the canaries than is usual for such a "
    "trainer and manifest; they are scored behind those"
)
_BY_HAND = "the trained model is as it was; save it, and measure it with `lmexposure measure`"


class ExposureCallback(TrainerCallback):  # type: ignore[misc]
    """Follows the exposure of canaries while a `transformers.Trainer` trains.

    At each evaluation, or every N steps, and of the trained model at the end, the canaries,
    the controls and a fixed sample of references are scored under the model as it is. Exposure is
    by rank among the references, in bits, higher = more memorised, capped at log2 of them; nothing
    is extrapolated. It is logged through the Trainer, as `exposure/FORMAT/xREPETITIONS/median`,
    `.../max`, `.../capped` (the share of canaries at the cap) and `.../n` (how many canaries that
    is), and written to `exposure.jsonl` in `output_dir`.

    Before the first step the rows of the training are counted, for a minute at most: a training
    that would cut its canaries, or give them no loss, does not begin.

    Training goes on as if nothing had happened: random numbers, modes, gradients and buffers are
    as before, and the weights at the end are those of a training without the callback.

    Args:
        manifest: what was inserted, or the path of manifest.json.
        every: steps of the optimizer from one scoring to the next, at least 1; None: at each
            evaluation. The trained model is scored in any case.
        references: per format at most, at least 64.
        stop_above: stop training when the median exposure of a class passes this many bits; None:
            never. Below log2(references).
        wrapping: how the training presents a canary. None: as the manifest says; under TRL's
            SFTTrainer with its loss in chats, and plain texts as rows of their own, packed or not.
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
        ManifestError: the manifest cannot be read or was edited.
        SettingsError: a value of another type or out of range; a threshold that no exposure can
            pass, or one together with tossed coins; settings of a measurement without a report.
    """

    def __init__(  # noqa: PLR0913 (a public door: each is an option of the callback)
        self,
        manifest: str | Path | Manifest,
        *,
        every: int | None = None,
        references: int = 1000,
        stop_above: float | None = None,
        wrapping: Wrapping | None = None,
        preflight: Literal["stop", "warn", "off"] = "stop",
        report: str | Path | None = None,
        measure: MeasureSettings | None = None,
    ) -> None:
        self._manifest = Manifest.of(manifest)
        self._every = None if every is None else integer("every", every, low=1)
        self._references = integer("references", references, low=LEAST_REFERENCES)
        self._stop_above = _threshold(stop_above, self._references, self._manifest)
        if wrapping is not None:
            of_type("wrapping", wrapping, Wrapping, "Wrapping(...), or leave it out")
        self._wrapping = wrapping
        self._preflight = one_of("preflight", preflight, ("stop", "warn", "off"))
        if report is None and measure is not None:
            raise SettingsError(
                "measure=... is for the report at the end; give report=DIRECTORY, or leave it out"
            )
        self._report = None if report is None else FinalReport(report, self._manifest, measure)
        self._watched: Watched | None = None
        self._rows: list[dict[str, Any]] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """Find out before the first step whether all can be learned and scored."""
        trainer = _calling_trainer()
        if trainer.is_fsdp_enabled or is_sharded(trainer.model):
            raise ModelError(
                "the weights are spread over processes (FSDP, or DeepSpeed's ZeRO-3), so that the "
                "model cannot be scored while it trains; leave ExposureCallback out, and measure "
                "the checkpoints with `lmexposure measure`"
            )
        self._scored_at, self._told = -1, set[str]()
        tokenizer = _tokenizer_of(trainer)
        wrapping = self._wrapping or usual_wrapping(trainer, self._manifest)
        watched = self._watch(trainer, tokenizer, wrapping)
        if (report := self._report) is not None:
            resumed = trainer.state.global_step > 0
            from_first(lambda: report.prepare(trainer, resumed=resumed))
        ahead = self._look_ahead(trainer, tokenizer, named.get("train_dataloader"))
        if self._are_others(ahead.record, watched, tokenizer):
            watched = self._watch(trainer, tokenizer, wrapping, row=_row_of(ahead.record))
            _say(state, _OTHER_ROWS)
        self._rows = from_first(lambda: read_rows(_path(args), until=state.global_step))
        self._watched = watched
        evaluated = str(getattr(args.eval_strategy, "value", args.eval_strategy)) != "no"
        if self._every is None and not evaluated:
            _say(
                state,
                "there are no evaluations, so exposure is measured at the end only; give every=N",
            )

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Measure, log, and stop training where the threshold is passed."""
        if self._every is not None and state.global_step % self._every == 0:
            self._score(_calling_trainer(), control, state.global_step)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Measure, where no number of steps was given; else note the loss that was evaluated."""
        if self._watched is None:  # outside training
            return
        # With several evaluation sets this is called for each.
        if self._every is None and self._scored_at != state.global_step:
            self._score(_calling_trainer(), control, state.global_step)
        elif self._rows and self._rows[-1]["step"] == state.global_step:
            self._rows[-1] |= losses_at(state, state.global_step)
            self._write(args)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Measure the trained model, unless it was; one that was loaded again is of a past step."""
        if self._watched is None:
            return
        trainer = _calling_trainer()
        step = step_of_weights(trainer)
        if not any(row["step"] == step for row in self._rows):
            self._score(trainer, control, step)
        if self._report is not None and state.is_world_process_zero:
            self._write_report(trainer, self._report)
        self._watched = None

    def _watch(
        self, trainer: Any, tokenizer: Any, wrapping: Wrapping, *, row: Context | None = None
    ) -> Watched:
        window = TorchModel(model=trainer.model, tokenizer=tokenizer, name="trained").window
        return watch(
            self._manifest,
            tokenizer,
            window,
            references=self._references,
            wrapping=wrapping,
            row=row,
        )

    def _are_others(self, rows: RowsRecord | None, watched: Watched, tokenizer: Any) -> bool:
        """Whether the training's rows are seen to be others than the usual; a given one counts."""
        row, canary = _row_of(rows), watched.owners[0][1]
        if self._wrapping is not None or row is None or canary is None:
            return False
        (in_row,) = encode_in_context(tokenizer, [canary.text], context=row)
        usual = watched.encoded[0]
        return (in_row.ids, in_row.scored_from) != (usual.ids, usual.scored_from)

    def _look_ahead(self, trainer: Any, tokenizer: Any, loader: Any) -> RowsAhead:
        """Look at the rows to train on, in the first process for all."""
        if self._preflight == "off":
            return RowsAhead()
        # A loss before the first step is what tokens' frequencies are compared with.
        asked = self._report is not None and trainer.args.eval_on_start
        evaluation = trainer.get_eval_dataloader if asked else None
        wrapping = self._wrapping  # without one, canaries are scored as the rows have them
        ahead = from_first(
            lambda: rows_ahead(self._manifest, tokenizer, wrapping, loader, evaluation=evaluation)
        )
        for line in ahead.warnings:
            _say(trainer.state, line)
        if ahead.in_vain and self._preflight == "warn":
            _say(trainer.state, ahead.in_vain)
        elif ahead.in_vain:
            raise CorpusError(
                f"{ahead.in_vain}; nothing was trained: change that, or train all the same with "
                "ExposureCallback(..., preflight='warn')"
            )
        if self._report is not None:
            self._report.ahead = ahead
        return ahead

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

    def _score(self, trainer: Any, control: Any, step: int) -> None:
        """Measure, log and write; `step` is the model's, where another was trained last."""
        state = trainer.state
        self._scored_at = state.global_step
        losses = losses_at(state, step)
        seen = self._observe(trainer)
        trainer.log(seen.logs())
        self._rows.append(seen.row(step, losses))
        self._rows.sort(key=lambda row: int(row["step"]))
        self._write(trainer.args)
        if seen.note:
            self._say_once(state, f"{seen.note}; {_path(trainer.args)} says so for each scoring")
        if seen.few:
            self._say_once(state, f"exposures of these classes are of few canaries: {seen.few}")
        if seen.stops:
            _say(state, f"training stops at step {state.global_step}: {seen.stops}")
            control.should_training_stop = True

    def _say_once(self, state: Any, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            _say(state, line)

    def _observe(self, trainer: Any) -> Observation:
        """Score all texts, and say what they mean."""
        assert self._watched is not None
        watched, began, note = self._watched, time.perf_counter(), ""
        classes: list[ClassExposure] = []
        try:
            with same_random_numbers():
                scores = score_encoded(trainer.model, watched.encoded)
            classes = watched.exposures(scores.totals.tolist())
        except LmexposureError as failure:  # the training is not ours to end
            note = f"the canaries could not be scored: {failure}"
        return Observation(
            classes=classes,
            texts=len(watched.owners) if classes else 0,
            canaries=watched.canaries if classes else 0,
            seconds=time.perf_counter() - began,
            note=note,
            stops=_passed(classes, self._stop_above),
        )

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


def _path(args: Any) -> Path:
    return Path(args.output_dir) / "exposure.jsonl"


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
    """The Trainer whose call this is."""
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
    """How a training presents the canaries of a manifest, as far as it shows."""
    # TRL's SFTTrainer decides itself which tokens carry loss, and in its rows nothing comes before
    # a plain text; packed, the end of the row before.
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
    if is_tokenizer(found):
        return found
    raise ModelError(
        f"the Trainer has processing_class={type(trainer.processing_class).__name__}, which is no "
        "tokenizer; without one no canary can be scored: Trainer(..., processing_class=tokenizer)"
    )
