"""What a model that never saw the corpus says of the same texts: scores are calibrated by it."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure._written import study
from lmexposure.core import Part
from lmexposure.errors import ModelError, SettingsError
from lmexposure.models import NEW_MODELS, LoadedModel, grow, load_model, tokenizer_sha256
from lmexposure.scoring import chosen_device
from lmexposure.studies import RunSettings, SweepSettings
from lmexposure.sweeps.arrays import npz
from lmexposure.sweeps.scoring import scores_of
from lmexposure.sweeps.task import SweepDirectory

FILE = "base.npz"


def base_scores(directory: SweepDirectory) -> Mapping[str, NDArray[Any]] | None:
    """Scores of the base model for all texts of a sweep, made once and kept in base.npz."""
    name = _base_name(directory.plan.settings.base, directory.settings)
    if name is None:
        return None
    kept = Part(path=directory.out / FILE, of=directory.plan.sha256)
    known = kept.read()
    if known is None:
        loaded = _loaded(
            name, directory.settings, directory.plan.tokenizer_sha256, directory.new_tokens
        )
        known = npz(scores_of(loaded, directory.rows, canaries=len(directory.plan.canaries)))
        with study(directory.out):
            kept.write(known)
    with np.load(io.BytesIO(known), allow_pickle=False) as arrays:
        return {array: arrays[array] for array in arrays.files}


def check_base(settings: SweepSettings, tokenizer: Any, new_tokens: Sequence[str] = ()) -> None:
    """Refuse a base before any model is trained: afterwards, it could not be exchanged."""
    name = _base_name(settings.base, settings.run)
    if name is None and settings.score == "calibrated":
        raise SettingsError(
            "score='calibrated' needs a base, and a new model has none of its own; give base=PATH "
            "of a model with the tokenizer of this sweep, or another score"
        )
    if name is not None and name != settings.run.model:
        _loaded(name, settings.run, tokenizer_sha256(tokenizer), new_tokens)


def _base_name(base: str | None, settings: RunSettings) -> str | None:
    """The base model: as named, else the pretrained one that was fine-tuned, else none."""
    return base or (None if settings.model in NEW_MODELS else settings.model)


def _loaded(
    name: str, settings: RunSettings, tokenizer: str, new_tokens: Sequence[str]
) -> LoadedModel:
    """A base with this tokenizer; new entries are as likely as each other under it."""
    loaded = load_model(
        name,
        device=chosen_device(settings),
        revision=settings.revision if name == settings.model else None,
        offline=settings.offline,
    )
    grow(loaded, new_tokens)
    if tokenizer_sha256(loaded.tokenizer) != tokenizer:
        raise ModelError(
            f"base={name!r} has another tokenizer than the models of the sweep, so that their bits "
            "are not of the same tokens; give a base with their tokenizer, or leave it out"
        )
    return loaded
