"""What a sweep will cost: by steps that are timed, then by the models that are done."""

from pathlib import Path
from typing import Any

import pytest
from known import known
from tiny_sweeps import prepared_at, scores_of

from lmexposure.errors import ResultError, SettingsError
from lmexposure.sweeps import SweepDirectory, run_task, sweep_cost
from lmexposure.sweeps.driver import _bytes_of_a_model

LONG: dict[str, Any] = {"training": {"epochs": 500, "patience": 500}}


def test_steps_are_timed_and_nothing_of_them_is_kept(tmp_path: Path) -> None:
    out = prepared_at(tmp_path / "sweep", **LONG).out
    cost = sweep_cost(out, workers=2, steps=5)
    (models,) = cost.phases
    assert models.work == 5 / 2
    assert 0.2 < known(models.pace) < 60  # 500 steps of some milliseconds
    assert cost.seconds == pytest.approx(models.work * known(models.pace))
    assert cost.sentence.startswith("5 models of at most ")
    assert ", 2 side by side; about " in cost.sentence
    assert not scores_of(out)
    assert not (out / "failed").exists()


def test_models_that_are_done_say_what_the_others_take(tmp_path: Path) -> None:
    out = prepared_at(tmp_path / "sweep").out
    first = run_task(out, 2)
    cost = sweep_cost(out, workers=1)
    assert cost.phases[0].work == 4
    assert cost.seconds == pytest.approx(4 * first.seconds)  # type: ignore[union-attr]
    assert cost.sentence.startswith("4 models of about ")
    assert " of CPU time; " in sweep_cost(out, address="auto").sentence
    (home,) = (out / "models").iterdir()
    written = sum(file.stat().st_size for file in home.iterdir())
    assert _bytes_of_a_model(SweepDirectory.open(out), 3) == written


def test_a_model_that_ends_within_the_timed_steps_is_kept(tmp_path: Path) -> None:
    out = prepared_at(tmp_path / "sweep").out
    assert (sweep_cost(out, workers=1).phases[0].work, len(scores_of(out))) == (4, 1)
    for number in range(5):
        run_task(out, number)
    assert sweep_cost(out).sentence == "no model is left to train"


def test_kept_weights_take_their_place(tmp_path: Path) -> None:
    directory = prepared_at(tmp_path / "sweep", **LONG)
    kept = prepared_at(tmp_path / "with", keep_weights=True, **LONG)
    weights = _bytes_of_a_model(kept, 0) - _bytes_of_a_model(directory, 0)
    assert weights > 4 * 1000  # of over 1,000 weights


def test_what_it_refuses(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="prepare the sweep first"):
        sweep_cost(tmp_path)
    with pytest.raises(SettingsError, match="steps=1 must be a whole number at least 2"):
        sweep_cost(tmp_path, steps=1)


def test_a_model_that_diverges_at_once_is_timed_too(tmp_path: Path) -> None:
    training = {"learning_rate": 2e37, "epochs": 20, "patience": 20}
    out = prepared_at(tmp_path / "sweep", training=training).out
    assert sweep_cost(out, workers=1).phases[0].work == 4
    (failed,) = (out / "failed").iterdir()
    assert "the validation loss after step" in failed.read_text()
