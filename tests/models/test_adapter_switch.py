"""Adapters switched off, and the hash of what is left."""

from typing import Any

import pytest
import torch
from tiny import model_of

from lmexposure.errors import ModelError
from lmexposure.models import adapters_off, base_sha256, check_switch, weights_sha256

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*tie:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]
IDS = torch.tensor([[3, 1, 4, 1, 5]])


def with_lora(**options: Any) -> Any:
    peft = pytest.importorskip("peft")
    options = {"target_modules": ["c_attn"], "fan_in_fan_out": True, **options}
    config = peft.LoraConfig(r=2, init_lora_weights=False, **options)
    return peft.get_peft_model(model_of("gpt2", 20), config).eval()


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    found: torch.Tensor = model(input_ids=IDS).logits
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_dora": True},
        {"modules_to_save": ["ln_f"]},
        {"trainable_token_indices": {"wte": [1, 3]}},
        {"target_modules": ["c_attn", "wte"]},
    ],
)
def test_off_it_is_the_base_and_on_again_what_it_was(options: dict[str, Any]) -> None:
    base, adapted = model_of("gpt2", 20).eval(), with_lora(**options)
    on = logits(adapted)
    with adapters_off(adapted.get_base_model()):
        assert torch.equal(logits(adapted), logits(base))
    assert torch.equal(logits(adapted), on)
    assert not torch.equal(on, logits(base))
    assert base_sha256(adapted.get_base_model()) == weights_sha256(base)


def test_what_was_off_stays_off_and_an_error_leaves_it_on() -> None:
    adapted = with_lora()
    on = logits(adapted)
    with pytest.raises(RuntimeError, match="stop"), adapters_off(adapted):
        raise RuntimeError("stop")
    assert torch.equal(logits(adapted), on)
    with adapted.disable_adapter():
        off = logits(adapted)
        with adapters_off(adapted):
            assert torch.equal(logits(adapted), off)
        assert torch.equal(logits(adapted), off)


def test_the_hash_reads_weights_that_are_offloaded() -> None:
    accelerate = pytest.importorskip("accelerate")
    bare = with_lora().get_base_model()
    before = base_sha256(bare)
    accelerate.cpu_offload(bare)
    assert next(bare.parameters()).device.type == "meta"
    assert base_sha256(bare) == before


def test_what_cannot_be_switched_off() -> None:
    check_switch("model", with_lora())
    with pytest.raises(ModelError, match=r"model 'plain' has no adapter .* by its directory"):
        check_switch("plain", model_of("gpt2", 20))
    merged = with_lora()
    merged.merge_adapter()
    with pytest.raises(ModelError, match=r"adapter of model 'merged' is merged .*unmerge_adapter"):
        check_switch("merged", merged)
