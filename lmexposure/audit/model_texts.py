"""Texts that a base model chooses: pairs that it thinks unlikely, and what it says when heated."""

from lmexposure.canaries import Format, Material
from lmexposure.models import LoadedModel
from lmexposure.records import RunSettings


def base_of(settings: RunSettings) -> LoadedModel:
    """The base of `settings.kind_base`, where the settings say.

    Raises:
        ModelError: it cannot be loaded.
    """
    raise NotImplementedError


def texts_of(name: str, base: LoadedModel, material: Material, *, temperature: float) -> Format:
    """The texts of "model_pair" or "high_temperature".

    Args:
        name: of the kind.
        base: a causal LM that never saw the corpus.
        material: how many, and the seed; its documents are what no text may be part of.
        temperature: of sampling.

    Raises:
        ModelError: the base does not give so many different texts that encode as they were sampled;
            it says how many.
    """
    raise NotImplementedError
