"""Where numbers alone are tested, nothing heavy is loaded: such a room's tests begin at once."""

import subprocess
import sys
from pathlib import Path

from hypothesis import settings

TESTS = Path(__file__).parent

_COLLECTED = """
import sys, pytest
code = pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", *sys.argv[1:]])
heavy = {"torch", "transformers", "tokenizers", "accelerate"} & set(sys.modules)
sys.exit(f"exit code {code}, loaded: {sorted(heavy)}" if code or heavy else 0)
"""


def test_rooms_without_models_are_collected_without_torch() -> None:
    verdicts = sorted(TESTS.glob("exposure/test_[!dw]*.py"))  # others run commands, or a training
    rooms = [*map(str, verdicts), str(TESTS / "statistics"), str(TESTS / "canaries")]
    assert len(verdicts) > 10
    done = subprocess.run(
        [sys.executable, "-c", _COLLECTED, *rooms],
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_no_example_is_drawn_against_a_clock() -> None:
    assert settings().deadline is None
    assert settings().derandomize
