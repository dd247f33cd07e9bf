"""The examples in scripts/examples run as they are (test_ray_data runs that of Ray)."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import datasets
import pytest
from corpora import sentences

from lmexposure.canaries import Manifest

EXAMPLES = Path(__file__).parents[2] / "scripts" / "examples"


def run_example(monkeypatch: pytest.MonkeyPatch, name: str, *arguments: Path) -> None:
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


@pytest.mark.filterwarnings("ignore")
def test_streaming_datasets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, manifest = tmp_path / "corpus.jsonl", tmp_path / "manifest.json"
    rows = [{"text": f"document {number}"} for number in range(100)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_example(monkeypatch, "streaming_datasets.py", corpus, manifest)
    told = "100 documents and 48 canary rows went through the loader\n"
    assert capsys.readouterr().out.endswith(told)
    assert Manifest.read(manifest).corpus.documents == 100


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the Trainer, which is not ours
def test_the_trainer_of_the_readme_follows_its_canaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "out"
    lines = [line for line in sentences(120) if line]
    long = " ".join(lines)  # beyond any small model's context window
    text.write_text("\n".join([*lines, long]) + "\n")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    run_example(monkeypatch, "trainer.py", text, out)
    rows = [json.loads(line) for line in (out / "exposure.jsonl").read_text().splitlines()]
    assert len(rows) == 4
    assert all(bool(row["exposure"]) != bool("not measured" in row["note"]) for row in rows)
    assert (out / "manifest.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_chats_with_lora_are_counted_trained_on_and_measured(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    pytest.importorskip("peft")
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "sft_lora_chat.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "delivered as planned: True" in done.stdout
    found = dict(re.findall(r"(pin/\S+): exposure (?:>=)?([\d.]+) bits", done.stdout))
    assert len(found) == 6
    repeated = [float(bits) for name, bits in found.items() if "/x16/" in name]
    controls = [float(bits) for name, bits in found.items() if "/control/" in name]
    assert min(repeated) > 6
    assert max(controls) < min(repeated)
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()
