"""Which device, and a model on it."""

import os
from pathlib import Path

import torch

from lmexposure.errors import ModelError
from lmexposure.models import (
    NEW_MODELS,
    LoadedModel,
    check_device,
    check_name,
    damaged_model,
    load_model,
)
from lmexposure.records import RunSettings


def chosen_device(settings: RunSettings) -> str:
    """The device that the settings name; "auto" is a GPU where there is one.

    Several processes (torchrun) take the GPU of their local rank.
    """
    if settings.device != "auto":
        check_device(settings.device)
        return settings.device
    if torch.cuda.is_available() and os.environ.get("ACCELERATE_USE_CPU", "false") != "true":
        return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    return "cpu"


def check_model(settings: RunSettings) -> None:
    """Find out, before any work, whether the model to train can be there at all.

    Raises:
        ModelError: a path that does not exist, or holds no model.
        SettingsError: a device that this machine does not have.
    """
    chosen_device(settings)
    if settings.model not in NEW_MODELS:
        check_name(settings.model)


def load_for_measuring(model: str | Path, settings: RunSettings) -> LoadedModel:
    """Load a model as the settings say: device, dtype, revision, offline.

    Raises:
        ModelError: there is no such model, or it cannot be used, or it is not what the training
            that it lies in wrote.
        SettingsError: a device that this machine does not have.
    """
    _refuse_damaged(model)
    if str(model) in NEW_MODELS and not Path(model).exists():
        raise ModelError(
            f"model {str(model)!r} is a kind of new model, and has to be trained before it is "
            "measured; give the directory of a trained one"
        )
    return load_model(
        model,
        device=chosen_device(settings),
        dtype=settings.dtype,
        revision=settings.revision,
        offline=settings.offline,
    )


def _refuse_damaged(model: str | Path) -> None:
    """A changed weight would give other numbers, and look like any other."""
    damaged = damaged_model(model)
    if damaged is not None:
        raise ModelError(
            f"{damaged} is not what the training wrote ({Path(model).parent / 'training.json'} has "
            "its hash): damaged, or changed since; give the training's command again, or copy the "
            "model elsewhere if the change is meant"
        )
