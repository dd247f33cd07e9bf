"""What counts of deliveries mean, in words."""

import json
from typing import Any

import pytest

from lmexposure.integrations import (
    DeliveryReport,
)
from lmexposure.integrations.delivery_report import (
    Delivery,
)


def delivery(name: str = "pin/x1/0000", **values: Any) -> Delivery:
    zeros = {"whole": 0, "head": 0, "tail": 0, "without_loss": 0, "partly_without_loss": 0}
    planned = {"repetitions": 1, "fewest": 1, "most": 1}
    return Delivery(id=name, format="pin", **{**planned, **zeros, **values})


def report(*canaries: Delivery, **values: Any) -> DeliveryReport:
    said = {"unattributed": 0, "epochs": 1.0, "batches": 7}
    return DeliveryReport(canaries=canaries, **{**said, **values})


def test_as_planned_warns_of_nothing() -> None:
    found = report(delivery(whole=1), delivery("pin/control/0000", repetitions=0, fewest=0, most=0))
    assert found.complete
    assert found.warnings == ()
    assert found.canaries[0].learnable == 1


def test_no_batch_is_no_pass() -> None:
    found = report(delivery(whole=1), batches=0)
    assert not found.complete
    assert "no batch was seen, so nothing is known" in found.warnings[0]


def test_less_than_an_epoch_is_no_pass() -> None:
    found = report(delivery(fewest=0, whole=1), epochs=0.25)
    assert "only 0.25 of an epoch is known to have been seen" in found.warnings[0]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"head": 1}, "1 occurrences are cut off at the end of a row (pin/x1/0000): truncation"),
        ({"tail": 1}, "1 occurrences lack their beginning (pin/x1/0000): truncation from the left"),
        ({"head": 1, "tail": 1}, "1 occurrences are split between rows (pin/x1/0000): packing"),
        ({"whole": 1, "without_loss": 1}, "1 occurrences carry no loss (pin/x1/0000): completion"),
        ({"whole": 1, "partly_without_loss": 1}, "1 occurrences carry loss on a part of the secr"),
        ({}, "1 occurrences never came (pin/x1/0000): dropped before the batches were made"),
        ({"whole": 3}, "2 occurrences too many (pin/x1/0000): a loader that repeats rows"),
        (
            {"repetitions": 0, "fewest": 0, "most": 0, "whole": 1},
            "1 controls or held-out candidates are in the batches (pin/x1/0000)",
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
    assert "and 2 more; 30 occurrences lost): exact deduplication" in line


def test_some_lost_repetitions_are_no_deduplication() -> None:
    several: dict[str, Any] = {"repetitions": 4, "fewest": 4, "most": 4}
    found = report(delivery(whole=1, **several), delivery("pin/x4/0001", whole=4, **several))
    assert found.warnings[0].startswith("3 occurrences never came")


def test_a_cut_that_tells_no_canary_is_counted() -> None:
    line, lost = report(delivery(whole=1), delivery("pin/x1/0001"), unattributed=2).warnings
    assert line.startswith("1 occurrences are cut off at the end of a row (it is not known wh")
    assert lost.startswith("1 occurrences never came (pin/x1/0001)")


def test_beginnings_here_and_ends_there_are_packing() -> None:
    (line,) = report(delivery(head=1), delivery("pin/x1/0001", tail=1)).warnings
    assert line.startswith("1 occurrences are split between rows (pin/x1/0000, pin/x1/0001): pack")


def test_what_looks_like_a_part_beside_all_that_was_planned_is_other_text() -> None:
    assert report(delivery(whole=1, tail=3, head=1), unattributed=2).complete


def test_the_report_is_plain_json() -> None:
    found = report(delivery(head=1, tail=1), unattributed=1).to_dict()
    assert json.loads(json.dumps(found)) == found
    assert found["canaries"][0]["cut"] == 1
    assert found["canaries"][0]["missing"] == 0
    assert not found["complete"]


def test_rows_other_than_those_scored_are_no_pass() -> None:
    found = report(delivery(otherwise=2))
    assert found.warnings[0].startswith(
        "2 occurrences are behind other tokens than they will be scored behind ("
    )
    assert "give the wrapping of the training" in found.warnings[0]
    assert not found.complete
    assert found.to_dict()["canaries"][0]["otherwise"] == 2
