"""The README keeps its word: its Python runs, its tree is the tree, its commands exist."""

import os
import re
import tomllib
from pathlib import Path

import pytest
from corpora import write_corpus

from lmexposure.audit import RunSettings
from lmexposure.canaries import CanaryFormat

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.filterwarnings("ignore")
def test_the_python_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "corpus.txt", 120)
    names: dict[str, object] = {}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), names)
    assert {p.name for p in tmp_path.iterdir()} >= {"manifest.json", "runs"}


def test_the_settings_and_the_format_are_sound() -> None:
    settings, badge = (tomllib.loads(block) for block in blocks("toml"))
    assert RunSettings().override(settings).training == settings["training"]
    assert CanaryFormat.from_dict(badge).size == 26**2 * 10**6 * 3


def test_the_tree_names_every_file_with_a_sentence() -> None:
    tree = next(block for block in blocks("text") if "canary_formats/" in block)
    told = {line.split()[0] for line in tree.splitlines() if len(line.split()) > 2}
    rooms = {p.name for p in (ROOT / "lmexposure").rglob("*.py")} - {"__init__.py"}
    assert rooms - told == set()
    assert {name for name in told if name.endswith(".py")} - rooms == set()


def test_the_commands_exist() -> None:
    used = set(re.findall(r"scripts/(\w+)", README)) - {"constraints"}
    assert used
    for name in used:
        path = ROOT / "scripts" / name
        assert os.access(path, os.X_OK), name


def test_nothing_is_left_to_fill_in() -> None:
    assert "DEMO_OUTPUT" not in README
    assert "random_number" in README
