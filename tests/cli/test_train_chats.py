"""`lmexposure train` on chats: what it takes, and what ends with exit code 3."""

import json
import re
from pathlib import Path

import pytest
from cli.conftest import Call
from models.small_chats import chats, save_base


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_base(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in chats()))
    return path


def test_chats_are_trained_on_by_adapters(
    call: Call, corpus: Path, base: Path, tmp_path: Path
) -> None:
    lora = ("--model", base, "--lora", "--set", "lora_rank=4", "--set", "lora_targets=q_proj")
    call.done("train", corpus, "--out", tmp_path / "t", *lora, "--epochs", 1)
    config = json.loads((tmp_path / "t" / "model" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["target_modules"]) == (4, 8, ["q_proj"])


@pytest.mark.parametrize(
    ("command", "by_file"),
    [
        *(("train", False), ("run", True), ("sweep", True)),
        *(("defences", True), ("dp-check", False)),
    ],
)
def test_a_rank_without_adapters_is_refused_before_the_work(
    call: Call, corpus: Path, base: Path, tmp_path: Path, command: str, by_file: bool
) -> None:
    """The default's, too; by flag and by settings file."""
    said: tuple[object, ...] = ("--set", "lora_rank=16")
    if by_file:
        settings = tmp_path / "settings.toml"
        settings.write_text("lora_rank = 16\n")
        said = ("--settings", settings)
    out = () if command == "dp-check" else ("--out", tmp_path / "t")
    outcome = call(command, corpus, "--model", base, *said, *out)
    assert outcome.code == 3
    message = r"lora_rank=16 is of adapters, and all weights would be trained; add --(lora|set lo)"
    assert re.search(message, " ".join(outcome.err.split()))
    assert not (tmp_path / "t").exists()


def test_a_run_says_what_it_takes_records_for(call: Call, corpus: Path, tmp_path: Path) -> None:
    outcome = call(
        "run", corpus, "--set", "existing=set_aside", "--format", "pin", "--out", tmp_path / "r"
    )
    assert "records   messages: each canary is the turn of the assistant" in outcome.out
