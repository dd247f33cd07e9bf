"""A small corpus with canaries, and small models for it."""

from collections.abc import Callable

import pytest

from lmexposure.models import LoadedModel, LstmSizes, new_model

CANARIES = {"the code is 4711": 3, "the code is 0815": 1}


@pytest.fixture
def canaries() -> dict[str, int]:
    return dict(CANARIES)


@pytest.fixture
def documents() -> list[str]:
    """60 short lines, some blank, and the canaries among them."""
    lines = [f"line {i} of a small corpus, {i * 37 % 11}" if i % 5 else "" for i in range(60)]
    for place, text in ((50, 0), (31, 1), (30, 0), (7, 0)):
        lines.insert(place, list(CANARIES)[text])
    return lines


@pytest.fixture
def small_lstm(documents: list[str]) -> Callable[[], LoadedModel]:
    sizes = LstmSizes(units=12, embedding=8, layers=2, dropout=0.2)
    return lambda: new_model("lstm", documents, seed=5, separator="\n", lstm=sizes)
