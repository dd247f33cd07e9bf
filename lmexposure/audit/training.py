"""Training as a step of a run: settings to model and documents, progress in one language."""

import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from lmexposure._files import PRIVATE, mode_like, new_file, only_writer
from lmexposure._text import visible
from lmexposure.audit.loaded_model import chosen_device
from lmexposure.audit.workload import (
    Phase,
    Progress,
    Watcher,
    measurement_phases,
    measurement_title,
    silent,
    watch_training,
)
from lmexposure.canaries import (
    SPOOL,
    FileCorpus,
    Files,
    Manifest,
    corpus_files,
    derive_seed,
    in_insertion_order,
    is_stream,
    layout_for,
    listed_files,
    load_format,
    read_sidecars,
    stream_layout,
)
from lmexposure.errors import CorpusError, ManifestError, SettingsError
from lmexposure.models import (
    NEW_MODELS,
    LoadedModel,
    LstmSizes,
    TrainingResult,
    TrainingSettings,
    context_window,
    load_model,
    new_model,
    train,
)
from lmexposure.records import RunSettings

_LOG = logging.getLogger(__name__)


def training_settings(settings: RunSettings, window: int | None = None) -> TrainingSettings:
    """The training settings of a run: the model's defaults, then what was asked for.

    Args:
        settings: of the run; the training's seed follows from its seed, unless `training` has its
            own.
        window: the model's context window in tokens; a default block is no longer than it.

    Raises:
        SettingsError: a training setting that does not exist, or is out of range.
    """
    kind = settings.model if settings.model in NEW_MODELS else "pretrained"
    seed = derive_seed(settings.public_seed, "training")
    given = {"seed": seed, "threads": settings.threads, **settings.training}
    chosen = TrainingSettings.for_model(kind, **given)
    if window is None or chosen.block_size <= window or "block_size" in settings.training:
        return chosen
    return TrainingSettings.for_model(kind, **{**given, "block_size": window})


def train_corpus(
    corpus: Files | IO[bytes],
    *,
    out: str | Path,
    settings: RunSettings,
    manifest: str | Path | Manifest | None = None,
    progress: Progress = silent,
    then_measure: bool = False,
) -> TrainingResult:
    """Train the model that the settings name on a corpus.

    Args:
        corpus: the corpus, its canaries in it: a file, several, or patterns; or a stream of text,
            open for reading bytes.
        out: gets `model/`, `metrics.jsonl`, `training.json`.
        settings: model, sizes, training, seed; formats too: a new LSTM knows their characters.
        manifest: of the corpus; its canaries are never cut, and never used for validation.
        progress: watches.
        then_measure: a measurement follows, as the settings say: it is announced as well.

    Raises:
        LmexposureError: as `lmexposure.models.train`; also a manifest that misses a canary's text,
            or a corpus that holds a fill that by the manifest it should not; another process at
            work in `out`.
    """
    if manifest is not None and not isinstance(manifest, Manifest):
        manifest = Manifest.read(manifest)
    layout = settings.layout or (manifest.layout if manifest else None)
    with only_writer(out), _as_files(corpus, layout) as files:
        return _train(files, Path(out), settings, manifest, progress, then_measure)


@contextmanager
def _as_files(corpus: Files | IO[bytes], layout: str | None) -> Iterator[list[Path]]:
    """The files of a corpus; a stream is one until the block ends."""
    if not is_stream(corpus):
        yield corpus_files(listed_files(corpus))
        return
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise SettingsError("standard input goes to one process of several; give files")
    stream_layout(layout, "text")
    with TemporaryDirectory() as place:
        path = Path(place) / SPOOL
        with new_file(path, PRIVATE) as stream:
            shutil.copyfileobj(corpus, stream)
        yield [path]


def _train(
    files: list[Path],
    out: Path,
    settings: RunSettings,
    manifest: Manifest | None,
    progress: Progress,
    then_measure: bool,
) -> TrainingResult:
    text_field = (manifest.corpus.text_field if manifest else None) or settings.text_field
    layout = layout_for(
        files, settings.layout or (manifest.layout if manifest else None), text_field
    )
    if manifest is not None:
        if manifest.layout != layout.name:
            raise ManifestError(
                f"the manifest is of a corpus in layout {manifest.layout!r}, and layout "
                f"{layout.name!r} is asked for; leave layout out"
            )
        files = in_insertion_order(files, manifest)
    documents = [text for path in files for text in layout.documents(path)]
    if manifest is not None:
        _refuse_uninserted(manifest, documents)
        _warn_changed(FileCorpus(files, layout), manifest)
    loaded = _model(settings, documents, layout.separator, manifest)
    chosen = training_settings(settings, context_window(loaded.model.config))
    then: tuple[str, list[Phase]] = ("", [])
    if then_measure and manifest is not None and isinstance(progress, Watcher):
        measured = manifest, settings.measure
        then = (measurement_title(*measured), measurement_phases(loaded, *measured))
    return train(
        loaded,
        documents,
        settings=chosen,
        separator=layout.separator,
        canaries={} if manifest is None else _inserted(manifest),
        out=out,
        progress=watch_training(progress, chosen, then),
        mode=mode_like(*files),
    )


def _inserted(manifest: Manifest) -> dict[str, int]:
    return {canary.text: canary.inserted for canary in manifest.canaries}


def _refuse_uninserted(manifest: Manifest, documents: Sequence[str]) -> None:
    """Refuse a corpus of other coins, which holds fills that count as never inserted."""
    texts = set(documents)
    found = [c.id for c in manifest.entries if not c.inserted and c.text in texts]
    if found:
        raise ManifestError(
            f"{found[0]} is in the corpus, but by the manifest it was not inserted "
            f"({len(found)} such in all); train on the corpus that the manifest belongs to"
        )


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
    documents: Sequence[str],
    separator: str | None,
    manifest: Manifest | None,
) -> LoadedModel:
    """A new model for these documents, or a pretrained one."""
    device = chosen_device(settings)
    if settings.model not in NEW_MODELS:
        return load_model(
            settings.model, device=device, revision=settings.revision, offline=settings.offline
        )
    formats = (
        manifest.plan.formats if manifest else [load_format(name) for name in settings.formats]
    )
    # A vocabulary learned from canaries would spell them in fewer tokens than the references.
    canaries = {} if manifest is None else _inserted(manifest)
    made = new_model(
        settings.model,
        (text for text in documents if text not in canaries),
        seed=settings.public_seed,
        separator=separator,
        extra_characters="".join(form.characters for form in formats),
        lstm=LstmSizes(layers=settings.layers, units=settings.units, embedding=settings.units),
    )
    made.model.to(device)
    return made
