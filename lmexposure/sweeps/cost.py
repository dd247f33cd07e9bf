"""What a sweep will cost, from the models that are done, or from some steps of one model."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from lmexposure._forecast import Forecast, Phase
from lmexposure._style import count, in_words
from lmexposure._validate import integer
from lmexposure.audit import Progress, training_settings
from lmexposure.studies import SweepModel
from lmexposure.sweeps.driver import check_workers, models_missing, workers_for
from lmexposure.sweeps.task import SweepDirectory, task, train_alone

# Scoring reads a token forwards alone, where training goes back as well; then come sums and files.
_SCORED = 0.4
_BYTES_A_CHARACTER = 24  # of scores.npz: the bits of a token, and where it lies among all others
_BYTES_A_WEIGHT = 4


def sweep_cost(
    out: str | Path, *, workers: int | None = None, address: str | None = None, steps: int = 20
) -> Forecast:
    """What is left of a prepared sweep: by the models that are done, else by steps of the first."""
    check_workers(workers, address)
    integer("steps", steps, low=2)
    directory = SweepDirectory.open(out)
    missing, at_most = models_missing(directory), False
    seconds = fmean([model.seconds for model in _models_done(directory)] or [0.0])
    if missing and not seconds:
        number = missing[0]
        seconds, at_most = _timed(steps, lambda timer: task(directory, number, progress=timer))
        seconds *= _with_scores(directory) if at_most else 1
        missing = models_missing(directory)
    if not missing:
        return Forecast(what="no model is left to train", phases=())
    models = len(missing)
    workers = workers_for(directory, models, workers=workers, address=address)
    side_by_side = min(workers or 1, models)
    each = f"{'at most' if at_most else 'about'} {in_words(seconds)}"
    what = (
        f"{count(models, 'model')} of {each}{f', {side_by_side} side by side' * (side_by_side > 1)}"
    )
    disk = models * _bytes_of_a_model(directory, missing[0])
    return Forecast(
        what=what,
        phases=(Phase(what=what, kind="training", work=models / side_by_side, pace=seconds),),
        note=f"{' of CPU time' * (workers is None)}; {max(0.1, disk / 1e6):,.1f} MB on the disk",
    )


def _models_done(directory: SweepDirectory) -> list[SweepModel]:
    found = (directory.done(number) for number in range(directory.plan.models))
    return [model for model in found if model is not None]


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
    seconds, _ = _timed(
        steps,
        lambda timer: train_alone(directory, 0, out=out, training=training, progress=timer),
    )
    return seconds * _with_scores(directory)


def _timed(steps: int, train: Callable[[Progress], object]) -> tuple[float, bool]:
    """Seconds of a training, from its first steps, and whether it would have gone on."""
    timer, begun = _Timer(steps), time.perf_counter()
    try:
        train(timer)
    except _Enough:
        return timer.seconds, True
    return time.perf_counter() - begun, False


def _with_scores(directory: SweepDirectory) -> float:
    """Time with scores over that without: by characters scored for each trained on, over epochs."""
    epochs = training_settings(directory.settings).epochs
    trained = epochs * sum(map(len, directory.corpus.texts))
    return 1 + _SCORED * _scored_characters(directory) / max(1, trained)


def _scored_characters(directory: SweepDirectory) -> float:
    """Of canaries, once with all bits and once in each context, and of documents."""
    texts, plan = directory.corpus.texts, directory.plan
    canaries = sum(len(canary.text) for canary in directory.manifest.canaries)
    documents = sum(len(texts[text.document]) for text in plan.texts if text.document is not None)
    return (1 + plan.settings.contexts) * canaries + documents


def _bytes_of_a_model(directory: SweepDirectory, number: int) -> int:
    """What a model that is done takes on the disk; a guess where none is."""
    for model in _models_done(directory):
        files = directory.home(model.number).rglob("*")
        return sum(file.stat().st_size for file in files if file.is_file())
    scores = int(_BYTES_A_CHARACTER * _scored_characters(directory))
    if not directory.plan.settings.keep_weights:
        return scores
    return scores + _BYTES_A_WEIGHT * directory.model(number).size
