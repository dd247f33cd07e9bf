"""Which tests run, and how: numbers without torch, slow ones where their room was changed."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings
from slow import all_are_wanted, changed_files, is_touched

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


def test_a_test_is_touched_with_its_file_or_its_room() -> None:
    assert is_touched("tests/canaries/test_plan.py", {"tests/canaries/test_plan.py"})
    assert is_touched("tests/canaries/test_plan.py", {"lmexposure/canaries/corpora/text.py"})
    assert not is_touched("tests/canaries/test_plan.py", {"tests/canaries/test_copies.py"})
    assert not is_touched("tests/canaries/test_plan.py", {"lmexposure/studies/exposure/checks.py"})
    assert not is_touched(
        "tests/test_readme.py", {"lmexposure/studies/exposure/checks.py", "README.md"}
    )
    assert is_touched("tests/test_docs.py", {"docs/index.md"})


def test_changed_are_files_that_are_not_committed_or_not_upstream(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        name = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *name, *words], cwd=tmp_path, check=True, capture_output=True)

    assert changed_files(tmp_path) == set()
    git("init", "-b", "main")
    for name in ("old", "committed", "edited"):
        (tmp_path / name).write_text(name)
        git("add", name)
        git("commit", "-m", name)
        if name == "old":
            git("branch", "others")
    git("branch", "--set-upstream-to", "others")
    (tmp_path / "edited").write_text("again")
    (tmp_path / "new").write_text("new")
    assert changed_files(tmp_path) == {"committed", "edited", "new"}


def test_another_choice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMEXPOSURE_SLOW", "some")
    with pytest.raises(ValueError, match="'some', but must be all or changed"):
        all_are_wanted()
