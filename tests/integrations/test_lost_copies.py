"""Causes of lost copies: what each leaves behind is told apart, and chance is not taken for one."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from lmexposure.integrations.delivery_report import Delivery
from lmexposure.integrations.lost_copies import Evidence, lost_copies


def delivery(number: int, repetitions: int, **counts: int) -> Delivery:
    kinds = {"whole": 0, "head": 0, "tail": 0, "without_loss": 0, "partly_without_loss": 0}
    return Delivery(
        id=f"pin/x{repetitions}/{number:04d}",
        format="pin",
        repetitions=repetitions,
        fewest=repetitions,
        most=repetitions,
        **{**kinds, **counts},
    )


def said(*deliveries: Delivery, **evidence: Any) -> list[str]:
    classes: dict[tuple[str, int], list[Delivery]] = {}
    for each in deliveries:
        classes.setdefault((each.format, each.repetitions), []).append(each)
    return list(lost_copies(classes, Evidence(**evidence)))


def test_nothing_lost_says_nothing() -> None:
    assert said(delivery(0, 1, whole=1), delivery(0, 4, whole=4)) == []


@pytest.mark.parametrize(
    ("counts", "evidence", "sentence"),
    [
        ({"head": 4}, {"cut_at": Counter({128: 4})}, "4 copies are cut: their rows end at 128 t"),
        ({"head": 4}, {"cut_at": Counter({128: 2, 90: 2})}, "4 copies are cut off at the end of a"),
        ({"tail": 4}, {}, "4 copies lack their beginning: truncation from the left"),
        ({"head": 2, "tail": 2, "whole": 2}, {}, "2 copies are split between rows: packing cuts"),
        ({"whole": 1}, {}, "of each canary one copy is left, 3 are lost: the data were dedupl"),
        ({"whole": 2}, {}, "2 copies never came, and others like them did: rows were held out"),
        ({}, {"lengths": Counter({9: 3})}, "4 copies never came, and nothing of their canaries"),
        (
            {"whole": 1},
            {"held_out": {"{eval}": Counter({"pin/x4/0000": 3})}},
            "3 copies are in the split '{eval}', which is not trained on",
        ),
        ({}, {"unknown": Counter({"pin": 4})}, "4 copies are cut off at the end of a row"),
    ],
)
def test_each_cause_has_a_sentence(counts: Any, evidence: Any, sentence: str) -> None:
    (line,) = said(delivery(0, 1, whole=1), delivery(0, 4, **counts), **evidence)
    assert line.startswith(f"pin 4×: {sentence}")


def test_a_limit_is_named_only_where_no_row_of_the_format_is_whole() -> None:
    """Rows of one format are about alike: what cuts one in front of its canary cuts all."""
    lengths = Counter({128: 30, 100: 20})
    (line,) = said(delivery(0, 4), delivery(1, 4), lengths=lengths)
    assert line.startswith("pin 4×: 8 copies never came, and 30 rows end at 128 tokens")
    (line,) = said(delivery(0, 1, whole=1), delivery(0, 4), lengths=lengths)
    assert line.startswith("pin 4×: 4 copies never came, and nothing of their canaries")
    (line,) = said(*(delivery(i, 1, whole=i % 2) for i in range(10)), lengths=lengths)
    assert line.startswith("pin 1×: 5 copies never came, and others like them did: rows were held")


def test_classes_with_the_same_cause_share_a_sentence() -> None:
    (line,) = said(delivery(0, 1, head=1), delivery(0, 4, head=4), cut_at=Counter({64: 5}))
    assert line.startswith("pin 1× and 4×: 5 copies are cut: their rows end at 64 tokens; raise ")


def test_the_longest_of_ordinary_rows_is_no_limit() -> None:
    """No limit: at most 1 in 100 corpora seems to have one. A limit: always seen."""
    rng = np.random.default_rng(4)
    seen, missed = 0, 0
    for _ in range(300):
        tokens = np.rint(rng.lognormal(4.0, 0.5, 500)).astype(int)
        ordinary = Counter(tokens.tolist())
        limited = Counter(np.minimum(tokens, int(np.quantile(tokens, 0.8))).tolist())
        seen += Evidence(lengths=ordinary).at_limit(3) is not None
        missed += Evidence(lengths=limited).at_limit(3) is None
    assert (seen <= 3, missed) == (True, 0)
