"""Every exposure as a row of a table: the same keys, plain JSON, and read-only arrays."""

import json
from typing import Any

import pytest
from limit_spaces import small_draws

from lmexposure._record import plain
from lmexposure.statistics import (
    calibrated_exposure,
    certified_exposure,
    exact_exposure,
    importance_exposure,
    sampled_exposure,
)

KEYS = ["method", "value", "low", "high", "level", "rank", "capped", "place"]
DRAWN = small_draws([8.0] * 320, [3.0] * 320, list(range(8)) * 40, 2**10)
RANKS = {"space_size": 2**60, "place_low": [4, 2], "place_high": [4, 9], "steps": 100}


@pytest.mark.parametrize(
    ("result", "second", "words"),
    [
        (
            sampled_exposure([4.0, 0.0], range(1, 17)),
            {"value": 4.0, "high": None, "rank": 1, "capped": True},
            "at least 4.00 bits",
        ),
        (
            calibrated_exposure([5.0, 1.0], [9.0] * 2, [2.0] * 4, [7.0] * 4).calibrated,
            {"value": 2.0, "high": None, "rank": 1, "capped": True},
            "at least 2.00 bits",
        ),
        (
            certified_exposure(8.0, [9.0, 2.0]),
            {"value": 6.0, "low": 6.0, "high": 8.0, "level": 1.0, "rank": None, "capped": True},
            None,
        ),
        (
            exact_exposure([3, 2], [3, 8], **RANKS),  # type: ignore[arg-type]
            {"method": "bounded", "value": 57.0, "high": 59.0, "rank": 8, "place": 9, "steps": 100},
            "the rank lies between 2 and 8",
        ),
        (
            importance_exposure([2.0, 3.0], DRAWN, space_size=2**10, excluded_bits=[1.0, 9.0]),
            {"method": "importance", "rank": 9, "place": 10, "draws": 320, "effective_draws": 320},
            None,
        ),
    ],
)
def test_a_row(result: Any, second: dict[str, object], words: str | None) -> None:
    rows = [json.loads(json.dumps(plain(result.canary(i)), allow_nan=False)) for i in (0, 1)]
    assert list(rows[0])[:8] == list(rows[1])[:8] == KEYS
    assert {name: rows[1][name] for name in second} == second
    assert words is None or (rows[0]["warnings"], words in rows[1]["warnings"][0]) == ([], True)
    whole = json.loads(json.dumps(plain(result), allow_nan=False))
    assert [whole["low"][i] for i in (0, 1)] == [row["low"] for row in rows]
    with pytest.raises(ValueError, match="read-only"):
        result.low[0] = 0.0
