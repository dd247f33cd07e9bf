"""The whole leakage test as one call: insert, train, measure; resumable step by step.

At the end: the settings and the corpus of its demo.
"""

import importlib
import logging
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from lmexposure._files import atomic_write, is_utf8, only_writer
from lmexposure._style import count, percent
from lmexposure._validate import of_type
from lmexposure.audit.corpus import fitted, insert_for_training, plan_of, preview, wrapping_of
from lmexposure.audit.directory import RunLog, set_aside
from lmexposure.audit.kinds import refuse_kinds_of_run
from lmexposure.audit.measurement import measure
from lmexposure.audit.training import check_model_for, train_corpus, training_settings
from lmexposure.audit.workload import Progress, silent
from lmexposure.canaries import (
    DEFAULT_REFERENCES,
    Files,
    Manifest,
    Preview,
    Wrapping,
    copies_of,
    is_stream,
    kept_input,
    witness_copies,
)
from lmexposure.errors import CorpusError, ManifestError, ResultError, SettingsError
from lmexposure.scoring import check_model, chosen_device, load_for_measuring
from lmexposure.studies import SEVERAL, Result, RunSettings, Validation

_LOG = logging.getLogger(__name__)


def run(
    corpus: Files | IO[bytes],
    *,
    out: str | Path,
    settings: RunSettings | None = None,
    progress: Progress = silent,
) -> Result:
    """Insert, train and measure; the same call again skips what is finished and goes on."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:  # torchrun
        raise SettingsError(
            "run takes one process; with several, insert first, then train by torchrun, then "
            "measure"
        )
    settings = RunSettings() if settings is None else settings
    of_type(
        "settings", settings, RunSettings, 'RunSettings(...), such as RunSettings(formats=["pin"])'
    )
    out = Path(out)
    # What is wrong with the settings is found before the first step.
    refuse_kinds_of_run(settings)
    training_settings(settings)
    settings = fitted(settings, corpus, out)
    plan_of(settings)
    check_model(settings)
    with only_writer(out), spooled_corpus(corpus, out, settings) as files:
        return _run(files, out, settings, progress)


def spooled_corpus(
    corpus: Files | IO[bytes], out: Path, settings: RunSettings
) -> AbstractContextManager[list[str | Path]]:
    """Files or patterns of a corpus; a stream becomes a file in the run's directory."""
    if is_stream(corpus):
        RunLog.open(out, settings)
    return kept_input(corpus, out)


def _run(files: list[str | Path], out: Path, settings: RunSettings, progress: Progress) -> Result:
    log = RunLog.open(out, settings)
    log.corpus = SEVERAL.join(Path(os.path.relpath(Path(name), out)).as_posix() for name in files)
    if not is_utf8(log.corpus):
        raise CorpusError(f"{files[0]}: its path is not UTF-8, as run.json is; give it other names")
    if log.timings and settings.seed is None and not (out / "manifest.json").exists():
        raise ResultError(  # other canaries would be drawn, which would go unnoticed
            f"{out} has a run.json but no manifest.json, which alone has the seed of its secrets; "
            "put the manifest back, or choose another directory"
        )
    with log.step("insert"):
        # Chats get the template of the tokenizer that they are trained with into their manifest.
        chats = wrapping_of(files, settings=settings, out=out)
        check_model_for(chats, settings)
        manifest = _inserted(files, log, chats)
    if not (ranked := manifest.ranked).canaries:
        raise ManifestError(
            f"nothing was inserted: the coins left all {len(ranked.held_out)} candidates out, so "
            "there is nothing to measure; plan more candidates, or a higher probability, in "
            "another directory"
        )
    with log.step("train"):
        trained = train_corpus(
            copies_of(files, out),
            out=out,
            settings=settings,
            manifest=manifest,
            progress=progress,
            then_measure=True,
        )
    # A measurement takes the threads that a resumed training began with, and holds what the
    # training promised against what it shows.
    measuring = replace(settings.measure, threads=trained.threads or settings.threads)
    if (claim := trained.claim) is not None and measuring.claimed_epsilon is None:
        measuring = replace(measuring, claimed_epsilon=claim.stated_epsilon, delta=claim.delta)
    with log.step("measure"):
        result = measure(
            load_for_measuring(trained.model_path, settings),
            manifest,
            out=out,
            settings=measuring,
            # What a result says of the training: utility next to exposure.
            validation=Validation.model_validate(trained, from_attributes=True),
            progress=progress,
        )
    log.write(device=chosen_device(settings), training=trained)
    return result


def _inserted(files: list[str | Path], log: RunLog, chats: Wrapping | None) -> Manifest:
    """Insert; where a run that never trained left other canaries, these are set aside, and said."""
    try:
        return insert_for_training(files, log.out, log.settings, chats)
    except ResultError:
        if not log.begun_anew:
            raise
    kept = set_aside(log.out)
    _LOG.warning(
        "note: no step was trained with the settings before; their canaries are kept in %s", kept
    )
    return insert_for_training(files, log.out, log.settings, chats)


def estimate_cost(corpus: Files, settings: RunSettings, *, would: Preview | None = None) -> str:
    """One line that says how much work a run will be, before it begins."""
    would = would or preview(corpus, settings=settings)
    training = training_settings(settings)
    asked = settings.measure.references_for(DEFAULT_REFERENCES)
    references = sum(min(asked, left) for left in would.references.values())
    size = would.bytes_before + would.bytes_added
    scored = would.canaries + would.held_out + would.controls + references
    about = "about " * would.expected
    witnesses = witness_copies(would.documents)[0] if settings.witness else 0
    also = f" and {count(witnesses, 'witness', 'witnesses')}" if witnesses else ""
    epochs = count(training.epochs, "epoch")
    return (
        f"{would.documents:,} documents, {about}{would.insertions:,} insertions of "
        f"{would.canaries} canaries{also} ({percent(would.share_of_bytes)} of the corpus); "
        f"training {settings.model}: at most {epochs} of {size / 1e6:.2f} MB; "
        f"scoring {scored:,} texts"
    )


_DEMO_LINES = 3_000
_RATE = 6e-3


def demo_settings(*, clean: bool = False) -> RunSettings:
    """The demo's plan: 10 secrets inserted once and 10 inserted 16 times, and a small LSTM.

    The clean one has the secrets that pass: 20, each once in a text that is read once. The model
    is known to have read them by the witnesses, which are in the text as often as in the other.
    """
    plan = RunSettings(
        canaries=10,
        repetitions=(1, 16),
        controls=32,
        seed=0,
        layers=1,
        units=128,
        training={"epochs": 8, "learning_rate": _RATE},
    )
    if not clean:
        return plan
    once: Mapping[str, Any] = {"epochs": 1, "learning_rate": _RATE}
    return replace(plan, canaries=20, repetitions=(1,), training=once)


def demo_corpus(path: Path, *, short: bool = False) -> Path:
    """Write the language reference of this Python as a text file, one line a document.

    The short one is its beginning, which the demo trains on in seconds.
    """
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except (ImportError, AttributeError):
        topics = {}
    if not topics:
        raise CorpusError(
            "this Python carries no pydoc_data.topics (some distributions strip it); install its "
            "documentation package, or test a text of your own"
        )
    lines = "\n".join(topics[name].rstrip("\n") for name in sorted(topics)).split("\n")
    with atomic_write(path) as stream:
        for line in lines[: _DEMO_LINES if short else None]:
            stream.write(line.encode() + b"\n")
    return path
