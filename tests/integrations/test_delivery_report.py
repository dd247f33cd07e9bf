"""What counts of deliveries mean, in words, and which causes of lost copies are told apart."""

import json
from collections import Counter
from typing import Any

import pytest

from lmexposure.integrations import DeliveryReport
from lmexposure.integrations.delivery_report import Delivery, lost_copies
from lmexposure.studies import RowsClass


def delivery(name: str = "pin/x1/0000", **values: Any) -> Delivery:
    zeros = {"whole": 0, "head": 0, "tail": 0, "without_loss": 0, "partly_without_loss": 0}
    planned = {"repetitions": 1, "fewest": 1, "most": 1}
    return Delivery(id=name, format="pin", **{**planned, **zeros, **values})


CONTROL: dict[str, Any] = {"repetitions": 0, "fewest": 0, "most": 0}


def report(*canaries: Delivery, **values: Any) -> DeliveryReport:
    said = {"unattributed": 0, "epochs": 1.0, "batches": 7}
    return DeliveryReport(canaries=canaries, **{**said, **values})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"head": 1}, "1 copies are cut off at the end of a row (pin/x1/0000): truncation"),
        ({"tail": 1}, "1 copies lack their beginning (pin/x1/0000): truncation from the left"),
        ({"head": 1, "tail": 1}, "1 copies are split between rows (pin/x1/0000): packing"),
        ({"whole": 1, "without_loss": 1}, "1 copies carry no loss (pin/x1/0000): completion"),
        ({"whole": 1, "partly_without_loss": 1}, "1 copies carry loss on a part of the secr"),
        ({}, "1 copies never came (pin/x1/0000): dropped before the batches were made"),
        (
            {"whole": 1, "otherwise": 2},
            "2 copies are behind other tokens than they will be scored behind (pin/x1/0000)",
        ),
        ({"whole": 3}, "2 copies too many (pin/x1/0000): a loader that repeats rows"),
        (
            {**CONTROL, "whole": 1},
            "1 controls or held-out canaries are in the batches (pin/x1/0000)",
        ),
    ],
)
def test_each_loss_is_named(values: dict[str, Any], said: str) -> None:
    planned = delivery("pin/x1/0009", whole=1)
    (line,) = report(delivery(**values), planned).warnings
    assert line.startswith(said)


def test_one_of_several_repetitions_is_deduplication() -> None:
    several: dict[str, Any] = {"repetitions": 4, "fewest": 8, "most": 8}
    twice = [delivery(f"pin/x4/{i:04d}", whole=2, **several) for i in range(5)]
    single = delivery(whole=2, fewest=2, most=2)
    (line,) = report(single, *twice, epochs=2.0).warnings
    assert line.startswith("5 canaries with several repetitions came once an epoch (pin/x4/0000")
    assert "and 2 more; 30 copies lost): exact deduplication" in line


FOUR: dict[str, Any] = {"repetitions": 4, "fewest": 4, "most": 4}


@pytest.mark.parametrize(
    ("canaries", "unattributed", "said"),
    [
        ([delivery(whole=1), delivery("pin/control/0000", **CONTROL)], 0, []),
        # What looks like a part beside all that was planned is other text.
        ([delivery(whole=1, tail=3, head=1)], 2, []),
        (
            [delivery(whole=1, **FOUR), delivery("pin/x4/0001", whole=4, **FOUR)],
            0,
            ["3 copies never came"],  # and no deduplication
        ),
        (
            [delivery(whole=1), delivery("pin/x1/0001")],
            2,
            [
                "1 copies are cut off at the end of a row (it is not known wh",
                "1 copies never came (pin/x1/0001)",
            ],
        ),
        (
            [delivery(head=1), delivery("pin/x1/0001", tail=1)],
            0,
            ["1 copies are split between rows (pin/x1/0000, pin/x1/0001): pack"],
        ),
    ],
)
def test_what_is_said_of_several(
    canaries: list[Delivery], unattributed: int, said: list[str]
) -> None:
    found = report(*canaries, unattributed=unattributed)
    assert found.complete == (not said)
    assert [line[: len(wanted)] for line, wanted in zip(found.warnings, said, strict=True)] == said
    assert found.canaries[0].learnable == canaries[0].whole


def test_the_report_is_plain_json() -> None:
    found = report(delivery(head=1, tail=1), unattributed=1).to_dict()
    assert json.loads(json.dumps(found)) == found
    assert found["canaries"][0]["cut"] == 1
    assert found["canaries"][0]["missing"] == 0
    assert not found["complete"]


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


def copies(repetitions: int, whole: int, **cut: int) -> Delivery:
    planned = dict.fromkeys(("repetitions", "fewest", "most"), repetitions)
    return delivery("a", whole=whole, **planned, **cut)


def said(*deliveries: Delivery, **cut_at: int) -> list[str]:
    classes = [of_class("pin", d.repetitions, cut=d.cut, missing=d.missing) for d in deliveries]
    lengths = Counter({int(name[1:]): times for name, times in cut_at.items()})
    return list(lost_copies(classes, deliveries, lengths))


def test_nothing_lost_says_nothing() -> None:
    assert said(copies(1, 1), copies(4, 4), _128=4) == []


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
    (line,) = said(copies(1, 1), copies(4, **{"whole": 0, **counts}), **cut_at)
    assert line.startswith(f"pin 4×: {sentence}")


def test_one_copy_of_each_that_was_cut_or_never_came_is_no_deduplication() -> None:
    (*_, missing) = said(copies(4, 1, head=1), _9=1)
    assert missing.startswith("pin 4×: 2 copies never came")
    (line,) = said(copies(3, 1), copies(4, 0))
    assert line.startswith("pin 3× and 4×: 6 copies never came")


def test_classes_with_the_same_cause_share_a_sentence() -> None:
    classes = [of_class("pin", 1, cut=1), of_class("pin", 4, cut=2), of_class("ssn", 2, cut=2)]
    (line,) = lost_copies(classes, [], Counter({1064: 5}))
    assert line.startswith("pin 1× and 4×, ssn 2×: 5 copies are cut: their rows end at 1,064 to")
