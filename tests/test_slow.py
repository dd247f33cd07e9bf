"""Slow tests run where something of theirs was changed; a slip of the pen runs nothing."""

import subprocess
from pathlib import Path

import pytest
from slow import all_are_wanted, changed_files, is_touched


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
