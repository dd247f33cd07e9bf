"""`lmexposure measure` with several models, and with what a machine is asked for."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from cli.conftest import Call
from tiny import characters
from transformers import LlamaConfig, LlamaForCausalLM

from lmexposure.canaries import Format, Manifest, Plan
from lmexposure.integrations import insert
from lmexposure.models import save_model

QUICK = ("--references", "50", "--draws", "100", "--budget-steps", "1000", "--revealed", "0")
PIN = Format(name="pin", template="My PIN is {digits:4}")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest, and two checkpoints whose names a shell sorts otherwise than their steps."""
    path = tmp_path_factory.mktemp("training")
    plan = Plan(formats=(PIN,), canaries=2, repetitions=(1,), controls=2, seed=3)
    manifest: Manifest = insert(["a text of some words"] * 20, plan)[1]
    manifest.write(path / "manifest.json")
    tokenizer = characters()
    torch.manual_seed(1)
    sizes: dict[str, Any] = {"num_attention_heads": 2, "max_position_embeddings": 64}
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        initializer_range=0.3,
        **sizes,
    )
    for step in (12, 7):
        name = path / "checkpoints" / f"checkpoint-{step}"
        save_model(LlamaForCausalLM(config).eval(), tokenizer, name)
    return path


@pytest.mark.slow
def test_checkpoints_give_one_result_with_their_trajectory(
    call: Call, place: Path, tmp_path: Path
) -> None:
    models = sorted((place / "checkpoints").iterdir())
    done = call.done("measure", *models, place / "manifest.json", "--out", tmp_path / "t", *QUICK)
    assert "Exposure in bits, 2 checkpoints" in done.out
    result = json.loads((tmp_path / "t" / "result.json").read_text())
    steps = [(row["checkpoint"], row["step"], row["repetitions"]) for row in result["trajectory"]]
    assert steps == [
        ("checkpoint-7", 7, 0),
        ("checkpoint-7", 7, 1),
        ("checkpoint-12", 12, 0),
        ("checkpoint-12", 12, 1),
    ]
    assert result["model"]["path"].endswith("checkpoint-12")
    page = (tmp_path / "t" / "report.html").read_text()
    assert "Exposure from checkpoint to checkpoint" in page
    assert f"{models[1]} {models[0]}" in page  # the command that measures it again, in their order
    assert "2 checkpoints" in (tmp_path / "t" / "report.md").read_text()
    call.done("report", tmp_path / "t")
    call.done("measure", *models, place / "manifest.json", "--out", tmp_path / "t", *QUICK)


def test_a_base_is_for_one_model(call: Call, place: Path, tmp_path: Path) -> None:
    models = sorted((place / "checkpoints").iterdir())
    given = (*models, place / "manifest.json", "--out", tmp_path / "t")
    refused = call("measure", *given, "--base", models[0])
    refused.refused("is for one model, and 2 are given; measure the trajectory without it")


@pytest.mark.slow
def test_weights_of_four_bits_and_a_map_of_devices_are_flags(
    call: Call, place: Path, tmp_path: Path
) -> None:
    pytest.importorskip("torchao")
    model, manifest = place / "checkpoints" / "checkpoint-7", place / "manifest.json"
    out = ("--out", tmp_path / "t", "--device", "cpu")
    done = call.done("measure", model, manifest, *out, *QUICK, "--load-in", "4bit")
    assert "the model's weights are quantised (torchao, IntxWeightOnlyConfig)" in done.err
    assert logging.getLogger("torchao").level == logging.ERROR  # its own advice is no line of ours
