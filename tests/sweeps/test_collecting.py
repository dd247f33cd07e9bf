"""The scores of all models of a small sweep, joined into one result."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_sweeps import MODELS, copied, prepared_at, tiny_settings

from lmexposure.errors import ResultError
from lmexposure.studies import SweepResult
from lmexposure.sweeps import SweepDirectory, collect, read_matrices, run_task


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
