"""A committed tiny checkpoint measured, by the library and by the command; stopped runs resumed.

What differs between processors, machines and days is taken out before it is compared, and nothing
else is:

- numbers with a decimal point may differ by 1e-3, and by 1 in the last place on the terminal;
- ranks among draws are counts by the last bits of weights, compared as their log2;
- decimals within sentences are left out, and sentences stand once, under a label;
- hashes of inputs (the version is among them), of scores and of the record itself, versions,
  dates, machine and paths are named instead of shown. Hashes of manifest and weights stay:
  permutations are drawn by them.
"""

import hashlib
import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from corpora import write_corpus
from golden_run import agree_values
from older_runs import STOPPED, older_run, stopped_settings

from lmexposure import __version__
from lmexposure.audit import MeasureSettings, measure, run
from lmexposure.cli.entry import _run
from lmexposure.models import load_model
from lmexposure.results import Result

DATA = Path(__file__).parent / "data" / "measured"
SMALL = MeasureSettings(
    references=40,
    revealed=1,
    draws=1000,
    guesses=20,
    budget_steps=20_000,
    bootstraps=39,
    permutations=199,
)
# What a training of our own says of itself, of one that learned nothing and ended by the clock.
LEARNED_NOTHING = {
    "validation_bits": 5.5,
    "initial_validation_bits": 5.25,
    "best_epoch": 0.0,
    "epochs": 1.0,
    "stopped": "max_seconds",
    "improved": False,
}
_NAMED = {
    "lmexposure": "version",
    "git_revision": "revision",
    "python": "version",
    "platform": "platform",
    "measured": "date",
    "inputs_sha256": "hash",
    "scores_sha256": "hash",
    "content_sha256": "hash",
}
_LONG = 60  # characters of a text that is a sentence
_DECIMALS = re.compile(r"\d[\d,]*\.(\d+)")


class Seen(NamedTuple):
    """What a person saw of a command."""

    code: int
    out: str
    err: str


Call = Callable[..., Seen]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run `lmexposure ARGUMENTS` in this process, as the entry point does."""

    def command(*arguments: object) -> Seen:
        monkeypatch.setattr(sys, "argv", ["lmexposure", *map(str, arguments)])
        capsys.readouterr()
        return Seen(_run(), *capsys.readouterr())

    return command


class _Comparable:
    """JSON values without what differs between machines; the sentences in them, by label."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places
        self.sentences: dict[str, str] = {}

    def of(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {k: self._named(k, v, value) for k, v in value.items()}
        if isinstance(value, list):
            return [self.of(each, key) for each in value]
        if not isinstance(value, str):
            return value
        for place, name in self._places.items():
            value = value.replace(place, name)
        return self._labelled(value) if len(value) > _LONG and " " in value else value

    def _named(self, key: str, value: Any, row: dict[str, Any]) -> Any:
        if value is None:
            return None
        if key in _NAMED and isinstance(value, str):
            return _NAMED[key]
        if key == "versions":
            return dict.fromkeys(value, "version")
        if key == "seconds" and isinstance(value, dict):
            return dict.fromkeys(value, "seconds")
        if key in ("rank", "place") and row.get("method") == "importance":
            return f"log2 {math.log2(int(value)):.2f}" if False else {"log2": math.log2(int(value))}
        return self.of(value, key)

    def _labelled(self, sentence: str) -> str:
        text = _DECIMALS.sub("#.#", sentence)
        label = f"{text[:30]}~{hashlib.sha256(text.encode()).hexdigest()[:6]}"
        self.sentences[label] = text
        return label


def _agree_measured(name: str, out: Path) -> None:
    """Hold all that a measurement left in a directory against its committed copy."""
    comparable = _Comparable({str(out): "OUT", str(DATA): "DATA"})
    made = {
        "files": {
            path.relative_to(out).as_posix(): f"{path.stat().st_mode & 0o777:o}"
            for path in sorted(out.rglob("*"))
        },
        "result": comparable.of(json.loads((out / "result.json").read_bytes())),
        "run": comparable.of(json.loads((out / "run.json").read_bytes())),
        "scores": _scores(out / "scores.parquet"),
    }
    agree_values(
        f"measurement/{name}.json", {**made, "sentences": comparable.sentences}, within=1e-3
    )


def _scores(path: Path) -> dict[str, Any]:
    """The columns of scores.parquet; what is exact in one line a row."""
    table = pq.read_table(path)
    columns = table.to_pydict()
    bits = [name for name in columns if name.endswith("bits")]
    exact = zip(*(columns[name] for name in columns if name not in bits), strict=True)
    return {
        "schema": str(table.schema).splitlines(),
        "rows": [" ".join(map(str, row)) for row in exact],
        **{name: columns[name] for name in bits},
    }


def _agree_result(name: str, result: Result) -> None:
    """Hold a result that was not written down against its committed copy."""
    comparable = _Comparable({str(DATA): "DATA"})
    made = comparable.of(result.to_dict())
    agree_values(
        f"measurement/{name}.json",
        {"result": made, "sentences": comparable.sentences},
        within=1e-3,
    )


def _agree_terminal(name: str, seen: Seen, out: Path) -> None:
    """Hold a command's words against their committed copy, numbers to 1 in the last place.

    Of standard error the warnings alone: how far the work is depends on the machine's pace.
    """
    text = seen.out + "\n".join(line for line in seen.err.splitlines() if "warning: " in line)
    text = text.replace(f"lmexposure {__version__}", "lmexposure VERSION")
    text = re.sub(r"measured \S+Z", "measured DATE", text)
    text = text.replace(str(out), "OUT").replace(str(DATA), "DATA")
    numbers = [
        float(found[0].replace(",", "")) * 10 ** len(found[1])
        for found in _DECIMALS.finditer(text)
    ]
    masked = _DECIMALS.sub(lambda found: re.sub(r"\d", "#", found[0]), text)
    agree_values(
        f"measurement/{name}.terminal.json",
        {"lines": masked.splitlines(), "last_places": numbers},
        within=1.01,
    )


def _settings_file(path: Path, **more: int) -> Path:
    """Settings of SMALL that no flag has, as a TOML file."""
    path.write_text(f"bootstraps = {SMALL.bootstraps}\npermutations = {SMALL.permutations}\n")
    return path


def test_measure_writes_and_says(tmp_path: Path, call: Call) -> None:
    """An LSTM; three formats: counted, drawn, and with every fill a reference."""
    out = tmp_path / "out"
    seen = call(
        *("measure", DATA / "fixed" / "model", DATA / "fixed" / "manifest.json", "--out", out),
        *("--references", 40, "--revealed", 1, "--draws", 1000, "--guesses", 20),
        *("--budget-steps", 20_000, "--settings", _settings_file(tmp_path / "small.toml")),
    )
    assert seen.code == 0
    _agree_terminal("fixed", seen, out)
    _agree_measured("fixed", out)


def test_coins_bound_epsilon_and_hold_a_claim_against_it(tmp_path: Path, call: Call) -> None:
    out = tmp_path / "out"
    file = _settings_file(tmp_path / "small.toml")
    file.write_text(file.read_text() + "extraction = false\n")
    seen = call(
        *("measure", DATA / "coins" / "model", DATA / "coins" / "manifest.json", "--out", out),
        *("--references", 40, "--method", "sampled", "--settings", file),
        *("--claimed-epsilon", 0.1, "--delta", 1e-5, "--significance", 0.1, "--seed", 2),
    )
    assert seen.code == 0
    _agree_terminal("coins", seen, out)
    _agree_measured("coins", out)


def test_a_quick_look_at_a_gpt2(tmp_path: Path, call: Call) -> None:
    out = tmp_path / "out"
    seen = call(
        *("measure", DATA / "gpt2" / "model", DATA / "gpt2" / "manifest.json", "--out", out),
        *("--quick", "--references", 40, "--draws", 1000, "--guesses", 20),
        *("--settings", _settings_file(tmp_path / "small.toml")),
    )
    assert seen.code == 0
    _agree_terminal("quick", seen, out)
    _agree_measured("quick", out)
