"""Measuring a model: scores, then what they mean, then one result. Works on anyone's model.

Several checkpoints of one training are measured one after the other: how exposure grew.
"""

import gc
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from lmexposure import __version__
from lmexposure._files import (
    PRIVATE,
    atomic_write,
    canonical_json,
    only_writer,
    read_bytes,
    sha256_bytes,
)
from lmexposure._style import number
from lmexposure._validate import of_type
from lmexposure.audit.context import ScoringContext, recorded_training, rows_beside, scoring_context
from lmexposure.audit.directory import (
    SCORES,
    MeasurementDirectory,
    finished,
    mend_record,
    refuse_foreign,
)
from lmexposure.audit.estimates import (
    FormatEstimates,
    estimate_format,
    open_warnings,
    tokenizer_warnings,
)
from lmexposure.audit.format_scores import (
    FormatScores,
    base_record,
    path_from,
    score_format,
    scores_of,
    write_scores,
)
from lmexposure.audit.kinds import IN_TOKENIZER, kind_warnings, kinds_section, measure_witness
from lmexposure.audit.privacy import privacy_section
from lmexposure.audit.scored_texts import ScoredTexts
from lmexposure.audit.search import Extractions, extract_format, search_format
from lmexposure.audit.workload import (
    Progress,
    Task,
    announce,
    silent,
)
from lmexposure.canaries import Manifest, Wrapping
from lmexposure.errors import ManifestError, ModelError, ResultError, SettingsError
from lmexposure.models import (
    LoadedModel,
    check_name,
    computing_threads,
    load_model,
    model_outline,
    threads_for,
)
from lmexposure.scoring import (
    AnyModel,
    BaseModel,
    Extractor,
    TorchModel,
    base_of,
    failure_text,
    model_in_memory,
    noting_shortage,
    out_of_memory,
    own_base,
    same_random_numbers,
)
from lmexposure.studies import (
    MEASURE_SETTINGS,
    CheckpointClass,
    MeasureSettings,
    Model,
    Result,
    RowsRecord,
    Validation,
    WitnessResult,
)

# The model's modes, the random number generators and torch's threads are those of the process.
_ONE_AT_A_TIME = RLock()
_OF_DAYS = 16  # canaries of a format that are scored as of another day, too


def measure(  # noqa: PLR0913 (the front door: each may be left out)
    model: AnyModel,
    manifest: str | Path | Manifest,
    *,
    tokenizer: Any = None,
    out: str | Path | None = None,
    settings: MeasureSettings | None = None,
    validation: Validation | None = None,
    rows: RowsRecord | str | Path | None = None,
    progress: Progress | None = None,
    base: "AnyModel | None" = None,
    wrapping: Wrapping | None = None,
) -> Result:
    """Measure a model in memory or on disk; afterwards, also after an error, all is as it was."""
    settings = MeasureSettings() if settings is None else settings
    progress = silent if progress is None else progress
    _check_arguments(out, settings, progress)
    rows = _rows(rows, manifest)
    manifest = _checked_manifest(manifest, model)
    if validation is None and isinstance(model, str | Path):
        validation = recorded_training(model, manifest)
    with _ONE_AT_A_TIME, nullcontext() if out is None else only_writer(out), same_random_numbers():
        with _said_of_memory(out):
            lm = _loaded(model, tokenizer)
        with lm.asking():
            if isinstance(lm, ScoredTexts):
                settings = lm.checked(settings, manifest, base=base, wrapping=wrapping)
                context = lm.context
            else:
                context = scoring_context(
                    lm,
                    manifest,
                    left_context=settings.left_context,
                    rows=rows,
                    own_training=validation is not None and not validation.foreign,
                    wrapping=wrapping,
                )
            measurement = _Measurement(
                model=model,
                lm=lm,
                manifest=manifest,
                settings=settings,
                context=context,
                contexts=context.by_format,
                base=None if base is None else base_of(base, model=model, lm=lm, manifest=manifest),
                progress=progress,
            )
            inputs = measurement.inputs_sha256
            if out is not None and (before := finished(Path(out), inputs)) is not None:
                mend_record(Path(out), settings)
                return before
            with nullcontext() if out is None else MeasurementDirectory.held(out, inputs) as held:
                measurement.directory = held
                return measurement.result(out, validation, paired_by_hand=tokenizer is not None)


def _check_arguments(out: object, settings: object, progress: object) -> None:
    of_type("settings", settings, MeasureSettings, MEASURE_SETTINGS)
    if out is not None and (not isinstance(out, str | Path) or not str(out)):
        raise SettingsError(f"out={out!r} is no directory; give a path, or leave it out")
    if not callable(progress):
        raise SettingsError(
            f"progress is of type {type(progress).__name__}; give a function of (what, done, "
            "total, note), or leave it out"
        )


def _rows(given: Any, manifest: Any) -> RowsRecord | None:
    if given is None:
        return rows_beside(manifest) if isinstance(manifest, str | Path) else None
    if isinstance(given, str | Path):
        return RowsRecord.read(given)
    if not isinstance(given, RowsRecord):
        raise ManifestError(
            f"rows is of type {type(given).__name__}; give what verify(..., rows=True) gave, the "
            "path of its rows.json, or leave it out"
        )
    return given


def _checked_manifest(given: Any, model: Any) -> Manifest:
    if isinstance(model, Manifest):
        raise ModelError("the model is a manifest; give the model first: measure(model, manifest)")
    manifest: Manifest = Manifest.of(given)
    if not manifest.ranked.canaries:
        raise ManifestError("the manifest holds no inserted canary, so there is nothing to measure")
    return manifest


def _loaded(model: Any, tokenizer: Any) -> Any:
    """All that is asked of a model; scores have no more than what is asked of them."""
    if not isinstance(model, str | Path | LoadedModel | ScoredTexts):
        return model_in_memory(model, tokenizer)
    if tokenizer is not None:
        raise ModelError(
            "tokenizer is for a model in memory: a saved model comes with its own, and so does "
            "what load_model returns; leave it out"
        )
    if isinstance(model, ScoredTexts):
        return model
    return TorchModel.of(model if isinstance(model, LoadedModel) else load_model(model))


@contextmanager
def _said_of_memory(out: str | Path | None) -> Iterator[None]:
    """Say in one sentence where memory ran out however little was asked of it, and what is kept."""
    kept = "nothing of this measurement is kept, since out is not given"
    if out is not None:
        kept = "what was measured is kept, and the same command goes on from there"
    try:
        yield
    except (RuntimeError, MemoryError, ModelError) as failure:
        if not out_of_memory(failure):
            raise
        remedy = "a device with more memory, dtype=bfloat16 or load_in=4bit"
        why = failure_text(failure).partition(";")[0]
        raise ModelError(f"{why}; {kept}; it takes {remedy}") from failure


@dataclass(kw_only=True)
class _Measurement(Task):
    """A measurement under way."""

    model: Any  # as it was given
    context: ScoringContext  # the rows that the texts are scored in
    warnings: list[str] = field(default_factory=list)  # what a reader of the result must know
    # what concerns all formats, given once; by subject
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def inputs_sha256(self) -> str:
        """One hash for all that decides the numbers; where the model lies is not part of it."""
        values = {
            "version": __version__,
            "manifest": self.manifest.sha256,
            "settings": self.settings.decisive(),
            **self.lm.decisive(),
        }
        if rows := self.context.decisive():
            values["rows"] = rows
        if self.base is not None:
            values["base"] = [self.base.identity, self.base.switched_off]
        return sha256_bytes(canonical_json(values))

    def result(
        self, out: str | Path | None, validation: Validation | None, *, paired_by_hand: bool
    ) -> Result:
        """Measure, and write what was found."""
        directory, manifest, settings = self.directory, self.manifest, self.settings
        recorded = None if directory is None else directory.threads()
        threads = threads_for(self.lm, asked=settings.threads, recorded=recorded)
        if directory is not None:
            directory.begin(threads)
        with computing_threads(threads), noting_shortage() as shortage, _said_of_memory(out):
            if self.asks:
                announce(self)
            scores = [score_format(self, name) for name in manifest.ranked.formats]
            if slower := [part.slower for part in scores if part.slower]:
                self.notes["texts"] = slower[0]
            estimates = [self._estimate(part) for part in scores]
            kinds = kinds_section(self)
            witness = self._witness()
            of_days = self._of_days()
        if shortage.note:
            self.notes["memory"] = shortage.note
        table = scores_of(scores)
        warnings = [
            *open_warnings(manifest, settings, validation),
            *kind_warnings(manifest),
            *self.context.warnings,
            *of_days,
            *(tokenizer_warnings(self.lm, scores) if paired_by_hand else ()),
            *self.lm.notes,
            *self.notes.values(),
            *([IN_TOKENIZER] if witness is not None and witness.in_tokenizer else []),
            *self.warnings,
        ]
        beside = [part.base for part in estimates]
        described = self.lm.to_dict()
        path = path_from(out, described.pop("name"))
        result = Result(
            lmexposure=__version__,
            inputs_sha256=self.inputs_sha256,
            manifest_sha256=manifest.sha256,
            scores_sha256=None,
            model=Model(path=path, **described, validation=validation),
            settings=replace(settings, threads=threads),
            formats=tuple(part.record for part in estimates),
            canaries=tuple(canary for part in estimates for canary in part.canaries),
            summary=tuple(row for part in estimates for row in part.summary),
            privacy=privacy_section(
                table,
                manifest.ranked,
                settings,
                own_training=validation is not None and not validation.foreign,
                private=validation is not None and validation.claim is not None,
            ),
            warnings=(*warnings, *(line for part in estimates for line in part.warnings)),
            context=self.context.record,
            base=None if self.base is None else base_record(self.base, beside, out),
            kinds=kinds,
            witness=witness,
        )
        if directory is not None:
            result = directory.finish(result, lambda path: write_scores(path, scores))
        return result.with_scores(table)

    def _estimate(self, scores: FormatScores) -> FormatEstimates:
        name = scores.format.name
        search = search_format(self, scores)
        self.notes = {**search.notes, **self.notes}
        extractions, left_out = self._extract(scores)
        if left_out:
            self.warnings.append(
                f"format {name!r}: Ctrl-C ended the extraction; {left_out} canaries were not "
                "searched for with all the characters that were to be given, and the same command "
                "searches again"
            )
            search = search.model_copy(update={"interrupted": True})
        phase = f"estimating {name}"
        self.progress(phase, 0, 1)
        made = estimate_format(scores, search, extractions, self.settings, origin=self.origin)
        self.progress(phase, 1, 1)
        return made

    def _extract(self, scores: FormatScores) -> tuple[Extractions, int]:
        """As `extract_format`; nothing where extraction is not asked for, or not possible."""
        if not self.settings.extraction:
            return {}, 0
        try:
            extractor = Extractor(
                self.lm,
                self.lm.tokenizer,
                scores.format,
                context=scores.context,
                vocabulary=self.vocabulary,
            )
        except ModelError as failure:
            self.warnings.append(f"format {scores.format.name!r}: no extraction: {failure}")
            return {}, 0
        if extractor.slower:
            self.notes.setdefault("steps", extractor.slower)
        return extract_format(self, extractor, scores.canaries)

    def _witness(self) -> WitnessResult | None:
        """What the witnesses say, beside the base that an adapter brings along where none is."""

        def base() -> BaseModel | None:
            if self.base is not None or not self.asks:
                return self.base
            return own_base(model=self.model, lm=self.lm, manifest=self.manifest)

        return measure_witness(self, base=base)

    def _of_days(self) -> list[str]:
        """What another day in the chat template would change, where the training's is not known."""
        most, number_of = 0.0, 0
        for name, other in self.context.other_day.items():
            texts = [each.text for each in self.manifest.entries if each.format == name]
            days = (self.contexts[name], other)
            bits = [self.lm.bits(texts[:_OF_DAYS], context) for context in days]
            most = max(most, float(np.abs(bits[0] - bits[1]).max()))
            number_of += len(bits[0])
        if not number_of:
            return []
        return [
            f"the chat template writes the date, and the training's is not known: rows are scored "
            f"as of {self.context.record.chat_date}; as of 45 days before, {number_of} canaries "
            f"had up to {number(most)} bits more or fewer, and others may have more. Give the day "
            "of the training (chat_date=...)"
        ]


_PARTS = "checkpoints"  # the directory of each checkpoint's own measurement, below that of all
_STATE = "trainer_state.json"
_TITLE = "checkpoints"


@dataclass(frozen=True, kw_only=True)
class _Checkpoint:
    """One of the models."""

    model: str  # its directory or hub name
    name: str  # of its directory
    # of the training; None where neither the training's own file nor the name says it
    step: int | None


def measure_checkpoints(  # noqa: PLR0913 (as of `measure`)
    models: Sequence[str | Path],
    manifest: str | Path | Manifest,
    *,
    out: str | Path | None = None,
    settings: MeasureSettings | None = None,
    rows: RowsRecord | str | Path | None = None,
    progress: Progress | None = None,
    load: Callable[[str], LoadedModel] = load_model,
    wrapping: Wrapping | None = None,
) -> Result:
    """Measure each checkpoint of a training as `measure` does: a trajectory of exposure."""
    checkpoints = _in_order(models)
    _check_alike(checkpoints)
    progress = silent if progress is None else progress
    measured = partial(measure, manifest=manifest, settings=settings, rows=rows, wrapping=wrapping)
    if out is None:
        results = _results(checkpoints, None, progress, load, measured)
        return _joined(list(results))
    with only_writer(out):
        _refuse_another(Path(out))
        parts = Path(out) / _PARTS
        results = _results(checkpoints, parts, progress, load, measured)
        return _written(Path(out), parts / checkpoints[-1].name, _joined(list(results)))


def _in_order(models: Sequence[str | Path]) -> list[_Checkpoint]:
    if isinstance(models, str | Path) or not models:
        raise SettingsError(
            f"models={models!r} are no checkpoints; give a list of one or more directories"
        )
    found = []
    for model in models:
        path = Path(model)
        name = path.resolve().name if path.is_dir() else path.name
        found.append(_Checkpoint(model=str(model), name=name, step=_step(path, name)))
    name, times = Counter(checkpoint.name for checkpoint in found).most_common(1)[0]
    if times > 1:
        raise SettingsError(
            f"{times} of the models lie in a directory of the name {name!r}, under which each is "
            "kept and shown; give each once, and rename those that differ"
        )
    return sorted(found, key=lambda c: (c.step is None, c.step or 0))


def _step(path: Path, name: str) -> int | None:
    """From what a Trainer wrote next to the weights, else from the end of the name."""
    try:
        step = json.loads(read_bytes(path / _STATE))["global_step"]
    except (OSError, ValueError, LookupError, TypeError):
        number = re.search(r"(\d{1,15})$", name)
        return int(number[1]) if number else None
    return step if isinstance(step, int) and step >= 0 else None


def _check_alike(checkpoints: Sequence[_Checkpoint]) -> None:
    """Refuse, before any work, what cannot be loaded or is no checkpoint of the same training."""
    # Of a hub name nothing is asked before it is loaded.
    outlines = [model_outline(c.model) if check_name(c.model) else {} for c in checkpoints]
    for checkpoint, outline in zip(checkpoints, outlines, strict=True):
        for what, value in outline.items():
            if value != outlines[0][what]:
                raise ModelError(
                    f"model {checkpoint.model!r} has another {what} than "
                    f"{checkpoints[0].model!r}, so they are no checkpoints of one training; "
                    "measure them apart"
                )


def _results(
    checkpoints: Sequence[_Checkpoint],
    parts: Path | None,
    progress: Progress,
    load: Callable[[str], LoadedModel],
    measured: Callable[..., Result],
) -> Iterator[tuple[_Checkpoint, Result]]:
    for place, checkpoint in enumerate(checkpoints):
        progress(_TITLE, place, len(checkpoints), checkpoint.name)
        if place:
            gc.collect()  # two large models do not fit into memory
        loaded = load(checkpoint.model)
        out = None if parts is None else parts / checkpoint.name
        result = measured(loaded, out=out, progress=progress)
        del loaded
        yield checkpoint, result
    progress(_TITLE, len(checkpoints), len(checkpoints), "")


def _joined(results: Sequence[tuple[_Checkpoint, Result]]) -> Result:
    """The last result, with the classes of all, under a hash of all that decides these numbers."""
    last = results[-1][1]
    rows = [
        CheckpointClass(
            checkpoint=checkpoint.name,
            step=checkpoint.step,
            format=row.format,
            repetitions=row.repetitions,
            n=row.n,
            median=row.median.value,
            low=row.median.low,
            high=row.median.high,
            exact=row.counted,
        )
        for checkpoint, result in results
        for row in result.summary
    ]
    inputs = [[checkpoint.name, result.inputs_sha256] for checkpoint, result in results]
    joined = last.model_copy(
        update={
            "trajectory": tuple(rows),
            "inputs_sha256": sha256_bytes(canonical_json({_PARTS: inputs})),
        }
    )
    return joined if last.scores is None else joined.with_scores(last.scores)


def _refuse_another(out: Path) -> None:
    """Refuse, before any work, a directory with the result of a single model, or another tool's."""
    path = out / Result.NAME
    if not path.exists():
        refuse_foreign(out)
    elif not Result.read_alone(path).trajectory:
        raise ResultError(
            f"{out} holds the result of a single model; choose another directory for the trajectory"
        )


def _written(out: Path, last: Path, result: Result) -> Result:
    def copy_scores(target: Path) -> None:
        with atomic_write(target, mode=PRIVATE) as stream, open(last / SCORES, "rb") as scores:
            shutil.copyfileobj(scores, stream)

    before = finished(out, result.inputs_sha256)
    if before is not None:
        return before
    with MeasurementDirectory.held(out, result.inputs_sha256) as directory:
        return directory.finish(result, copy_scores)
