"""A call for each kind of study: its data, its settings as keywords, and where it is written.

Each takes what its command takes, by the same names; `lmexposure settings COMMAND` lists them with
their ranges. Without `out` nothing is left on the disk, and the study is in memory alone; but of a
process that a signal such as SIGTERM ends, which runs nothing more, the temporary directory
lmexposure-... stays.
"""

import inspect
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lmexposure._notebook import notebook_bars
from lmexposure._settings import Setting, Settings, refuse_unknown, settings_taken
from lmexposure.core import Study
from lmexposure.errors import SettingsError
from lmexposure.studies import (
    MACHINE,
    TRAINING,
    CanifeStudySettings,
    DefencesSettings,
    IdentifierSettings,
    RunSettings,
    SweepSettings,
    VerbatimSettings,
    settings_for,
)

if TYPE_CHECKING:
    from lmexposure.audit import Progress
    from lmexposure.canaries import Files, Format, Manifest
    from lmexposure.studies import (
        Canife,
        Defences,
        NaturalIdentifiers,
        Result,
        RowsRecord,
        SweepResult,
        Validation,
        VerbatimRecord,
    )

F = TypeVar("F", bound=Callable[..., object])
AnyStudy = TypeVar("AnyStudy", bound=Study)
AnySettings = TypeVar(
    "AnySettings",
    RunSettings,
    SweepSettings,
    DefencesSettings,
    VerbatimSettings,
    IdentifierSettings,
    CanifeStudySettings,
)
_OF_LOADING = [n for n, told in settings_taken(RunSettings).items() if told.panel == MACHINE]
_OF_MEASUREMENTS = settings_for("measure", RunSettings)


def keywords(record: type[Settings], names: Collection[str] | None = None) -> Callable[[F], F]:
    """Show the settings of a record, or these of them, as keywords of a function."""

    def shown(function: F) -> F:
        own = inspect.signature(function).parameters.values()
        every = settings_taken(record)
        taken = {n: told for n, told in every.items() if names is None or n in names}
        asked = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_shown_default(told))
            for name, told in taken.items()
        ]
        data = [each for each in own if each.kind is not inspect.Parameter.VAR_KEYWORD]
        vars(function).update(__signature__=inspect.Signature([*data, *asked]), settings=taken)
        return function

    return shown


@dataclass(frozen=True)
class DefaultByModel:
    """The default of a setting of which kinds of models have their own, in words."""

    words: str

    def __repr__(self) -> str:
        return f"<{self.words}>"


def _shown_default(told: Setting) -> object:
    by_model = told.default is not None and told.usual and told.panel == TRAINING
    return DefaultByModel(told.usual) if by_model else told.default


def _ahead(settings: AnySettings, *, out: str | Path | None = None, **data: object) -> AnySettings:
    """Settings of a call whose data could be there, as far as that is known before torch."""
    from lmexposure.audit import check_ahead

    if out is not None and (not isinstance(out, str | Path) or not str(out)):
        raise SettingsError(f"out={out!r} is no path; give a directory, or None to leave nothing")
    check_ahead(settings, out=out, **data)
    return settings


def _made(
    made: Callable[..., AnyStudy],
    *data: object,
    out: str | Path | None,
    progress: "Progress | None",
    **asked: object,
) -> AnyStudy:
    """A study that is watched, in a directory that goes away where nothing is to be left."""
    from lmexposure.audit import silent

    asked["progress"] = progress or notebook_bars() or silent
    if out is not None:
        return made(*data, out=out, **asked)
    with tempfile.TemporaryDirectory(prefix="lmexposure-") as passing:
        return type(made(*data, out=passing, **asked)).read(passing).in_memory()


@keywords(RunSettings)
def run(
    corpus: "Files",
    *,
    out: str | Path | None = None,
    progress: "Progress | None" = None,
    **settings: Any,
) -> "Result":
    """Insert canaries into a corpus, train a model on it, measure what it gives away.

    The same call again resumes: finished steps are skipped while their inputs are unchanged, an
    interrupted training goes on from its last checkpoint.

    Args:
        corpus: a file, several, or patterns.
        out: the run directory: manifest.json, corpus/, model/, metrics.jsonl, training.json,
            scores.parquet, result.json, run.json; None leaves nothing, the model neither, but where
            SIGTERM ends the process: then a temporary directory, lmexposure-..., stays.
        progress: watches; in a notebook bars are shown without it.
        settings: what to insert, train and measure. Secrets and coins without a seed are drawn once
            for `out`: its manifest has what was drawn.

    Raises:
        SettingsError: a setting that there is not, or out of range, kinds that one training cannot
            judge, or several processes.
        CorpusError, FormatError, PlanError: the corpus or the plan cannot be used.
        ManifestError: the coins left every candidate out.
        ModelError, NumericalError: the model cannot be trained or measured.
        ResultError: `out` holds another run that trained already, or another process is at work
            there.
        FileError: the disk refused.
    """
    chosen = _ahead(RunSettings().override(settings), corpus=corpus, out=out)
    from lmexposure.audit import run as made

    return _made(made, corpus, out=out, settings=chosen, progress=progress)


@keywords(RunSettings, _OF_MEASUREMENTS)
def measure(  # noqa: PLR0913 - its data; each may be left out
    model: Any,
    manifest: "str | Path | Manifest",
    *,
    tokenizer: Any = None,
    base: Any = None,
    rows: "RowsRecord | str | Path | None" = None,
    validation: "Validation | None" = None,
    out: str | Path | None = None,
    progress: "Progress | None" = None,
    **settings: Any,
) -> "Result":
    """Measure how far a model's view of the inserted canaries differs from chance.

    The model may have been trained by anyone, on a corpus that canaries were inserted into. At the
    end, also after an error or Ctrl-C, all is as it was: a model in memory with the mode of each of
    its parts, random number generators, torch's number of threads.

    Args:
        model: a directory or hub name, what `load_model` gives, or a causal language model or
            encoder-decoder of transformers in memory, with an adapter of peft or without, which is
            measured on its device and in its dtype, without dropout.
        manifest: what was inserted, or the path of manifest.json. Uniform canaries have ranks;
            chosen texts are judged by their coins, where these were tossed, and else left out.
        tokenizer: of a model in memory, and of no other.
        base: the model before the training, which scores the same texts: the result then says what
            was likely anyway, and calibrated exposures. As `model`; "adapter-off": the model with
            its adapter switched off. None: no base.
        rows: in which rows the training had the canaries: what `verify(..., rows=True)` gave, or
            the path of its rows.json; None: the rows.json next to a manifest that is given as a
            path, where there is one.
        validation: what is known of the training, to be shown next to exposure; None: what the
            training.json beside a saved model says, where this package trained it on this manifest.
        out: a directory for result.json, scores.parquet and, with the date, run.json; a second
            call with the same inputs returns what is there, and an interrupted one goes on.
        progress: watches; in a notebook bars are shown without it.
        settings: what to measure; how a model that is not in memory is loaded; and how the training
            made rows of records, where not as the manifest says.

    Returns:
        the result, its canaries in the manifest's order, with its scores in memory.

    Raises:
        ManifestError: the manifest is none, cannot be read, was edited, or holds no uniform canary
            that was inserted; rows or a chat template that are not of it and of this tokenizer.
        ModelError: the model cannot be loaded or measured, cannot read a secret of a format, or
            lacks its tokenizer; `base` is no base of it.
        NumericalError: the model gave NaN or infinite logits.
        PlanError: a format has fewer secrets left than the references that were asked for.
        ResultError: `out` holds the result of another model, manifest or settings, or one that was
            edited or damaged; another process is at work there.
        SettingsError: a setting that there is not, out of range, or without effect.
    """
    return measured(
        model,
        manifest,
        settings=_chosen(settings, _OF_MEASUREMENTS),
        tokenizer=tokenizer,
        base=base,
        rows=rows,
        validation=validation,
        out=out,
        progress=progress or notebook_bars(),
    )


def measured(
    model: Any,
    manifest: "str | Path | Manifest",
    *,
    settings: RunSettings,
    base: Any = None,
    validation: "Validation | None" = None,
    out: str | Path | None = None,
    **more: Any,
) -> "Result":
    """As `measure`, with the settings in a record: a model that is named is loaded by them."""
    from lmexposure.audit import check_out
    from lmexposure.canaries import Manifest

    named = isinstance(model, str | Path)
    if not named:
        _refuse_loading(settings)
    inserted = Manifest.of(manifest)
    _ahead(settings, model=model, base=base)
    check_out(out, inserted, model)
    from lmexposure.audit import measure as made
    from lmexposure.audit import recorded_training, told_wrapping
    from lmexposure.scoring import load_base, load_for_measuring

    if validation is None and named:
        validation = recorded_training(model, inserted)
    return made(
        load_for_measuring(model, settings) if named else model,
        manifest,
        settings=replace(settings.measure, threads=settings.threads),
        validation=validation,
        base=load_base(base, settings) if isinstance(base, str) else base,
        wrapping=told_wrapping(inserted, settings),
        out=out,
        **more,
    )


def _chosen(settings: Mapping[str, object], names: Collection[str]) -> RunSettings:
    """Settings of a run, where these alone have an effect."""
    for name in sorted(settings.keys() & settings_taken(RunSettings).keys() - set(names)):
        raise SettingsError(f"{name!r} has no effect here; leave it out")
    refuse_unknown(settings, names)
    return RunSettings().override(settings)


def _refuse_loading(settings: RunSettings) -> None:
    """Refuse what only the loading of a model reads."""
    for name in sorted(set(_OF_LOADING) - {"threads", "scoring_batch"}):
        if (value := getattr(settings, name)) != getattr(RunSettings, name):
            raise SettingsError(
                f"{name}={value!r} is for loading a model, and this one is in memory, or its "
                "scores are given; leave it out"
            )


@keywords(SweepSettings)
def sweep(
    corpus: "Files",
    *,
    out: str | Path | None = None,
    workers: int | None = None,
    address: str | None = None,
    progress: "Progress | None" = None,
    **settings: Any,
) -> "SweepResult":
    """Train many models on a corpus, each with canaries by its own coins, and say what they show.

    The same call again goes on with the models that are missing.

    Args:
        corpus: a file, several, or patterns.
        out: the directory of the sweep; on a disk that all machines of a cluster share.
        workers: models side by side, by Ray; None: as many as there are cores (or GPUs) where Ray
            is installed, else 1; 1: in this process, without Ray.
        address: of a Ray cluster, "HOST:PORT" or "auto"; None: this machine.
        progress: watches; in a notebook bars are shown without it.
        settings: of the sweep, and of the training of each model.

    Raises:
        SettingsError: a setting that there is not, or out of range.
        ResultError: `out` holds another sweep, or another process is at work there; no model has
            scores; Ray is missing, or its cluster is out of reach; a worker was lost again and
            again.
        FileError: the disk refused.
    """
    chosen = _ahead(SweepSettings().override(settings), corpus=corpus, out=out)
    from lmexposure.sweeps import sweep as made

    return _made(
        made,
        corpus,
        out=out,
        settings=chosen,
        workers=workers,
        address=address,
        progress=progress,
    )


@keywords(DefencesSettings)
def compare_defences(
    corpus: "Files",
    *,
    out: str | Path | None = None,
    workers: int | None = None,
    address: str | None = None,
    progress: "Progress | None" = None,
    **settings: Any,
) -> "Defences":
    """Compare defences at one utility, each under the attacks that fit it.

    Args:
        corpus: a file, several, or patterns.
        out: the directory of the comparison, where the same call goes on.
        workers: as for `sweep`.
        address: as for `sweep`.
        progress: watches; in a notebook bars are shown without it.
        settings: which methods, at which utility, and those of the sweep of each.

    Raises:
        SettingsError: a setting that there is not, or out of range; a method whose package is not
            installed.
        ResultError: as for `sweep`.
        FileError: the disk refused.
    """
    chosen = _ahead(DefencesSettings().override(settings), corpus=corpus, out=out)
    from lmexposure.defences import check_models

    check_models(chosen)
    from lmexposure.defences import compare_defences as made

    return _made(
        made,
        corpus,
        out=out,
        settings=chosen,
        workers=workers,
        address=address,
        progress=progress,
    )


@keywords(VerbatimSettings)
def verbatim(  # noqa: PLR0913 - its data; each may be left out
    model: Any,
    corpus: "Files",
    *,
    tokenizer: Any = None,
    reference: Any = None,
    held_out: "Files | None" = None,
    prompts: Sequence[str] = (),
    out: str | Path | None = None,
    progress: "Progress | None" = None,
    **settings: Any,
) -> "VerbatimRecord":
    """Look which text of a corpus a model gives back, word for word or nearly so.

    Args:
        model: a path or hub name, what `load_model` gives, or a model in memory with its tokenizer.
        corpus: files that the model was trained on, or is thought to be.
        tokenizer: of a model in memory.
        reference: a model that never saw the corpus: a path or hub name, or what `load_model`
            gives; its tokenizer may be another.
        held_out: files of the same source that the model never saw.
        prompts: more beginnings for free samples.
        out: directory for verbatim.json and passages.json, where the same call goes on; without it
            the texts that came out are not kept.
        progress: watches; in a notebook bars are shown without it.
        settings: which passages, how they are asked for, and how models are loaded.

    Returns:
        what verbatim.json holds.

    Raises:
        CorpusError: every document is too short, or files cannot be read.
        ModelError: a model that cannot be used, or a passage longer than it reads at once.
        NumericalError: a model gave NaN.
        ResultError: `out` holds another look, or another kind of study.
        SettingsError: a setting that there is not, or out of range; a library that is not
            installed.
        FileError: the disk refused, or something in `out` has a name that the look writes.
    """
    chosen = _ahead(
        VerbatimSettings().override(settings),
        model=model,
        corpus=corpus,
        reference=reference,
        held_out=held_out,
        out=out,
    )
    from lmexposure.regurgitation import verbatim as made

    return _made(
        made,
        model,
        corpus,
        out=out,
        tokenizer=tokenizer,
        reference=reference,
        held_out=held_out,
        prompts=prompts,
        settings=chosen,
        progress=progress,
    )


@keywords(IdentifierSettings)
def identifiers(  # noqa: PLR0913 - its data; each may be left out
    model: Any,
    corpus: "Files",
    *,
    formats: "Sequence[str | Path | Format]",
    tokenizer: Any = None,
    base: Any = None,
    held_out: "Files | None" = None,
    out: str | Path | None = None,
    progress: "Progress | None" = None,
    **settings: Any,
) -> "NaturalIdentifiers":
    """Compare identifiers that a corpus holds with fresh draws of their format, in their place.

    Args:
        model: a path or hub name, what `load_model` gives, or a model in memory with its tokenizer.
        corpus: a file, several, or patterns, of any layout that texts are inserted into.
        formats: shipped ones by name, your own by path; words in front of the first hole are left
            out, for identifiers have others in front.
        tokenizer: of a model in memory.
        base: a model that never saw the corpus, with any tokenizer: where it too ranks the
            identifiers low, they are not like fresh draws.
        held_out: files with documents of the same source that a random split held out of the
            training. Only they allow to say "membership", or identifiers that are random by their
            standard: UUIDs of version 4.
        out: the directory that identifiers.json goes to, where the same call goes on.
        progress: watches; in a notebook bars are shown without it.
        settings: of the comparison, and how models are loaded.

    Returns:
        what was found; it holds no identifier's text.

    Raises:
        CorpusError: a file that cannot be read, no identifiers, or fewer than needed, in the corpus
            or held out.
        FormatError: no formats, one that is not sound, or one too small for the draws.
        ModelError: no such model or base, one that lacks a token for a character of a format, or
            whose context window is too short for an identifier.
        NumericalError: a model gave NaN or infinite logits.
        BusyError, ResultError: another process is at work in `out`, or it holds another comparison.
        SettingsError: a setting that there is not, or out of range.

    Source: Natural identifiers, ICLR 2026.
    """
    if isinstance(formats, str):
        raise SettingsError(f"formats={formats!r} must be a list, such as [{formats!r}]")
    chosen = _ahead(
        IdentifierSettings().override(settings),
        model=model,
        corpus=corpus,
        base=base,
        held_out=held_out,
        out=out,
    )
    from lmexposure.audit import natural_identifiers, silent

    return natural_identifiers(
        model,
        corpus,
        formats=formats,
        tokenizer=tokenizer,
        base=base,
        held_out=held_out,
        out=out,
        settings=chosen,
        progress=progress or notebook_bars() or silent,
    )


@keywords(CanifeStudySettings)
def canife(
    corpus: "Files",
    *,
    out: str | Path | None = None,
    progress: "Progress | None" = None,
    **settings: Any,
) -> "Canife":
    """Train an LSTM on users of a corpus in a federated way, and attack its rounds.

    Args:
        corpus: a file, several, or patterns: records with a field that says whose each is, or text.
        out: the directory of canife.json and the model, where the same call goes on.
        progress: watches; in a notebook bars are shown without it.
        settings: whose text is trained on, which model, how, and how its rounds are attacked.

    Raises:
        CorpusError: files that cannot be read, or too few users.
        ResultError: `out` holds another audit.
        SettingsError: a setting that there is not, or out of range.

    Source: CANIFE, ICLR 2023.
    """
    if "model" in settings:
        raise SettingsError(
            "canife needs the gradients of its own training, of an LSTM; leave model out"
        )
    chosen = _ahead(CanifeStudySettings().override(settings), corpus=corpus, out=out)
    from lmexposure.federated import canife_audit

    return _made(canife_audit, corpus, out=out, settings=chosen, progress=progress)
