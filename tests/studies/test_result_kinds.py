"""What result.json holds of chosen texts, and what must be true of it."""

from pathlib import Path
from typing import Any

import pytest
from made_results import clean
from pydantic import ValidationError

from lmexposure.statistics import area_under_curve, guessing_test, one_run_audit, tpr_at_fpr
from lmexposure.studies import KindMembership, Result

INSIDE = [i % 2 == 0 for i in range(20)]
BITS = [10.0 + (not inside) + i / 100 for i, inside in enumerate(INSIDE)]
IN = [-bits for bits, inside in zip(BITS, INSIDE, strict=True) if inside]
OUT = [-bits for bits, inside in zip(BITS, INSIDE, strict=True) if not inside]


def values(**parts: object) -> dict[str, Any]:
    """A sound class of 20 candidates that the model tells."""
    rows = zip(INSIDE, BITS, strict=True)
    found: dict[str, Any] = {
        "group": "texts/x2",
        "kind": "texts",
        "format": "texts",
        "repetitions": 2,
        "canaries": 10,
        "held_out": 10,
        "inclusion_probability": 0.5,
        "area_under_curve": area_under_curve(IN, OUT),
        "tpr_at_fpr": [tpr_at_fpr(IN, OUT, fpr=0.1)],
        "test": guessing_test([-v for v in IN], [-v for v in OUT], seed=1),
        "bound": one_run_audit(
            [-b for b in BITS], INSIDE, significance=0.05, repetitions=2, seed=0
        ),
        "significance": 0.05,
        "note": None,
        "candidates": [
            {"id": f"texts/x2/{i:04d}", "included": inside, "secret_bits": bits}
            for i, (inside, bits) in enumerate(rows)
        ],
    }
    return found | parts


def made(**parts: object) -> KindMembership:
    return KindMembership.model_validate(values(**parts))


def test_written_and_read_it_is_the_same(tmp_path: Path) -> None:
    result = clean(n=3).model_copy(update={"kinds": (made(),)})
    result.write(tmp_path / "result.json")
    assert Result.read(tmp_path / "result.json") == result


@pytest.mark.parametrize("parts", [{"bound": None}, {"test": None}, {"area_under_curve": None}])
def test_a_number_that_is_missing_says_why(parts: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="a number is missing, and no note says why"):
        made(**parts)


def test_what_is_missing_may_be_said() -> None:
    assert made(bound=None, note="no bound: too few").bound is None


def test_each_class_is_there_once() -> None:
    with pytest.raises(ValidationError, match="kinds: class 'texts/x2' is there 2 times"):
        Result.model_validate({**clean(n=3).model_dump(), "kinds": (values(), values())})
