"""Training as a step of a run: settings to model and documents, progress in one language."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from lmexposure._files import mode_like, only_writer
from lmexposure._forecast import Phase
from lmexposure._style import visible
from lmexposure.audit.corpus import read_template, wrapping_of
from lmexposure.audit.workload import (
    Progress,
    Speaker,
    Task,
    Watcher,
    measurement_forecast,
    silent,
    watch_training,
)
from lmexposure.canaries import (
    ADAPTERS,
    FileCorpus,
    Files,
    Manifest,
    Wrapping,
    corpus_files,
    derive_seed,
    in_insertion_order,
    is_stream,
    layout_for,
    layout_of,
    load_format,
    read_records,
    read_sidecars,
    spooled,
)
from lmexposure.errors import CorpusError, ManifestError, ModelError, SettingsError
from lmexposure.models import (
    NEW_MODELS,
    DpCheck,
    LoadedModel,
    LstmSizes,
    TrainingSettings,
    check_learns,
    check_lora,
    check_private,
    check_template,
    dated,
    grow,
    load_model,
    new_model,
    new_token_texts,
    template_sha256,
    train,
)
from lmexposure.scoring import TorchModel, chosen_device
from lmexposure.studies import DP_SGD, DpClaim, RunSettings, TrainingResult

_LOG = logging.getLogger(__name__)
_LONGEST_RECORD = 1024  # tokens of a row: shorter ones take no more memory for it
_SAID = {"form": "form", "turn": "turn", "loss": "loss", "rendering": "rendering"} | {
    "other_turn": "other",
    "system": "system",
    "prompt_field": "prompt_field",
    "completion_field": "completion_field",
}  # settings, and what a wrapping calls them


def training_settings(
    settings: RunSettings, window: int | None = None, *, records: bool = False
) -> TrainingSettings:
    """The training settings of a run: the model's defaults, then what was asked for."""
    kind = settings.model if settings.model in NEW_MODELS else "pretrained"
    seed = derive_seed(settings.public_seed, "training")
    longest = {"block_size": _LONGEST_RECORD} if records else {}
    own = {**longest, **_delta(settings), **settings.training}
    given: dict[str, object] = {"seed": seed, "threads": settings.threads, **own}
    chosen = TrainingSettings.for_model(kind, **given)
    if chosen.lora:
        check_lora(settings.model)
        check_learns(settings.kinds)
    if window is None or chosen.block_size <= window or "block_size" in settings.training:
        return chosen
    return TrainingSettings.for_model(kind, **{**given, "block_size": window})


def _delta(settings: RunSettings) -> dict[str, float]:
    """The delta that is promised: the one that is measured at, unless the training has its own."""
    measured, own = settings.measure.delta, settings.training.get("delta")
    if settings.training.get("method") != DP_SGD or measured is None:
        return {}
    if own is not None and own != measured:
        raise SettingsError(
            f"delta={measured:g} is measured at, and delta={own} of the training is promised; give "
            "one of the two"
        )
    return {"delta": measured}


def train_corpus(
    corpus: Files | IO[bytes],
    *,
    out: str | Path,
    settings: RunSettings,
    manifest: str | Path | Manifest | None = None,
    progress: Progress = silent,
    then_measure: bool = False,
) -> TrainingResult:
    """Train the model that the settings name on a corpus."""
    if manifest is not None and not isinstance(manifest, Manifest):
        manifest = Manifest.read(manifest)
    with only_writer(out), _as_files(corpus) as files:
        prepared = _Prepared.of(files, settings, manifest)
        then: tuple[str, Sequence[Phase]] = ("", ())
        if then_measure and manifest is not None and isinstance(progress, Watcher):
            lm = TorchModel.of(prepared.loaded)
            task = Task(lm=lm, manifest=manifest, settings=settings.measure, contexts={})
            ahead = measurement_forecast(task)
            then = (ahead.what, ahead.phases)
        return train(
            prepared.loaded,
            prepared.documents,
            out=Path(out),
            progress=watch_training(progress, prepared.settings, then),
            promise=partial(_say_promise, progress) if isinstance(progress, Speaker) else None,
            mode=mode_like(*files),
            manifest_sha256=None if manifest is None else manifest.sha256,
            settings=prepared.settings,
            **prepared.arguments,
        )


@contextmanager
def _as_files(corpus: Files | IO[bytes]) -> Iterator[list[Path]]:
    """The files of a corpus; a stream is one until the block ends."""
    if is_stream(corpus) and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise SettingsError("standard input goes to one process of several; give files")
    with spooled(corpus) as names:
        yield corpus_files(names)


def check_private_training(
    corpus: Files | IO[bytes],
    *,
    settings: RunSettings,
    manifest: str | Path | Manifest | None = None,
) -> tuple[DpClaim, DpCheck]:
    """Check the private training that `train_corpus` would make, without training."""
    if manifest is not None and not isinstance(manifest, Manifest):
        manifest = Manifest.read(manifest)
    with _as_files(corpus) as files:
        prepared = _Prepared.of(files, settings, manifest)
        return check_private(
            prepared.loaded, prepared.documents, settings=prepared.settings, **prepared.arguments
        )


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """All that a training begins with."""

    loaded: LoadedModel  # the model
    documents: Sequence[Any]  # the corpus
    settings: TrainingSettings  # of the training
    arguments: Mapping[str, Any]  # more of `models.train`, by name

    @classmethod
    def of(cls, files: list[Path], settings: RunSettings, manifest: Manifest | None) -> "_Prepared":
        """Read the corpus, and load or make the model."""
        files, layout, wrapping = _corpus(files, settings, manifest)
        check_model_for(wrapping, settings)
        first = training_settings(settings)
        if manifest is not None and first.lora:
            check_learns(form.kind for form in manifest.plan.formats)
        documents: Sequence[Any]
        if wrapping is None:
            documents = [text for path in files for text in layout.documents(path)]
        else:
            documents = list(read_records(files, layout=layout.name))
        if manifest is not None:
            _refuse_uninserted(manifest, documents)
            _warn_changed(FileCorpus(files, layout), manifest)
        field = first.unit_field
        units = None if field is None else _units(files, layout.name, field)
        loaded = _model(settings, documents, layout.separator, manifest)
        _check_template_known(loaded, manifest, wrapping)
        wrapping = _of_today(loaded, wrapping)
        return cls(
            loaded=loaded,
            documents=documents,
            settings=training_settings(settings, loaded.window, records=wrapping is not None),
            arguments={
                "separator": layout.separator,
                "canaries": {} if manifest is None else _inserted(manifest),
                "wrapping": wrapping,
                "units": units,
            },
        )


def _units(files: list[Path], layout: str, field: str) -> list[str | None]:
    """Whose each document is; None where it has no such value, and is by itself."""
    if ADAPTERS[layout].module == "text" and layout != "jsonl":
        raise CorpusError(
            f"unit_field={field!r} is a field of records, and documents of layout {layout!r} are "
            "texts; give JSONL, Parquet or Arrow, or leave it out for a promise for each document"
        )
    owners: list[str | None] = []
    for number, record in enumerate(read_records(files, layout=layout), 1):
        value = record.get(field)
        if isinstance(value, Mapping | list):
            raise CorpusError(
                f"record {number}: {field!r} is no text and no number; name a field with one value "
                "a unit as unit_field"
            )
        owners.append(None if value is None else str(value))
    if all(owner is None for owner in owners):
        raise CorpusError(
            f"no record has the field {field!r}, which should say whose it is; name another as "
            "unit_field, or leave it out for a promise for each document"
        )
    return owners


def _say_promise(speaker: Speaker, claim: DpClaim) -> None:
    speaker.say(f"{claim.method}: {claim}")


def _corpus(
    files: list[Path], settings: RunSettings, manifest: Manifest | None
) -> tuple[list[Path], Any, Wrapping | None]:
    """The files in order, what a document of them is, and how a record becomes a row."""
    if manifest is None:
        layout = layout_for(files, settings.layout, settings.text_field)
        return files, layout, wrapping_of(files, settings=settings)
    layout = layout_of(manifest, files, name=settings.layout or manifest.layout)
    if manifest.layout != layout.name:
        raise ManifestError(
            f"the manifest is of a corpus in layout {manifest.layout!r}, and layout "
            f"{layout.name!r} is asked for; leave layout out"
        )
    _refuse_other_wrapping(manifest, settings)
    wrapping = manifest.wrapping
    if wrapping is not None and settings.chat_date is not None:
        wrapping = replace(wrapping, chat_date=settings.chat_date)
    return in_insertion_order(files, manifest), layout, wrapping


def check_model_for(wrapping: Wrapping | None, settings: RunSettings) -> None:
    """Refuse a new model for records: its tokenizer would know no chats and no instructions."""
    if wrapping is not None and settings.model in NEW_MODELS:
        raise ModelError(
            f"model={settings.model!r} is a new model, whose tokenizer knows no chats and no "
            "instructions; give a pretrained one (with a chat template where the records are "
            "messages)"
        )


def _refuse_other_wrapping(manifest: Manifest, settings: RunSettings) -> None:
    """Refuse to train on records in another way than the canaries went into them."""
    wrapping = manifest.wrapping or Wrapping()
    for name, field in _SAID.items():
        value, known = getattr(settings, name), getattr(wrapping, field)
        if value is not None and value != known:
            raise ManifestError(
                f"{name}={value!r}, but the canaries of the manifest were inserted with "
                f"{name}={known!r}; leave {name} out, or insert again"
            )


def _check_template_known(
    loaded: LoadedModel, manifest: Manifest | None, wrapping: Wrapping | None
) -> None:
    """Refuse records that a template has to render where there is none, or another than planned."""
    if wrapping is None or wrapping.rendering != "chat":
        return
    check_template(loaded.tokenizer, wrapping)
    record = None if manifest is None else manifest.corpus.wrapping
    known = None if record is None else record.template_sha256
    if known and known != template_sha256(loaded.tokenizer, wrapping):
        raise ManifestError(
            f"the chat template of {loaded.name!r} is not the one that the manifest says "
            f"(SHA-256 {known[:12]}...); give the model with the tokenizer of the insertion, or "
            "insert again with this one"
        )


def _of_today(loaded: LoadedModel, wrapping: Wrapping | None) -> Wrapping | None:
    """With the day of the first row, where the chat template writes the date."""
    if wrapping is None:
        return None
    of_day = dated(loaded.tokenizer, wrapping)
    if of_day.chat_date is not None and wrapping.chat_date is None:
        _LOG.warning(
            "note: the chat template writes the date, and all rows have that of today; to go on "
            "with this training on another day, give this one as the chat date: %s",
            of_day.chat_date,
        )
    return of_day


def _inserted(manifest: Manifest) -> dict[str, int]:
    return {entry.text: entry.inserted for entry in manifest.entries if entry.inserted}


def _refuse_uninserted(manifest: Manifest, documents: Sequence[Any]) -> None:
    """Refuse a corpus of other coins, which holds fills that count as never inserted."""
    texts = set(_strings(documents))
    found = [c.id for c in manifest.entries if not c.inserted and c.text in texts]
    if found:
        raise ManifestError(
            f"{found[0]} is in the corpus, but by the manifest it was not inserted "
            f"({len(found)} such in all); train on the corpus that the manifest belongs to"
        )


def _strings(value: Any) -> Iterator[str]:
    """All texts in records, or the texts themselves."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(inner)


def _warn_changed(corpus: FileCorpus, manifest: Manifest) -> None:
    """Warn of a corpus that insertion did not write: filtered on purpose, or damaged."""
    known = _known_hash(corpus, manifest)
    if known and corpus.sha256() != known:
        _LOG.warning(
            "%s is not what insertion wrote (the manifest has its hash): train on that copy, "
            "unless the change is meant",
            visible(corpus.sources[0].name) if len(corpus.sources) == 1 else "the corpus",
        )


def _known_hash(corpus: FileCorpus, manifest: Manifest) -> str:
    """Of what insertion wrote: of all files, or of one of several by its sidecar; "": not known."""
    with suppress(CorpusError):  # sidecars of another insertion
        notes = read_sidecars([source.path for source in corpus.sources], manifest)
        if notes and len(notes) < notes[0].shards:
            return notes[0].copied.sha256_inserted
    return manifest.corpus.sha256_inserted


def _model(
    settings: RunSettings,
    documents: Sequence[Any],
    separator: str | None,
    manifest: Manifest | None,
) -> LoadedModel:
    """A new model for these documents, or a pretrained one."""
    device = chosen_device(settings)
    formats = (
        manifest.plan.hidden_formats
        if manifest
        else [load_format(name) for name in settings.formats]
    )
    new_tokens = new_token_texts(formats)
    if settings.model not in NEW_MODELS:
        loaded = load_model(
            settings.model, device=device, revision=settings.revision, offline=settings.offline
        )
        if settings.chat_template is not None:  # the trained model keeps it
            loaded.tokenizer.chat_template = read_template(settings.chat_template)
        return grow(loaded, new_tokens)
    # A vocabulary learned from canaries would spell them in fewer tokens than the references.
    canaries = {} if manifest is None else _inserted(manifest)
    return new_model(
        settings.model,
        (text for text in documents if text not in canaries),
        seed=settings.public_seed,
        separator=separator,
        extra_characters="".join(form.characters for form in formats),
        lstm=LstmSizes(layers=settings.layers, units=settings.units, embedding=settings.units),
        new_tokens=new_tokens,
        device=device,
    )
