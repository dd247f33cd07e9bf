"""The README keeps its word: its Python runs, its commands parse, what it points to is there."""

import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from corpora import sentences
from tiny import byte_level_bpe, model_of

from lmexposure.cli.app import app

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
TEXTS = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}
README = TEXTS["README.md"]


@pytest.mark.filterwarnings("ignore")
def test_the_python_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tokenizer = byte_level_bpe()
    names: dict[str, Any] = {
        "texts": sentences(60),
        "model": model_of("gpt2", len(tokenizer)),
        "tokenizer": tokenizer,
    }
    for block in re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL):
        exec(compile(block, "README.md", "exec"), names)
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", ".lmexposure.files"}
    manifest, result = names["manifest"], names["result"]
    witnesses = sum(entry.inserted for entry in manifest.witnesses)
    assert len(names["texts"]) == 60 + 10 * (1 + 16) + witnesses
    page = Path("report.html").read_text()
    assert all(secret.text not in page for secret in manifest.entries)
    assert result.scores is not None
    assert len(result.to_frame()) == 10 * 2 + 32


def test_it_is_read_in_two_minutes() -> None:
    assert len(README.splitlines()) <= 130


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", TEXTS[page])
    missing = [link for link in links if "://" not in link and not (ROOT / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_scripts_that_are_named_exist_and_run(page: str) -> None:
    used = set(re.findall(r"scripts/([\w/]+(?:\.\w+)?)", TEXTS[page]))
    missing = {name for name in used if not (ROOT / "scripts" / name).is_file()}
    idle = {
        name
        for name in used - missing
        if "." not in name and not os.access(ROOT / "scripts" / name, os.X_OK)
    }
    assert used
    assert (missing, idle) == (set(), set())


def test_every_script_is_named() -> None:
    """Those that people start; not what a script starts or reads."""
    for path in (ROOT / "scripts").iterdir():
        if path.is_file() and path.read_text().startswith("#!/usr/bin/env bash"):
            assert f"scripts/{path.name}" in README + TEXTS["CONTRIBUTING.md"]


def test_the_picture_is_small() -> None:
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", README)
    assert pictures == ["docs/images/report.png"]
    assert (ROOT / pictures[0]).stat().st_size < 250_000


def test_every_flag_that_people_are_told_of_exists() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    typed = re.findall(r"(?:\$ |`)(lmexposure [a-z].*?)(?:`|\n)", README)
    mentioned = set()
    for line in typed:
        name, *words = shlex.split(line, comments=True)[1:]
        mentioned.add(name)
        flags = {flag for option in commands[name].params for flag in option.opts}
        assert {word for word in words if word.startswith("--")} - flags == set(), line
    assert mentioned >= {"insert", "measure", "run", "check", "epsilon", "formats", "verify"}
