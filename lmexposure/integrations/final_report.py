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
from lmexposure.canaries import Manifest
from lmexposure.errors import ModelError, ResultError, SettingsError
from lmexposure.integrations.preflight import RowsAhead
from lmexposure.integrations.training_evidence import training_record
from lmexposure.integrations.watched import write_rows
from lmexposure.models import LoadedModel
from lmexposure.scoring import evaluation_mode, same_random_numbers, single_process
from lmexposure.studies import Result, RowsRecord

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
