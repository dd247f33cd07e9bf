"""The Trainer script of the README runs as it stands."""

import json
import runpy
import sys
from pathlib import Path

import datasets
import pytest
from corpora import sentences

SCRIPT = Path(__file__).parents[2] / "scripts/examples/trainer.py"


@pytest.mark.filterwarnings("ignore")  # of the Trainer, which is not ours
def test_the_script_follows_its_canaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "out"
    lines = [line for line in sentences(120) if line]
    long = " ".join(lines)  # beyond any small model's context window
    text.write_text("\n".join([*lines, long]) + "\n")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(sys, "argv", ["trainer.py", str(text), str(out)])
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    runpy.run_path(str(SCRIPT), run_name="__main__")
    rows = [json.loads(line) for line in (out / "exposure.jsonl").read_text().splitlines()]
    assert len(rows) == 4
    assert all(bool(row["exposure"]) != bool("not measured" in row["note"]) for row in rows)
    assert (out / "manifest.json").stat().st_mode & 0o777 == 0o600
