"""Every block once an epoch, whatever the number of processes."""

import numpy as np
import pytest

from lmexposure.models.batches import epoch_steps, micro_batches, steps_per_epoch


@pytest.mark.parametrize("processes", [1, 2, 3, 5])
@pytest.mark.parametrize("accumulation", [1, 3])
def test_each_block_is_dealt_out_once(processes: int, accumulation: int) -> None:
    steps = list(epoch_steps(23, batch_size=4, seed=1, epoch=0))
    dealt = [
        micro_batches(step, process=p, processes=processes, accumulation=accumulation)
        for step in steps
        for p in range(processes)
    ]
    assert all(len(parts) == accumulation for parts in dealt)
    flat = np.concatenate([part for parts in dealt for part in parts])
    assert sorted(flat.tolist()) == list(range(23))


@pytest.mark.parametrize("process", [0, 1, 2])
def test_no_more_parts_than_the_step_has_blocks(process: int) -> None:
    parts = micro_batches(np.arange(4), process=process, processes=3, accumulation=10**30)
    assert len(parts) == 4


def test_a_step_has_batch_size_blocks_but_the_last() -> None:
    sizes = [len(step) for step in epoch_steps(10, batch_size=4, seed=1, epoch=0)]
    assert sizes == [4, 4, 2]
    assert steps_per_epoch(10, 4) == 3
    assert steps_per_epoch(8, 4) == 2


def test_order_depends_on_seed_and_epoch_alone() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        steps = epoch_steps(50, batch_size=8, seed=seed, epoch=epoch)
        return np.concatenate(list(steps)).tolist()  # type: ignore[no-any-return]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)
