"""All models of a sweep, here or on Ray; then their scores joined into one result.

The driver only deals out numbers. What is done is on the disk, model by model, and what is there is
not done again: a sweep that was killed goes on at the missing models, in any order, on any machine.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from lmexposure._files import only_writer
from lmexposure._forecast import Phase
from lmexposure._style import listed
from lmexposure._validate import integer, of_type, text
from lmexposure._written import remove, study
from lmexposure.audit import Progress, Watcher, silent
from lmexposure.canaries import Files
from lmexposure.errors import BusyError, ResultError
from lmexposure.models import training_places
from lmexposure.studies import FailedModel, SweepModel, SweepResult, SweepSettings
from lmexposure.sweeps.collecting import collect
from lmexposure.sweeps.plan import prepare
from lmexposure.sweeps.task import SweepDirectory, task

MODELS = "models"  # the name of the progress over all of them
Outcome = SweepModel | FailedModel
# Trains these models, and says of each how it ended; None: another process trains it now.
Executor = Callable[[Sequence[int]], Iterator[tuple[int, Outcome | None]]]

_MOST_WORKERS = 10_000
_BUSY_SECONDS = 1.0  # before a model that another process trains is asked for again


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
) -> None:
    """Train the models of a prepared sweep that are missing."""
    directory = SweepDirectory.open(out)
    missing = models_missing(directory)
    _clear_work(directory, set(range(directory.plan.models)).difference(missing))
    if not missing:
        return
    board = _Board(directory, missing, progress)
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


@contextmanager
def _here(directory: SweepDirectory, board: "_Board") -> Iterator[Executor]:
    """Train the models in this process, each after the other."""

    def train(numbers: Sequence[int]) -> Iterator[tuple[int, Outcome | None]]:
        for number in numbers:
            try:
                yield number, task(directory, number, progress=board.inside(number))
            except BusyError:
                yield number, None

    yield train


def _executor(
    directory: SweepDirectory, workers: int | None, address: str | None, board: "_Board"
) -> AbstractContextManager[Executor]:
    if workers == 1 and address is None:
        return _here(directory, board)
    from lmexposure.sweeps.ray_tasks import on_ray

    return on_ray(directory, workers=workers, address=address)


class _Board:
    """The one display of progress, over all models."""

    def __init__(
        self, directory: SweepDirectory, missing: Sequence[int], progress: Progress
    ) -> None:
        self._models = directory.plan.models
        self._done = self._models - len(missing)
        self._progress = progress
        self._diverged = 0
        if isinstance(progress, Watcher):
            # All take about as long as each other: the first says how long the others will.
            before = self._done / self._models
            work = Phase(what=MODELS, kind="training", work=float(len(missing)), before=before)
            progress.plan(f"{len(missing):,} of {self._models:,} models", [work], keeps=False)
        self._say()

    def watch(self, ended: Iterable[tuple[int, Outcome | None]]) -> Iterator[int]:
        """Count the models that ended; yield those that another process trains now."""
        for number, outcome in ended:
            if outcome is None:
                yield number
                continue
            self._done += 1
            self._diverged += isinstance(outcome, FailedModel)
            self._say()

    def inside(self, number: int) -> Progress:
        """Takes how far one model is, trained in this process."""

        def watch(what: str, done: int, total: int, note: str = "") -> None:
            self._say(f"model {number}: {what}, {done:,} of {total:,}")

        return watch

    def waits_for(self, numbers: Sequence[int]) -> None:
        """Say which models another process trains."""
        shown = listed([str(number) for number in numbers], 5)
        self._say(f"waits for another process, which trains {shown}")

    def _say(self, note: str = "") -> None:
        diverged = f"{self._diverged:,} diverged" if self._diverged else ""
        note = "; ".join(filter(None, (note, diverged)))
        self._progress(MODELS, self._done, self._models, note)
