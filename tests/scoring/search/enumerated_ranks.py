"""A search for ranks, and the enumeration that its ranks are held against."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from slow_search import naive_places, naive_ranks, steps_of

from lmexposure.scoring import (
    ProvenRank,
    RankSearch,
    TokenSpace,
)

__all__ = ["assert_as_enumerated", "assert_holds", "search_of"]


def search_of(model: Any, space: TokenSpace, steps: Any = None, **given: Any) -> RankSearch:
    return RankSearch(space, steps or steps_of(model, space), model, **given)


def assert_as_enumerated(
    found: Sequence[ProvenRank],
    indices: Sequence[int],
    bits: NDArray[np.float64],
    planted: Sequence[int] = (),
    *,
    slack: float = 1e-7,
) -> None:
    """Exact, and equal to the naive counts but where two costs differ by a tie, give or take."""
    places = [naive_places(bits, slack=s)[list(indices)] for s in (-slack, slack)]
    ranks = [naive_ranks(bits, planted, slack=s)[list(indices)] for s in (-slack, slack)]
    assert (places[0] != places[1]).mean() <= 0.05  # hardly ever
    for i, one in enumerate(found):
        assert one.exact
        assert one.place_low == one.place_high
        assert places[0][i] <= one.place_low <= places[1][i]
        assert ranks[0][i] <= one.low <= ranks[1][i]
        assert one.bits == pytest.approx(bits[indices[i]], abs=1e-4)


def assert_holds(
    found: Sequence[ProvenRank],
    indices: Sequence[int],
    bits: NDArray[np.float64],
    planted: Sequence[int] = (),
) -> None:
    """The proven bounds hold the truth."""
    places, ranks = naive_places(bits)[list(indices)], naive_ranks(bits, planted)[list(indices)]
    for one, place, rank in zip(found, places, ranks, strict=True):
        assert 1 <= one.place_low <= place <= one.place_high <= len(bits)
        assert 1 <= one.low <= rank <= one.high <= len(bits)
        assert one.exact == (one.low == one.high)
        assert one.low <= one.place_low
        assert one.high <= one.place_high
