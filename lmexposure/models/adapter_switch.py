"""A model with its adapters switched off: the model before the fine-tuning, in the same weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

from transformers import PreTrainedModel

from lmexposure.errors import ModelError
from lmexposure.models.weights import weights_sha256

# Where in a layer that it changes peft keeps the layer's own weights.
_WITHIN = ("base_layer.", "original_module.", "token_adapter.base_layer.")


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
        for within in _WITHIN:
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
