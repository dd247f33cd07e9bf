"""Small random models of many architectures, for what depends on caches and masks."""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

import lmexposure.models  # noqa: F401  (makes the LSTM known to transformers)

__all__ = ["FAMILIES", "VOCABULARY", "family"]

VOCABULARY, WINDOW = 64, 5
_COMMON: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
}
_GROUPED = {**_COMMON, "num_key_value_heads": 1}
_SIZED = {**_GROUPED, "head_dim": 16}
_SLIDING = {**_GROUPED, "sliding_window": WINDOW}
_RECURRENT = {"num_hidden_layers": 2, "hidden_size": 32, "state_size": 8}
_SOME_LAYERS_SLIDE = {"use_sliding_window": True, "max_window_layers": 1}
_EXPERTS_AND_ATTENTION_IN_TURN = {
    "attn_layer_period": 2,
    "attn_layer_offset": 1,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
    "num_experts": 2,
    "mamba_d_state": 8,
    "mamba_dt_rank": 4,
}

# What each family needs to be small, by its name here and the `model_type` of its configuration.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", {"n_layer": 2, "n_embd": 32, "n_head": 2, "n_positions": 128}),
    "gpt_neox": ("gpt_neox", _COMMON),
    "llama": ("llama", _GROUPED),
    "mistral": ("mistral", _SLIDING),
    "qwen2": ("qwen2", _GROUPED),
    "qwen2_sliding": ("qwen2", {**_SLIDING, **_SOME_LAYERS_SLIDE}),
    "gemma": ("gemma", _SIZED),
    "gemma2": ("gemma2", {**_SIZED, "sliding_window": WINDOW, "query_pre_attn_scalar": 16}),
    "gemma3": ("gemma3_text", {**_SIZED, "sliding_window": WINDOW, "query_pre_attn_scalar": 16}),
    "opt": ("opt", {**_COMMON, "ffn_dim": 64, "word_embed_proj_dim": 32}),
    "granite": ("granite", {**_GROUPED, "logits_scaling": 4.0}),
    "cohere": ("cohere", {**_GROUPED, "logit_scale": 0.5}),
    "bloom": ("bloom", {"n_layer": 2, "n_head": 2, "hidden_size": 32}),
    "mamba": ("mamba", _RECURRENT),
    "mamba2": ("mamba2", {**_RECURRENT, "num_heads": 4, "head_dim": 16, "n_groups": 1}),
    "jamba": ("jamba", {**_GROUPED, **_EXPERTS_AND_ATTENTION_IN_TURN}),
    "recurrent_gemma": (
        "recurrent_gemma",
        {**_SIZED, "num_hidden_layers": 3, "lru_width": 32, "attention_window_size": 8},
    ),
    "rwkv": ("rwkv", {**_RECURRENT, "attention_hidden_size": 32, "context_length": 128}),
    "lstm": ("lmexposure_lstm", {"num_hidden_layers": 2, "hidden_size": 32, "embedding_size": 32}),
}


def family(name: str) -> Any:
    """A random model of the family, whose every token matters to what comes next."""
    kind, settings = FAMILIES[name]
    ids = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    config = AutoConfig.for_model(kind, **settings, **ids, initializer_range=0.2)
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config).eval()
    if name == "lstm":  # draws its weights as torch does, whatever the range
        with torch.no_grad():
            model.lm_head.weight.mul_(8)
    return model
