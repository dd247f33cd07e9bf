"""Measuring a model: scores, then what they mean, then one result. Works on anyone's model."""

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from lmexposure import __version__
from lmexposure._files import canonical_json, only_writer, sha256_bytes
from lmexposure._style import number
from lmexposure._validate import of_type
from lmexposure.audit.context import ScoringContext, recorded_training, rows_beside, scoring_context
from lmexposure.audit.directory import MeasurementDirectory, finished, mend_record
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
from lmexposure.audit.search import Extractions, extract_format, search_format
from lmexposure.audit.workload import (
    Progress,
    Task,
    Watcher,
    measurement_phases,
    measurement_title,
    silent,
)
from lmexposure.canaries import Manifest, Wrapping
from lmexposure.errors import ManifestError, ModelError, SettingsError
from lmexposure.models import LoadedModel, computing_threads, load_model, threads_for
from lmexposure.scoring import (
    AnyModel,
    BaseModel,
    Extractor,
    TorchModel,
    base_of,
    model_in_memory,
    own_base,
    same_random_numbers,
)
from lmexposure.studies import (
    MEASURE_SETTINGS,
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
        lm = _loaded(model, tokenizer)
        with lm.asking():
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


def _loaded(model: Any, tokenizer: Any) -> TorchModel:
    if not isinstance(model, str | Path | LoadedModel):
        return model_in_memory(model, tokenizer)
    if tokenizer is not None:
        raise ModelError(
            "tokenizer is for a model in memory: a saved model comes with its own, and so does "
            "what load_model returns; leave it out"
        )
    return TorchModel.of(model if isinstance(model, LoadedModel) else load_model(model))


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
        with computing_threads(threads):
            if isinstance(self.progress, Watcher):
                title = measurement_title(manifest, settings)
                self.progress.plan(title, measurement_phases(self), keeps=True)
            scores = [score_format(self, name) for name in manifest.ranked.formats]
            if slower := [part.slower for part in scores if part.slower]:
                self.notes["texts"] = slower[0]
            estimates = [self._estimate(part) for part in scores]
            kinds = kinds_section(self)
            witness = self._witness()
            of_days = self._of_days()
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
            if self.base is not None:
                return self.base
            return own_base(model=self.model, lm=self.lm, manifest=self.manifest)

        return measure_witness(self, base=base)

    def _of_days(self) -> list[str]:
        """What another day in the chat template would change, where the training's is not known."""
        most, number_of = 0.0, 0
        for name, other in self.context.other_day.items():
            texts = [each.text for each in self.manifest.entries if each.format == name]
            bits = [
                self.lm.bits(texts[:_OF_DAYS], context) for context in (self.contexts[name], other)
            ]
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
