"""Adapters of peft (LoRA and its like): a base model and a few weights that change it.

Switched off, they leave the model before the fine-tuning, in the same weights.
"""

import json
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedModel

from lmexposure._files import read_bytes
from lmexposure._saved_models import ADAPTER_CONFIG, ADAPTER_WEIGHTS, base_of_adapter
from lmexposure.errors import ModelError
from lmexposure.models.quantised import is_quantised, without_torchao
from lmexposure.models.weights import is_spread, weights_sha256

_SHOWN = 3
# Where in a layer that it changed peft keeps the whole weight.
_WITHIN = "(modules_to_save|original_module|token_adapter|base_layer)"


def check_weights(path: Path) -> None:
    """Refuse an adapter whose weights are cut short."""
    try:
        with safe_open(path / ADAPTER_WEIGHTS, framework="pt"):
            pass
    except (SafetensorError, OSError) as failure:
        raise ModelError(
            f"cannot read {ADAPTER_WEIGHTS} of adapter {str(path)!r}: {failure}; it is cut short "
            "or damaged: copy it again, or save the adapter again"
        ) from failure


def with_adapter(model: PreTrainedModel, path: Path, *, tokens: int) -> PreTrainedModel:
    """A model with its adapter: merged, or apart where rounding can swallow what it learned."""
    try:
        from peft import PeftModel, get_peft_model_state_dict
    except ImportError as failure:
        raise ModelError(
            f"model {str(path)!r} is an adapter, which needs peft; install it: pip install "
            "'lmexposure[peft]'"
        ) from failure
    _resize(model, path, tokens)
    try:
        # It warns of what concerns its own authors, and of missing weights, which we refuse.
        with warnings.catch_warnings(action="ignore"), without_torchao():
            adapted: Any = PeftModel.from_pretrained(model, str(path), torch_device="cpu")
    except Exception as failure:  # weights that do not fit raise whatever loading them ran into
        raise ModelError(
            f"adapter {str(path)!r} does not fit the base that it names, "
            f"{base_of_adapter(path)[0]!r}: {_misfit(str(failure)) or _reason(failure)}; set "
            f"base_model_name_or_path in {ADAPTER_CONFIG} to the model that it was trained on, or "
            "save the adapter again"
        ) from failure
    _refuse_virtual_tokens(str(path), adapted)
    needed = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    known = get_peft_model_state_dict(adapted, save_embedding_layers=True)
    _check_whole(path, set(needed), set(known))
    return _merged(adapted) if _is_merged(adapted) else _base(adapted)


def as_loaded(name: str, adapted: Any) -> PreTrainedModel:
    """A model in memory with its adapter as `with_adapter` gives a saved one, unchanged itself."""
    _refuse_virtual_tokens(name, adapted)
    if not _is_merged(adapted) or any(layer.disable_adapters for layer in _layers(adapted)):
        return _base(adapted)
    try:
        copied = _copied(adapted)
    except (RuntimeError, TypeError):  # a module keeps what cannot be copied, such as activations
        return _base(adapted)
    return _merged(copied)


def active_adapters(adapted: Any) -> list[str]:
    """Names of the adapters of a `peft.PeftModel` that are in use."""
    # Not `active_adapter`, which keeps one of those that `base_model.set_adapter` put in use.
    return list(adapted.active_adapters)


def unmerged_adapters(model: Any) -> dict[str, list[Any]]:
    """What decides, next to its weights, what each layer with an adapter computes."""
    if not hasattr(model, "peft_config"):
        return {}
    found: dict[str, list[Any]] = {}
    for name, layer in model.named_modules():
        if isinstance(layer, _tuner_layer()):
            active = list(layer.active_adapters)
            scaled = [getattr(layer, "scaling", {}).get(adapter) for adapter in active]
            found[name] = [active, scaled, bool(layer.disable_adapters)]
    return found


def _tuner_layer() -> Any:
    from peft.tuners.tuners_utils import BaseTunerLayer

    return BaseTunerLayer


def _layers(adapted: Any) -> list[Any]:
    kind = _tuner_layer()
    return [module for module in adapted.modules() if isinstance(module, kind)]


def _base(adapted: Any) -> PreTrainedModel:
    """The model itself, its adapter's layers within it."""
    base: PreTrainedModel = adapted.get_base_model()
    return base


def _is_merged(adapted: Any) -> bool:
    """Whether merging changes nothing but rounding; a quantised weight would be rounded anew."""
    base = _base(adapted)
    plain = base.dtype == torch.float32 and not is_quantised(base) and not is_spread(base)
    # peft merges a bias of LoRA's own only into a layer that has one.
    plain = plain and not any(
        getattr(config, "lora_bias", False) for config in adapted.peft_config.values()
    )
    return plain and not _adapts_a_shared_weight(adapted)


def _merged(adapted: Any) -> PreTrainedModel:
    with warnings.catch_warnings(action="ignore"), without_torchao():
        merged: PreTrainedModel = adapted.merge_and_unload()
    return merged


def _copied(adapted: Any) -> Any:
    """With weights of its own in the layers that the adapter changes, and nowhere else."""
    own = {
        id(tensor)
        for layer in _layers(adapted)
        for tensor in (*layer.parameters(), *layer.buffers())
    }
    tensors = (*adapted.parameters(), *adapted.buffers())
    return deepcopy(adapted, {id(tensor): tensor for tensor in tensors if id(tensor) not in own})


def _refuse_virtual_tokens(name: str, adapted: Any) -> None:
    config = adapted.active_peft_config
    if config.is_prompt_learning:
        raise ModelError(
            f"adapter {name!r} is of kind {config.peft_type.value}, which puts virtual tokens "
            "before the text; only adapters of the weights are read (LoRA ...)"
        )
    if getattr(config, "alora_invocation_tokens", None):
        raise ModelError(
            f"adapter {name!r} is an activated LoRA (aLoRA), which changes nothing before its "
            "invocation tokens; only adapters that always act are read (LoRA ...)"
        )


def _resize(model: PreTrainedModel, path: Path, tokens: int) -> None:
    """As many embedding rows as in training; none that was never trained."""
    rows = model.get_input_embeddings().weight.shape[0]
    trained = _embedding_rows(model, path)
    if trained is None and tokens > rows:
        if not set(range(rows, tokens)) <= _trained_alone(path):
            raise ModelError(
                f"the tokenizer of adapter {str(path)!r} has {tokens} tokens, its base model has "
                f"{rows}, and the adapter holds no embeddings for the others, which would be "
                "random numbers; save it again with save_embedding_layers=True"
            )
        trained = tokens
    if trained is not None and trained != rows:
        # The new rows are the adapter's: what they begin with does not matter.
        model.resize_token_embeddings(trained, mean_resizing=False)


def _embedding_rows(model: PreTrainedModel, path: Path) -> int | None:
    """How many embeddings an adapter brings, of the input or the output; None: it brings none."""
    layers = (model.get_input_embeddings(), model.get_output_embeddings())
    names = [name for name, part in model.named_modules() if any(part is layer for layer in layers)]
    weight = re.compile(rf".*\.({'|'.join(map(re.escape, names))})\.({_WITHIN}\.)*weight")
    with safe_open(path / ADAPTER_WEIGHTS, framework="pt") as file:
        keys = list(file.keys())
        shapes = [file.get_slice(key).get_shape() for key in keys if weight.fullmatch(key)]
    return int(shapes[0][0]) if shapes else None


def _trained_alone(path: Path) -> set[int]:
    """The tokens whose embeddings an adapter trains one by one."""
    indices = json.loads(read_bytes(path / ADAPTER_CONFIG)).get("trainable_token_indices") or []
    lists = indices.values() if isinstance(indices, dict) else [indices]
    return {index for tokens in lists for index in tokens}


def _adapts_a_shared_weight(adapted: Any) -> bool:
    """Whether the adapter changes a layer whose weight another layer uses too, as tied ones do."""
    changed = _layers(adapted)
    users: Counter[int] = Counter()
    for module in adapted.modules():
        if not isinstance(module, _tuner_layer()):
            users.update(id(weight) for weight in module.parameters(recurse=False))
    return any(
        users[id(weight)] > 1
        for layer in changed
        for weight in layer.get_base_layer().parameters(recurse=False)
    )


def _check_whole(path: Path, needed: set[str], known: set[str]) -> None:
    """A weight that is not there would be one that changes nothing, and so would one unused."""
    with safe_open(path / ADAPTER_WEIGHTS, framework="pt") as file:
        held = set(file.keys())
    missing, unused = sorted(needed - held), sorted(held - needed - known)
    if missing:
        raise ModelError(
            f"adapter {str(path)!r} lacks {len(missing)} of its weights ({missing[0]} first); save "
            "it again with save_pretrained of peft"
        )
    if unused:
        raise ModelError(
            f"adapter {str(path)!r} has {len(unused)} weights that found no place in its base "
            f"({unused[0]} first); give the base that it was trained on in {ADAPTER_CONFIG}"
        )


def _misfit(failure: str) -> str | None:
    """What peft found not to fit, in a sentence; None: something else."""
    shapes = re.search(
        r"size mismatch for (\S+): .*?Size\((\[.*?\])\).*?Size\((\[.*?\])\)", failure
    )
    if shapes:
        return f"{shapes[1]} has shape {shapes[2]}, and would need {shapes[3]}"
    targets = re.search(r"Target modules (\{.*\}) not found", failure)
    if targets:
        names = sorted({name.rpartition(".")[2] for name in re.findall(r"'(.*?)'", targets[1])})
        shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
        return f"it has none of the layers that the adapter changes ({shown})"
    return None


def _reason(failure: Exception) -> str:
    """The first line that says more than that there was a failure."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    reasons = [line for line in lines if not line.startswith("Error(s) in loading")]
    return (reasons or lines or [type(failure).__name__])[0][:300]


# Where in a layer that it changes peft keeps the layer's own weights.
_WRAPPED = ("base_layer.", "original_module.", "token_adapter.base_layer.")


# Beginnings of LoRA that leave the base's weights alone; PiSSA, OLoRA and others take some of them.
_LEAVE_BASE = (True, False, "gaussian", "eva", "orthogonal")


@contextmanager
def adapters_off(model: Any) -> Iterator[None]:
    """Switch all adapters of a model off, and leave them as they were."""
    layers = _switched(model)
    before = [layer._disable_adapters for layer in layers]
    trained = [(weight, weight.requires_grad) for weight in model.parameters()]
    try:
        for layer in layers:
            layer.enable_adapters(False)
        yield
    finally:
        for layer, was_off in zip(layers, before, strict=True):
            layer.enable_adapters(not was_off)
        for weight, with_gradient in trained:
            weight.requires_grad_(with_gradient)


def comes_off(model: Any) -> bool:
    """Whether a model with its adapters switched off is its base: no bias was trained."""
    return all(
        getattr(config, "bias", "none") == "none"
        and getattr(config, "init_lora_weights", True) in _LEAVE_BASE
        for config in getattr(model, "peft_config", {}).values()
    )


def check_switch(name: str, model: Any) -> None:
    """Refuse a model whose adapters cannot be switched off."""
    layers = _switched(model)
    if not layers:
        raise ModelError(
            f"model {name!r} has no adapter that could be switched off: it was merged into the "
            "weights, or there never was one; give the model before the fine-tuning as base, by "
            "its directory or hub name"
        )
    if any(getattr(layer, "merged", False) for layer in layers):
        raise ModelError(
            f"the adapter of model {name!r} is merged into its weights, and taking it off would "
            "round them; call unmerge_adapter() before measuring, or give the model before the "
            "fine-tuning as base"
        )
    if not comes_off(model):
        raise ModelError(
            f"the adapter of model {name!r} changed weights of its base (trained biases, or a "
            "beginning such as PiSSA's), which switching it off does not bring back; give the "
            "model before the fine-tuning as base, by its directory or hub name"
        )


def base_sha256(model: Any) -> str:
    """The hash of the weights without their adapters: that of the base model as it was saved."""
    weights, places = model.state_dict(), {}
    for name, layer in model.named_modules():
        if _is_switched(layer):
            places.update(_take_off(weights, f"{name}.", layer))
    bare = SimpleNamespace(
        state_dict=lambda: weights,
        # Where a weight that is offloaded is brought from.
        get_submodule=lambda name: model.get_submodule(places.get(name, name)),
    )
    return weights_sha256(cast(PreTrainedModel, bare))


def _take_off(weights: dict[str, Any], layer_name: str, layer: Any) -> dict[str, str]:
    """Leave of one layer's weights its own, under the names that they had before."""
    added = (*layer.adapter_layer_names, *layer.other_param_names, "modules_to_save")
    places = {}
    for key in [key for key in weights if key.startswith(layer_name)]:
        rest = key.removeprefix(layer_name)
        if rest.startswith(tuple(f"{name}." for name in added)) or rest in added:
            del weights[key]
            continue
        for within in _WRAPPED:
            if rest.startswith(within):
                before = layer_name + rest.removeprefix(within)
                weights[before] = weights.pop(key)
                places[before.rpartition(".")[0]] = key.rpartition(".")[0]
    return places


def _switched(model: Any) -> list[Any]:
    return [layer for layer in model.modules() if _is_switched(layer)]


def _is_switched(layer: Any) -> bool:
    """Whether it is a layer of peft, which is there only where peft is."""
    if not type(layer).__module__.startswith("peft."):
        return False
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper

    return isinstance(layer, BaseTunerLayer | AuxiliaryTrainingWrapper)
