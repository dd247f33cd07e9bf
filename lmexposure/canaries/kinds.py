"""Kinds of canaries: how their texts are chosen, and what may be claimed of each.

A uniform fill is drawn from all fills of its format, so that it has a rank among those that were
not. The texts of every other kind are chosen one by one, all of them before any coin is tossed, so
that a coin alone decides whether one is in: they are judged by their coins, and have neither rank
nor exposure.

A kind more is a `Kind` in a file of its own, and its line in `KINDS`.
"""

from collections.abc import Mapping

from lmexposure.canaries.choosing import Kind
from lmexposure.canaries.crafting import NEAR_DUPLICATE, NEW_TOKEN
from lmexposure.canaries.format import UNIFORM
from lmexposure.canaries.text_list import TEXTS

_FILLS = Kind(
    name=UNIFORM,
    meaning="a format filled with a secret that is drawn uniformly",
    secret="what is in the holes",
    choose=lambda material: (),  # a plan draws them
    reads=("formats",),
)
KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (_FILLS, NEW_TOKEN, NEAR_DUPLICATE, TEXTS)}
