"""What a sweep will cost, from the models that are done, or from some steps of one model."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from lmexposure._style import count, in_words
from lmexposure._validate import integer
from lmexposure.audit import training_settings
from lmexposure.records import FailedModel, SweepModel
from lmexposure.sweeps.driver import check_workers, models_missing, workers_for
from lmexposure.sweeps.task import SweepDirectory, task, train_alone

# Scoring reads a token forwards alone, where training goes back as well; then come sums and files.
_SCORED = 0.4
_BYTES_A_CHARACTER = 24  # of scores.npz: the bits of a token, and where it lies among all others
_BYTES_A_WEIGHT = 4


@dataclass(frozen=True, kw_only=True)
class SweepCost:
    """What is still to be done."""

    models: int  # that are not done yet
    # of training and scoring: the mean of the models that are done; else from timed steps up to the
    # last epoch, with a guess of the scoring
    seconds_per_model: float
    disk_bytes: int  # that they add
    workers: int | None  # side by side; None: as many as a cluster takes
    at_most: bool  # whether training may end earlier, by its patience

    @property
    def cpu_hours(self) -> float:
        """Of all models together; where they are trained on GPUs, hours of these."""
        return self.models * self.seconds_per_model / 3600

    @property
    def sentence(self) -> str:
        """The same for a person.

        >>> cost = SweepCost(
        ...     models=64, seconds_per_model=90, disk_bytes=6_400_000, workers=2, at_most=True
        ... )
        >>> cost.sentence
        '64 models of at most 2 min: 1.6 CPU hours, with 2 workers 48 min; 6.4 MB on the disk'
        """
        if not self.models:
            return "no model is left to train"
        each = f"{'at most ' if self.at_most else 'about '}{in_words(self.seconds_per_model)}"
        spent = f"{self.cpu_hours:.1f} CPU hours"
        if self.cpu_hours < 1:
            spent = f"{in_words(3600 * self.cpu_hours)} of CPU time"
        if self.workers is not None and self.workers > 1:
            side_by_side = 3600 * self.cpu_hours / min(self.workers, self.models)
            spent += f", with {self.workers} workers {in_words(side_by_side)}"
        disk = f"{max(0.1, self.disk_bytes / 1e6):,.1f} MB on the disk"
        return f"{count(self.models, 'model')} of {each}: {spent}; {disk}"


def sweep_cost(
    out: str | Path, *, workers: int | None = None, address: str | None = None, steps: int = 20
) -> SweepCost:
    """What is left of a prepared sweep: by the models that are done, else by steps of the first."""
    check_workers(workers, address)
    integer("steps", steps, low=2)
    directory = SweepDirectory.open(out)
    missing = models_missing(directory)
    seconds, at_most = 0.0, False
    if missing and (seconds := _of_models_done(directory)) == 0:
        seconds, at_most = _of_steps(directory, missing[0], steps)
        missing = models_missing(directory)
    return SweepCost(
        models=len(missing),
        seconds_per_model=seconds,
        disk_bytes=len(missing) * _bytes_of_a_model(directory, missing[0]) if missing else 0,
        workers=workers_for(directory, len(missing), workers=workers, address=address),
        at_most=at_most,
    )


def _models_done(directory: SweepDirectory) -> list[SweepModel]:
    found = (directory.done(number) for number in range(directory.plan.models))
    return [model for model in found if model is not None]


def _of_models_done(directory: SweepDirectory) -> float:
    """Seconds that the models took which are done; 0 where none is."""
    return fmean([model.seconds for model in _models_done(directory)] or [0.0])


class _Enough(BaseException):
    """As many steps were timed as were asked for; nothing takes it for a failure."""


class _Timer:
    """Progress of one model that ends it after some steps."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._begun = self._last = time.perf_counter()
        self._first = self._at = self.total = 0

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        """Take the time of a step."""
        if what != "training":
            return
        self.total, self._at, self._last = total, done, time.perf_counter()
        if not self._first:
            self._first, self._begun = done, self._last
        if self._at - self._first >= self._steps:
            raise _Enough

    @property
    def seconds(self) -> float:
        """From the first step to the last of the last epoch, at the pace seen."""
        return (self._last - self._begun) * self.total / max(1, self._at - self._first)


def timed_training(
    directory: SweepDirectory,
    *,
    out: Path,
    training: Mapping[str, Any] | None = None,
    steps: int = 20,
) -> float:
    """Seconds that the first model takes at most, training and scores, from its first steps."""
    timer, begun = _Timer(steps), time.perf_counter()
    scored = 1 + _SCORED * _scored_share(directory)
    try:
        train_alone(directory, 0, out=out, training=training, progress=timer)
    except _Enough:
        return timer.seconds * scored
    return (time.perf_counter() - begun) * scored


def _of_steps(directory: SweepDirectory, number: int, steps: int) -> tuple[float, bool]:
    """Seconds of a model from its first steps, and whether that is the most it can take."""
    timer, begun = _Timer(steps), time.perf_counter()
    try:
        trained = task(directory, number, progress=timer)
    except _Enough:
        return timer.seconds * (1 + _SCORED * _scored_share(directory)), True
    if isinstance(trained, FailedModel):
        return time.perf_counter() - begun, False
    return trained.seconds, False


def _scored_share(directory: SweepDirectory) -> float:
    """Characters that are scored, for each that is trained on, over all epochs."""
    epochs = training_settings(directory.settings).epochs
    trained = epochs * sum(map(len, directory.corpus.texts))
    return _scored_characters(directory) / max(1, trained)


def _scored_characters(directory: SweepDirectory) -> float:
    """Of canaries, once with all bits and once in each context, and of documents."""
    texts, plan = directory.corpus.texts, directory.plan
    canaries = sum(len(canary.text) for canary in directory.manifest.canaries)
    documents = sum(len(texts[text.document]) for text in plan.texts if text.document is not None)
    return (1 + plan.settings.contexts) * canaries + documents


def _bytes_of_a_model(directory: SweepDirectory, number: int) -> int:
    """What a model that is done takes on the disk; a guess where none is."""
    for model in _models_done(directory):
        return _size(directory.home(model.number))
    scores = int(_BYTES_A_CHARACTER * _scored_characters(directory))
    if not directory.plan.settings.keep_weights:
        return scores
    return scores + _BYTES_A_WEIGHT * int(directory.model(number).model.num_parameters())


def _size(directory: Path) -> int:
    """Bytes of all files in it."""
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
