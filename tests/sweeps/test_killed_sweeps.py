"""A sweep that is killed, and goes on: the same bytes, in whatever order its models are trained."""

import os
import shutil
import signal
from pathlib import Path

import pytest
from forks import start
from tiny_sweeps import MODELS, prepared_at, scores_of, tiny_settings

from lmexposure.errors import ResultError
from lmexposure.sweeps import SweepDirectory, collect, run_task, sweep
from lmexposure.sweeps.driver import models_missing, train_models


def train_until(out: str, moment: str) -> None:
    """Train what is missing, and be killed when a note of the progress begins with this."""

    def watch(what: str, done: int, total: int, note: str = "") -> None:
        if note.startswith(moment):
            os.kill(os.getpid(), signal.SIGKILL)

    train_models(out, workers=1, progress=watch)


KEPT = tiny_settings(keep_weights=True)
pytestmark = pytest.mark.slow


def copy_of_plan(trained: SweepDirectory, to: Path) -> Path:
    """The same sweep, prepared again by its seeds, with no models yet."""
    prepared_at(to, KEPT)
    assert (to / "plan.json").read_bytes() == (trained.out / "plan.json").read_bytes()
    return to


def test_a_killed_driver_goes_on_to_the_same_bytes(trained: SweepDirectory, tmp_path: Path) -> None:
    out = copy_of_plan(trained, tmp_path / "sweep")
    for moment in ("model 1: training, 2 of", "model 3: scoring"):
        said = tmp_path / "said.txt"
        killed = start(train_until, str(out), moment, said=said, environment={})
        killed.join()
        assert killed.exitcode == -signal.SIGKILL, said.read_text()
    assert models_missing(SweepDirectory.open(out)) == [3, 4]
    with pytest.raises(ResultError, match=r"2 of 5 models in .* are not trained yet: 3 and 4; tra"):
        collect(out)
    sweep(tmp_path / "corpus.txt", out=out, settings=KEPT, workers=1)
    assert scores_of(out) == scores_of(trained.out)
    assert len(scores_of(out)) == MODELS
    assert not (out / "work").exists()
    content = (out / "matrices.npz").read_bytes()
    collect(shutil.copytree(trained.out, tmp_path / "undisturbed"))
    assert (tmp_path / "undisturbed" / "matrices.npz").read_bytes() == content


def test_models_are_alike_in_any_order_and_by_themselves(
    trained: SweepDirectory, tmp_path: Path
) -> None:
    out = copy_of_plan(trained, tmp_path / "sweep")
    for number in (4, 0):
        run_task(out, number)
    train_models(out, workers=1)
    assert scores_of(out) == scores_of(trained.out)


def test_a_model_that_diverges_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    settings = tiny_settings(
        models=4, training={"learning_rate": 2e37, "epochs": 20, "patience": 20}
    )
    directory = prepared_at(tmp_path / "sweep", settings)
    train_models(directory.out, workers=1)
    failed = [directory.failed(number) for number in range(4)]
    assert all(model is not None and "is inf; train again" in model.reason for model in failed), (
        failed
    )
    assert not models_missing(directory)
