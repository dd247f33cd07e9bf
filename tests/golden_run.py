"""The golden run: what the product writes for fixed inputs, held against what was committed.

`scripts/golden` runs it; `scripts/golden --accept` writes the expected files anew, for a change
that is meant.
"""

import json
import os
from difflib import unified_diff
from pathlib import Path
from typing import Any

__all__ = ["agree", "agree_values"]

_EXPECTED = Path(__file__).parent / "golden" / "expected"
_ACCEPT = os.environ.get("LMEXPOSURE_GOLDEN") == "accept"


def agree(name: str, made: str | bytes) -> None:
    """Hold what today's code writes against its committed copy, byte by byte."""
    expected = _EXPECTED / name
    content = made.encode() if isinstance(made, str) else made
    if _ACCEPT:
        expected.parent.mkdir(parents=True, exist_ok=True)
        expected.write_bytes(content)
    assert expected.exists(), f"{name} was never committed; write it: scripts/golden --accept"
    before = expected.read_bytes()
    if isinstance(made, str):
        old, new = before.decode().splitlines(), made.splitlines()
        differing = list(unified_diff(old, new, "committed", "made", n=1, lineterm=""))
        assert not differing, "\n".join([name, *differing[:60]])
    assert content == before


def agree_values(name: str, made: Any, *, within: float) -> None:
    """Hold JSON values against their committed copy; last bits of a float are the processor's."""
    if _ACCEPT:
        agree(name, json.dumps(made, indent=1, sort_keys=True, allow_nan=False) + "\n")
    expected = json.loads((_EXPECTED / name).read_text(encoding="utf-8"))
    differing = list(_differences("", json.loads(json.dumps(made)), expected, within))
    assert not differing, "\n".join(differing[:20])


def _differences(path: str, made: Any, expected: Any, within: float) -> Any:
    if isinstance(made, dict) and isinstance(expected, dict):
        for key in sorted(made.keys() | expected.keys()):
            if (key in made) != (key in expected):
                yield f"{path}.{key}: {'added' if key in made else 'gone'}"
            else:
                yield from _differences(f"{path}.{key}", made[key], expected[key], within)
    elif isinstance(made, list) and isinstance(expected, list) and len(made) == len(expected):
        for i, (new, old) in enumerate(zip(made, expected, strict=True)):
            yield from _differences(f"{path}[{i}]", new, old, within)
    elif isinstance(made, float) and isinstance(expected, float):
        if abs(made - expected) > within:
            yield f"{path}: {made} instead of {expected}"
    elif type(made) is not type(expected) or made != expected:
        yield f"{path}: {made!r} instead of {expected!r}"
