"""Which blocks a process reads at which step: each once an epoch, on any number of processes.

A step has `batch_size` blocks over all processes together. They are dealt out here and not by a
data loader: those of accelerate repeat blocks to fill the last batch, and a canary in a repeated
block would get more repetitions than planned.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lmexposure.canaries import (
    derive_seed,
    permutation,
)


def steps_per_epoch(blocks: int, batch_size: int) -> int:
    """Optimizer steps in an epoch; the last one may have fewer blocks."""
    return -(-blocks // batch_size)


def epoch_steps(
    blocks: int, *, batch_size: int, seed: int, epoch: int
) -> Iterator[NDArray[np.int64]]:
    """The block numbers of each step of an epoch, shape (<= batch_size,), in random order."""
    order = np.fromiter(permutation(blocks, derive_seed(seed, "epoch", str(epoch))), dtype=np.int64)
    for first in range(0, blocks, batch_size):
        yield order[first : first + batch_size]


def micro_batches(
    step: NDArray[np.int64], *, process: int, processes: int, accumulation: int
) -> list[NDArray[np.int64]]:
    """This process's share of a step, in `accumulation` parts, of which some may be empty.

    There are no more parts than the step has blocks, in each process as many as in the others.

    Empty parts are kept, because all processes have to take part in each exchange of gradients.
    """
    share = np.array_split(step, processes)[process]
    return np.array_split(share, min(accumulation, len(step)))
