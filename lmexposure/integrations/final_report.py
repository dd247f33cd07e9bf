"""After the last step: the full measurement of the trained model, and its report."""

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lmexposure import _written
from lmexposure._files import only_writer
from lmexposure._validate import of_type
from lmexposure.audit import MeasureSettings, measure, refuse_foreign
from lmexposure.canaries import Manifest, Wrapping
from lmexposure.errors import ModelError, ResultError, SettingsError
from lmexposure.integrations.pacing import undisturbed
from lmexposure.integrations.preflight import Preflight
from lmexposure.integrations.training_evidence import training_record
from lmexposure.integrations.watched import write_rows
from lmexposure.integrations.wrapped_scoring import encode_wrapped
from lmexposure.models import LoadedModel
from lmexposure.records import RowsRecord, Validation
from lmexposure.scoring import single_process

_LOG = logging.getLogger(__name__)
_WRITTEN = ("exposure.jsonl", "rows.json", "report.html", "report.md")
_LITTLE = "its loss did not come below its first, and below that of token frequencies"
_EVERY = 60.0  # seconds between two lines of progress


class FinalReport:
    """What `lmexposure measure` would find and write, of a model that was just trained.

    Args:
        out: a directory for result.json, scores.parquet, exposure.jsonl, report.html, report.md,
            and rows.json where the rows of the training were looked at.
        manifest: what was inserted.
        settings: of the measurement; None: the defaults of `lmexposure measure`.

    Raises:
        SettingsError: `out` is no path, or `settings` are no `MeasureSettings`.
    """

    def __init__(
        self, out: str | Path, manifest: Manifest, settings: MeasureSettings | None
    ) -> None:
        if not isinstance(out, str | Path) or not str(out):
            raise SettingsError(f"report={out!r} is no path; give a directory's")
        settings = MeasureSettings() if settings is None else settings
        of_type("measure", settings, MeasureSettings, "MeasureSettings(...), or leave it out")
        self.out = Path(out)
        self._manifest, self._settings = manifest, settings
        self._understated = ""
        self._rows: RowsRecord | None = None
        self._found, self._resumed = Preflight(), False

    def prepare(self, trainer: Any, *, resumed: bool) -> None:
        """Find out before the first step whether the report can be made.

        Args:
            trainer: with the bare model.
            resumed: a training that goes on may find what it left; `measure` then decides.

        Raises:
            ModelError: an adapter that `measure` does not read.
            ResultError: `out` is a file, or holds a result already, or records of somebody else.
        """
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

    def score_in(self, found: Preflight, tokenizer: Any, wrapping: Wrapping) -> str:
        """Say in which rows the canaries are to be scored.

        Args:
            found: in the rows of the training, where they were looked at.
            tokenizer: of the training.
            wrapping: in which the canaries are trained, as far as is known.

        Returns:
            what the report's reader must know; "" where nothing.
        """
        self._found, rows = found, found.rows
        said = self._settings.left_context is not None
        self._rows = None if rows is None or rows.start is None or said else rows
        known = self._rows is not None or said
        self._understated = "" if known else self._otherwise(tokenizer, wrapping)
        return self._understated

    def write(self, trainer: Any, tokenizer: Any, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """Measure and write, in this process alone; the model is left as it was.

        Args:
            trainer: with the bare model.
            tokenizer: of the training.
            rows: of exposure.jsonl, for the curve.

        Returns:
            what to say: the verdict, and where the report lies.

        Raises:
            LmexposureError: as `lmexposure measure` and its report.
        """
        from lmexposure.gate import check
        from lmexposure.records import open_run
        from lmexposure.reporting import write_report

        model = _bare(trainer.model)
        loaded = LoadedModel(model=model, tokenizer=tokenizer, name=trainer.args.output_dir)
        found = self._found
        record = training_record(trainer, found.rows, found.unigram_bits, resumed=self._resumed)
        with only_writer(self.out), single_process(), undisturbed(trainer.model):
            self._measure(loaded, None if isinstance(record, str) else record)
            if self._rows is not None:
                self._rows.save(self.out / RowsRecord.NAME)
            write_rows(self.out / "exposure.jsonl", rows)
            run = open_run(self.out)
            written = write_report(run)
        verdict = check(run.result)
        lines = [verdict.sentence]
        if any(each.key == "accept_unseen_training" for each in verdict.findings):
            why = record if isinstance(record, str) else _LITTLE
            lines.append(f"nor does the training's record show that it saw the canaries: {why}")
        return [*lines, *(f"report  {path}" for path in written)]

    def _measure(self, loaded: LoadedModel, validation: Validation | None) -> None:
        progress = _Lines()
        result = measure(
            loaded,
            self._manifest,
            out=self.out,
            settings=self._settings,
            validation=validation,
            rows=self._rows,
            progress=progress,
        )
        if self._understated and self._understated not in result.warnings:
            warnings = (self._understated, *result.warnings)
            result = result.model_copy(update={"warnings": warnings})
            result.write(self.out / "result.json")

    def _otherwise(self, tokenizer: Any, wrapping: Wrapping) -> str:
        """Whether `measure` scores a canary behind other tokens than it is trained behind."""
        own = self._manifest.wrapping or Wrapping(context=self._manifest.separator)
        text = self._manifest.entries[0].text
        ids = [encode_wrapped(tokenizer, [text], each)[0].ids for each in (own, wrapping)]
        if ids[0] == ids[1]:
            return ""
        return (
            "canaries are scored behind other tokens than they were trained behind, as a document "
            "of their own, so exposures may be too low: exposure.jsonl has those in the training's "
            "own rows"
        )


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
