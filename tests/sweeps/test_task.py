"""One model of a sweep: trained by its coins, scored as the product scores, whole or not there."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hashes import sha256_tree
from known import known
from tiny_sweeps import (
    copied,
    prepared_at,
    scores_of,
    scores_read,
    tiny_settings,
    torn,
    with_run,
)

import lmexposure.sweeps.task
from lmexposure.errors import FileError, ModelError, ResultError, SettingsError
from lmexposure.models import load_model, masked
from lmexposure.scoring import log_perplexity
from lmexposure.studies import FailedModel, SweepModel
from lmexposure.sweeps import SweepDirectory, prepare, run_task
from lmexposure.sweeps.documents import scores_of as scores_of_model
from lmexposure.sweeps.task import base_scores


def texts_of(directory: SweepDirectory) -> list[str]:
    own = {canary.id: canary.text for canary in directory.manifest.canaries}
    return [
        own[text.id] if text.document is None else directory.corpus.documents[text.document]
        for text in directory.plan.texts
    ]


def test_bits_are_those_of_the_product_for_the_kept_model(trained: SweepDirectory) -> None:
    for number in (0, 1):
        kept = load_model(trained.home(number) / "model")
        bits = log_perplexity(kept.model, kept.tokenizer, texts_of(trained), context="\n")
        assert scores_read(trained, number).totals == pytest.approx(bits, abs=1e-3)
    assert not np.array_equal(scores_read(trained, 0).totals, scores_read(trained, 1).totals)


def test_characters_of_the_secret_are_those_of_the_format(trained: SweepDirectory) -> None:
    scores = scores_read(trained, 0)
    form = trained.manifest.formats["pin"]
    contexts = trained.plan.settings.contexts
    for canary, secret, matches in zip(
        trained.manifest.canaries, scores.secret, scores.matches, strict=False
    ):
        mask = list(form.free_mask(canary.index))
        assert list(secret[: len(mask)]) == mask
        assert len(matches) == contexts * sum(mask)
    for secret in scores.secret[len(trained.manifest.canaries) :]:
        assert secret.all()


def test_a_record_names_seed_device_and_versions(trained: SweepDirectory) -> None:
    records = [known(trained.done(number)) for number in (0, 1)]
    assert len({record.seed for record in records}) == 2
    assert {record.device for record in records} == {"cpu"}
    assert set(records[0].versions) == {"lmexposure", "torch", "transformers"}
    assert records[0].seconds > 0
    home = trained.home(0)
    for path in home.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0 or path.is_dir()
    assert not trained.work(0).exists()


def interrupted_at(step: int) -> Any:
    """A watcher that interrupts the training at this step."""

    def watch(what: str, done: int, total: int, note: str = "") -> None:
        if what == "training" and done == step:
            raise KeyboardInterrupt

    return watch


def test_the_same_bytes_in_another_order_and_after_an_interruption(
    trained: SweepDirectory, tmp_path: Path
) -> None:
    directory = prepared_at(tmp_path / "sweep", keep_weights=True)
    with pytest.raises(KeyboardInterrupt):
        run_task(directory.out, 1, progress=interrupted_at(1))
    assert directory.done(1) is None
    assert not directory.home(1).exists()
    for number in (1, 0):
        run_task(directory.out, number)
    assert scores_of(directory.out).items() <= scores_of(trained.out).items()


def test_a_checkpoint_is_gone_on_from_to_the_same_bytes(tmp_path: Path) -> None:
    settings = tiny_settings(training={"checkpoint_seconds": 1e-9, "batch_size": 4})
    first, second = (prepared_at(tmp_path / name, settings).out for name in "ab")
    run_task(first, 2)
    seen: list[int] = []

    def watch(what: str, done: int, total: int, note: str = "") -> None:
        seen.extend([done] if what == "training" else [])

    with pytest.raises(KeyboardInterrupt):
        run_task(second, 2, progress=interrupted_at(4))
    run_task(second, 2, progress=watch)
    assert min(seen) >= 3
    assert scores_of(first) == scores_of(second)


def test_done_is_not_done_again(trained: SweepDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmexposure.sweeps.task, "train", None)
    before = sha256_tree(trained.home(0))
    assert run_task(trained.out, 0) == trained.done(0)
    assert sha256_tree(trained.home(0)) == before


def _one_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["scores.npz", "model.json"])
@pytest.mark.parametrize("harm", [torn, _one_byte, Path.unlink])
def test_a_damaged_model_is_none(
    trained: SweepDirectory, tmp_path: Path, name: str, harm: Any
) -> None:
    directory = copied(trained, tmp_path / "sweep")
    harm(directory.home(0) / name)
    assert directory.done(0) is None
    assert directory.done(1) is not None


def test_a_damaged_model_is_trained_again(trained: SweepDirectory, tmp_path: Path) -> None:
    directory = copied(trained, tmp_path / "sweep")
    torn(directory.home(0) / "scores.npz")
    run_task(directory.out, 0)
    assert scores_of(directory.out) == scores_of(trained.out)


def test_a_model_of_another_number_or_plan_is_none(trained: SweepDirectory, tmp_path: Path) -> None:
    directory = copied(trained, tmp_path / "sweep")
    shutil.rmtree(directory.home(1))
    directory.home(0).rename(directory.home(1))
    assert directory.done(1) is None
    other = prepared_at(tmp_path / "other", inclusion_seed=2)
    shutil.copytree(trained.home(0), other.home(0))
    assert other.done(0) is None


def test_a_number_out_of_range(trained: SweepDirectory) -> None:
    for number in (-1, 5):
        with pytest.raises(SettingsError, match=f"number={number}.*0.*4"):
            run_task(trained.out, number)


def test_a_training_that_diverges_is_named_and_kept(tmp_path: Path) -> None:
    directory = prepared_at(tmp_path / "s", training={"learning_rate": 1e37})
    failed = run_task(directory.out, 3)
    assert isinstance(failed, FailedModel)
    assert failed.number == 3
    assert directory.failed(3) == failed
    assert directory.failed(2) is None
    assert directory.done(3) is None
    assert not directory.work(3).exists()
    torn(next((tmp_path / "s" / "failed").glob("*.json")))
    assert directory.failed(3) is None


def test_a_full_disk_leaves_nothing_half_written(
    trained: SweepDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = copied(trained, tmp_path / "sweep")
    shutil.rmtree(directory.home(0))
    written = SweepModel.write

    def full(self: SweepModel, path: Path, **options: Any) -> None:
        raise FileError(28, f"cannot write {path}: no space left on the device")

    monkeypatch.setattr(SweepModel, "write", full)
    with pytest.raises(FileError, match="no space left"):
        run_task(directory.out, 0)
    assert not directory.home(0).exists()
    assert directory.failed(0) is None
    monkeypatch.setattr(SweepModel, "write", written)
    run_task(directory.out, 0)
    assert scores_of(directory.out) == scores_of(trained.out)


def test_a_base_calibrates_and_is_made_once(
    trained: SweepDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert base_scores(trained) is None
    directory = prepared_at(tmp_path / "sweep", base=str(trained.home(0) / "model"))
    found, kept = known(base_scores(directory)), directory.out / "base.npz"
    assert np.array_equal(found["bits"], trained.scores(0)["bits"])
    before = kept.read_bytes()
    assert known(base_scores(directory)).keys() == found.keys()
    assert kept.read_bytes() == before
    torn(kept)
    base_scores(directory)
    assert kept.read_bytes() == before


def test_what_is_no_base_is_refused_before_models_are_trained(
    trained: SweepDirectory, tmp_path: Path
) -> None:
    corpus = tmp_path / "other.txt"
    corpus.write_text("".join(f"αβγ {i}\n" for i in range(60)))
    base = str(trained.home(0) / "model")
    with pytest.raises(ModelError, match="has another tokenizer than the models of the sweep"):
        prepare(corpus, out=tmp_path / "s", settings=tiny_settings(base=base))
    with pytest.raises(SettingsError, match="score='calibrated' needs a base, and a new model has"):
        prepare(corpus, out=tmp_path / "s", settings=tiny_settings(score="calibrated"))
    assert not (tmp_path / "s" / "plan.json").exists()


def test_a_corpus_so_small_that_a_model_may_have_nothing(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("".join(f"word {i}\n" for i in range(10)))
    settings = with_run(tiny_settings(vary="all", population=0, models=1000), canaries=1)
    prepare(corpus, out=tmp_path / "s", settings=settings)
    directory = SweepDirectory.open(tmp_path / "s")
    empty = [n for n, coins in enumerate(directory.plan.coins) if "1" not in coins]
    assert empty
    with pytest.raises(ModelError, match=f"model {empty[0]} has no documents at all; give a larg"):
        run_task(tmp_path / "s", empty[0])


def test_no_plan(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="prepare the sweep first"):
        run_task(tmp_path, 0)
    (tmp_path / "plan.json").write_text(json.dumps({"schema": "lmexposure.sweep_plan/1"}))
    with pytest.raises(ResultError, match=r"plan\.json"):
        run_task(tmp_path, 0)


def test_a_model_of_hamp_is_read_through_its_masked_output(tmp_path: Path) -> None:
    """Greedy matches are those of its weights; the bits are of other values in their order."""
    directory = prepared_at(tmp_path / "sweep", training={"method": "hamp"}, keep_weights=True)
    run_task(directory.out, 0)
    loaded = load_model(directory.home(0) / "model")
    unmasked = scores_of_model(loaded, directory.rows, canaries=len(directory.plan.canaries))
    kept = directory.scores(0)
    assert np.array_equal(kept["matches"], unmasked["matches"])
    assert not np.allclose(kept["bits"], unmasked["bits"])
    through = scores_of_model(masked(loaded), directory.rows, canaries=len(directory.plan.canaries))
    assert np.allclose(kept["bits"], through["bits"])
