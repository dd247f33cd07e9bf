"""Causes of lost copies: what each leaves behind is told apart."""

from collections import Counter
from typing import Any

import pytest

from lmexposure.integrations.delivery_report import Delivery
from lmexposure.integrations.lost_copies import lost_copies
from lmexposure.records import RowsClass


def delivery(repetitions: int, whole: int, *, head: int = 0, tail: int = 0) -> Delivery:
    return Delivery(
        id="a",
        format="pin",
        repetitions=repetitions,
        fewest=repetitions,
        most=repetitions,
        whole=whole,
        head=head,
        tail=tail,
        without_loss=0,
        partly_without_loss=0,
    )


def of_class(name: str, repetitions: int, *, cut: int = 0, missing: int = 0) -> RowsClass:
    return RowsClass(
        format=name,
        repetitions=repetitions,
        canaries=1,
        planned=repetitions,
        whole=repetitions - cut - missing,
        cut=cut,
        missing=missing,
        without_loss=0,
        otherwise=0,
    )


def said(*deliveries: Delivery, **cut_at: int) -> list[str]:
    classes = [of_class("pin", d.repetitions, cut=d.cut, missing=d.missing) for d in deliveries]
    lengths = Counter({int(name[1:]): times for name, times in cut_at.items()})
    return list(lost_copies(classes, deliveries, lengths))


def test_nothing_lost_says_nothing() -> None:
    assert said(delivery(1, 1), delivery(4, 4), _128=4) == []


AMID = "4 copies are cut, by truncation, or by packing that cuts documents (TRL: packing_strategy="
NEVER = " copies never came: their rows were dropped, as too long or by a filter, cut in front"


@pytest.mark.parametrize(
    ("counts", "cut_at", "sentence"),
    [
        ({"head": 4}, {"_128": 9, "_90": 1}, "4 copies are cut: their rows end at 128 tokens; rai"),
        ({"head": 4}, {"_128": 8, "_90": 1}, AMID),
        ({"head": 4, "tail": 3}, {"_128": 4}, AMID),
        ({"tail": 4}, {}, AMID),
        ({"whole": 1}, {}, "of each canary one copy is left, 3 are lost: the data were dedupl"),
        ({"whole": 2}, {}, f"2{NEVER}"),
        ({}, {}, f"4{NEVER}"),
    ],
)
def test_each_cause_has_a_sentence(counts: Any, cut_at: Any, sentence: str) -> None:
    (line,) = said(delivery(1, 1), delivery(4, **{"whole": 0, **counts}), **cut_at)
    assert line.startswith(f"pin 4×: {sentence}")


def test_one_copy_of_each_that_was_cut_or_never_came_is_no_deduplication() -> None:
    (*_, missing) = said(delivery(4, 1, head=1), _9=1)
    assert missing.startswith("pin 4×: 2 copies never came")
    (line,) = said(delivery(3, 1), delivery(4, 0))
    assert line.startswith("pin 3× and 4×: 6 copies never came")


def test_classes_with_the_same_cause_share_a_sentence() -> None:
    classes = [of_class("pin", 1, cut=1), of_class("pin", 4, cut=2), of_class("ssn", 2, cut=2)]
    (line,) = lost_copies(classes, [], Counter({1064: 5}))
    assert line.startswith("pin 1× and 4×, ssn 2×: 5 copies are cut: their rows end at 1,064 to")
