"""Measuring a model: scores, then what they mean, then one result. Works on anyone's model."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure import __version__
from lmexposure._files import canonical_json, only_writer, sha256_bytes
from lmexposure._style import number
from lmexposure._validate import of_type
from lmexposure.audit.base import Base
from lmexposure.audit.context import ScoringContext, recorded_training, rows_beside, scoring_context
from lmexposure.audit.directory import MeasurementDirectory, finished, mend_record
from lmexposure.audit.estimates import (
    FormatEstimates,
    estimate_format,
    open_warnings,
    tokenizer_warnings,
)
from lmexposure.audit.format_scores import FormatScores, score_format, scores_of, write_scores
from lmexposure.audit.kinds import kind_warnings, kinds_section
from lmexposure.audit.privacy import privacy_section
from lmexposure.audit.search import Extractions, extract_format, search_format
from lmexposure.audit.witness import IN_TOKENIZER, measure_witness
from lmexposure.audit.workload import (
    Progress,
    Watcher,
    measurement_phases,
    measurement_title,
    silent,
)
from lmexposure.canaries import WITNESS, Manifest, Wrapping
from lmexposure.core import Encoded, Part
from lmexposure.errors import ManifestError, ModelError, SettingsError
from lmexposure.models import LoadedModel, computing_threads, load_model, threads_for
from lmexposure.scoring import (
    AnyModel,
    BaseModel,
    Extractor,
    TorchModel,
    Vocabulary,
    base_of,
    model_in_memory,
    own_base,
    same_random_numbers,
)
from lmexposure.studies import (
    MEASURE_SETTINGS,
    KindMembership,
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
            return _measure_loaded(
                model,
                lm,
                manifest,
                out,
                settings,
                validation,
                rows,
                progress,
                paired_by_hand=tokenizer is not None,
                base=None if base is None else partial(base_of, base, model=model, lm=lm),
                wrapping=wrapping,
            )


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


def _measure_loaded(  # noqa: PLR0913 (what `measure` takes, checked)
    model: Any,
    lm: TorchModel,
    manifest: Manifest,
    out: str | Path | None,
    settings: MeasureSettings,
    validation: Validation | None,
    rows: RowsRecord | None,
    progress: Progress,
    *,
    paired_by_hand: bool,
    base: Callable[..., BaseModel] | None,
    wrapping: Wrapping | None,
) -> Result:
    own_training = validation is not None and not validation.foreign
    context = scoring_context(
        lm,
        manifest,
        left_context=settings.left_context,
        rows=rows,
        own_training=own_training,
        wrapping=wrapping,
    )
    beside = None if base is None else Base(lm=base(manifest=manifest))
    inputs = _inputs_sha256(lm, manifest, settings, context, beside)
    if out is not None and (before := finished(Path(out), inputs)) is not None:
        mend_record(Path(out), settings)
        return before
    with nullcontext() if out is None else MeasurementDirectory.held(out, inputs) as directory:
        measurement = _Measurement(
            model=model,
            lm=lm,
            manifest=manifest,
            context=context,
            settings=settings,
            directory=directory,
            progress=progress,
            base=beside,
        )
        return _measured(measurement, inputs, out, validation, paired_by_hand=paired_by_hand)


def _measured(
    measurement: "_Measurement",
    inputs: str,
    out: str | Path | None,
    validation: Validation | None,
    *,
    paired_by_hand: bool,
) -> Result:
    """Measure, and write what was found."""
    directory, settings, lm = measurement.directory, measurement.settings, measurement.lm
    manifest, context, beside = measurement.manifest, measurement.context, measurement.base
    own_training = validation is not None and not validation.foreign
    threads = threads_for(
        lm.model,
        asked=settings.threads,
        recorded=None if directory is None else directory.threads(),
    )
    if directory is not None:
        directory.begin(threads)
    with computing_threads(threads):
        scores, estimates = measurement.run()
        kinds = measurement.kinds()
        witness = measurement.witness()
        of_days = measurement.of_days()
    table = scores_of(scores)
    warnings = [
        *open_warnings(manifest, settings, validation),
        *kind_warnings(manifest),
        *context.warnings,
        *of_days,
        *(tokenizer_warnings(lm, scores) if paired_by_hand else ()),
        *lm.notes,
        *measurement.notes.values(),
        *([IN_TOKENIZER] if witness is not None and witness.in_tokenizer else []),
        *measurement.warnings,
    ]
    result = Result(
        lmexposure=__version__,
        inputs_sha256=inputs,
        manifest_sha256=manifest.sha256,
        scores_sha256=None,
        model=_model(lm, out, validation),
        settings=replace(settings, threads=threads),
        formats=tuple(part.record for part in estimates),
        canaries=tuple(canary for part in estimates for canary in part.canaries),
        summary=tuple(row for part in estimates for row in part.summary),
        privacy=privacy_section(
            table,
            manifest.ranked,
            settings,
            own_training=own_training,
            private=validation is not None and validation.claim is not None,
        ),
        warnings=(*warnings, *(line for part in estimates for line in part.warnings)),
        context=context.record,
        base=None if beside is None else beside.record([part.base for part in estimates], out),
        kinds=kinds,
        witness=witness,
    )
    if directory is not None:
        result = directory.finish(result, lambda path: write_scores(path, scores))
    return result.with_scores(table)


def _model(lm: TorchModel, out: str | Path | None, validation: Validation | None) -> Model:
    """What the result says of the model; a path within `out` is given from there on."""
    described = lm.to_dict()
    path = Path(described.pop("name"))
    if out is not None and path.is_relative_to(out):
        path = path.relative_to(out)
    return Model(path=path.as_posix(), **described, validation=validation)


def _inputs_sha256(
    lm: TorchModel,
    manifest: Manifest,
    settings: MeasureSettings,
    context: ScoringContext,
    base: Base | None,
) -> str:
    """One hash for all that decides the numbers; where the model lies is not part of it."""
    values = {
        "version": __version__,
        "manifest": manifest.sha256,
        "settings": settings.decisive(),
        **lm.decisive(),
    }
    if rows := context.decisive():
        values["rows"] = rows
    if base is not None:
        values["base"] = [base.lm.identity, base.lm.switched_off]
    return sha256_bytes(canonical_json(values))


@dataclass(kw_only=True)
class _Measurement:
    """A measurement under way."""

    model: Any  # as it was given
    lm: TorchModel
    manifest: Manifest
    context: ScoringContext  # the rows that the texts are scored in
    settings: MeasureSettings
    # of the result and of finished parts; None writes nothing
    directory: MeasurementDirectory | None
    progress: Progress
    warnings: list[str] = field(default_factory=list)  # what a reader of the result must know
    # what concerns all formats, given once; by subject
    notes: dict[str, str] = field(default_factory=dict)
    # the model before the training, which scores the same texts; None: none
    base: Base | None = None

    def __post_init__(self) -> None:
        self.vocabulary = Vocabulary(self.lm.tokenizer)
        self.origin = f"{self.manifest.sha256} {self.lm.identity}"

    def run(self) -> tuple[list[FormatScores], list[FormatEstimates]]:
        """Scores of all formats that have ranks, then their estimates."""
        if isinstance(self.progress, Watcher):
            title = measurement_title(self.manifest, self.settings)
            phases = measurement_phases(
                self.lm,
                self.manifest,
                self.settings,
                contexts=self.context.by_format,
                base=self.base is not None,
            )
            self.progress.plan(title, phases, keeps=True)
        scores = [self.score(name) for name in self.manifest.ranked.formats]
        return scores, [self.estimate(part) for part in scores]

    def score(self, name: str) -> FormatScores:
        scores = score_format(
            self.lm,
            self.manifest,
            name,
            context=self.context.by_format[name],
            settings=self.settings,
            vocabulary=self.vocabulary,
            kept=self._kept(f"{name}.npz"),
            progress=partial(self.progress, f"scoring {name}"),
            score_base=self._score_base(name),
        )
        if scores.slower:
            self.notes.setdefault("texts", scores.slower)
        return scores

    def _score_base(self, name: str) -> Callable[[Sequence[Encoded]], NDArray[np.float64]] | None:
        if self.base is None:
            return None
        return partial(
            self.base.bits,
            batch_size=self.settings.scoring_batch,
            kept=self._kept(f"{name}.base.json"),
            progress=partial(self.progress, f"scoring {name} under the base"),
        )

    def estimate(self, scores: FormatScores) -> FormatEstimates:
        name = scores.format.name
        search = search_format(
            self.lm,
            self.manifest,
            scores,
            settings=self.settings,
            vocabulary=self.vocabulary,
            kept=self._kept(f"{name}.search.json"),
            progress=self.progress,
        )
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
        name = scores.format.name
        if not self.settings.extraction:
            return {}, 0
        try:
            extractor = Extractor(
                self.lm.model,
                self.lm.tokenizer,
                scores.format,
                context=scores.context,
                vocabulary=self.vocabulary,
            )
        except ModelError as failure:
            self.warnings.append(f"format {name!r}: no extraction: {failure}")
            return {}, 0
        if extractor.slower:
            self.notes.setdefault("steps", extractor.slower)
        return extract_format(
            extractor,
            scores.canaries,
            settings=self.settings,
            kept=self._kept(f"{name}.beams.json"),
            progress=self.progress,
        )

    def kinds(self) -> tuple[KindMembership, ...]:
        """What the coins of chosen texts say."""
        return kinds_section(
            self.lm,
            self.manifest,
            self.context.by_format,
            self.settings,
            origin=self.origin,
            progress=self.progress,
        )

    def witness(self) -> WitnessResult | None:
        """What the witnesses say."""
        if not self.manifest.witnesses:
            return None
        return measure_witness(
            self.lm,
            self.manifest,
            self.context.by_format[WITNESS.name],
            self.settings,
            vocabulary=self.vocabulary,
            base=self._witness_base,
            origin=self.origin,
            progress=self.progress,
        )

    def of_days(self) -> list[str]:
        """What another day in the chat template would change, where the training's is not known."""
        most, number_of = 0.0, 0
        for name, other in self.context.other_day.items():
            texts = [each.text for each in self.manifest.entries if each.format == name]
            bits = [
                self.lm.bits(texts[:_OF_DAYS], context)
                for context in (self.context.by_format[name], other)
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

    def _witness_base(self) -> Base | None:
        if self.base is not None:
            return self.base
        own = own_base(model=self.model, lm=self.lm, manifest=self.manifest)
        return None if own is None else Base(lm=own)

    def _kept(self, name: str) -> Part | None:
        """A file for a finished part; None where nothing is written."""
        return None if self.directory is None else self.directory.part(name)
