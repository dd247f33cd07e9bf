"""The driver: what is missing is trained, once, whoever else is at work; one display of all."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_models import FakeDirectory, Fate, fake_task, write_plan

from lmexposure._files import only_writer
from lmexposure._forecast import Phase
from lmexposure.audit import Watcher
from lmexposure.errors import BusyError, FileError, ResultError, SettingsError
from lmexposure.studies import SweepSettings
from lmexposure.sweeps import driver

pytestmark = pytest.mark.usefixtures("fake_models")


class Seen:
    """A watcher that keeps what it was told."""

    def __init__(self) -> None:
        self.plans: list[tuple[str, Sequence[Phase]]] = []
        self.told: list[tuple[str, int, int, str]] = []
        self.expected: list[float] = []

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        self.told.append((what, done, total, note))

    def plan(self, title: str, phases: Sequence[Phase], *, keeps: bool) -> None:
        self.plans.append((title, phases))

    def expect(self, what: str, seconds: float) -> None:
        assert what == "models"
        self.expected.append(seconds)

    def end_asked(self) -> bool:
        return False


def whole(out: Path) -> list[int]:
    return sorted(int(home.name) for home in (out / "models").iterdir())


def test_what_is_missing_is_trained_and_nothing_else(tmp_path: Path) -> None:
    out = write_plan(tmp_path, 5)
    fake_task(FakeDirectory.open(out), 1)
    fake_task(FakeDirectory.open(out), 4)
    kept = (out / "models" / "001").stat().st_ino
    assert driver.models_missing(FakeDirectory.open(out)) == [0, 2, 3]  # type: ignore[arg-type]
    driver.train_models(out, workers=1)
    assert whole(out) == [0, 1, 2, 3, 4]
    assert (out / "models" / "001").stat().st_ino == kept


def test_a_model_that_diverges_is_counted_and_not_tried_again(tmp_path: Path) -> None:
    out, seen = write_plan(tmp_path, 3, {1: Fate(diverges=True)}), Seen()
    driver.train_models(out, workers=1, progress=seen)
    assert whole(out) == [0, 2]
    assert seen.told[-1] == ("models", 3, 3, "1 diverged")
    again = Seen()
    driver.train_models(out, workers=1, progress=again)
    assert not again.told


def test_one_display_counts_the_models_and_says_how_far_the_present_one_is(tmp_path: Path) -> None:
    out, seen = write_plan(tmp_path, 4), Seen()
    assert isinstance(seen, Watcher)
    fake_task(FakeDirectory.open(out), 0)
    driver.train_models(out, workers=1, progress=seen)
    ((title, phases),) = seen.plans
    assert title == "3 of 4 models, each about 1 s; 15.0 MB on the disk"
    assert [phase.what for phase in phases] == ["models", "analysis"]
    assert [phase.expected for phase in phases] == pytest.approx([1.5, 3 + 0.5 * 0.2], abs=0.01)
    assert seen.expected[-1] == 0.0
    assert {what for what, *_ in seen.told} == {"models"}
    done = [done for _, done, _, _ in seen.told]
    assert (done[0], done[-1], done) == (1, 4, sorted(done))
    assert ("models", 2, 4, "model 2: training, 7 of 30") in seen.told


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def _board(tmp_path: Path, models: int, **cost: Any) -> tuple[driver._Board, _Clock, Seen]:
    """The display of models that are said to take 10 s each."""
    clock, seen = _Clock(), Seen()
    directory: Any = FakeDirectory.open(write_plan(tmp_path, models))
    known = {"seconds": 10.0, "at_most": True, "with_scores": 1.25, "took": (), "disk": 1}
    told = driver.Cost(**{**known, **cost})
    return driver._Board(directory, range(models), seen, told, clock), clock, seen


@pytest.mark.parametrize(("models", "places"), [(24, 2), (5, 4), (7, 3), (4, 8), (6, 1)])
@pytest.mark.parametrize("seconds", [4.0, 10.0, 25.0])  # which is not what the trial said
def test_what_is_left_is_right_once_the_first_models_ended(
    tmp_path: Path, models: int, places: int, seconds: float
) -> None:
    board, clock, seen = _board(tmp_path, models)
    board.beat(places)
    start = driver._WORKERS_START * (places > 1)
    rounds = -(-models // places)
    assert seen.expected[-1] == pytest.approx(start + rounds * 10)
    assert seen.plans[0][1][0].expected == pytest.approx(start + rounds * 10)
    for number in range(models):
        clock.now = start + seconds * (1 + number // places) + 0.1 * (number % places)
        list(board.watch([(number, SimpleNamespace(seconds=seconds))]))  # type: ignore[list-item]
        last = start + seconds * rounds + 0.1 * ((models - 1) % places)
        assert seen.expected[-1] == pytest.approx(last - clock.now, abs=1.0)
    assert seen.expected[-1] == 0.0


def test_a_first_model_that_takes_longer_says_so_of_the_others(tmp_path: Path) -> None:
    """By its steps where it is trained here, else by the time that went by."""
    board, clock, seen = _board(tmp_path, 4)
    board.beat(1)
    watch = board.inside(0)
    for clock.now, step in ((3.0, 1), (5.0, 3), (9.0, 7)):  # a second a step, of 101
        watch("training", step, 101)
    assert seen.expected[-1] == pytest.approx(4 * 1.25 * (3 + 100) - 9)
    board, clock, seen = _board(tmp_path / "beside", 4)
    board.beat(2)
    clock.now = driver._WORKERS_START + 60
    board.beat(2)
    assert seen.expected[-1] == pytest.approx(60.0)
    assert len(seen.plans) == 1  # announced once


def test_a_model_of_another_process_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_BUSY_SECONDS", 0.05)
    out, seen = write_plan(tmp_path, 3, {1: Fate(seconds=0.01)}), Seen()
    other = threading.Thread(target=fake_task, args=(FakeDirectory.open(out), 1))
    other.start()
    while not (out / "work" / "001").exists():
        time.sleep(0.001)
    driver.train_models(out, workers=1, progress=seen)
    other.join()
    assert whole(out) == [0, 1, 2]
    notes = [note for *_, note in seen.told]
    assert "waits for another process, which trains 1" in notes


def test_an_error_of_the_disk_ends_it_and_nothing_is_half_written(tmp_path: Path) -> None:
    out = write_plan(tmp_path, 3, {1: Fate(disk_full=True)})
    with pytest.raises(FileError, match="the disk is full"):
        driver.train_models(out, workers=1)
    assert whole(out) == [0]


def test_two_sweeps_on_one_folder_are_refused(tmp_path: Path) -> None:
    held, end = threading.Event(), threading.Event()

    def hold() -> None:
        with only_writer(tmp_path / "out"):
            held.set()
            end.wait()

    other = threading.Thread(target=hold)
    other.start()
    held.wait()
    with pytest.raises(BusyError, match=r"another process is at work in .*out; wait until it"):
        driver.sweep(tmp_path / "corpus.txt", out=tmp_path / "out")
    end.set()
    other.join()


def test_what_no_sweep_can_do_is_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with pytest.raises(SettingsError, match="workers=0 must be a whole number from 1 to 10000"):
        driver.sweep("corpus.txt", out=out, workers=0)
    with pytest.raises(SettingsError, match="address"):
        driver.sweep("corpus.txt", out=out, address="")
    with pytest.raises(SettingsError, match="settings"):
        driver.sweep("corpus.txt", out=out, settings={"models": 4})  # type: ignore[arg-type]
    monkeypatch.setattr(driver, "find_spec", lambda name: None)
    for asked in ({"workers": 2}, {"address": "auto"}):
        with pytest.raises(ResultError, match=r"need Ray, which is not installed; install it: pip"):
            driver.sweep("corpus.txt", out=out, settings=SweepSettings(), **asked)
    assert not out.exists()


def test_without_ray_models_are_trained_here_and_with_it_on_every_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = FakeDirectory.open(write_plan(tmp_path, 3))

    def workers(models: int, *, workers: int | None = None, address: str | None = None) -> object:
        return driver.workers_for(directory, models, workers=workers, address=address)  # type: ignore[arg-type]

    monkeypatch.setattr(driver, "training_places", lambda device: 8)
    assert (workers(64), workers(3), workers(3, workers=5)) == (8, 3, 5)
    assert workers(64, address="auto") is None
    monkeypatch.setattr(driver, "find_spec", lambda name: None)
    assert workers(64) == 1


def test_a_folder_without_a_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="prepare the sweep first"):
        driver.train_models(tmp_path, workers=1)
