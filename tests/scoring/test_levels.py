import numpy as np
import pytest
import torch
from scoring.families import family

from lmexposure.models import Encoded
from lmexposure.scoring import (
    next_token_steps,
)
from lmexposure.scoring.forward import PlainForward
from lmexposure.scoring.levels import LevelForward
from lmexposure.scoring.readout import Readout
from lmexposure.scoring.tree import SortedTexts


@pytest.mark.parametrize("kind", ["lstm", "gpt2", "mistral"])
@pytest.mark.parametrize("first_scored", [1, 3, 6])
def test_level_by_level_gives_the_bits_of_each_text_alone(kind: str, first_scored: int) -> None:
    rng = np.random.default_rng(5)
    rows = [[1, 2, 3, *rng.integers(0, 4, rng.integers(4, 9)).tolist()] for _ in range(50)]
    encoded = [Encoded(ids=row, scored_from=first_scored) for row in rows]
    model, texts = family(kind), SortedTexts(encoded)
    with torch.inference_mode():
        steps = next_token_steps(model, rows[0])
        forward = LevelForward(model, Readout(model, rows[0]), steps, texts.prefix)
        tree = texts.tree(0, len(texts))
        node_bits = forward.node_bits(tree)
        assert steps.evaluated == 1 + len(tree.fed)
        alone = PlainForward(model).bits(encoded)
    found = tree.text_bits(node_bits, forward.prefix_bits())
    for place, bits in enumerate(found):
        np.testing.assert_allclose(bits, alone[texts.order[place]], atol=1e-4)
