"""Sweeps on Ray whose workers and drivers are killed at random moments: the same bytes in the end.

Two kills of three are of a worker, which Ray replaces; the third is of the driver, with which Ray
goes, and the same call goes on. Whenever a driver ended, each model must be whole or not there.
The exit code counts what was not as it should be.
"""

import argparse
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from corpora import write_corpus

from lmexposure.cli.console import say
from lmexposure.records import RunSettings, SweepSettings
from lmexposure.sweeps import SweepDirectory, prepare
from lmexposure.sweeps.driver import models_missing, train_models

_DRIVER = (
    "import sys; from lmexposure.sweeps.driver import train_models as t; t(sys.argv[1], workers=2)"
)
_BEGIN_SECONDS, _END_SECONDS = 300.0, 120.0


def main() -> int:
    arguments = parse()
    draw = random.Random(arguments.seed)
    wrong = killed = sweeps = 0
    with tempfile.TemporaryDirectory() as home:
        prepared, undisturbed, seconds = reference(Path(home), arguments.models)
        while killed < arguments.kills:
            out = Path(shutil.copytree(prepared, Path(home) / f"sweep-{sweeps}"))
            while models_missing(SweepDirectory.open(out)):
                for said in one_call(out, draw, seconds / arguments.models):
                    killed += 1
                    say(f"{killed:3d}  {said}")
                broken = half_written(out)
                wrong += len(broken)
                say(f"     {len(hashes(out))} models are whole, half-written: {broken}")
            alike = hashes(out) == undisturbed
            wrong += not alike
            say(f"sweep {sweeps}: {'the same bytes' if alike else 'OTHER BYTES'}")
            sweeps += 1
    say(f"{killed} kills in {sweeps} sweeps, {wrong} wrong")
    return min(wrong, 125)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--models", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def reference(home: Path, models: int) -> tuple[Path, dict[str, str], float]:
    """A prepared sweep, the hashes of its models where nothing went wrong, and seconds for them."""
    run = RunSettings(
        formats=("pin",),
        canaries=16,
        repetitions=(1,),
        controls=0,
        layers=1,
        units=32,
        training={"epochs": 8, "checkpoint_seconds": 0.1},
    )
    corpus = write_corpus(home / "corpus.txt", 800)
    prepare(corpus, out=home / "prepared", settings=SweepSettings(models=models, run=run))
    whole = Path(shutil.copytree(home / "prepared", home / "undisturbed"))
    begun = time.monotonic()
    train_models(whole, workers=1)
    return home / "prepared", hashes(whole), time.monotonic() - begun


def hashes(out: Path) -> dict[str, str]:
    """Of each model's scores."""
    files = (out / "models").glob("*/scores.npz")
    return {file.parent.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def half_written(out: Path) -> list[str]:
    """Names of models that are there, and not whole."""
    directory = SweepDirectory.open(out)
    whole = {
        directory.name(number)
        for number in range(directory.plan.settings.models)
        if directory.done(number) is not None
    }
    there = {path.name for path in (out / "models").glob("*") if not path.name.startswith(".")}
    return sorted(there - whole)


def one_call(out: Path, draw: random.Random, seconds: float) -> Iterator[str]:
    """Start a driver with two workers; kill a worker twice, then the driver; say which, and when.

    Args:
        out: of the sweep.
        draw: of the moments.
        seconds: that a model takes, about.
    """
    driver = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    family: set[int] = set()
    for victim in ("worker", "worker", "driver"):
        before = len(hashes(out))
        if not began(out, driver, before + draw.randrange(3)):
            break
        time.sleep(draw.uniform(0, seconds))
        family |= set(descendants(driver.pid))
        if (said := kill(driver, victim)) is not None:
            yield f"{said} killed when {len(hashes(out))} models were whole"
    code = driver.wait()
    if code not in (0, -signal.SIGKILL):
        say(f"     the driver ended with {code}")
    gone(family)


def began(out: Path, driver: subprocess.Popen[bytes], models: int) -> bool:
    """Wait until as many models are whole, and another is being trained."""
    end = time.monotonic() + _BEGIN_SECONDS
    while time.monotonic() < end and driver.poll() is None:
        if len(hashes(out)) >= models and any((out / "work").glob("*/metrics.jsonl")):
            return True
        time.sleep(0.01)
    return False


def kill(driver: subprocess.Popen[bytes], victim: str) -> str | None:
    """Kill the driver, or one of its workers that is at work; None where it is too late."""
    if victim == "driver":
        driver.kill()
        return "driver"
    for child in descendants(driver.pid):
        if b"ray::train_in_worker" in command_line(child):
            os.kill(child, signal.SIGKILL)
            return "worker"
    return None


def descendants(pid: int) -> Iterator[int]:
    """The processes that a process of ours started, and theirs."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in map(int, children):
        yield child
        yield from descendants(child)


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def gone(family: set[int]) -> None:
    """Wait until what a killed driver had started is gone, as Ray sees to."""
    end = time.monotonic() + _END_SECONDS
    while time.monotonic() < end and any(command_line(pid) for pid in family):
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
