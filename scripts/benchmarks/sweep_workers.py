"""How much faster two workers train a sweep than one, and what the driver itself takes.

A sweep of small LSTMs is prepared once and trained three times: in this process, by one worker of
Ray, and by two. Seconds are of the wall from the first model's begin to the last model's end, so
that the start of Ray, which is a few seconds whatever comes, is told apart.
"""

import argparse
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from corpora import write_corpus

from lmexposure.cli.console import print_table, say
from lmexposure.records import RunSettings, SweepSettings
from lmexposure.sweeps import SweepDirectory, prepare
from lmexposure.sweeps.driver import train_models
from lmexposure.sweeps.ray_tasks import on_ray


def main() -> None:
    arguments = parse()
    with tempfile.TemporaryDirectory() as home:
        prepared = prepare_sweep(Path(home), arguments)
        rows, least = [], None
        for name, workers in (("in this process", 0), ("1 worker", 1), ("2 workers", 2)):
            out = Path(shutil.copytree(prepared, Path(home) / f"with-{workers}"))
            wall, start, own = here(out) if not workers else on_workers(out, workers)
            least = least or wall
            rows.append(
                (
                    name,
                    f"{wall:.1f}",
                    f"{wall / arguments.models:.2f}",
                    f"{least / wall:.2f}",
                    f"{start:.1f}",
                    f"{own:.2f}",
                    f"{own / wall:.1%}" if workers else "",
                )
            )
        columns = ("", "seconds", "a model", "times", "start", "driver's CPU", "of the whole")
        print_table(columns, rows, right=range(1, len(columns)))
        say(f"{arguments.models} models of {arguments.layers} x {arguments.units} units")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=64)
    parser.add_argument("--lines", type=int, default=500, help="of about 40 characters")
    parser.add_argument("--canaries", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--units", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=6)
    return parser.parse_args()


def prepare_sweep(home: Path, arguments: argparse.Namespace) -> Path:
    run = RunSettings(
        formats=("pin",),
        canaries=arguments.canaries,
        repetitions=(1,),
        controls=0,
        layers=arguments.layers,
        units=arguments.units,
        training={"epochs": arguments.epochs, "patience": arguments.epochs},
    )
    settings = SweepSettings(models=arguments.models, run=run)
    prepare(
        write_corpus(home / "corpus.txt", arguments.lines), out=home / "plan", settings=settings
    )
    return home / "plan"


def here(out: Path) -> tuple[float, float, float]:
    """Seconds of all models in this process; no start, no driver."""
    begun = time.monotonic()
    train_models(out, workers=1)
    return time.monotonic() - begun, 0.0, 0.0


def on_workers(out: Path, workers: int) -> tuple[float, float, float]:
    """Seconds of all models, seconds before them, and the driver's processor time with both."""
    directory = SweepDirectory.open(out)
    asked = time.monotonic()
    with on_ray(directory, workers=workers, address=None) as train:
        # A worker imports torch once: what is timed begins when each has trained a model.
        list(train(range(workers)))
        begun, used_before = time.monotonic(), cpu_seconds()
        list(train(range(workers, directory.plan.settings.models)))
        ended, used_after = time.monotonic(), cpu_seconds()
    share = directory.plan.settings.models / (directory.plan.settings.models - workers)
    return (ended - begun) * share, begun - asked, (used_after - used_before) * share


def cpu_seconds() -> float:
    """Processor time of this process alone."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())
