"""The 42 usual mistakes are answered before torch is imported, and each answer says what to do."""

import json
import os
import subprocess
import sys
from pathlib import Path

import mistakes
import pytest
from mistakes import EVERY, MISTAKES, Answer

_TESTS = Path(mistakes.__file__).parent
_SECONDS = 2.0  # of the processor: others may be at work beside a test
_EARLY = [number for number, mistake in enumerate(EVERY, 1) if not mistake.late]


def test_there_are_42_and_what_is_answered_late_names_its_test() -> None:
    assert len(MISTAKES) == 42
    for mistake in MISTAKES:
        assert not mistake.late or (_TESTS / mistake.late.split()[-1]).exists(), mistake.what


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Answer]:
    """What is said of each by one fresh interpreter, in which one that imports torch would show."""
    home = tmp_path_factory.mktemp("mistakes")
    mistakes.prepare(home)
    script = (
        "import json, sys; from dataclasses import asdict; from mistakes import EVERY, answer\n"
        f"print(json.dumps({{n: asdict(answer(EVERY[n - 1])) for n in {_EARLY}}}))"
    )
    known = os.pathsep.join([str(_TESTS), str(_TESTS.parent)])
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=home,
        env={**os.environ, "PYTHONPATH": known, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return {int(number): Answer(**values) for number, values in found.items()}


@pytest.mark.parametrize("number", _EARLY)
def test_a_mistake_is_answered_at_once_with_what_to_do(
    number: int, answers: dict[int, Answer]
) -> None:
    mistake, found = EVERY[number - 1], answers[number]
    assert not found.torch, mistake.typed
    assert found.seconds < _SECONDS
    assert (found.code, mistake.said in found.said, mistake.next in found.said) == (
        mistake.code,
        True,
        True,
    ), found.said
    assert "Traceback" not in found.said
