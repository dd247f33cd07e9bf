"""Sweeps of chats, adapters and Transformers: tokens and masks are those of each training."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from known import known
from models.small_chats import save_base
from tiny import byte_level_bpe
from tiny_sweeps import (
    chats_at,
    prepared_at,
    scores_of,
    scores_read,
    tiny_settings,
    trained_at,
    with_run,
)
from transformers import GPT2Config, GPT2LMHeadModel

from lmexposure.models import load_model, row_context
from lmexposure.scoring import log_perplexity
from lmexposure.studies import SweepSettings
from lmexposure.sweeps import SweepDirectory
from lmexposure.sweeps.matrices import ModelScores
from lmexposure.sweeps.task import base_scores


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_base(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture(scope="module")
def adapted(base: Path, tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    """Two models of a sweep on chats, which learn by adapters and are kept."""
    out = tmp_path_factory.mktemp("adapted") / "s"
    return trained_at(out, settings_of(base, lora=True), chats_at, (0, 1))


@pytest.fixture(scope="module")
def fine_tuned(base: Path, tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    """The first model of one whose weights all learn."""
    out = tmp_path_factory.mktemp("fine-tuned") / "s"
    return trained_at(out, settings_of(base, lora=False), chats_at)


def settings_of(model: object, **training: Any) -> SweepSettings:
    learned = {"epochs": 1, "learning_rate": 0.01} | training
    return with_run(tiny_settings(keep_weights=True), model=str(model), training=learned)


def texts_of(directory: SweepDirectory) -> list[str]:
    return [canary.text for canary in directory.manifest.canaries]


def bits_in_rows(directory: SweepDirectory, model: Any) -> np.ndarray:
    """Of the canaries, in the rows that chats are trained in."""
    texts = texts_of(directory)
    context = row_context(directory.tokenizer, known(directory.corpus.wrapping), texts)
    return log_perplexity(model.model, model.tokenizer, texts, context=context)


def naive_secret(tokenizer: Any, text: str, mask: list[bool], separator: str) -> list[bool]:
    """Which tokens behind the separator hold a character from the secret's first to its last."""
    whole = separator + text
    offsets = tokenizer(whole, return_offsets_mapping=True, add_special_tokens=False)[
        "offset_mapping"
    ]
    first = len(separator) + mask.index(True)
    last = len(whole) - mask[::-1].index(True)
    own = [(a, b) for a, b in offsets if b > len(separator)]
    return [a < last and b > first for a, b in own]


@pytest.mark.parametrize("model", ["lstm", "gpt2-tiny"])
def test_secret_tokens_are_those_of_a_naive_reading(tmp_path: Path, model: str) -> None:
    directory = prepared_at(tmp_path / "s", settings_of(model))
    form = directory.manifest.formats["pin"]
    for canary, row in zip(directory.manifest.canaries, directory.rows.texts, strict=False):
        mask = list(form.free_mask(canary.index))
        expected = naive_secret(directory.tokenizer, canary.text, mask, "\n")
        assert list(row.secret[: len(expected)]) == expected
        assert not row.secret[len(expected) :].any()
        assert any(expected)
        assert not all(expected)


def test_a_small_transformer_is_scored_as_the_product_scores_it(tmp_path: Path) -> None:
    directory = trained_at(tmp_path / "s", settings_of("gpt2-tiny"))
    kept, texts = load_model(directory.home(0) / "model"), texts_of(directory)
    bits = log_perplexity(kept.model, kept.tokenizer, texts, context="\n")
    assert scores_read(directory, 0).totals[: len(texts)] == pytest.approx(bits, abs=1e-3)


@pytest.mark.parametrize("kind", ["adapted", "fine_tuned"])
def test_a_sweep_of_chats(request: pytest.FixtureRequest, kind: str) -> None:
    directory: SweepDirectory = request.getfixturevalue(kind)
    canaries = directory.manifest.canaries
    for number in (0, 1) if kind == "adapted" else (0,):
        home, scores = directory.home(number) / "model", scores_read(directory, number)
        assert (home / "adapter_config.json").exists() is (kind == "adapted")
        bits = bits_in_rows(directory, load_model(home))
        assert scores.totals[: len(canaries)] == pytest.approx(bits, abs=1e-3)
        assert all(len(x) for x in scores.bits)
        form = directory.manifest.formats["pin"]
        for canary, secret in zip(canaries, scores.secret, strict=False):
            # Byte for byte, but for merges: no more tokens than characters of the secret.
            assert 1 <= secret.sum() <= sum(form.free_mask(canary.index))
            assert not secret.all()
    for canary, row in zip(canaries, directory.rows.texts, strict=False):
        scored = np.array(row.encoded.ids[row.encoded.scored_from :])
        said = directory.tokenizer.decode(scored[row.secret])
        assert canary.text.removeprefix("My PIN is ") in said


@pytest.mark.parametrize("kind", ["adapted", "fine_tuned"])
def test_the_base_of_a_sweep_is_the_model_before_it(
    request: pytest.FixtureRequest, base: Path, kind: str
) -> None:
    directory: SweepDirectory = request.getfixturevalue(kind)
    found = ModelScores.of(known(base_scores(directory)), directory.plan, "the base model")
    bits = bits_in_rows(directory, load_model(base))
    assert found.totals[: len(bits)] == pytest.approx(bits, abs=1e-3)
    after = scores_read(directory, 0)
    assert [len(x) for x in found.bits] == [len(x) for x in after.bits]
    assert not np.allclose(np.concatenate(found.bits), np.concatenate(after.bits), atol=0.1)


def test_the_base_is_untouched_from_model_to_model(adapted: SweepDirectory, tmp_path: Path) -> None:
    """In another order every model is what it was."""
    settings = settings_of(adapted.settings.model, lora=True)
    trained_at(tmp_path / "s", settings, chats_at, (1, 0))
    assert scores_of(tmp_path / "s") == scores_of(adapted.out)


def test_other_contexts_fit_a_short_window(tmp_path: Path) -> None:
    """A whole document in front of a canary would be more than the model reads."""
    tokenizer = byte_level_bpe()
    shape: dict[str, Any] = {"n_positions": 44, "n_embd": 16, "n_layer": 1, "n_head": 2}
    ends: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 0}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **shape, **ends))
    model.save_pretrained(tmp_path / "m")
    tokenizer.save_pretrained(tmp_path / "m")
    settings = settings_of(tmp_path / "m", block_size=44, batch_size=4)
    directory = trained_at(tmp_path / "sweep", settings)
    longest = max(len(row.encoded.ids) for row in directory.rows.texts[:6])
    assert max(map(len, directory.rows.leads)) + longest > 44
    secrets = [int(row.secret.sum()) for row in directory.rows.texts[:6]]
    assert directory.scores(0)["match_lengths"].tolist() == [3 * length for length in secrets]
