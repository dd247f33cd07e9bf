"""The small corpus with canaries, and the small model for it."""

from collections.abc import Callable

import pytest
from models.small_training import CANARIES, small_documents
from models.small_training import small_lstm as make_small_lstm

from lmexposure.models import LoadedModel


@pytest.fixture
def canaries() -> dict[str, int]:
    return dict(CANARIES)


@pytest.fixture
def documents() -> list[str]:
    return small_documents()


@pytest.fixture
def small_lstm() -> Callable[..., LoadedModel]:
    return make_small_lstm
