"""A fill's bits in float64, computed the same way for all, where rounding would decide.

A float32 walk moves a sum by its rounding. Where two fills are that close, both are scored again
here, so that which of them costs more does not depend on how they were reached. A model that
cannot be copied to float64 is used as it is.
"""

import copy
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from lmexposure.core import Encoded
from lmexposure.errors import ModelError, NumericalError
from lmexposure.models import is_quantised
from lmexposure.scoring.forward import PlainPass
from lmexposure.scoring.runtime import (
    MODEL_FAILURES,
    Floats,
    evaluation_mode,
    failure_text,
    in_batches,
)
from lmexposure.scoring.steps import Steps, next_token_steps
from lmexposure.scoring.token_spaces import TokenSpace

_Path = tuple[int, ...]

# Fills whose float64 bits differ by less are a tie, and ties count against the canary. Some models
# round to float32 inside whatever their dtype, so that float64 alone does not settle more.
TIE_BITS = 1e-6
_TIE_BITS_OWN = 2e-5  # where there is no float64: what rounding moves a sum by in float32
_TOGETHER = 64
_COMPARED = 8
_FAR_BITS = 0.1  # far above rounding in float32: a copy that is further off is another model


class Rescorer:
    """Bits of whole paths in float64, kept for the paths that were asked for."""

    def __init__(self, model: Any, space: TokenSpace) -> None:
        # why there is no float64; empty where there is, or where it was not needed yet
        self.failure = ""
        self._source, self._space = model, space
        self._steps: Steps | None = None
        self._known: dict[tuple[int, ...], float] = {}

    @property
    def tie_bits(self) -> float:
        """Fills whose bits differ by no more than this are a tie."""
        return _TIE_BITS_OWN if self.failure else TIE_BITS

    def bits(self, paths: Iterable[Sequence[int]]) -> Floats:
        """Bits behind the space's beginning, shape (n,)."""
        asked = [tuple(path) for path in paths]
        if not self.failure:
            try:
                self._learn(asked, self._in_float64)
            except (*MODEL_FAILURES, ArithmeticError, MemoryError) as failure:
                self.failure, self._steps = failure_text(failure), None
                asked_before, self._known = list(self._known), {}
                self._learn(asked_before, self._as_it_is)  # numbers of one kind only
        if self.failure:
            self._learn(asked, self._as_it_is)
        return np.array([self._known[path] for path in asked], dtype=np.float64)

    def _learn(self, asked: list[_Path], compute: Callable[[list[_Path]], Floats]) -> None:
        """Compute what is not known yet."""
        new = [path for path in dict.fromkeys(asked) if path not in self._known]
        for chunk in (new[i : i + _TOGETHER] for i in range(0, len(new), _TOGETHER)):
            self._known.update(zip(chunk, compute(chunk).tolist(), strict=True))

    def _in_float64(self, paths: list[_Path]) -> Floats:
        first = self._steps is None
        if self._steps is None:
            with evaluation_mode(self._source):
                twin = _copy_in_float64(self._source)
            self._steps = next_token_steps(twin, [*self._space.beginning, *paths[0]])
        bits = walked_bits(self._space, self._steps, paths)
        if not np.isfinite(bits).all():
            raise NumericalError("it gives NaN or infinite log-probabilities")
        if first and self._source.dtype == torch.float32:
            gap = float(np.abs(bits[:_COMPARED] - self._as_it_is(paths[:_COMPARED])).max())
            if gap > _FAR_BITS:
                raise NumericalError(f"it is {gap:.3g} bits off the model in float32")
        return bits

    @torch.inference_mode()
    def _as_it_is(self, paths: list[_Path]) -> Floats:
        """Of the model as it is, each path in a plain pass from its beginning."""
        start = self._space.beginning
        encoded = [Encoded(ids=[*start, *path], scored_from=len(start)) for path in paths]
        with evaluation_mode(self._source):
            batches = list(in_batches(encoded, _TOGETHER, PlainPass(self._source).bits))
        bits = np.array([tokens.sum() for batch in batches for tokens in batch])
        if not np.isfinite(bits).all():
            raise NumericalError(
                "the model gave NaN or infinite log-probabilities in float64 and as it is; its "
                "weights are broken: check the checkpoint"
            )
        return bits


def _copy_in_float64(model: Any) -> Any:
    """A copy in float64, on the CPU where the device has no float64 or too little memory."""
    if is_quantised(model):
        raise ModelError("its weights are quantised, and in float64 they would be others")
    if any(weight.device.type == "meta" for weight in model.parameters()):
        raise ModelError("its weights are offloaded, and no device holds all of them")
    needed = 8 * model.num_parameters()
    roomy = model.device.type == "cuda" and torch.cuda.mem_get_info(model.device)[0] > 2 * needed
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if not roomy and needed > free:
        raise ModelError(
            f"it takes {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB of memory are free"
        )
    twin = copy.deepcopy(model)
    twin = (twin if roomy else twin.cpu()).double()
    # The fast kernels for a mixture of experts have no float64; plain loops have.
    if hasattr(twin, "set_experts_implementation"):
        twin.set_experts_implementation("eager")
    return twin


def walked_bits(space: TokenSpace, steps: Steps, paths: Sequence[Sequence[int]]) -> Floats:
    """Bits of whole paths as a walk adds them up: by steps, many paths at once."""
    return np.concatenate(
        list(in_batches(paths, len(paths), lambda some: _walked_together(space, steps, some)))
    )


def _walked_together(space: TokenSpace, steps: Steps, paths: Sequence[Sequence[int]]) -> Floats:
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
    """The largest difference in bits between walking and rescoring, over a sample of fills."""
    indices = space.format.sample(min(sample, space.size), seed=seed)
    paths = [space.path(index) for index in indices]
    difference = walked_bits(space, steps, paths) - rescorer.bits(paths)
    return float(np.abs(difference).max())
