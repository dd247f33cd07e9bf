import sys
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Models this small only lose time in waiting for a second thread.

    Of the session, so that what a module's fixture makes has the last bits of what its tests make.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def own_accelerate() -> Iterator[None]:
    """A Trainer's precision and device hold for the rest of a process; here, for its test."""
    yield
    state = sys.modules.get("accelerate.state")
    if state is not None and state.AcceleratorState._shared_state:
        state.AcceleratorState._reset_state(reset_partial_state=True)
