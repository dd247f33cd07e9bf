"""One model of a sweep: documents by its coins, training, scores; it is whole or not there.

And what a model that never saw the corpus says of the same texts: scores are calibrated by it.
"""

import io
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure._files import (
    PRIVATE,
    atomic_directory,
    canonical_json,
    only_writer,
    read_bytes,
    sha256_bytes,
    sha256_file,
)
from lmexposure._validate import integer
from lmexposure._written import remove, study
from lmexposure.audit import Progress, silent, training_settings
from lmexposure.canaries import Manifest, derive_seed
from lmexposure.core import Part
from lmexposure.errors import ModelError, NumericalError, ResultError, SettingsError
from lmexposure.models import (
    NEW_MODELS,
    LoadedModel,
    LstmSizes,
    TrainingSettings,
    grow,
    load_model,
    masked,
    new_model,
    new_token_texts,
    tokenizer_sha256,
    train,
)
from lmexposure.models import Progress as TrainingProgress
from lmexposure.scoring import chosen_device
from lmexposure.studies import (
    HAMP,
    FailedModel,
    RunSettings,
    SweepModel,
    SweepPlan,
    SweepSettings,
    TrainingResult,
)
from lmexposure.sweeps.documents import (
    Rows,
    SweepCorpus,
    read_corpus,
    rows_of,
    saved_tokenizer,
    scores_of,
)
from lmexposure.sweeps.matrices import TRAIN_AGAIN, npz, read_npz

SCORES = "scores.npz"
_PACKAGES = ("lmexposure", "torch", "transformers")


@dataclass(frozen=True, kw_only=True, eq=False)
class SweepDirectory:
    """Where the parts of a sweep are."""

    out: Path  # the directory
    plan: SweepPlan  # what was drawn
    manifest: Manifest  # of all candidates

    @classmethod
    def open(cls, out: str | Path) -> "SweepDirectory":
        """A prepared sweep."""
        out = Path(out)
        plan = SweepPlan.read(out / SweepPlan.NAME)
        manifest = Manifest.read(out / "manifest.json")
        if manifest.sha256 != plan.manifest_sha256:
            raise ResultError(
                f"{out / 'manifest.json'} is not the one that plan.json was drawn for; put it "
                "back, or prepare the sweep again in another directory"
            )
        return cls(out=out, plan=plan, manifest=manifest)

    def name(self, number: int) -> str:
        """Of a model: its number, and the hash of all that decides it."""
        return f"{number:03d}-{sha256_bytes(canonical_json([self.plan.sha256, number]))[:16]}"

    def home(self, number: int) -> Path:
        """Where a model is when it is whole: models/017-1f3a..., by the hash of what decides it."""
        return self.out / "models" / self.name(number)

    def work(self, number: int) -> Path:
        """Where it is trained."""
        return self.out / "work" / self.name(number)

    def done(self, number: int) -> SweepModel | None:
        """The record of a model that is whole; None where it is not there or damaged."""
        home = self.home(number)
        try:
            record = SweepModel.parse(read_bytes(home / SweepModel.NAME), home / SweepModel.NAME)
            scores = sha256_file(home / SCORES)
        except (OSError, ResultError):
            return None
        fits = record.number == number and record.plan_sha256 == self.plan.sha256
        return record if fits and scores == record.scores_sha256 else None

    def scores(self, number: int) -> Mapping[str, NDArray[Any]]:
        """What `scores_of` gave of a model that is whole."""
        return read_npz(self.home(number) / SCORES, TRAIN_AGAIN)

    def failed(self, number: int) -> FailedModel | None:
        """Why a model has no scores; None where it has, or was not tried."""
        content = self.failure(number).read()
        return None if content is None else FailedModel.model_validate(json.loads(content))

    def fail(self, number: int, reason: str) -> FailedModel:
        """Keep why a model has no scores."""
        record = FailedModel(number=number, reason=reason)
        self.failure(number).write(json.dumps(record.model_dump()).encode())
        return record

    def failure(self, number: int) -> Part:
        """Where it is kept why a model has no scores."""
        return Part(path=self.out / "failed" / f"{self.name(number)}.json")

    @cached_property
    def corpus(self) -> SweepCorpus:
        """All documents."""
        return read_corpus(self.out, self.manifest)

    @cached_property
    def settings(self) -> RunSettings:
        """What is trained, and where."""
        return self.plan.settings.run

    @cached_property
    def tokenizer(self) -> Any:
        """Of all models."""
        if self.settings.model in NEW_MODELS:
            tokenizer = saved_tokenizer(self.out)
        else:
            tokenizer = self._pretrained().tokenizer
        self.check_tokenizer(tokenizer)
        return tokenizer

    def check_tokenizer(self, tokenizer: Any) -> None:
        """Refuse another tokenizer than that of the plan."""
        if tokenizer_sha256(tokenizer) != self.plan.tokenizer_sha256:
            raise ResultError(
                f"the tokenizer of {self.settings.model!r} is not the one that the sweep in "
                f"{self.out} was prepared with; put it back, or prepare another sweep"
            )

    @cached_property
    def rows(self) -> Rows:
        """All texts as tokens."""
        return rows_of(self.tokenizer, self.corpus, self.plan)

    @property
    def new_tokens(self) -> tuple[str, ...]:
        """Texts with a vocabulary entry of their own, in every model, whatever its coins."""
        return new_token_texts(self.manifest.plan.formats)

    def seed(self, number: int) -> int:
        """Of a model's initial weights, and of the order of its training."""
        return derive_seed(self.plan.seed, "sweep", str(number))

    def model(self, number: int) -> LoadedModel:
        """A model before its training."""
        settings, device = self.settings, chosen_device(self.settings)
        if settings.model not in NEW_MODELS:
            return self._pretrained(device)
        return new_model(
            settings.model,
            (),
            seed=self.seed(number),
            separator=None,
            lstm=LstmSizes(layers=settings.layers, units=settings.units, embedding=settings.units),
            tokenizer=self.tokenizer,
            new_tokens=self.new_tokens,
            device=device,
        )

    def _pretrained(self, device: str = "cpu") -> LoadedModel:
        settings = self.settings
        loaded = load_model(
            settings.model, device=device, revision=settings.revision, offline=settings.offline
        )
        return grow(loaded, self.new_tokens)

    def training(self, number: int, loaded: LoadedModel) -> TrainingSettings:
        """How a model is trained; on the CPU in one thread, so that all machines agree."""
        chosen = training_settings(
            self.settings, loaded.window, records=self.corpus.wrapping is not None
        )
        threads = 1 if loaded.device == "cpu" else chosen.threads
        return replace(chosen, seed=self.seed(number), threads=threads)


def run_task(
    out: str | Path, number: int, *, progress: Progress = silent
) -> SweepModel | FailedModel:
    """Train one model of a prepared sweep, score all texts, and put it in its place."""
    directory = SweepDirectory.open(out)
    return task(directory, number, progress=progress)


def task(
    directory: SweepDirectory, number: int, *, progress: Progress = silent
) -> SweepModel | FailedModel:
    """As `run_task`, in a directory that is open: its corpus and tokenizer are read once."""
    number = integer("number", number, low=0, high=directory.plan.models - 1)
    done = directory.done(number)
    if done is not None:
        return done
    with study(directory.out), only_writer(directory.work(number)):
        done = directory.done(number)
        if done is None:
            try:
                done = _made(directory, number, progress)
            except NumericalError as failure:
                remove(directory.work(number))
                return directory.fail(number, str(failure))
        remove(directory.work(number))
    return done


def _made(directory: SweepDirectory, number: int, progress: Progress) -> SweepModel:
    """Train, score, and move into place."""
    begun = time.monotonic()
    trained = train_alone(directory, number, out=directory.work(number), progress=progress)
    progress("scoring", 0, 1)
    loaded = load_model(trained.model_path, device=chosen_device(directory.settings))
    if directory.settings.training.get("method") == HAMP:  # whose output shows the order alone
        loaded = masked(loaded)
    scores = npz(scores_of(loaded, directory.rows, canaries=len(directory.plan.canaries)))
    progress("scoring", 1, 1)
    record = SweepModel(
        number=number,
        plan_sha256=directory.plan.sha256,
        seed=directory.seed(number),
        scores_sha256=sha256_bytes(scores),
        training=trained,
        device=loaded.device,
        versions={name: metadata.version(name) for name in _PACKAGES},
        seconds=round(time.monotonic() - begun, 3),
    )
    with atomic_directory(directory.home(number), mode=PRIVATE) as partial:
        (partial / SCORES).write_bytes(scores)
        if directory.plan.settings.keep_weights:
            shutil.copytree(trained.model_path, partial / "model")
        record.write(partial / SweepModel.NAME, mode=PRIVATE)
    remove(directory.failure(number).path)
    return record


def train_alone(
    directory: SweepDirectory,
    number: int,
    *,
    out: Path,
    training: Mapping[str, Any] | None = None,
    progress: Progress = silent,
) -> TrainingResult:
    """Train one model of a prepared sweep into a directory, without scores; resumes there."""
    loaded = directory.model(number)
    directory.check_tokenizer(loaded.tokenizer)
    corpus = directory.corpus
    documents, canaries = corpus.of_model(directory.plan, number)
    if not documents:
        raise ModelError(f"model {number} has no documents at all; give a larger corpus")
    settings = replace(directory.training(number, loaded), **(training or {}))

    def watch(done: TrainingProgress) -> None:
        progress("training", done.step, done.total_steps)

    return train(
        loaded,
        documents,
        settings=settings,
        separator=corpus.separator,
        canaries=canaries,
        out=out,
        validation=[corpus.documents[n] for n in directory.plan.validation],
        wrapping=corpus.wrapping,
        progress=watch,
        mode=PRIVATE,
    )


BASE_FILE = "base.npz"


def base_scores(directory: SweepDirectory) -> Mapping[str, NDArray[Any]] | None:
    """Scores of the base model for all texts of a sweep, made once and kept in base.npz."""
    name = _base_name(directory.plan.settings.base, directory.settings)
    if name is None:
        return None
    kept = Part(path=directory.out / BASE_FILE, of=directory.plan.sha256)
    known = kept.read()
    if known is None:
        loaded = _loaded(
            name, directory.settings, directory.plan.tokenizer_sha256, directory.new_tokens
        )
        known = npz(scores_of(loaded, directory.rows, canaries=len(directory.plan.canaries)))
        with study(directory.out):
            kept.write(known)
    with np.load(io.BytesIO(known), allow_pickle=False) as arrays:
        return {array: arrays[array] for array in arrays.files}


def check_base(settings: SweepSettings, tokenizer: Any, new_tokens: Sequence[str] = ()) -> None:
    """Refuse a base before any model is trained: afterwards, it could not be exchanged."""
    name = _base_name(settings.base, settings.run)
    if name is None and settings.score == "calibrated":
        raise SettingsError(
            "score='calibrated' needs a base, and a new model has none of its own; give base=PATH "
            "of a model with the tokenizer of this sweep, or another score"
        )
    if name is not None and name != settings.run.model:
        _loaded(name, settings.run, tokenizer_sha256(tokenizer), new_tokens)


def _base_name(base: str | None, settings: RunSettings) -> str | None:
    """The base model: as named, else the pretrained one that was fine-tuned, else none."""
    return base or (None if settings.model in NEW_MODELS else settings.model)


def _loaded(
    name: str, settings: RunSettings, tokenizer: str, new_tokens: Sequence[str]
) -> LoadedModel:
    """A base with this tokenizer; new entries are as likely as each other under it."""
    loaded = load_model(
        name,
        device=chosen_device(settings),
        revision=settings.revision if name == settings.model else None,
        offline=settings.offline,
    )
    grow(loaded, new_tokens)
    if tokenizer_sha256(loaded.tokenizer) != tokenizer:
        raise ModelError(
            f"base={name!r} has another tokenizer than the models of the sweep, so that their bits "
            "are not of the same tokens; give a base with their tokenizer, or leave it out"
        )
    return loaded
