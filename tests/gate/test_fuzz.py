"""Every part of a result put out of order in turn: refused or doubted, never a crash."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from made_results import clean, exact

from lmexposure.errors import LmexposureError
from lmexposure.gate import Thresholds, check_result, verdict_json
from lmexposure.records import CanaryResult, Provenance, Result

WRONG: tuple[Any, ...] = (None, 0, -1, 1e308, 10**400, "x", [], {}, True, float("nan"))
ALL = Thresholds(max_epsilon=9, max_exposure=20)
# Parts that carry the verdict: with any other value the result is of something else.
DECIDING = re.compile(
    r"canaries/\d/(format|role|repetitions|exposure|exposure/method)"
    r"|canaries/\d+|canaries|formats|formats/\d+|formats/\d+/(name|space_size|bits|references)"
    r"|summary|summary/\d+|summary/\d+/(format|role|repetitions|n|guessing_test)"
    r"|summary/\d+/guessing_test/(p_value|n|references|alternative|permutations)"
    r"|model/validation/(improved|validation_bits|initial_validation_bits)"
    r"|privacy|privacy/(claim|attainable)"
    r"|privacy/claim/(verdict|claimed_epsilon|claimed_delta|bound)"
    r"|(inputs|manifest)_sha256"
)

# And these other values are as good as the ones that stood there.
FITS = {
    ("inputs_sha256", "x"),
    ("manifest_sha256", "x"),
    ("model/validation/validation_bits", "0"),
    ("model/validation/initial_validation_bits", "1e+308"),
    ("privacy/attainable", "1e+308"),
    ("privacy/claim/claimed_delta", "0"),
    ("privacy/claim/bound", "0"),
}


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    claim = {"verdict": "consistent", "claimed_epsilon": 2.0, "claimed_delta": 1e-5, "bound": 0.5}
    primary = {"value": 0.5, "delta": 1e-5, "significance": 0.05, "validity": "any-dp"}
    result = clean(
        n=10,
        classes=(1,),
        settings={"claimed_epsilon": 2.0},
        privacy={"primary": primary, "attainable": 12.0, "claim": claim},
    )
    result.formats[0] |= {"exhaustive": False, "set_aside": 0, "search": {"interrupted": False}}
    curve = result.canaries[9].exposure | {"method": "skew_normal"}
    last = replace(result.canaries[9], exposure=curve, estimates={"exact": exact(1.0)})
    result.canaries[9] = last
    found: dict[str, Any] = json.loads(json.dumps(result.to_dict()))
    return found


def exit_code(record: dict[str, Any], thresholds: Thresholds = ALL) -> int:
    """As `lmexposure check` does it; 3 for an error that was raised on purpose."""
    values = dict(record)
    try:
        canaries = [CanaryResult(**one) for one in values.pop("canaries")]
        result = Result(canaries=canaries, **values)
    except (TypeError, KeyError):
        return 3  # `read_result` says so
    try:
        verdict = check_result(result, thresholds)
    except LmexposureError:
        return 3
    json.loads(verdict_json(verdict, result, Provenance.of(result)))
    return verdict.exit_code


def nodes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all parts."""
    if path:
        yield path
    inner = enumerate(value) if isinstance(value, list) else ()
    for key, part in value.items() if isinstance(value, dict) else inner:
        yield from nodes(part, (*path, key))


def sampled_nodes(record: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Of all paths that differ by places in lists only, the first and the last."""
    alike: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for path in nodes(record):
        # The summary has rows of two kinds, so that each counts.
        key = tuple(
            "*" if isinstance(part, int) and path[0] != "summary" else part for part in path
        )
        alike.setdefault(key, []).append(path)
    return [path for found in alike.values() for path in dict.fromkeys((found[0], found[-1]))]


def test_the_result_itself_passes(record: dict[str, Any]) -> None:
    assert exit_code(record) == 0


def test_no_part_out_of_order_crashes_the_gate_or_lets_it_pass(record: dict[str, Any]) -> None:
    passed: list[tuple[str, Any]] = []
    for path in sampled_nodes(record):
        *way, last = path
        place: Any = record
        for part in way:
            place = place[part]
        kept, name = place[last], "/".join(str(part) for part in path)
        for wrong in WRONG:
            if wrong == kept and type(wrong) is type(kept):
                continue
            place[last] = wrong
            if exit_code(record) == 0 and DECIDING.fullmatch(name):
                passed.append((name, wrong))
        place[last] = kept
    assert [(name, wrong) for name, wrong in passed if (name, str(wrong)) not in FITS] == []
