"""What a sweep of many models costs: two workers against one, and what is computed from scores."""

import resource
import shutil
import tempfile
import time
from pathlib import Path

from corpora import write_corpus
from harness import Claims, Namespace
from made_matrices import made_matrices, made_models, made_plan

from lmexposure.cli.console import say
from lmexposure.studies import SCORES, RunSettings, SweepSettings
from lmexposure.sweeps import SweepDirectory, analyse, prepare
from lmexposure.sweeps.ray_tasks import on_ray

ARGUMENTS = {"models": 64, "texts": 10_000, "epochs": 6}
_MOST_SECONDS, _MOST_MEGABYTES = 60, 2_000
_LEAST_GAIN = 1.7  # of two workers on two cores


def statistics(given: Namespace) -> Claims:
    """Every score under each attack, intervals, each text by itself, bounds: of made-up scores."""
    plan = made_plan(given.models, given.texts, 0, kinds=("pin/x1", "key/x1"))
    matrices = made_matrices(plan, shift=1.0, names=SCORES)
    models = made_models(matrices)
    begun = time.process_time()
    result = analyse(matrices, plan, documents=100_000, models=models)
    seconds = time.process_time() - begun
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    what = f"{given.models} models, {given.texts:,} canaries, {len(result.scores)} rows"
    yield seconds <= _MOST_SECONDS, f"{what}: {seconds:.1f} CPU s, at most {_MOST_SECONDS}"
    yield megabytes <= _MOST_MEGABYTES, f"{what}: {megabytes:,.0f} MB, at most {_MOST_MEGABYTES:,}"


def workers(given: Namespace) -> Claims:
    """A sweep of small LSTMs, prepared once and trained on Ray by one worker and by two."""
    run = RunSettings(
        formats=("pin",),
        canaries=32,
        repetitions=(1,),
        controls=0,
        layers=2,
        units=64,
        training={"epochs": given.epochs, "patience": given.epochs},
    )
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        corpus = write_corpus(home / "corpus.txt", 500)
        prepare(corpus, out=home / "plan", settings=SweepSettings(models=given.models, run=run))
        walls = []
        for number in (1, 2):
            out = Path(shutil.copytree(home / "plan", home / f"with-{number}"))
            wall, own = trained(SweepDirectory.open(out), number)
            walls.append(wall)
            say(f"workers: {number}, {wall:.2f} s a model; the driver takes {own / wall:.1%} of it")
    gain = walls[0] / walls[1]
    yield gain >= _LEAST_GAIN, f"two workers: {gain:.2f} times as fast as one, >= {_LEAST_GAIN}"


def trained(directory: SweepDirectory, workers: int) -> tuple[float, float]:
    """Seconds a model of the wall and of the driver's processor, once Ray is up."""
    models = directory.plan.settings.models
    with on_ray(directory, workers=workers, address=None) as train:
        list(train(range(workers)))
        begun, used = time.monotonic(), time.process_time()
        list(train(range(workers, models)))
        left = models - workers
        return (time.monotonic() - begun) / left, (time.process_time() - used) / left


PARTS = {"statistics": statistics, "workers": workers}
