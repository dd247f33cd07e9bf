from collections.abc import Sequence

import pytest
import torch

from lmexposure.errors import ModelError
from lmexposure.scoring.batching import in_batches


def needs(room: int, message: str = "DefaultCPUAllocator: can't allocate memory"):  # type: ignore[no-untyped-def]
    """Work that runs out of memory above `room` items, as torch says it."""

    def work(items: Sequence[int]) -> list[int]:
        if len(items) > room:
            raise RuntimeError(message)
        return list(items)

    return work


def test_halves_until_it_fits_and_keeps_the_order() -> None:
    batches = list(in_batches(range(10), 8, needs(3)))
    assert [len(b) for b in batches] == [2, 2, 2, 2, 2]
    assert [i for b in batches for i in b] == list(range(10))


def test_knows_the_error_of_cuda() -> None:
    def work(items: Sequence[int]) -> int:
        if len(items) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return len(items)

    assert sum(in_batches(range(3), 3, work)) == 3


def test_gives_up_when_one_item_does_not_fit() -> None:
    with pytest.raises(ModelError, match="out of memory with one text at a time"):
        list(in_batches(range(3), 3, needs(0)))


def test_other_errors_pass() -> None:
    with pytest.raises(RuntimeError, match="shape mismatch"):
        list(in_batches(range(3), 3, needs(0, "shape mismatch")))
