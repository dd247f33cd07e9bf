"""What names, files and the machine say is wrong with a study, found before torch is imported."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from lmexposure._saved_models import (
    NEW_MODELS,
    check_device,
    check_model,
    have_other_weights,
    is_adapter,
    is_checkpoint,
    is_gguf,
)
from lmexposure.audit.corpus import wrapping_of
from lmexposure.canaries import (
    FileCorpus,
    Files,
    Manifest,
    Wrapping,
    corpus_files,
    layout_for,
    listed_files,
    read_records,
)
from lmexposure.errors import CorpusError, ModelError, ResultError, SettingsError
from lmexposure.studies import (
    MOST_POPULATION,
    POPULATION_SHARE,
    CanifeStudySettings,
    DefencesSettings,
    IdentifierSettings,
    Result,
    RunSettings,
    SweepSettings,
    VerbatimSettings,
    too_few_models,
)

# More documents change nothing of what is asked for by default.
_MOST_COUNTED = int(MOST_POPULATION / POPULATION_SHARE)
_CHECKPOINTS = (".pt", ".pth", ".ckpt")
_NO_NAMES = (*NEW_MODELS, "adapter-off")


def check_ahead(  # noqa: PLR0913 - the data of any call
    settings: RunSettings
    | SweepSettings
    | DefencesSettings
    | VerbatimSettings
    | IdentifierSettings
    | CanifeStudySettings,
    *,
    model: object = None,
    base: object = None,
    reference: object = None,
    corpus: object = None,
    held_out: object = None,
    manifest: object = None,
    out: object = None,
    **_: object,
) -> None:
    """Refuse models, corpora and a device that cannot be there, by what a call got.

    Without a model that of the settings is trained. What is in memory is passed over, and so is
    what is no model and no corpus.
    """
    if isinstance(settings, CanifeStudySettings):
        run = RunSettings(text_field=settings.text_field, model=NEW_MODELS[0])
    else:
        sweep = settings.sweep if isinstance(settings, DefencesSettings) else settings
        run = sweep if isinstance(sweep, RunSettings) else sweep.run
    # Only a manifest says how its corpus is read, and a study goes on without the files.
    begun = isinstance(out, str | Path) and (Path(out) / "manifest.json").exists()
    known = manifest is not None or begun
    chats = False
    for files in (corpus, held_out):  # first: a model there was given in the corpus' place
        if not known and isinstance(files, str | Path | list | tuple):
            by_user = isinstance(settings, CanifeStudySettings) and settings.user_field is not None
            wrapping = _check_corpus(files, run, rows=model is None, whole=not by_user)
            chats |= wrapping is not None and wrapping.rendering == "chat"
    check_device(run.device)
    chats &= run.chat_template is None
    if model is None:
        _check_trainable(model := run.model)
    _check_model(model, run, chats=chats)
    _check_model(reference, run, beside=True)
    try:
        _check_model(base, replace(run, revision=None), beside=True)
    except ModelError as failure:
        raise ModelError(f"no base: {failure}") from failure


def _check_model(
    model: object, run: RunSettings, *, chats: bool = False, beside: bool = False
) -> None:
    """Refuse a model that is named and cannot be loaded, whatever builds the one beside it."""
    if not isinstance(model, str | Path) or str(model) in _NO_NAMES:
        return
    if run.builder is not None and is_checkpoint(model):
        return
    if run.builder is not None and not beside:
        if not Path(model).exists():
            raise ModelError(f"model {str(model)!r}: no such file; check the path")
        raise SettingsError(
            f"builder={run.builder!r} makes a model of a checkpoint file, and {str(model)!r} is "
            "none; leave it out"
        )
    check_model(model, revision=run.revision, offline=run.offline, chats=chats)


def _check_trainable(model: str) -> None:
    """Refuse to train what can be measured alone."""
    own = Path(model).suffix in _CHECKPOINTS and is_checkpoint(model)
    if own or is_gguf(model) or is_adapter(Path(model)):
        raise ModelError(
            f"model {model!r} can be measured, and not trained, which needs gradients of whole "
            "weights; give a directory that save_pretrained wrote (of an adapter, merged)"
        )


def _check_corpus(corpus: Files, run: RunSettings, *, rows: bool, whole: bool) -> Wrapping | None:
    """Refuse files that are not there, or hold no text; how rows are made of records."""
    files = corpus_files(listed_files(corpus))
    layout = layout_for(files, run.layout, run.text_field)
    wrapping = wrapping_of(files, settings=run) if rows and whole else None
    FileCorpus(files, layout)  # refuses directories and pipes
    texts = (text for path in files for text in layout.documents(path))
    if whole and wrapping is None and not any(text.strip() for text in texts):
        raise CorpusError(
            f"{', '.join(map(str, files))} holds no text; give files with documents in them"
        )
    return wrapping


def models_ahead(settings: SweepSettings, corpus: Files) -> str | None:
    """What the models of a sweep are too few for; None: the gate could judge all of it."""
    files, run = corpus_files(listed_files(corpus)), settings.run
    layout = layout_for(files, run.layout, run.text_field)
    if wrapping_of(files, settings=run) is None:
        documents: Iterator[object] = (text for path in files for text in layout.documents(path))
    else:
        documents = read_records(files, layout=layout.name)
    counted = sum(1 for _ in islice(documents, _MOST_COUNTED))
    return too_few_models(settings, counted)


def check_out(out: str | Path | None, manifest: Manifest, model: object = None) -> None:
    """Refuse, before a model is loaded, a directory with the result of another, or its manifest."""
    path = None if out is None else Path(out) / Result.NAME
    if out is None or path is None or not path.exists():
        return
    before = Result.read_alone(path)
    another = before.manifest_sha256 != manifest.sha256
    if not another and isinstance(model, str | Path) and Path(model).is_dir():
        inside = Path(out) / before.model.path
        measured = inside if inside.is_dir() else Path(before.model.path)
        another = have_other_weights(measured, Path(model))
    if another:
        raise ResultError(
            f"{out} holds the result of another model, manifest or settings; choose another "
            "directory"
        )
