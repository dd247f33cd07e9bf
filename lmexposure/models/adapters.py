"""Adapters of peft (LoRA and its like): a base model and a few weights that change it."""

import json
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import PreTrainedModel

from lmexposure.errors import ModelError

__all__ = ["base_of_adapter", "check_adapter", "is_adapter", "with_adapter"]

_CONFIG = "adapter_config.json"
_WEIGHTS = "adapter_model.safetensors"


def is_adapter(path: Path) -> bool:
    """Whether a directory holds an adapter."""
    return (path / _CONFIG).is_file()


def check_adapter(path: Path) -> None:
    """Refuse an adapter directory that cannot be loaded safely.

    Raises:
        ModelError: no safetensors weights, no base model named, or a whole model beside it.
    """
    if (path / "config.json").is_file():
        raise ModelError(
            f"model {str(path)!r} holds a whole model and an adapter, so that it is unclear which "
            f"is meant; move config.json with its weights, or {_CONFIG}, elsewhere"
        )
    if not (path / _WEIGHTS).is_file():
        raise ModelError(
            f"adapter {str(path)!r} has no {_WEIGHTS}; save it again with save_pretrained of "
            "peft, which writes safetensors"
        )
    base_of_adapter(path)


def base_of_adapter(path: Path) -> tuple[str, str | None]:
    """(directory or hub name of the base model, its revision if one is said).

    Raises:
        ModelError: adapter_config.json cannot be read, or names no base that can be loaded.
    """
    try:
        config = json.loads((path / _CONFIG).read_bytes())
        base, revision = config.get("base_model_name_or_path"), config.get("revision")
    except (OSError, ValueError, AttributeError) as failure:
        raise ModelError(
            f"cannot read {_CONFIG} of adapter {str(path)!r} ({type(failure).__name__}); save the "
            "adapter again"
        ) from failure
    if not base or is_adapter(Path(base)):
        what = "an adapter, too" if base else "nothing"
        raise ModelError(
            f"adapter {str(path)!r} names {what} as its base model; set base_model_name_or_path in "
            f"{_CONFIG} to the directory or hub name of a whole model"
        )
    return str(base), revision


def with_adapter(model: PreTrainedModel, path: Path, *, tokens: int) -> PreTrainedModel:
    """A model with its adapter: merged in float32, beside it in other dtypes.

    There a merged weight would be rounded to the dtype, which can swallow what the adapter learned.

    Args:
        model: the base, changed in place.
        path: of the adapter.
        tokens: of its tokenizer; a base with fewer gets more rows, as in training.

    Raises:
        ModelError: peft is missing, the adapter does not fit or lacks weights, or it is of a kind
            that puts virtual tokens before the text.
    """
    try:
        from peft import PeftModel, get_peft_model_state_dict
    except ImportError as failure:
        raise ModelError(
            f"model {str(path)!r} is an adapter, which needs peft; install it: pip install "
            "'lmexposure[peft]'"
        ) from failure
    if tokens > model.get_input_embeddings().weight.shape[0]:
        model.resize_token_embeddings(tokens)
    try:
        # It warns of what concerns its own authors, and of missing weights, which we refuse.
        with warnings.catch_warnings(action="ignore"):
            adapted: Any = PeftModel.from_pretrained(model, str(path), torch_device="cpu")
    except Exception as failure:  # weights that do not fit raise whatever loading them ran into
        raise ModelError(
            f"cannot load adapter {str(path)!r}: {_first_line(failure)}; give its own base model "
            f"in {_CONFIG}, or save the adapter again"
        ) from failure
    if adapted.active_peft_config.is_prompt_learning:
        raise ModelError(
            f"adapter {str(path)!r} is of kind {adapted.active_peft_config.peft_type.value}, which "
            "puts virtual tokens before the text; only adapters of the weights are read (LoRA ...)"
        )
    _check_whole(path, set(get_peft_model_state_dict(adapted, save_embedding_layers=False)))
    if model.dtype != torch.float32:
        beside: PreTrainedModel = adapted.get_base_model()
        return beside
    with warnings.catch_warnings(action="ignore"):
        merged: PreTrainedModel = adapted.merge_and_unload()
    return merged


def _check_whole(path: Path, expected: set[str]) -> None:
    """A weight that is not there would be one that changes nothing."""
    with safe_open(path / _WEIGHTS, framework="pt") as file:
        missing = sorted(expected - set(file.keys()))
    if missing:
        raise ModelError(
            f"adapter {str(path)!r} lacks {len(missing)} of its weights ({missing[0]} first); save "
            "it again with save_pretrained of peft"
        )


def _first_line(failure: Exception) -> str:
    return str(failure).strip().split("\n")[0][:300] or type(failure).__name__
