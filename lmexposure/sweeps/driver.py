"""All models of a sweep, here or on Ray; their scores joined into one result; what it will cost.

The driver only deals out numbers. What is done is on the disk, model by model, and what is there is
not done again: a sweep that was killed goes on at the missing models, in any order, on any machine.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

from lmexposure._files import only_writer
from lmexposure._forecast import Pace, Phase
from lmexposure._style import are, count, in_words, listed
from lmexposure._validate import integer, of_type, text
from lmexposure._written import remove, study
from lmexposure.audit import Progress, Watcher, silent, training_settings
from lmexposure.canaries import Files
from lmexposure.errors import BusyError, ResultError
from lmexposure.models import training_places
from lmexposure.studies import FailedModel, SweepModel, SweepResult, SweepSettings
from lmexposure.sweeps.analysis import analyse
from lmexposure.sweeps.matrices import NAME, Matrices, ModelScores, join_scores
from lmexposure.sweeps.plan import prepare
from lmexposure.sweeps.task import SweepDirectory, base_scores, task, train_alone

MODELS = "models"  # the name of the progress over all of them
Outcome = SweepModel | FailedModel
# Trains these models, and says of each how it ended; None: another process trains it now.
Executor = Callable[[Sequence[int]], Iterator[tuple[int, Outcome | None]]]

_MOST_WORKERS = 10_000
_BUSY_SECONDS = 1.0  # before a model that another process trains is asked for again
_WORKERS_START = 15.0  # seconds in which workers import torch, and read the corpus
_ANALYSIS = 3.0  # seconds, of statistics


def sweep(
    corpus: Files,
    *,
    out: str | Path,
    settings: SweepSettings | None = None,
    workers: int | None = None,
    address: str | None = None,
    progress: Progress = silent,
) -> SweepResult:
    """Train many models on a corpus, each with canaries by its own coins, and say what they show.

    The same call again goes on with the models that are missing.

    Args:
        corpus: a file, several, or patterns.
        out: the directory of the sweep; on a disk that all machines of a cluster share.
        settings: of the sweep.
        workers: models side by side, by Ray; None: as many as there are cores (or GPUs) where Ray
            is installed, else 1; 1: in this process, without Ray.
        address: of a Ray cluster, "HOST:PORT" or "auto"; None: this machine.
        progress: watches.

    Raises:
        SettingsError: a setting out of range.
        ResultError: `out` holds another sweep, or another process is at work there; no model has
            scores; Ray is missing, or its cluster is out of reach; a worker was lost again and
            again.
        FileError: the disk refused.
    """
    settings = SweepSettings() if settings is None else settings
    of_type("settings", settings, SweepSettings, "SweepSettings(...), such as SweepSettings()")
    check_workers(workers, address)
    with only_writer(out):
        prepare(corpus, out=out, settings=settings)
        train_models(out, workers=workers, address=address, progress=progress)
        return collect(out, progress=progress)


def train_models(
    out: str | Path,
    *,
    workers: int | None = None,
    address: str | None = None,
    progress: Progress = silent,
    cost: "Cost | None" = None,
) -> None:
    """Train the models of a prepared sweep that are missing; a watcher is told what they take."""
    directory = SweepDirectory.open(out)
    if cost is None and isinstance(progress, Watcher) and models_missing(directory):
        cost = sweep_cost(directory)
    missing = models_missing(directory)
    _clear_work(directory, set(range(directory.plan.models)).difference(missing))
    if not missing:
        return
    board = _Board(directory, missing, progress, cost)
    workers = workers_for(directory, len(missing), workers=workers, address=address)
    with _executor(directory, workers, address, board) as train:
        while missing:
            missing = list(board.watch(train(missing)))
            if missing:
                board.waits_for(missing)
                time.sleep(_BUSY_SECONDS)
    _clear_work(directory, ())


def _clear_work(directory: SweepDirectory, done: Collection[int]) -> None:
    """Remove what an end behind a model's last write left; a training elsewhere stays."""
    with study(directory.out):
        for left in (directory.work(number) for number in done):
            if left.exists():
                remove(left)
    with suppress(OSError):  # a model that is trained elsewhere again is there
        (directory.out / "work").rmdir()


def models_missing(directory: SweepDirectory) -> list[int]:
    """The numbers of the models that are neither whole nor known to have diverged, ascending."""
    return [
        number
        for number in range(directory.plan.models)
        if directory.done(number) is None and directory.failed(number) is None
    ]


def check_workers(workers: int | None, address: str | None) -> None:
    """Refuse what can be refused before anything is prepared."""
    if workers is not None:
        integer("workers", workers, low=1, high=_MOST_WORKERS)
    if address is not None:
        text("address", address)
    if (address is not None or (workers or 1) > 1) and not _has_ray():
        raise ResultError(
            "models side by side, or on a cluster, need Ray, which is not installed; install it: "
            "pip install 'lmexposure[ray]', or choose workers=1 without an address"
        )


def workers_for(
    directory: SweepDirectory, models: int, *, workers: int | None, address: str | None
) -> int | None:
    """How many models are trained side by side; None: as many as the cluster takes."""
    if workers is not None or address is not None:
        return workers
    most = training_places(directory.plan.settings.run.device) if _has_ray() else 1
    return max(1, min(most, models))


def _has_ray() -> bool:
    return find_spec("ray") is not None


def _here(
    directory: SweepDirectory, board: "_Board", numbers: Sequence[int]
) -> Iterator[tuple[int, Outcome | None]]:
    """Train the models in this process, each after the other."""
    board.beat(1)
    for number in numbers:
        try:
            yield number, task(directory, number, progress=board.inside(number))
        except BusyError:
            yield number, None


def _executor(
    directory: SweepDirectory, workers: int | None, address: str | None, board: "_Board"
) -> AbstractContextManager[Executor]:
    if workers == 1 and address is None:
        return nullcontext(partial(_here, directory, board))
    from lmexposure.sweeps.ray_tasks import on_ray

    return on_ray(directory, workers=workers, address=address, beat=board.beat)


class _Board:
    """The one display of progress, over all models, and what those that are left will take."""

    def __init__(
        self,
        directory: SweepDirectory,
        missing: Sequence[int],
        progress: Progress,
        cost: "Cost | None" = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._models = directory.plan.models
        self._done = self._models - len(missing)
        self._progress, self._cost, self._clock = progress, cost, clock
        self._took = [] if cost is None else list(cost.took)
        self._places = 0  # for models side by side
        self._begun: list[float] = []  # when those under way were, the first of them first
        self._steps = Pace()  # of the first model
        self._by_steps = 0.0  # seconds of the first model, as its steps say
        self._diverged = 0
        self._note = ""

    def beat(self, places: int) -> None:
        """Say how far it is, by those that train this many models side by side."""
        if not self._places:
            self._places = min(places, self._models - self._done)
            now = self._clock()
            self._begun = [now + _WORKERS_START * (places > 1)] * self._places
            if self._cost is not None and isinstance(self._progress, Watcher):
                work = [(MODELS, self._left(now)), ("analysis", self._cost.analysis)]
                phases = [Phase(what=w, kind="statistics", work=s, pace=1.0) for w, s in work]
                title = self._cost.title(self._models - self._done, self._models, self._places)
                self._progress.plan(title, phases, keeps=False)
        self._say(self._note)

    def watch(self, ended: Iterable[tuple[int, Outcome | None]]) -> Iterator[int]:
        """Count the models that ended; yield those that another process trains now."""
        for number, outcome in ended:
            self._begun = self._begun[1:]
            if outcome is None:
                yield number
                continue
            self._done += 1
            self._diverged += isinstance(outcome, FailedModel)
            if not isinstance(outcome, FailedModel):
                self._took.append(outcome.seconds)
            if self._waiting > 0:
                self._begun.append(self._clock())
            self._say()

    def inside(self, number: int) -> Progress:
        """Takes how far one model is, trained in this process."""

        def watch(what: str, done: int, total: int, note: str = "") -> None:
            if what == "training" and self._cost is not None:
                self._see_step(self._cost.with_scores, done, total)
            self._say(f"model {number}: {what}, {done:,} of {total:,}")

        return watch

    def waits_for(self, numbers: Sequence[int]) -> None:
        """Say which models another process trains."""
        shown = listed([str(number) for number in numbers], 5)
        self._say(f"waits for another process, which trains {shown}")

    @property
    def _waiting(self) -> int:
        """Models that were not begun."""
        return self._models - self._done - len(self._begun)

    def _see_step(self, with_scores: float, done: int, total: int) -> None:
        now = self._clock()
        if not self._took and (left := self._steps.left(done, total, now)) is not None:
            self._by_steps = (now - self._begun[0] + left) * with_scores

    def _left(self, now: float) -> float:
        """Seconds until the last model ends: they begin in turn, and take as long as each other."""
        assert self._cost is not None, "asked for where the cost of a model is known"
        each = self._by_steps or self._cost.seconds
        if self._took:
            each = fmean(self._took)
        elif self._begun:  # longer than was expected, so will the others be
            each = max(each, now - self._begun[0])
        ends = sorted(max(0.0, begun + each - now) for begun in self._begun)
        ends = [0.0] * (self._places - len(ends)) + ends
        rounds, more = divmod(max(0, self._waiting), self._places)
        last = ends[more - 1] + each if more else 0.0
        return rounds * each + max(last, ends[-1])

    def _say(self, note: str = "") -> None:
        self._note = note
        if self._cost is not None and isinstance(self._progress, Watcher):
            self._progress.expect(MODELS, self._left(self._clock()))
        diverged = f"{self._diverged:,} diverged" if self._diverged else ""
        note = "; ".join(filter(None, (note, diverged)))
        self._progress(MODELS, self._done, self._models, note)


_SHOWN = 10  # numbers of missing models in a message


def collect(out: str | Path, *, progress: Progress = silent) -> SweepResult:
    """Join the scores of all models of a sweep: matrices.npz and sweep.json."""
    directory = SweepDirectory.open(out)
    models, failed = _ended(directory)
    with only_writer(directory.out):
        matrices = _joined(directory, models, progress)
        progress("analysis", 0, 1)
        result = analyse(
            matrices,
            directory.plan,
            documents=directory.manifest.corpus.documents,
            models=models,
            failed=failed,
        )
        # The result comes last: it names the matrices by their hash.
        matrices.save(directory.out / NAME)
        result.save(directory.out)
        progress("analysis", 1, 1)
    return result


def _ended(directory: SweepDirectory) -> tuple[list[SweepModel], list[FailedModel]]:
    """Models with scores, and those that have none."""
    models, failed, missing = [], [], []
    for number in range(directory.plan.models):
        done = directory.done(number)
        why = directory.failed(number) if done is None else None
        if done is not None:
            models.append(done)
        elif why is not None:
            failed.append(why)
        else:
            missing.append(number)
    if missing:
        numbers = [str(number) for number in missing]
        raise ResultError(
            f"{len(missing):,} of {count(directory.plan.models, 'model')} in "
            f"{directory.out} {are(len(missing))} not trained yet: {listed(numbers, _SHOWN)}; "
            "train them first, each alone or by the same sweep again"
        )
    if not models:
        raise ResultError(
            f"all {len(failed):,} models in {directory.out} diverged ({failed[0].reason}); prepare "
            "another sweep with a lower learning rate"
        )
    return models, failed


def _joined(
    directory: SweepDirectory, models: Sequence[SweepModel], progress: Progress
) -> Matrices:
    """The scores of these models."""
    plan = directory.plan
    scores = {}
    for done, model in enumerate(models):
        progress("collecting", done, len(models))
        found = directory.scores(model.number)
        scores[model.number] = ModelScores.of(found, plan, f"model {model.number}")
    progress("collecting", len(models), len(models))
    arrays = base_scores(directory)
    base = None if arrays is None else ModelScores.of(arrays, plan, "the base model")
    candidates = {entry.id: entry.text for entry in directory.manifest.entries}
    texts = [
        candidates[text.id] if text.document is None else directory.corpus.texts[text.document]
        for text in plan.scored
    ]
    return join_scores(plan, texts, scores, base)


# Scoring reads a token forwards alone, where training goes back as well; then come sums and files.
_SCORED = 0.4
_BYTES_A_CHARACTER = 24  # of scores.npz: the bits of a token, and where it lies among all others
_BYTES_A_WEIGHT = 4


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a model of a sweep takes: by those that are done, else by steps of the first."""

    seconds: float  # training and scores
    at_most: bool  # it may stop before its last epoch
    with_scores: float  # training and scores over training alone
    took: tuple[float, ...] = ()  # the seconds of those that are done
    disk: int = 0  # bytes

    @property
    def analysis(self) -> float:
        """Seconds of what comes behind the models: texts under a base, and statistics."""
        return _ANALYSIS + self.seconds * (1 - 1 / self.with_scores)

    def title(self, missing: int, models: int, places: int) -> str:
        """What is done, in a line."""
        each = f"{'at most' if self.at_most else 'about'} {in_words(self.seconds)}"
        beside = f", {places:,} side by side" * (places > 1)
        disk = f"{max(0.1, missing * self.disk / 1e6):,.1f} MB on the disk"
        return f"{missing:,} of {count(models, 'model')}, each {each}{beside}; {disk}"


def sweep_cost(directory: SweepDirectory, *, steps: int = 20) -> Cost:
    """What a model that is missing will take; one that ends within these steps is kept."""
    integer("steps", steps, low=2)
    missing, took = models_missing(directory), [m.seconds for m in _models_done(directory)]
    seconds, at_most, share = fmean(took or [0.0]), False, _with_scores(directory)
    if not took:
        number = missing[0]
        seconds, at_most = _timed(steps, lambda timer: task(directory, number, progress=timer))
        seconds *= share if at_most else 1
    return Cost(
        seconds=seconds,
        at_most=at_most,
        with_scores=share,
        took=tuple(took),
        disk=_bytes_of_a_model(directory, missing[0]),
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
) -> Cost:
    """What the first model takes at most, trained with other settings, by its first steps."""
    seconds, at_most = _timed(
        steps, lambda timer: train_alone(directory, 0, out=out, training=training, progress=timer)
    )
    share = _with_scores(directory)
    return Cost(seconds=seconds * share, at_most=at_most, with_scores=share)


def models_seconds(models: int, places: int, each: float) -> float:
    """Seconds of models that begin in turn, this many side by side, until the last ends."""
    return _WORKERS_START * (places > 1) + -(-models // places) * each


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
