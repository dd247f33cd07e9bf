"""What result.json holds of chosen texts, and what must be true of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_results import clean
from pydantic import ValidationError

from lmexposure._files import canonical_json, sha256_bytes
from lmexposure.errors import ResultError
from lmexposure.records import KindMembership, Result
from lmexposure.statistics import area_under_curve, guessing_test, one_run_audit, tpr_at_fpr

INSIDE = [i % 2 == 0 for i in range(20)]
BITS = [10.0 + (not inside) + i / 100 for i, inside in enumerate(INSIDE)]
IN = [-bits for bits, inside in zip(BITS, INSIDE, strict=True) if inside]
OUT = [-bits for bits, inside in zip(BITS, INSIDE, strict=True) if not inside]


def values(**parts: object) -> dict[str, Any]:
    """A sound class of 20 candidates that the model tells."""
    rows = zip(INSIDE, BITS, strict=True)
    found: dict[str, Any] = {
        "group": "unigram/x2",
        "kind": "unigram",
        "format": "unigram",
        "repetitions": 2,
        "canaries": 10,
        "held_out": 10,
        "inclusion_probability": 0.5,
        "area_under_curve": area_under_curve(IN, OUT).to_dict(),
        "tpr_at_fpr": [tpr_at_fpr(IN, OUT, fpr=0.1).to_dict()],
        "test": guessing_test([-v for v in IN], [-v for v in OUT], seed=1).to_dict(),
        "bound": one_run_audit(
            [-b for b in BITS], INSIDE, significance=0.05, repetitions=2, seed=0
        ).to_dict(),
        "significance": 0.05,
        "note": None,
        "candidates": [
            {"id": f"unigram/x2/{i:04d}", "included": inside, "secret_bits": bits}
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


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"canaries": 11}, r"canaries and held_out=\(11, 10\)"),
        ({"area_under_curve": area_under_curve(IN, OUT[1:]).to_dict()}, "positives and negatives"),
        ({"tpr_at_fpr": [tpr_at_fpr(IN[1:], OUT, fpr=0.1).to_dict()]}, "positives and negatives"),
        ({"test": guessing_test([1, 2], [3.0], seed=1).to_dict()}, "n and references of the test"),
        ({"bound": None}, "a number is missing, and no note says why"),
        ({"test": None}, "a number is missing, and no note says why"),
        ({"area_under_curve": None}, "a number is missing, and no note says why"),
        ({"significance": 0.01}, "bound: significance=0.05"),
        ({"repetitions": 1}, "bound: repetitions=2"),
    ],
)
def test_parts_that_cannot_be_true_together(parts: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        made(**parts)


def test_what_is_missing_may_be_said() -> None:
    assert made(bound=None, note="no bound: too few").bound is None


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ((values(), values()), "kinds: class 'unigram/x2' is there 2 times"),
        ((values(format="random_number"),), "is of chosen texts, and its format has exposures"),
        (
            (values(area_under_curve=area_under_curve(IN, OUT, level=0.9).to_dict()),),
            "unigram/x2: level=0.9",
        ),
        (
            (values(), values(group="bigram/x2", format="bigram")),
            "have a significance of 0.1 together, above the settings' 0.05",
        ),
    ],
)
def test_a_result_refuses_other_kinds(kinds: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Result.model_validate({**clean(n=3).model_dump(), "kinds": kinds})


def rewritten(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A record with something else in it, and the hash that goes with that."""
    read = json.loads(path.read_text(encoding="utf-8"))
    change(read)
    read.pop("content_sha256")
    read["content_sha256"] = sha256_bytes(canonical_json(read))
    path.write_text(json.dumps(read), encoding="utf-8")
    return path


def test_a_result_of_version_3_has_no_kinds(tmp_path: Path) -> None:
    result = clean(n=3)
    result.write(tmp_path / "result.json")

    def older(read: dict[str, Any]) -> None:
        del read["kinds"]
        read["schema"] = "lmexposure.result/3"

    assert Result.read(rewritten(tmp_path / "result.json", older)) == result


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_result_of_today_does_not_pass_for_an_older_one_without_hash(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "result.json"
    clean(n=3).write(path)
    read = json.loads(path.read_text(encoding="utf-8"))
    del read["content_sha256"]
    path.write_text(json.dumps({**read, "schema": f"lmexposure.result/{version}"}))
    why = "it has a part 'context', which came later" if version == 1 else "fit its content_sha256"
    with pytest.raises(ResultError, match=why):
        Result.read(path)
