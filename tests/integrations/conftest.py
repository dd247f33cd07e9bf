"""A tokenizer with a chat template, a random model for it, and data sets without bars."""

from collections.abc import Iterator
from typing import Any

import datasets
import pytest
from chats import chat_tokenizer
from tiny import model_of


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return chat_tokenizer()


@pytest.fixture(scope="session")
def model(tokenizer: Any) -> Any:
    return model_of("gpt2", len(tokenizer))


@pytest.fixture
def no_bars() -> Iterator[None]:
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()
