"""Weights wherever they are: their hash, and those that wait outside of the model's device.

And the hash of a tokenizer: of what its token numbers mean, wherever it was loaded from.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lmexposure._files import content_hash
from lmexposure.errors import ModelError


def weights_sha256(model: PreTrainedModel) -> str:
    """SHA-256 over the names, dtypes, shapes and bytes of all weights, wherever they lie."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if tensor.device.type == "meta":
            tensor = _offloaded(model, name)
        for kept, part in _parts(name, tensor.detach()):
            digest.update(f"{kept} {part.dtype} {tuple(part.shape)}\n".encode())
            flat = part.cpu().contiguous().flatten()
            digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def weights_away(model: PreTrainedModel) -> list[str]:
    """Names of the weights that are nowhere: on the meta device, and not offloaded."""
    held = {id(weight) for module in _offloading(model) for weight in module.parameters(False)}
    return [
        name
        for name, weight in model.named_parameters()
        if weight.device.type == "meta" and id(weight) not in held
    ]


def is_spread(model: PreTrainedModel) -> bool:
    """Whether accelerate moves data or weights between devices while the model computes."""
    return any(hasattr(module, "_hf_hook") for module in model.modules())


def is_sharded(model: Any) -> bool:
    """Whether DeepSpeed keeps the weights in parts, one a process."""
    return any(hasattr(weight, "ds_id") for weight in model.parameters())


def weights_offloaded(model: PreTrainedModel) -> bool:
    """Whether weights are brought from the memory of the CPU or the disk when they are needed."""
    return next(_offloading(model), None) is not None


def spread(
    model: PreTrainedModel, device_map: str | Mapping[str, int | str], folder: Callable[[], str]
) -> None:
    """Spread a model in memory over devices, as `from_pretrained` spreads one that it loads."""
    from accelerate import dispatch_model, infer_auto_device_map
    from accelerate.utils import get_balanced_memory

    parts = {} if isinstance(device_map, str) else dict(device_map)
    if isinstance(device_map, str):
        whole = list(model._no_split_modules or ())
        memory = get_balanced_memory(model, no_split_module_classes=whole)
        parts = infer_auto_device_map(model, max_memory=memory, no_split_module_classes=whole)
    places = set(parts.values())
    if places != {"cpu"}:
        offload = folder() if "disk" in places else None
        dispatch_model(model, device_map=parts, offload_dir=offload)


def check_embeddings_are_here(name: str, model: PreTrainedModel) -> None:
    """Refuse a model whose first weights are offloaded: they say where inputs have to be."""
    if model.device.type == "meta":
        raise ModelError(
            f"model {name!r} has its embeddings offloaded, so that inputs have no device; leave "
            "them on a device in device_map (accelerate does where memory holds them)"
        )


def _offloading(model: PreTrainedModel) -> Iterator[Any]:
    """The modules whose weights come when they compute."""
    from accelerate.utils import has_offloaded_params

    return (module for module in model.modules() if has_offloaded_params(module))


def _offloaded(model: PreTrainedModel, name: str) -> torch.Tensor:
    from accelerate.utils import align_module_device

    layer, _, leaf = name.rpartition(".")
    module = model.get_submodule(layer)
    with align_module_device(module, "cpu"):
        tensor: torch.Tensor = getattr(module, leaf).detach().clone()
    return tensor


def _parts(name: str, tensor: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The plain tensors that a weight is kept as, by name; a plain one is its own."""
    if not hasattr(tensor, "__tensor_flatten__"):
        yield name, tensor
        return
    names, rest = tensor.__tensor_flatten__()
    for part in names:
        yield from _parts(f"{name}:{part}", getattr(tensor, part))
    # In JSON: what is a tuple before saving is a list behind it.
    described = json.dumps([type(tensor).__name__, rest], default=str, sort_keys=True).encode()
    yield f"{name}:kind", torch.frombuffer(bytearray(described), dtype=torch.uint8)


def is_tokenizer(value: Any) -> bool:
    """Whether it is a tokenizer of transformers."""
    return isinstance(value, PreTrainedTokenizerBase)


def tokenizer_sha256(tokenizer: PreTrainedTokenizerBase) -> str:
    """SHA-256 of a tokenizer's vocabulary: each token with its number, in canonical JSON."""
    return content_hash(tokenizer.get_vocab())
