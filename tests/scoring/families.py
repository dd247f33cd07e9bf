"""Small random models of many architectures, for what depends on caches, masks and experts."""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

import lmexposure.models  # noqa: F401  (makes the LSTM known to transformers)

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
_GPT2 = {"n_layer": 2, "n_embd": 32, "n_head": 2, "n_positions": 128}
_RECURRENT = {"num_hidden_layers": 2, "hidden_size": 32, "state_size": 8}
_SOME_LAYERS_SLIDE = {"use_sliding_window": True, "max_window_layers": 1}
_EXPERTS: dict[str, Any] = {
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}
_SHARED_EXPERT = {**_EXPERTS, "shared_expert_intermediate_size": 32}
_ROUTED = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
_LATENT_ATTENTION = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
}
_EXPERTS_AND_ATTENTION_IN_TURN = {
    "attn_layer_period": 2,
    "attn_layer_offset": 1,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
    "num_experts": 2,
    "mamba_d_state": 8,
    "mamba_dt_rank": 4,
}
_LINEAR_ATTENTION = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
_MAMBA2 = {
    "mamba_d_state": 8,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 16,
}

# What each family needs to be small, by its name here and the `model_type` of its configuration.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", _GPT2),
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
    "mamba2": (
        "mamba2",
        {**_RECURRENT, "num_heads": 4, "head_dim": 16, "n_groups": 1, "chunk_size": 16},
    ),
    "jamba": ("jamba", {**_GROUPED, **_EXPERTS_AND_ATTENTION_IN_TURN}),
    "recurrent_gemma": (
        "recurrent_gemma",
        {**_SIZED, "num_hidden_layers": 3, "lru_width": 32, "attention_window_size": 8},
    ),
    "rwkv": ("rwkv", {**_RECURRENT, "attention_hidden_size": 32, "context_length": 128}),
    "lstm": ("lmexposure_lstm", {"num_hidden_layers": 2, "hidden_size": 32, "embedding_size": 32}),
    "falcon": ("falcon", {**_COMMON, "new_decoder_architecture": False}),
    "phi": ("phi", _COMMON),
    "stablelm": ("stablelm", _GROUPED),
    "nemotron": ("nemotron", _GROUPED),
    "starcoder2": ("starcoder2", _SLIDING),
    "cohere2": ("cohere2", {**_SLIDING, "layer_types": ["sliding_attention", "full_attention"]}),
    "exaone4": ("exaone4", {**_SLIDING, "sliding_window_pattern": 2}),
    "smollm3": ("smollm3", {**_GROUPED, "no_rope_layer_interval": 2}),
    "helium": ("helium", _SIZED),
    "gptj": ("gptj", {**_GPT2, "rotary_dim": 8}),
    "openai-gpt": ("openai-gpt", _GPT2),
    "mpt": ("mpt", {"n_layers": 2, "d_model": 32, "n_heads": 2, "max_seq_len": 128}),
    "xglm": ("xglm", {"num_layers": 2, "d_model": 32, "attention_heads": 2, "ffn_dim": 64}),
    "bamba": ("bamba", {**_GROUPED, **_MAMBA2, "attn_layer_indices": [1]}),
    "falcon_h1": ("falcon_h1", {**_GROUPED, **_MAMBA2, "mamba_d_ssm": 64}),
    "zamba2": (
        "zamba2",
        {
            **_COMMON,
            "layers_block_type": ["mamba", "hybrid"],
            "mamba_d_state": 8,
            "mamba_headdim": 32,
            "mamba_ngroups": 1,
            "n_mamba_heads": 2,
            "num_mem_blocks": 1,
            "adapter_rank": 4,
            "chunk_size": 16,
            "time_step_min": 1e-9,  # its scan observes it, its single step does not
        },
    ),
    "lfm2": ("lfm2", {**_GROUPED, "layer_types": ["conv", "full_attention"]}),
    "xlstm": ("xlstm", {"num_blocks": 2, "hidden_size": 32, "num_heads": 2, "chunk_size": 16}),
    "mixtral": ("mixtral", {**_GROUPED, **_EXPERTS}),
    "qwen2_moe": ("qwen2_moe", {**_GROUPED, **_SHARED_EXPERT}),
    "qwen3_moe": ("qwen3_moe", {**_SIZED, **_EXPERTS}),
    "qwen3_next": ("qwen3_next", {**_SIZED, **_SHARED_EXPERT, **_LINEAR_ATTENTION}),
    "deepseek_v3": ("deepseek_v3", {**_COMMON, **_ROUTED, **_LATENT_ATTENTION}),
    "gpt_oss": ("gpt_oss", {**_SIZED, **_EXPERTS, "sliding_window": WINDOW}),
    "minimax": (
        "minimax",
        {**_SIZED, **_EXPERTS, "block_size": 4, "layer_types": _LINEAR_ATTENTION["layer_types"]},
    ),
    "granitemoe": ("granitemoe", {**_GROUPED, **_EXPERTS}),
    "olmoe": ("olmoe", {**_GROUPED, **_EXPERTS}),
    "phimoe": ("phimoe", {**_SLIDING, **_EXPERTS}),
    "glm4_moe": ("glm4_moe", {**_SIZED, **_ROUTED}),
    "ernie4_5_moe": (
        "ernie4_5_moe",
        {**_GROUPED, **_EXPERTS, "moe_num_experts": 4, "moe_k": 2, "moe_layer_start_index": 1},
    ),
}


def family(name: str, vocab_size: int = VOCABULARY) -> Any:
    """A random model of the family, whose every token matters to what comes next."""
    kind, settings = FAMILIES[name]
    ids = {"vocab_size": vocab_size, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    config = AutoConfig.for_model(kind, **settings, **ids, initializer_range=0.2)
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config).eval()
    if name == "lstm":  # draws its weights as torch does, whatever the range
        with torch.no_grad():
            model.lm_head.weight.mul_(8)
    return model
