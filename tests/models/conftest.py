"""The small corpus with canaries, and the small model for it."""

from collections.abc import Callable, Iterator

import pytest
import torch
from models.small_training import CANARIES, small_documents
from models.small_training import small_lstm as make_small_lstm

from lmexposure.models import LoadedModel


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small only lose time in waiting for a second thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def canaries() -> dict[str, int]:
    return dict(CANARIES)


@pytest.fixture
def documents() -> list[str]:
    return small_documents()


@pytest.fixture
def small_lstm() -> Callable[..., LoadedModel]:
    return make_small_lstm
