"""The SFT example as people run it: chat template, LoRA, a counter, exposure; then the command."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")
pytest.importorskip("peft")

ROOT = Path(__file__).parents[2]


def test_the_example_counts_trains_and_measures(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "examples" / "sft_lora_chat.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
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
