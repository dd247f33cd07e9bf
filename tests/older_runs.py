"""Runs that older versions left on the disk, finished ones and stopped ones, as fresh copies."""

import shutil
from pathlib import Path

from lmexposure._written import note, study
from lmexposure.audit import MeasureSettings, RunSettings

__all__ = ["FINISHED", "STOPPED", "older_run", "stopped_settings"]

_DATA = Path(__file__).parent / "data" / "result_1"
FINISHED = ("demo", "coins", "formats")
STOPPED = ("inserted", "training", "trained", "measuring")


def older_run(name: str, out: Path) -> Path:
    """A copy of a run directory that commit 6101006 wrote, in `out`, to be read or resumed."""
    shutil.copytree(_DATA / name, out)
    (out / "manifest.json").chmod(0o600)
    with study(out):  # those versions listed nothing
        note(*(path for path in out.rglob("*") if path.is_file()))
    return out


def stopped_settings() -> RunSettings:
    """With what the stopped runs were started, on `write_corpus("tiny.txt", 300)`."""
    return RunSettings(
        formats=("pin", "random_number"),
        canaries=2,
        repetitions=(1, 8),
        controls=3,
        witness=False,  # those versions had none
        seed=3,
        layers=1,
        units=16,
        training={"epochs": 3},
        measure=MeasureSettings(
            references=100,
            draws=500,
            budget_steps=2000,
            guesses=100,
            bootstraps=39,
            permutations=199,
            beam_width=20,
            revealed=2,
        ),
    )
