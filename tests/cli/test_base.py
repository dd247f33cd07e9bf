"""`lmexposure measure --base`: a fine-tune beside the model before it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from cli.conftest import Call
from corpora import sentences
from tiny import byte_level_bpe, model_of

from lmexposure.canaries import Format, Plan
from lmexposure.integrations import insert
from lmexposure.models import save_model
from lmexposure.studies import Result

TOKENIZER = byte_level_bpe()
PIN = Format(name="pin", template="My PIN is {digits:3}")
QUICK = """references = 60
estimate = "sampled"
extraction = false
bootstraps = 39
permutations = 99
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base, a fine-tune of it, and the manifest."""
    path = tmp_path_factory.mktemp("models")
    model: Any = model_of("gpt2", len(TOKENIZER))
    save_model(model, TOKENIZER, path / "base")
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.02)
    save_model(model, TOKENIZER, path / "tuned")
    plan = Plan(formats=(PIN,), canaries=2, repetitions=(1,), controls=2, seed=3)
    _, manifest = insert(sentences(20), plan)
    manifest.write(path / "manifest.json")
    return path


def test_a_fine_tune_beside_its_base(place: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "quick.toml").write_text(QUICK)
    words = (
        *("measure", place / "tuned", place / "manifest.json", "--base", place / "base"),
        *("--settings", tmp_path / "quick.toml", "--out", tmp_path / "out"),
    )
    call(*words).done(out="Calibrated exposure in bits, pin: beside the base, 60 references")
    result = Result.read(tmp_path / "out" / "result.json")
    assert result.base is not None
    assert result.base.path == (place / "base").as_posix()
    assert "Calibrated exposure beside the base" in (tmp_path / "out" / "report.html").read_text()
    call.done(*words)
