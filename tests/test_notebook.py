"""Bars of long work in a notebook, with a stand-in for IPython's kernel."""

import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from corpora import write_corpus

import lmexposure as lx
from lmexposure._notebook import NotebookBars, notebook_bars


class Shell:
    """What a cell shows, with what was drawn."""

    def __init__(self, config: dict[str, object]) -> None:
        self.config = config
        self.drawn: list[str] = []

    def display(self, picture: str, *, display_id: bool) -> Any:
        assert display_id
        self.drawn.append(picture)
        return SimpleNamespace(update=self.drawn.append)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    made, package, display = (
        Shell({"IPKernelApp": {}}),
        ModuleType("IPython"),
        ModuleType("IPython.display"),
    )
    vars(package)["get_ipython"] = lambda: made
    vars(display).update(HTML=str, display=made.display)
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return made


def test_there_are_bars_in_a_notebook_alone(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(notebook_bars(), NotebookBars)
    shell.config = {"TerminalIPythonApp": {}}
    assert notebook_bars() is None
    monkeypatch.delitem(sys.modules, "IPython")
    assert notebook_bars() is None


def test_each_part_has_a_bar_that_is_drawn_anew(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    bars = NotebookBars()
    bars("training", 1, 1000, "loss <3>")
    bars("training", 2, 1000)  # a moment later
    assert shell.drawn == [
        '<progress value="1" max="1000"></progress> training 1 of 1,000 loss &lt;3&gt;'
    ]
    now[0] += 1
    bars("training", 500, 1000)
    bars("scoring", 0, 0)
    assert shell.drawn[1:] == [
        '<progress value="500" max="1000"></progress> training 500 of 1,000',
        '<progress value="500" max="1000"></progress> training 500 of 1,000<br>'
        '<progress value="0" max="1"></progress> scoring 0 of 0',
    ]
    bars("training", 1000, 1000)  # the end, however soon
    assert 'value="1000"' in shell.drawn[-1]


def test_a_call_shows_them_and_a_watcher_of_ones_own_takes_their_place(
    shell: Shell, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "corpus.txt", 300)
    small: dict[str, Any] = {
        "epochs": 1,
        "units": 8,
        "layers": 1,
        "formats": ["pin"],
        "repetitions": 1,
        "canaries": 1,
        "controls": 2,
        "witness": False,
        "references": 20,
        "extraction": False,
        "estimate": "sampled",
        "permutations": 99,
        "seed": 0,
    }
    told: list[str] = []

    def watched(what: str, done: int, total: int, note: str = "") -> None:
        told.append(what)

    lx.run(tmp_path / "corpus.txt", progress=watched, **small)
    assert told
    assert shell.drawn == []
    lx.run(tmp_path / "corpus.txt", **small)
    assert all(what in shell.drawn[-1] for what in set(told))
