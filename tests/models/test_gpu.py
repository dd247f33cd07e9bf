"""Models of 8 billion parameters with an adapter, on a GPU: that they are measured, in what memory.

On a machine without a GPU nothing of this is tried, and the formula stands alone (`test_memory`).
"""

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from audit.small import pins
from models.test_memory import EIGHT, LOCAL
from peft import LoraConfig, get_peft_model
from tiny import byte_level_bpe
from transformers import LlamaConfig, LlamaForCausalLM

from lmexposure.audit import MeasureSettings, measure
from lmexposure.models import ModelShape, load_model, save_model
from lmexposure.scoring import TorchModel

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not torch.cuda.is_available(),
        reason="no GPU here: 8 billion parameters in bfloat16 and 4 bits are untried",
    ),
    # What peft still calls in transformers.
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]
TOKENIZER = byte_level_bpe()
FEW = MeasureSettings(references=200, draws=200, guesses=10, revealed=0, budget_steps=2_000)


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA adapter on random weights of Llama 3.1's shape, in bfloat16."""
    home = tmp_path_factory.mktemp("eight")
    torch.manual_seed(1)
    with torch.device("cuda"):
        model = LlamaForCausalLM(LlamaConfig(**EIGHT, dtype="bfloat16")).to(torch.bfloat16)
    save_model(model, TOKENIZER, home / "base")
    model.name_or_path = str(home / "base")
    targets = ["q_proj", "k_proj", "v_proj", "o_proj"]
    adapted = get_peft_model(model, LoraConfig(r=8, target_modules=targets))
    adapted.save_pretrained(home / "adapter")
    return home / "adapter"


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "how",
    [
        {"device": "cuda", "dtype": "bfloat16"},
        {"device": "cuda", "dtype": "bfloat16", "load_in": "4bit"},
        {"device": "cuda", "dtype": "bfloat16", "load_in": "8bit"},
        {"device_map": "auto", "dtype": "bfloat16"},
    ],
    ids=["bfloat16", "4bit", "8bit", "spread"],
)
def test_eight_billion_parameters_are_measured_in_the_memory_that_was_said(
    adapter: Path, how: dict[str, Any]
) -> None:
    if "load_in" in how:
        pytest.importorskip("bitsandbytes")
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    shape = ModelShape.of_model(str(adapter.parent / "base"), LOCAL)
    result = measure(TorchModel.of(load_model(adapter, **how)), pins(4), settings=FEW)
    assert {canary.exposure.method for canary in result.canaries} <= {"exact", "importance"}
    weights = shape.weights("bfloat16", how.get("load_in"), "cuda")
    most = 1.3 * weights + shape.working_set("bfloat16", "cuda")
    assert torch.cuda.max_memory_allocated() <= most
