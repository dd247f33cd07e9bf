"""`measure` of one model, of several and beside a base, and with rows; `identifiers` too."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from audit.test_scored_texts import KNOWING, MANIFEST, REFERENCES, scored
from audit.wrapped import plain_manifest
from chats import chat_tokenizer
from cli.conftest import Call
from corpora import sentences
from identifier_corpora import keyed_lines, trained, write_lines
from studies.test_rows_record import record
from tiny import byte_level_bpe, characters, model_of
from transformers import LlamaConfig, LlamaForCausalLM

from lmexposure.canaries import Format, Manifest, Plan
from lmexposure.integrations import insert
from lmexposure.models import save_model, tokenizer_sha256
from lmexposure.studies import NaturalIdentifiers, Result

TOKENIZER = byte_level_bpe()
PIN = Format(name="pin", template="My PIN is {digits:3}")
LONG_PIN = Format(name="pin", template="My PIN is {digits:4}")
SAMPLED = "estimate = 'sampled'\nextraction = false\npermutations = 99\nbootstraps = 39\n"
QUICK = (
    "--set",
    "references=50",
    "--set",
    "draws=100",
    "--set",
    "budget_steps=1000",
    "--set",
    "revealed=0",
)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def test_a_fine_tune_beside_its_base(tuned: Path, call: Call) -> None:
    Path("quick.toml").write_text(f"references = 60\n{SAMPLED}")
    words = (
        *("measure", tuned / "tuned", tuned / "manifest.json", "--base", tuned / "base"),
        *("--settings", "quick.toml", "--out", "out", "--full"),
    )
    call(*words).done(out="Calibrated exposure in bits, pin: beside the base, 60 references")
    result = Result.read("out/result.json")
    assert result.base is not None
    assert result.base.path == (tuned / "base").as_posix()
    assert "Calibrated exposure beside the base" in Path("out/report.html").read_text()
    call.done(*words)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest, and two checkpoints whose names a shell sorts otherwise than their steps."""
    path = tmp_path_factory.mktemp("training")
    plan = Plan(formats=(LONG_PIN,), canaries=2, repetitions=(1,), controls=2, seed=3)
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
def test_checkpoints_give_one_result_with_their_trajectory(call: Call, place: Path) -> None:
    models = sorted((place / "checkpoints").iterdir())
    done = call.done("measure", *models, place / "manifest.json", "--out", "t", "--full", *QUICK)
    assert "Exposure in bits, 2 checkpoints" in done.out
    result = json.loads(Path("t/result.json").read_text())
    steps = [(row["checkpoint"], row["step"], row["repetitions"]) for row in result["trajectory"]]
    assert steps == [
        ("checkpoint-7", 7, 0),
        ("checkpoint-7", 7, 1),
        ("checkpoint-12", 12, 0),
        ("checkpoint-12", 12, 1),
    ]
    assert result["model"]["path"].endswith("checkpoint-12")
    page = Path("t/report.html").read_text()
    assert "Exposure from checkpoint to checkpoint" in page
    assert f"{models[1]} {models[0]}" in page  # the command that measures it again, in their order
    assert "2 checkpoints" in Path("t/report.md").read_text()
    call.done("report", "t")
    call.done("measure", *models, place / "manifest.json", "--out", "t", *QUICK)


def test_a_base_is_for_one_model(call: Call, place: Path) -> None:
    models = sorted((place / "checkpoints").iterdir())
    given = (*models, place / "manifest.json", "--out", "t")
    refused = call("measure", *given, "--base", models[0])
    refused.refused("is for one model, and 2 are given; measure the trajectory without it")


@pytest.mark.slow
def test_weights_of_four_bits_and_a_map_of_devices_are_flags(call: Call, place: Path) -> None:
    pytest.importorskip("torchao")
    model, manifest = (place / "checkpoints" / "checkpoint-7", place / "manifest.json")
    out = ("--out", "t", "--device", "cpu")
    done = call.done("measure", model, manifest, *out, *QUICK, "--load-in", "4bit", "--full")
    assert "the model's weights are quantised (torchao, IntxWeightOnlyConfig)" in done.err
    assert logging.getLogger("torchao").level == logging.ERROR  # its own advice is no line of ours


def test_rows_next_to_the_manifest_are_used(call: Call) -> None:
    tokenizer, manifest = chat_tokenizer(), plain_manifest()
    save_model(model_of("llama", len(tokenizer)), tokenizer, Path("model"))
    manifest.write(Path("manifest.json"))
    known = {"manifest_sha256": manifest.sha256, "tokenizer_sha256": tokenizer_sha256(tokenizer)}
    around = {"start": (tokenizer.eos_token_id,), "before": "Well. ", "behind": "", "loss": "all"}
    record(**known, **around).save(Path("rows.json"))
    Path("few.toml").write_text(SAMPLED)
    files = ("--manifest", "manifest.json", "--settings", "few.toml")
    seen = call("check", "--model", "model", *files, "--out", "out")
    assert seen.code == 2  # too few canaries
    context = Result.read("out/result.json").context
    assert context is not None
    assert (context.source, context.left) == ("rows", "<|endoftext|>Well. ")


@pytest.mark.slow
def test_held_out_documents_decide_and_without_them_the_claim_is_open(call: Call) -> None:
    form = Path("key.toml")
    form.write_text('name = "key"\ntemplate = "the key {hex:8}"\n')
    loaded = trained(keyed_lines(1), epochs=30)
    save_model(loaded.model, loaded.tokenizer, Path("model"))
    corpus = write_lines(Path("corpus.txt"), keyed_lines(1))
    apart = write_lines(Path("apart.txt"), keyed_lines(9, 40))
    command = ("identifiers", Path("model"), corpus, "--format", form, "--draws", "99", "--full")
    done = call.done(*command, "--held-out", apart, "--out", "beside")
    assert "membership: the model read these identifiers" in done.out
    assert "Beside 40 held-out documents" in done.out
    record = NaturalIdentifiers.read("beside/identifiers.json")
    assert record.split is not None
    assert "held-out documents" in Path("beside/report.md").read_text()
    alone = call.done(*command, "--out", "alone")
    assert "distribution or membership: the identifiers rank lower than chance" in alone.out
    assert "give them (--held-out)" in alone.out


def test_texts_go_out_and_scores_come_in(call: Call) -> None:
    MANIFEST.write(Path("manifest.json"))
    of_each = ("--references", REFERENCES)
    call("texts", "manifest.json", *of_each, "--out", "texts.jsonl").done(
        out="texts  texts.jsonl, for its owner alone"
    )
    rows = [json.loads(line) for line in Path("texts.jsonl").read_text().splitlines()]
    Path("scores.jsonl").write_text("\n".join(map(json.dumps, scored(rows, KNOWING))))
    words = ("measure", "--scores", "scores.jsonl", "manifest.json", *of_each, "--out", "measured")
    told = call(*words).done(out="LEAKS   scores.jsonl (scores)")
    assert call(*words).done().out == told.out
    page = Path("measured/report.md").read_text()
    assert "lmexposure measure --scores scores.jsonl MANIFEST --out measured-again" in page
    assert "--dtype" not in page
    assert call("check", "measured").code == 1
    call("measure", "manifest.json", "--out", "other").refused(
        "alone is there of MODEL and MANIFEST"
    )
    call("measure", "m", *words[1:4], "--out", "other").refused("say two things of the model")
    call("measure", *words[1:3], "manifest.json", "--out", "other").refused("number of references")
    call("texts", "manifest.json", "--out", "manifest.json").refused("there already")
    call("texts", "manifest.json", *of_each, "--out", "scores.jsonl").refused("there already")
    call.done("texts", "manifest.json", *of_each, "--out", "texts.jsonl")
    assert not call.done("texts", "manifest.json", *of_each, "--out", "-").out
