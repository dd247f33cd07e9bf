"""Sweeps of new tokens: every model has all entries, and what its coins put in is learned."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models.small_chats import save_base
from new_token_canaries import SYMBOLS, choose_by_hand
from tiny_sweeps import chats_at, prepared_at, tiny_settings, trained_at, with_run

from lmexposure.errors import ModelError
from lmexposure.models import load_model, save_model, tokenizer_sha256
from lmexposure.studies import SweepSettings
from lmexposure.sweeps import SweepDirectory
from lmexposure.sweeps.task import base_scores

CANDIDATES = 8


@pytest.fixture(autouse=True)
def chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    choose_by_hand(monkeypatch)


def settings_of(model: str, *, base: str | None = None) -> SweepSettings:
    settings = tiny_settings(models=4, base=base, keep_weights=True)
    training = {"epochs": 5, "learning_rate": 0.01, "patience": 5, "batch_size": 2}
    training |= {"block_size": 64}
    kinds = ("new_token",)
    return with_run(
        settings, model=model, units=24, kinds=kinds, canaries=CANDIDATES, training=training
    )


def secret_bits(directory: SweepDirectory, scores: Any) -> np.ndarray:
    """Of the symbol of each candidate, which is its one secret token, shape (C,)."""
    ends = np.cumsum(scores["lengths"])
    own = [
        scores["bits"][start:end][scores["secret"][start:end]]
        for start, end in zip(ends - scores["lengths"], ends, strict=True)
    ][: len(directory.plan.canaries)]
    assert {len(bits) for bits in own} == {1}
    return np.array([bits[0] for bits in own])


def coins_of(directory: SweepDirectory) -> np.ndarray:
    return np.array([[c == "1" for c in row[:CANDIDATES]] for row in directory.plan.coins])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lstm", "gpt2-tiny", "pretrained"])
def test_every_model_has_all_entries_and_learns_those_of_its_coins(
    kind: str, tmp_path: Path
) -> None:
    model = str(save_base(tmp_path / "base")) if kind == "pretrained" else kind
    directory = trained_at(tmp_path / "s", settings_of(model), numbers=range(4))
    assert (base_scores(directory) is None) == (kind != "pretrained")
    assert directory.new_tokens == SYMBOLS[:CANDIDATES]
    for number in range(directory.plan.settings.models):
        begun = directory.model(number)
        rows = begun.tokenizer.convert_tokens_to_ids(list(directory.new_tokens))
        assert bool((begun.model.get_output_embeddings().weight[rows] == 0).all())
        ended = load_model(directory.home(number) / "model")
        for loaded in (begun, ended):
            assert tokenizer_sha256(loaded.tokenizer) == directory.plan.tokenizer_sha256
    bits = np.array([secret_bits(directory, directory.scores(n)) for n in range(4)])
    coins = coins_of(directory)
    for row, inside in zip(bits, coins, strict=True):
        assert row[inside].max() < row[~inside].min() - 1
        assert np.ptp(row[~inside]) < 0.5  # none of them was seen


def test_in_chats_the_symbols_are_secret_tokens_too(tmp_path: Path) -> None:
    settings = settings_of(str(save_base(tmp_path / "base")))
    directory = trained_at(tmp_path / "s", settings, chats_at)
    bits, inside = secret_bits(directory, directory.scores(0)), coins_of(directory)[0]
    assert bits[inside].max() < bits[~inside].min() - 1


def test_another_base_of_this_tokenizer_grows_too(tmp_path: Path) -> None:
    base = save_base(tmp_path / "base")
    other = load_model(base)
    other.model.get_input_embeddings().weight.data.mul_(1.5)
    save_model(other.model, other.tokenizer, tmp_path / "other")
    settings = settings_of(str(base), base=str(tmp_path / "other"))
    assert base_scores(prepared_at(tmp_path / "s", settings)) is not None


def test_a_base_of_another_tokenizer_is_refused_still(tmp_path: Path) -> None:
    base = save_base(tmp_path / "base")
    with pytest.raises(ModelError, match="has another tokenizer than the models of the sweep"):
        prepared_at(tmp_path / "s", settings_of("gpt2-tiny", base=str(base)))


def test_adapters_are_refused_before_anything_is_inserted(tmp_path: Path) -> None:
    settings = settings_of(str(save_base(tmp_path / "base")))
    with pytest.raises(ModelError, match=r"kind='new_token' needs new rows .* leave lora out"):
        prepared_at(tmp_path / "s", with_run(settings, training={"lora": True}))
    assert not (tmp_path / "s").exists()
