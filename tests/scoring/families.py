"""Small random models of many architectures, for what depends on caches and masks."""

from collections.abc import Callable
from typing import Any

import torch
import transformers

from lmexposure.models import LstmConfig

__all__ = ["FAMILIES", "family", "wide_head"]

VOCABULARY, WINDOW, LONGEST = 60, 5, 128
_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": LONGEST,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
_HEADS = {"num_key_value_heads": 1, "head_dim": 16}


def _config(name: str, **more: Any) -> Any:
    return getattr(transformers, f"{name}Config")(**(_SIZES | more))


FAMILIES: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: _config("GPT2", n_layer=2, n_embd=32, n_head=2, n_positions=LONGEST),
    "gpt_neox": lambda: _config("GPTNeoX"),
    "llama": lambda: _config("Llama", **_HEADS),
    "mistral": lambda: _config("Mistral", sliding_window=WINDOW, **_HEADS),
    "qwen2": lambda: _config("Qwen2", **_HEADS),
    "qwen2_sliding": lambda: _config(
        "Qwen2", use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1, **_HEADS
    ),
    "gemma": lambda: _config("Gemma", **_HEADS),
    "gemma2": lambda: _config("Gemma2", sliding_window=WINDOW, **_HEADS),
    "opt": lambda: _config("OPT", ffn_dim=64, word_embed_proj_dim=32),
    "granite": lambda: _config("Granite", logits_scaling=4.0, **_HEADS),
    "cohere": lambda: _config("Cohere", logit_scale=0.5, **_HEADS),
    "bloom": lambda: _config("Bloom", n_layer=2, n_head=2),
    "mamba": lambda: transformers.MambaConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, state_size=4
    ),
    "recurrent_gemma": lambda: _config(
        "RecurrentGemma", num_hidden_layers=3, lru_width=32, attention_window_size=8
    ),
    "lstm": lambda: LstmConfig(vocab_size=VOCABULARY, hidden_size=32, embedding_size=32),
}


def family(kind: str) -> Any:
    """A random model of the kind, whose tokens differ in probability."""
    torch.manual_seed(1)
    return wide_head(transformers.AutoModelForCausalLM.from_config(FAMILIES[kind]()).eval())


def wide_head(model: Any) -> Any:
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(8)
    return model
