"""Adapters as peft saves them: measured as their merged models are, and beside their own base."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from audit.quick import SAMPLED
from audit.small import TOKENIZER, base_bits, bits, pins
from known import known
from tiny import byte_level_bpe, model_of

from lmexposure.audit import measure
from lmexposure.errors import ModelError
from lmexposure.models import load_model, save_model, weights_sha256
from lmexposure.scoring import base_model as base_module
from lmexposure.studies import Result

peft = pytest.importorskip("peft")

pytestmark = pytest.mark.filterwarnings("ignore")  # of peft's, on tied weights and new tokens

MANIFEST = pins(3, repetitions=(1,), controls=1)
LAYERS = {"llama": ["q_proj", "v_proj"], "gpt2": ["c_attn"]}
EMBEDDING = {"llama": "embed_tokens", "gpt2": "wte"}
FAMILIES = ("llama", "gpt2")  # an output layer of its own; tied to the input, and Conv1D


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("bases")
    for family in FAMILIES:
        save_model(model_of(family, len(TOKENIZER)), TOKENIZER, place / family)
    return place


@pytest.fixture(scope="module")
def before(bases: Path) -> dict[str, Any]:
    """Bits of the canaries under each base."""
    return {family: own_bits(measured(bases / family)) for family in FAMILIES}


def adapted(base: Path, *, more: tuple[str, ...] = (), **options: Any) -> tuple[Any, Any]:
    """A base with an adapter whose every weight moved, and the tokenizer, with more tokens."""
    tokenizer = byte_level_bpe()
    tokenizer.add_special_tokens({"additional_special_tokens": list(more)})
    model = load_model(base).model
    if more:
        model.resize_token_embeddings(len(tokenizer))
    standard = {"r": 4, "target_modules": LAYERS[base.name], "init_lora_weights": False}
    torch.manual_seed(1)
    config = peft.LoraConfig(
        **{**standard, "fan_in_fan_out": base.name == "gpt2", "task_type": "CAUSAL_LM", **options}
    )
    made = peft.get_peft_model(model, config).eval()
    with torch.no_grad():
        for weight in made.parameters():
            if weight.requires_grad:
                weight.add_(0.05 * torch.randn_like(weight))
    return made, tokenizer


def save_both(place: Path, base: Path, **options: Any) -> None:
    """The adapter, and what merge_and_unload makes of it."""
    made, tokenizer = adapted(base, **options)
    made.save_pretrained(place / "adapter")
    tokenizer.save_pretrained(place / "adapter")
    save_model(made.merge_and_unload(), tokenizer, place / "merged")


def measured(model: Any, base: Any = None) -> Result:
    return measure(model, MANIFEST, base=base, settings=SAMPLED)


def own_bits(result: Result) -> Any:
    return np.array(bits(result))


def exposures(result: Result) -> Any:
    return np.array([canary.exposure.value for canary in result.canaries])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_dora": True, "target_modules": "all-linear"},
        {"use_rslora": True},
        {"modules_to_save": ["EMBEDDING", "lm_head"]},
        {"modules_to_save": ["EMBEDDING", "lm_head"], "more": ("<|user|>", "<|end|>")},
        {"trainable_token_indices": [3, 4]},
        {"bias": "all"},
        {"init_lora_weights": "pissa"},
    ],
    ids=["lora", "dora", "rslora", "embedding", "new-tokens", "some-tokens", "biases", "pissa"],
)
def test_it_is_measured_as_its_merged_model(
    bases: Path, before: dict[str, Any], tmp_path: Path, family: str, options: dict[str, Any]
) -> None:
    for name, value in options.items():
        if name == "modules_to_save":
            options = {
                **options,
                name: [part.replace("EMBEDDING", EMBEDDING[family]) for part in value],
            }
    save_both(tmp_path, bases / family, **options)
    own, merged = measured(tmp_path / "adapter", "adapter-off"), measured(tmp_path / "merged")
    np.testing.assert_allclose(own_bits(own), own_bits(merged), atol=1e-3)
    np.testing.assert_allclose(exposures(own), exposures(merged), atol=1e-3)
    assert np.abs(own_bits(own) - base_bits(own)).max() > 0.01
    np.testing.assert_allclose(base_bits(own), before[family], atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_dora": True},
        {"bias": "all"},
        {"init_lora_weights": "pissa"},
        {"trainable_token_indices": [305, 306], "more": ("<|user|>", "<|end|>")},
    ],
    ids=["lora", "dora", "biases", "pissa", "new-tokens"],
)
def test_apart_in_half_precision_its_base_is_the_base(
    bases: Path, tmp_path: Path, family: str, options: dict[str, Any]
) -> None:
    """Trained biases stay where the adapter is switched off, and PiSSA took weights away."""
    made, tokenizer = adapted(bases / family, **options)
    made.save_pretrained(tmp_path / "adapter", save_embedding_layers=False)
    tokenizer.save_pretrained(tmp_path / "adapter")
    loaded, before = (
        load_model(path, dtype="bfloat16") for path in (tmp_path / "adapter", bases / family)
    )
    off, named = measured(loaded, "adapter-off"), measured(loaded, bases / family)
    assert known(off.base).switched_off
    assert known(off.base).weights_sha256 == weights_sha256(before.model)
    np.testing.assert_allclose(base_bits(off), own_bits(measured(before)), atol=1e-3)
    assert base_bits(off) == base_bits(named)


@pytest.mark.parametrize("options", [{"bias": "all"}, {"init_lora_weights": "pissa"}])
def test_in_memory_it_is_not_switched_off_where_that_is_not_its_base(
    bases: Path, options: dict[str, Any]
) -> None:
    made, tokenizer = adapted(bases / "gpt2", **options)
    with pytest.raises(ModelError, match=r"changed weights of its base .* give the model before"):
        measure(made, MANIFEST, tokenizer=tokenizer, base="adapter-off", settings=SAMPLED)


def test_a_base_is_loaded_once_more_without_asking_the_hub(
    bases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has just been loaded, so that it is here; and --offline says so."""
    save_both(tmp_path, bases / "llama")
    loaded, asked = load_model(tmp_path / "adapter"), []

    def load(path: Any, **options: Any) -> Any:
        asked.append(options["offline"])
        return load_model(path, **options)

    monkeypatch.setattr(base_module, "load_model", load)
    measured(loaded, "adapter-off")
    assert asked == [True]


@pytest.mark.parametrize(
    ("dtype", "context", "with_base"),
    [("float32", "<|user|>", False), ("bfloat16", "<|user|>", False), ("float32", "\n\n", True)],
)
def test_with_new_tokens_in_the_rows_the_witness_goes_without_the_base(
    bases: Path, tmp_path: Path, dtype: str, context: str, with_base: bool
) -> None:
    """The base does not have them, and nobody asked for it."""
    manifest = pins(3, 400, repetitions=(1,), controls=1)
    made, tokenizer = adapted(bases / "llama", more=("<|user|>",), trainable_token_indices=[305])
    made.save_pretrained(tmp_path / "adapter", save_embedding_layers=False)
    tokenizer.save_pretrained(tmp_path / "adapter")
    loaded = load_model(tmp_path / "adapter", dtype=dtype)
    result = measure(loaded, manifest, settings=replace(SAMPLED, left_context=context))
    witness = known(result.witness)
    assert witness.p_value is not None, witness.note
    assert witness.beside_base == with_base
