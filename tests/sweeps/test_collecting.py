"""A small sweep: its scores joined into one result, how that is shown, and what it will cost."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_sweeps import MODELS, copied, corpus_at, prepared_at, scores_of, tiny_settings

import lmexposure as lx
from lmexposure.core import Outcome, Thresholds, write_report
from lmexposure.errors import ResultError, SettingsError
from lmexposure.studies import SweepPlan, SweepResult
from lmexposure.sweeps import SweepDirectory, collect, read_matrices, run_task, sweep
from lmexposure.sweeps.driver import _bytes_of_a_model, sweep_cost, train_models


@pytest.fixture
def sweep_of_five(trained: SweepDirectory, tmp_path: Path) -> Path:
    return copied(trained, tmp_path / "sweep").out


def test_all_models_are_joined_into_matrices_and_a_result(sweep_of_five: Path) -> None:
    seen: list[tuple[str, int, int]] = []

    def watch(what: str, done: int, total: int, note: str = "") -> None:
        seen.append((what, done, total))

    result = collect(sweep_of_five, progress=watch)
    assert SweepResult.read(sweep_of_five) == result
    assert (result.models, result.canaries, result.population) == (MODELS, 6, 4)
    assert result.documents == 60
    assert (result.failed, result.settings.models) == ((), MODELS)
    assert [seen[0], seen[-1]] == [("collecting", 0, MODELS), ("analysis", 1, 1)]
    plan = SweepDirectory.open(sweep_of_five).plan
    matrices = read_matrices(sweep_of_five, plan)
    assert matrices.sha256 == result.matrices_sha256
    np.testing.assert_array_equal(matrices.included, plan.included())
    assert set(matrices.scores) == {
        *("log_perplexity", "secret_tokens", "min_k", "min_k_plus_plus", "zlib", "label_only")
    }
    first = SweepDirectory.open(sweep_of_five).scores(0)
    assert -matrices.scores["log_perplexity"][0, 0] == first["bits"][: first["lengths"][0]].sum()


def test_the_same_models_give_the_same_bytes(sweep_of_five: Path) -> None:
    first, matrices = collect(sweep_of_five), sweep_of_five / "matrices.npz"
    content = matrices.read_bytes()
    matrices.unlink()
    again = collect(sweep_of_five)
    assert matrices.read_bytes() == content
    assert (again.scores, again.texts, again.epsilon) == (first.scores, first.texts, first.epsilon)


def test_a_base_with_the_same_tokenizer_calibrates(trained: SweepDirectory, tmp_path: Path) -> None:
    base = str(trained.home(0) / "model")
    settings = tiny_settings(models=4, base=base, score="calibrated", attack="plain")
    out = prepared_at(tmp_path / "sweep", settings).out
    for number in range(4):
        run_task(out, number)
    result = collect(out)
    assert result.primary["canaries"].score == "calibrated"
    assert {row.score for row in result.scores if row.group == "population"} >= {"calibrated"}


def test_models_that_are_missing_are_named(sweep_of_five: Path) -> None:
    directory = SweepDirectory.open(sweep_of_five)
    shutil.rmtree(directory.home(1))
    (directory.home(3) / "scores.npz").write_bytes(b"torn")
    with pytest.raises(ResultError, match=r"2 of 5 models .* are not trained yet: 1 and 3") as said:
        collect(sweep_of_five)
    assert str(said.value).endswith("train them first, each alone or by the same sweep again")
    assert not (sweep_of_five / "matrices.npz").exists()


def diverged(out: Path, *numbers: int) -> SweepDirectory:
    directory = SweepDirectory.open(out)
    for number in numbers:
        shutil.rmtree(directory.home(number))
        directory.fail(number, "the loss became NaN")
    return directory


def test_a_model_that_diverged_is_left_out(sweep_of_five: Path) -> None:
    directory = diverged(sweep_of_five, 2)
    result = collect(sweep_of_five)
    assert [(lost.number, lost.reason) for lost in result.failed] == [(2, "the loss became NaN")]
    assert result.models == 4
    assert read_matrices(sweep_of_five, directory.plan).numbers.tolist() == [0, 1, 3, 4]
    assert result.warnings[0].startswith("1 of 5 models has no scores")


def test_a_sweep_whose_models_all_diverged_says_so(sweep_of_five: Path) -> None:
    diverged(sweep_of_five, *range(MODELS))
    with pytest.raises(ResultError, match=r"all 5 models in .* diverged \(the loss became NaN\)"):
        collect(sweep_of_five)


def test_what_is_no_sweep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="prepare the sweep first"):
        collect(tmp_path)


SEED = 918_273_645


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("shown")
    settings = tiny_settings().override({"seed": SEED, "formats": ("pin",)})
    sweep([str(corpus_at(place))], out=place / "recipe", settings=settings, workers=1)
    return place / "recipe"


def test_a_sweep_of_few_models_is_inconclusive_and_says_how_many_it_takes(home: Path) -> None:
    verdict = lx.check(home)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    worst = next(check for check in verdict.checks if check.key == "worst_canary")
    assert "5 models are too few for the worst of 6 canaries" in worst.reason
    assert lx.check(home, Thresholds(max_epsilon=0.1)).exit_code == 2


def test_every_form_shows_it_without_a_seed_that_was_chosen(home: Path) -> None:
    assert SweepPlan.read(home).settings.run.seed == SEED
    assert SweepResult.read(home).settings.run.seed is None
    written = write_report(lx.open(home), home, formats=("html", "md", "csv", "json"))
    for path in [home / "sweep.json", *written]:
        assert str(SEED).encode() not in path.read_bytes(), path.name
    page = (home / "report.html").read_text()
    assert "<title>recipe: inconclusive (lmexposure)</title>" in page
    assert "pin/x1/" in page


LONG: dict[str, Any] = {"training": {"epochs": 500, "patience": 500}}


def test_steps_are_timed_and_nothing_of_them_is_kept(tmp_path: Path) -> None:
    out = prepared_at(tmp_path / "sweep", **LONG).out
    cost = sweep_cost(SweepDirectory.open(out), steps=5)
    assert cost.at_most
    assert 0.2 < cost.seconds < 60  # 500 steps of some milliseconds
    assert cost.title(5, 5, 2).startswith("5 of 5 models, each at most ")
    assert ", 2 side by side; " in cost.title(5, 5, 2)
    assert not scores_of(out)
    assert not (out / "failed").exists()


def test_models_that_are_done_say_what_the_others_take(tmp_path: Path) -> None:
    out = prepared_at(tmp_path / "sweep").out
    first = run_task(out, 2)
    cost = sweep_cost(SweepDirectory.open(out))
    assert cost.took == (first.seconds,)  # type: ignore[union-attr]
    assert (cost.seconds, cost.at_most) == (*cost.took, False)
    assert cost.title(4, 5, 1).startswith("4 of 5 models, each about ")
    (home,) = (out / "models").iterdir()
    written = sum(file.stat().st_size for file in home.iterdir())
    assert cost.disk == _bytes_of_a_model(SweepDirectory.open(out), 3) == written


def test_a_model_that_ends_within_the_timed_steps_is_kept(tmp_path: Path) -> None:
    out = prepared_at(tmp_path / "sweep").out
    assert (sweep_cost(SweepDirectory.open(out)).at_most, len(scores_of(out))) == (False, 1)


def test_kept_weights_take_their_place(tmp_path: Path) -> None:
    directory = prepared_at(tmp_path / "sweep", **LONG)
    kept = prepared_at(tmp_path / "with", keep_weights=True, **LONG)
    weights = _bytes_of_a_model(kept, 0) - _bytes_of_a_model(directory, 0)
    assert weights > 4 * 1000  # of over 1,000 weights


def test_what_it_refuses(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="prepare the sweep first"):
        train_models(tmp_path)
    directory = prepared_at(tmp_path / "sweep")
    with pytest.raises(SettingsError, match="steps=1 must be a whole number at least 2"):
        sweep_cost(directory, steps=1)


def test_a_model_that_diverges_at_once_is_timed_too(tmp_path: Path) -> None:
    training = {"learning_rate": 2e37, "epochs": 20, "patience": 20}
    out = prepared_at(tmp_path / "sweep", training=training).out
    assert not sweep_cost(SweepDirectory.open(out)).at_most
    (failed,) = (out / "failed").iterdir()
    assert "the validation loss after step" in failed.read_text()
