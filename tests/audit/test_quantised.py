"""Models of 8 and 4 bits under a whole measurement."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from audit.quick import ALL_FILLS
from audit.small import TOKENIZER, pins
from tiny import one_by_one
from transformers import LlamaConfig, LlamaForCausalLM

from lmexposure.audit import RunSettings, measure
from lmexposure.canaries import Format
from lmexposure.errors import SettingsError
from lmexposure.models import encode_in_context, load_model, save_model
from lmexposure.scoring import load_for_measuring

pytest.importorskip("torchao")

PIN = Format(name="pin", template="My PIN is {digits:2}")
SETTINGS = replace(ALL_FILLS, extraction=False, permutations=99)
MANIFEST = pins(2)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=len(TOKENIZER),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=128,
        initializer_range=0.2,
    )
    path = tmp_path_factory.mktemp("models") / "llama"
    save_model(LlamaForCausalLM(config).eval(), TOKENIZER, path)
    return path


def naive(model: Any, text: str) -> float:
    encoded = encode_in_context(TOKENIZER, [text], context=MANIFEST.separator)[0]
    with torch.no_grad():
        return one_by_one(model, encoded.ids, encoded.scored_from)


def test_a_measurement_of_four_bits_is_that_of_the_model_as_it_is(directory: Path) -> None:
    settings = RunSettings(load_in="4bit", device="cpu")
    loaded = load_for_measuring(directory, settings)
    result = measure(loaded, MANIFEST, settings=SETTINGS)
    everything = [naive(loaded.model, PIN.text(index)) for index in range(PIN.size)]
    secrets = {canary.id: canary.index for canary in (*MANIFEST.canaries, *MANIFEST.controls)}
    inserted = {canary.index for canary in MANIFEST.canaries}
    for canary in result.canaries:
        own = everything[secrets[canary.id]]
        assert canary.log_perplexity_bits == pytest.approx(own, abs=1e-3)
        others = [bits for i, bits in enumerate(everything) if i not in inserted]
        lower = int(np.sum(np.array(others) <= own + 1e-5)) + (secrets[canary.id] in inserted)
        assert canary.exposure.rank == lower
    said = [line for line in result.warnings if "are quantised (torchao" in line]
    assert len(said) == 1
    assert result.model.dtype == "float32"


def test_a_quantised_model_in_memory_is_measured_as_its_saved_self(
    directory: Path, tmp_path: Path
) -> None:
    loaded = load_model(directory, load_in="8bit")
    save_model(loaded.model, TOKENIZER, tmp_path / "saved")
    here = measure(loaded.model, MANIFEST, tokenizer=TOKENIZER, settings=SETTINGS)
    saved = measure(tmp_path / "saved", MANIFEST, settings=SETTINGS)
    assert here.canaries == saved.canaries
    assert here.model.weights_sha256 == saved.model.weights_sha256
    assert set(saved.warnings) <= set(here.warnings)


def test_where_no_float64_can_be_had_the_result_says_so(directory: Path) -> None:
    settings = replace(SETTINGS, references=20, budget_steps=5_000, draws=100, guesses=5)
    result = measure(load_model(directory, load_in="8bit"), MANIFEST, settings=settings)
    assert any("its weights are quantised, and in float64" in line for line in result.warnings)


def test_a_device_beside_a_map_of_all_devices_is_refused(directory: Path) -> None:
    with pytest.raises(SettingsError, match="device_map=auto takes all devices, and device='cpu'"):
        load_for_measuring(directory, RunSettings(device_map="auto", device="cpu"))


def test_a_spread_model_is_measured_as_the_whole(directory: Path) -> None:
    parts = {"model.embed_tokens": "cpu", "model.rotary_emb": "cpu", "model.norm": "cpu"}
    places: dict[str, int | str] = {**parts, "model.layers": "disk", "lm_head": "disk"}
    loaded = load_model(directory, device_map=places)
    spread = measure(loaded, MANIFEST, settings=SETTINGS)
    whole = measure(directory, MANIFEST, settings=SETTINGS)
    for spread_out, at_once in zip(spread.canaries, whole.canaries, strict=True):
        assert spread_out.log_perplexity_bits == at_once.log_perplexity_bits
        assert spread_out.exposure.rank == at_once.exposure.rank
    assert spread.model.weights_sha256 == whole.model.weights_sha256
    in_memory = measure(loaded.model, MANIFEST, tokenizer=TOKENIZER, settings=SETTINGS)
    assert in_memory.canaries == spread.canaries
