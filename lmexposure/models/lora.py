"""Training by adapters: low-rank matrices (LoRA) next to the frozen weights of a pretrained model.

What is saved is the adapter as peft writes it, with the tokenizer: `load_model` reads it on its
base.
"""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError

from lmexposure._files import atomic_directory
from lmexposure.canaries import derive_seed
from lmexposure.errors import FileError, ModelError, SettingsError
from lmexposure.models.adapters import is_adapter
from lmexposure.models.load import LoadedModel
from lmexposure.models.new_models import NEW_MODELS
from lmexposure.models.quantised import without_torchao
from lmexposure.studies import TrainingSettings

if TYPE_CHECKING:
    from peft import PeftModel

_ALL_LINEAR = "all-linear"
_SHOWN = 8


def check_lora(name: str) -> None:
    """Refuse a model that no adapter can be trained for."""
    if name in NEW_MODELS:
        raise SettingsError(
            f"lora=True is for a pretrained model, whose weights stay as they are, and "
            f"{name!r} is a new one; leave lora out, or give the directory or hub name of a model"
        )
    if is_adapter(Path(name)):
        raise ModelError(
            f"model {name!r} is itself an adapter, and an adapter on it could not be loaded again; "
            "merge it into its base with merge_and_unload of peft, save that, and give it"
        )
    try:
        import peft  # noqa: F401  whether it is there
    except ImportError as failure:
        raise ModelError(
            "lora=True needs peft; install it: pip install 'lmexposure[peft]'"
        ) from failure


def with_new_adapter(loaded: LoadedModel, settings: TrainingSettings) -> "PeftModel":
    """The model with an untrained adapter, which changes nothing yet, and all else frozen.

    Source: Hu et al. 2022, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1.
    """
    check_lora(loaded.name)
    from peft import LoraConfig, get_peft_model

    targets: Any = list(settings.lora_targets)
    config = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha or 2 * settings.lora_rank,
        target_modules=_ALL_LINEAR if targets == [_ALL_LINEAR] else targets,
        task_type="CAUSAL_LM",
        base_model_name_or_path=_lasting(loaded.name),
        revision=getattr(loaded.model.config, "_commit_hash", None),
    )
    device = loaded.model.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(derive_seed(settings.seed, "adapter"))
        try:
            # It warns of what concerns its authors.
            with warnings.catch_warnings(action="ignore"), without_torchao():
                adapted: Any = get_peft_model(loaded.model, config)
        except ValueError as failure:
            raise ModelError(
                f"no adapter can be put into {', '.join(targets)} of model {loaded.name!r}; its "
                f"linear layers are {_linear_layers(loaded.model)}: name some of them "
                "(lora_targets=[...])"
            ) from failure
    # A set, whose order differs from one process to the next, and with it the file's bytes.
    config.target_modules = sorted(config.target_modules or ())
    return adapted


def is_lora(model: Any) -> bool:
    """Whether a model in training is one by `with_new_adapter`."""
    return hasattr(model, "peft_config")


def save_adapter(model: Any, tokenizer: Any, path: Path, *, mode: int = 0o666) -> None:
    """Write an adapter and its tokenizer as one directory, whole or not at all."""
    with atomic_directory(path, mode=mode) as partial:
        try:
            # The base is as it was, its embeddings too: nothing is asked of the hub.
            model.save_pretrained(partial, save_embedding_layers=False)
        except SafetensorError as failure:
            raise FileError(f"cannot write {path}: {failure}; free some space") from failure
        (partial / "README.md").unlink(missing_ok=True)  # peft's form to fill in
        tokenizer.save_pretrained(partial)


def _lasting(name: str) -> str:
    """A directory's name wherever it is asked from; a hub name as it is."""
    path = Path(name)
    return str(path.resolve()) if path.is_dir() else name


def _linear_layers(model: torch.nn.Module) -> str:
    """By the ends of their names, as targets are given."""
    linear = {
        name.rpartition(".")[2]
        for name, layer in model.named_modules()
        if hasattr(layer, "weight")
        and getattr(layer.weight, "ndim", 0) == 2  # Conv1D of GPT-2 too
        and not isinstance(layer, torch.nn.Embedding)
    }
    more = ", ..." if len(linear) > _SHOWN else ""
    return ", ".join(sorted(linear)[:_SHOWN]) + more
