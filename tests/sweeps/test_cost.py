"""What a sweep will cost: by steps that are timed, then by the models that are done."""

from pathlib import Path
from typing import Any

import pytest
from tiny_sweeps import corpus_at, scores_of, tiny_settings

from lmexposure.errors import ResultError, SettingsError
from lmexposure.sweeps import SweepCost, prepare, run_task, sweep_cost


def prepared(home: Path, **changes: Any) -> Path:
    prepare(corpus_at(home), out=home / "sweep", settings=tiny_settings(**changes))
    return home / "sweep"


def test_steps_are_timed_and_nothing_of_them_is_kept(tmp_path: Path) -> None:
    out = prepared(tmp_path, training={"epochs": 500, "patience": 500})
    cost = sweep_cost(out, workers=2, steps=5)
    assert (cost.models, cost.workers, cost.at_most) == (5, 2, True)
    assert 0.2 < cost.seconds_per_model < 60  # 500 steps of some milliseconds
    assert cost.cpu_hours == pytest.approx(5 * cost.seconds_per_model / 3600)
    assert cost.disk_bytes > 5 * 1000
    assert not scores_of(out)
    assert not (out / "failed").exists()


def test_models_that_are_done_say_what_the_others_take(tmp_path: Path) -> None:
    out = prepared(tmp_path)
    first = run_task(out, 2)
    seconds = first.seconds  # type: ignore[union-attr]
    cost = sweep_cost(out, workers=1)
    assert (cost.models, cost.at_most) == (4, False)
    assert cost.seconds_per_model == pytest.approx(seconds)
    (home,) = (out / "models").iterdir()
    assert cost.disk_bytes == 4 * sum(file.stat().st_size for file in home.iterdir())


def test_a_model_that_ends_within_the_timed_steps_is_kept(tmp_path: Path) -> None:
    out = prepared(tmp_path)
    assert (sweep_cost(out, workers=1).models, len(scores_of(out))) == (4, 1)


def test_kept_weights_take_their_place(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"training": {"epochs": 500, "patience": 500}}
    (tmp_path / "with").mkdir()
    without = sweep_cost(prepared(tmp_path, **changes), workers=1, steps=2)
    kept = prepared(tmp_path / "with", keep_weights=True, **changes)
    weights = sweep_cost(kept, workers=1, steps=2).disk_bytes - without.disk_bytes
    assert weights > 5 * 4 * 1000  # five models of over 1,000 weights


def test_what_it_says() -> None:
    none = {"seconds_per_model": 0.0, "disk_bytes": 0, "workers": 1, "at_most": False}
    assert SweepCost(models=0, **none).sentence == "no model is left to train"  # type: ignore[arg-type]
    some = {"seconds_per_model": 2.0, "disk_bytes": 20_000, "workers": None, "at_most": False}
    said = SweepCost(models=1, **some).sentence  # type: ignore[arg-type]
    assert said == "1 model of about 2 s: 2 s of CPU time; 0.1 MB on the disk"


def test_what_it_refuses(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="prepare the sweep first: lmexposure sweep CORPUS"):
        sweep_cost(tmp_path)
    with pytest.raises(SettingsError, match="steps=1 must be a whole number at least 2"):
        sweep_cost(tmp_path, steps=1)


def test_a_model_that_diverges_at_once_is_timed_too(tmp_path: Path) -> None:
    out = prepared(tmp_path, training={"learning_rate": 2e37, "epochs": 20, "patience": 20})
    cost = sweep_cost(out, workers=1)
    assert cost.models == 4
    (failed,) = (out / "failed").iterdir()
    assert "the validation loss after step" in failed.read_text()
