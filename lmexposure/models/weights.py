"""Weights wherever they are, their hash, and what computes with them: devices, threads, precision.

The last bits of a loss or a score depend on the number of threads, and not on how busy the machine
is. So the number is chosen once by the model's size and recorded, and work that is resumed goes on
with it.
"""

import copy
import hashlib
import json
import logging
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedModel

from lmexposure._files import read_bytes
from lmexposure.errors import ModelError

if TYPE_CHECKING:
    from lmexposure.models.load import LoadedModel

_LOG = logging.getLogger(__name__)
_SHOWN = 3
# Buffers, not weights, that earlier versions of transformers saved; each model makes them anew.
_OLD_BUFFERS = re.compile(
    r"(^|\.)((attn|attention)\.(masked_)?bias|causal_mask|position_ids"
    r"|rotary_emb\.(inv_freq|cos_cached|sin_cached))$"
)
# Below this size a second thread gains next to nothing: an operation ends before a thread wakes. An
# LSTM of 2 x 200 units has .7 million parameters, and gains 12 % on a quiet machine.
_WORTH_THREADS = 1_000_000
# As `torch.cpu.get_capabilities` names them, on x86 and ARM.
_NEEDS_ONE_OF = {
    torch.bfloat16: {"avx512_bf16", "amx_bf16", "bf16"},
    torch.float16: {"avx512_fp16", "amx_fp16", "fp16_arith"},
}


def weights_sha256(model: PreTrainedModel) -> str:
    """SHA-256 over the names, dtypes, shapes and bytes of all weights, wherever they lie."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if tensor.device.type == "meta":
            tensor = _offloaded(model, name)
        for kept, part in _parts(name, tensor.detach()):
            digest.update(f"{kept} {part.dtype} {tuple(part.shape)}\n".encode())
            digest.update(part.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
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


def spread(model: PreTrainedModel, device_map: str | Mapping[str, int | str], folder: str) -> None:
    """Spread a model in memory over devices, as `from_pretrained` spreads one that it loads."""
    from accelerate import dispatch_model, infer_auto_device_map
    from accelerate.utils import get_balanced_memory

    if not isinstance(device_map, str):
        parts = dict(device_map)
    else:
        whole = list(model._no_split_modules or ())
        memory = get_balanced_memory(model, no_split_module_classes=whole)
        parts = infer_auto_device_map(model, max_memory=memory, no_split_module_classes=whole)
    places = set(parts.values())
    if places != {"cpu"}:
        dispatch_model(model, device_map=parts, offload_dir=folder if "disk" in places else None)


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


def threads_for(
    loaded: "LoadedModel", *, asked: int | None = None, recorded: int | None = None
) -> int:
    """The number of threads for a training or a measurement."""
    if recorded is not None:
        if asked not in (None, recorded):
            _LOG.warning(
                "this goes on with threads=%d, as it began, and not with %d: the last bits of its "
                "numbers depend on it",
                recorded,
                asked,
            )
        return recorded
    if asked is not None:
        return asked
    return (
        1
        if loaded.size < _WORTH_THREADS and "OMP_NUM_THREADS" not in os.environ
        else torch.get_num_threads()
    )


@contextmanager
def computing_threads(number: int) -> Iterator[None]:
    """Let torch compute with this number of threads; then with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def instead(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """A method exchanged for a while, also where it was exchanged before, as accelerate does."""
    before = vars(owner).get(name)
    setattr(owner, name, function)
    try:
        yield
    finally:
        delattr(owner, name)
        if before is not None:
            setattr(owner, name, before)


@contextmanager
def holding(name: str, value: object, owners: Sequence[Any]) -> Iterator[None]:
    """Let an attribute of these have another value, and then its own again."""
    before = [getattr(owner, name) for owner in owners]
    for owner in owners:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, own in zip(owners, before, strict=True):
            setattr(owner, name, own)


def random_numbers(generators: Iterable[Any] = ()) -> list[Callable[[], object]]:
    """What puts these generators, and those of Python, NumPy and torch, back to where they are."""
    undo: list[Callable[[], object]] = [
        partial(torch.set_rng_state, torch.get_rng_state()),
        partial(random.setstate, random.getstate()),
        partial(np.random.set_state, np.random.get_state()),
        *map(_generator, generators),
    ]
    # Where CUDA is not in use, asking for its state would begin to use every GPU.
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        undo.append(partial(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    if torch.backends.mps.is_available():
        undo.append(partial(torch.mps.set_rng_state, torch.mps.get_rng_state()))
    return undo


def _generator(generator: Any) -> Callable[[], object]:
    if isinstance(generator, np.random.Generator):
        bits = generator.bit_generator
        return partial(setattr, bits, "state", copy.deepcopy(bits.state))
    try:
        return partial(generator.set_state, generator.get_state())
    except RuntimeError:  # of Opacus' secure mode: from the operating system, without a state
        return lambda: None


def training_places(device: str) -> int:
    """Cores of this machine, or GPUs where the models are trained on them."""
    if device != "cpu" and torch.cuda.is_available():
        return torch.cuda.device_count() if device in ("auto", "cuda") else 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_native(dtype: torch.dtype, device: str | torch.device) -> bool | None:
    """Whether products in `dtype` are no slower on this device than in float32."""
    if torch.device(device).type != "cpu" or dtype not in _NEEDS_ONE_OF:
        return True
    try:
        able = {name for name, has in torch.cpu.get_capabilities().items() if has is True}
    except (AttributeError, RuntimeError):  # older versions have no such function
        return None
    return bool(able & _NEEDS_ONE_OF[dtype]) if able else None


def warn_imitated(dtype: torch.dtype, device: str | torch.device) -> None:
    """Warn a user who asks for a precision that makes this machine slower."""
    if is_native(dtype, device) is False:
        _LOG.warning(
            "this CPU has no instructions for %s: it is several times slower here than float32, "
            "and saves memory alone; choose float32 for speed",
            str(dtype).removeprefix("torch."),
        )


def check_shards(path: Path, index: Path) -> None:
    """Refuse a model whose index and files do not tell of the same weights."""
    try:
        listed = json.loads(read_bytes(index))["weight_map"]
        files = sorted(set(listed.values()))
        held: set[str] = set()
        for file in files:
            with safe_open(path / file, framework="pt") as opened:
                held.update(opened.keys())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as failure:
        raise ModelError(
            f"cannot read the weights of model {str(path)!r} by its {index.name} "
            f"({reason(failure)}); copy all of its files again"
        ) from failure
    lost = sorted(set(listed) - held)
    if lost:
        raise ModelError(
            f"model {str(path)!r} has lost {_some(lost)} of its index, which are in none of its "
            f"{len(files)} files; copy all of its files again"
        )
    for file in files:
        numbered = re.search(r"-of-(\d+)\.safetensors$", file)
        if numbered and int(numbered[1]) != len(files):
            raise ModelError(
                f"model {str(path)!r} has {len(files)} files of weights in its index, but {file!r} "
                f"is one of {int(numbered[1])}; copy all of its files again"
            )


def refuse_other_weights(name: str, model: PreTrainedModel, info: dict[str, Any]) -> None:
    """The model that is measured must be the one that was saved: nothing made up or left out."""
    missing, unused = sorted(info["missing_keys"]), sorted(info["unexpected_keys"])
    unused = [key for key in unused if not _OLD_BUFFERS.search(key)]
    left_out = f"; {_some(unused)} of its files found no place in it" if unused else ""
    if missing:
        raise ModelError(
            f"model {name!r} lacks {len(missing)} of its weights ({missing[0]} first), which would "
            f"be random numbers{left_out}; save the whole causal LM, not its base model"
        )
    if info["mismatched_keys"]:
        key, saved, wanted = min(info["mismatched_keys"])
        raise ModelError(
            f"model {name!r} has weights of another shape than its config.json says: {key} has "
            f"{tuple(saved)} and would need {tuple(wanted)}; give it the config.json that it was "
            "saved with"
        )
    layers = getattr(model.config.get_text_config(), "num_hidden_layers", 0)
    if unused:
        raise ModelError(
            f"model {name!r} would be measured without a part of it: {_some(unused)} of its files "
            f"found no place in a {type(model).__name__} of {layers} layers; check config.json, or "
            "save without them what is to be measured"
        )
    if layers < 0:
        raise ModelError(f"model {name!r} has {layers} layers by its config.json; correct it there")


def _some(keys: list[str]) -> str:
    """How many weights, and the first of them by name."""
    more = ", ..." if len(keys) > _SHOWN else ""
    return f"{len(keys)} weight{'s' * (len(keys) != 1)} ({', '.join(keys[:_SHOWN])}{more})"


def reason(failure: Exception) -> str:
    """The first line of what a library says, without its full stop."""
    said = str(failure).strip().split("\n")[0].rstrip(" .")
    return said[:300] or type(failure).__name__
