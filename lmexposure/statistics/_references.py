"""What all statistics over many models share: which texts are alike, and whose word counts.

A shadow is a model that is a reference for others. A shadow is judged by the other shadows, every
other model by all of them.
"""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lmexposure.errors import InputError


def shadow_models(shadows: ArrayLike | None, models: int) -> NDArray[np.bool_]:
    """Which models are references, shape (M,); None: all."""
    if shadows is None:
        shadows = np.ones(models, dtype=bool)
    array = np.asarray(shadows)
    if array.shape != (models,) or (array.dtype != bool and not np.isin(array, (0, 1)).all()):
        raise InputError(
            f"shadows has shape {array.shape}; give true or false for each of {models} models"
        )
    if array.sum() < 2:
        raise InputError(
            f"shadows holds {int(array.sum())} of {models} models; a model is judged by others: "
            "give at least 2"
        )
    return array.astype(bool)


def alike_texts(
    kinds: Sequence[Hashable], lengths: Sequence[int]
) -> dict[tuple[Hashable, int], NDArray[np.intp]]:
    """The columns of texts of one kind and one length together, in the order in which they come."""
    if not lengths:
        raise InputError("there is no text to be judged; give at least one")
    if isinstance(kinds, str) or len(kinds) != len(lengths):
        raise InputError(
            f"kinds must be a list of {len(lengths)} kinds, one for each text, and is one of "
            f"{len(kinds)}"
        )
    found: dict[tuple[Hashable, int], list[int]] = {}
    for place, key in enumerate(zip(kinds, lengths, strict=True)):
        found.setdefault(key, []).append(place)
    return {key: np.array(places, dtype=np.intp) for key, places in found.items()}
