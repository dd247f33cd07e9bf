"""Which device, and a model on it."""

import os
from pathlib import Path

import torch

from lmexposure.audit.settings import RunSettings
from lmexposure.models import LoadedModel, load_model

__all__ = ["chosen_device", "load_for_measuring"]


def chosen_device(settings: RunSettings) -> str:
    """The device that the settings name; "auto" is a GPU where there is one.

    Several processes (torchrun) take the GPU of their local rank.
    """
    if settings.device != "auto":
        return settings.device
    if torch.cuda.is_available() and os.environ.get("ACCELERATE_USE_CPU", "false") != "true":
        return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    return "cpu"


def load_for_measuring(model: str | Path, settings: RunSettings) -> LoadedModel:
    """Load a model as the settings say: device, dtype, revision, offline.

    Raises:
        ModelError: there is no such model, or it cannot be used.
        SettingsError: a device that this machine does not have.
    """
    return load_model(
        model,
        device=chosen_device(settings),
        dtype=settings.dtype,
        revision=settings.revision,
        offline=settings.offline,
    )
