"""The last word on a fill's bits: float64, the same way for all.

A float32 walk moves a sum by its rounding. Where two fills are that close, both are scored again
here, so that which of them costs more does not depend on how they were met.
"""

import copy
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lmexposure.errors import ModelError, NumericalError
from lmexposure.scoring.batching import in_batches
from lmexposure.scoring.forward import refuse_training_mode
from lmexposure.scoring.space.token_space import TokenSpace
from lmexposure.scoring.steps import Steps, next_token_steps

__all__ = ["TIE_BITS", "Rescorer", "measured_error", "walked_bits"]

# Fills whose float64 bits differ by less are a tie, and ties count against the canary. Some models
# round to float32 inside whatever their dtype, so that float64 alone does not settle more.
TIE_BITS = 1e-6
_TOGETHER = 64


class Rescorer:
    """Bits of whole paths in float64, kept for the paths that were asked for.

    Args:
        model: a causal language model in evaluation mode; a copy of it in float64 is made when the
            first path is asked for.
        space: the fills as token paths.

    Raises:
        ModelError: the model is in training mode; the copy does not fit into memory.
    """

    def __init__(self, model: Any, space: TokenSpace) -> None:
        refuse_training_mode(model)
        self._source, self._space = model, space
        self._steps: Steps | None = None
        self._known: dict[tuple[int, ...], float] = {}

    def bits(self, paths: Iterable[Sequence[int]]) -> NDArray[np.float64]:
        """Bits behind the space's beginning, shape (n,).

        Raises:
            NumericalError: the model gave NaN or infinite logits.
        """
        asked = [tuple(path) for path in paths]
        new = [path for path in dict.fromkeys(asked) if path not in self._known]
        for chunk in (new[i : i + _TOGETHER] for i in range(0, len(new), _TOGETHER)):
            self._known.update(zip(chunk, self._computed(chunk), strict=True))
        return np.array([self._known[path] for path in asked], dtype=np.float64)

    def _computed(self, paths: list[tuple[int, ...]]) -> list[float]:
        if self._steps is None:
            twin = _in_float64(self._source)
            self._steps = next_token_steps(twin, [*self._space.beginning, *paths[0]])
        bits = walked_bits(self._space, self._steps, paths)
        if not np.isfinite(bits).all():
            raise NumericalError(
                "the model gave NaN or infinite log-probabilities in float64; its weights are "
                "broken: check the checkpoint"
            )
        return list(map(float, bits))


def _in_float64(model: Any) -> Any:
    """A copy in float64, on the CPU where the device has no float64 or too little memory.

    Raises:
        ModelError: it fits nowhere.
    """
    needed = 8 * model.num_parameters()
    if model.device.type == "cuda" and torch.cuda.mem_get_info(model.device)[0] > 2 * needed:
        return copy.deepcopy(model).double()
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > free:
        raise ModelError(
            f"scoring near ties again in float64 needs {needed / 2**30:.1f} GiB for a copy of the "
            f"model, and {free / 2**30:.1f} GiB are free; use a smaller model, a machine with more "
            "memory, or method='sampled'"
        )
    return copy.deepcopy(model).cpu().double()


def walked_bits(
    space: TokenSpace, steps: Steps, paths: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """Bits of whole paths as a walk adds them up: by steps, many paths at once.

    Args:
        space: the fills as token paths.
        steps: the model.
        paths: tokens behind the space's beginning, one token or more each; at least one path.

    Returns:
        float64 (n,), in the order given.

    Raises:
        ModelError: a single path does not fit into memory.
    """
    return np.concatenate(
        list(in_batches(paths, len(paths), lambda some: _walked_together(space, steps, some)))
    )


def _walked_together(
    space: TokenSpace, steps: Steps, paths: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    totals = np.zeros(len(paths))
    first = np.array([path[0] for path in paths], dtype=np.int64)
    state, totals[:] = steps.start(space.beginning, first)
    alive, parents, depth = np.arange(len(paths)), np.zeros(len(paths), dtype=np.int64), 1
    while True:
        going = [n for n, i in enumerate(alive.tolist()) if len(paths[i]) > depth]
        if not going:
            return totals
        alive, parents = alive[going], parents[going]
        tokens = np.array([paths[i][depth - 1] for i in alive.tolist()], dtype=np.int64)
        wanted = np.array([paths[i][depth] for i in alive.tolist()], dtype=np.int64)
        rows = np.arange(len(alive))
        state, bits = steps.advance(state, parents, tokens, rows, wanted)
        totals[alive] += bits
        parents, depth = rows, depth + 1


def measured_error(
    space: TokenSpace, steps: Steps, rescorer: Rescorer, *, sample: int, seed: int
) -> float:
    """The largest difference in bits between walking and rescoring, over random fills.

    Args:
        sample: how many fills to compare, or as many as there are.
        seed: which fills.
    """
    indices = space.format.sample(min(sample, space.size), seed=seed)
    paths = [space.path(index) for index in indices]
    difference = walked_bits(space, steps, paths) - rescorer.bits(paths)
    return float(np.abs(difference).max())
