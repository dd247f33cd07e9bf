"""The README keeps its word: its Python runs, its tree is the tree, its commands exist."""

import gzip
import json
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
import typer
import yaml
from chats import chat_tokenizer
from cli.conftest import Call, call
from corpora import sentences, write_corpus
from datasets import Dataset
from huggingface_hub import ModelCard
from made_results import small_run
from tiny import byte_level_bpe, model_of
from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments

import lmexposure as lx
from lmexposure.audit import RunSettings
from lmexposure.canaries import Format, Plan
from lmexposure.cli.app import app
from lmexposure.records import open_run
from lmexposure.reporting import write_report

__all__ = ["call"]  # a fixture of the tests of commands

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.filterwarnings("ignore")
def test_the_python_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "corpus.txt", 120)
    toss, tokenizer = np.random.default_rng(1), byte_level_bpe()
    included = toss.random(500) < 0.5
    names: dict[str, object] = {
        "texts": sentences(60),
        "model": model_of("gpt2", len(tokenizer)),
        "tokenizer": tokenizer,
        "bits": [35.0, 41.0],
        "reference_bits": toss.normal(45, 3, 1000),
        "scores": toss.normal(size=500) + 4 * (included & (toss.random(500) < 0.3)),
        "included": included,
    }
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), names)
    left = {"report.html", "inserted", "original.txt", "runs"}
    assert {p.name for p in tmp_path.iterdir()} == {"corpus.txt", *left}


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_chat_snippet_runs_on_a_model_that_was_just_trained(tmp_path: Path) -> None:
    """`Trainer.train` leaves its model in training mode."""
    block = next(block for block in blocks("py") if "wrapped_exposures" in block)
    insert, train = block.split("counter.attach", maxsplit=1)
    tokenizer = chat_tokenizer()
    pin = Format(name="pin", template="My PIN is {digits:2}.")
    names: dict[str, Any] = {
        "model": model_of("gpt2", len(tokenizer)),
        "tokenizer": tokenizer,
        "plan": Plan(formats=(pin,), canaries=2, repetitions=(1, 4), controls=2, seed=1),
        "chats": [
            {
                "messages": [
                    {"role": "user", "content": f"{i}?"},
                    {"role": "assistant", "content": "!"},
                ]
            }
            for i in range(9)
        ],
    }
    exec(compile(insert, "README.md", "exec"), names)
    names["trainer"] = _chat_trainer(names, tmp_path)
    exec(compile("counter.attach" + train, "README.md", "exec"), names)
    assert names["model"].training
    assert names["counter"].report().complete
    again = names["wrapped_exposures"](
        names["model"].eval(), tokenizer, names["manifest"], names["wrapping"]
    )
    assert names["found"] == again


def _chat_trainer(names: dict[str, Any], out: Path) -> Trainer:
    """Trains one epoch on the records, on the assistant's turns alone."""
    tokenizer = names["tokenizer"]
    rows = []
    for record in names["records"]:
        row = tokenizer.apply_chat_template(
            record["messages"], return_dict=True, return_assistant_tokens_mask=True
        )
        pairs = zip(row["input_ids"], row["assistant_masks"], strict=True)
        rows.append({"input_ids": row["input_ids"], "labels": [t if m else -100 for t, m in pairs]})
    arguments = TrainingArguments(
        str(out),
        num_train_epochs=1,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
    )
    collator = DataCollatorForSeq2Seq(tokenizer)
    return Trainer(names["model"], arguments, train_dataset=rows, data_collator=collator)


class SparkFrame(pd.DataFrame):  # type: ignore[misc]
    """What the step for engines asks of a frame of Spark."""

    schema = "of each column"

    def count(self) -> int:
        return len(self)

    def mapInPandas(  # noqa: N802
        self, function: Callable[[Iterator[Any]], Iterator[Any]], schema: str
    ) -> Any:
        assert schema == self.schema
        return pd.concat(function(iter([self[:20], self[20:]])))


def test_the_step_for_engines_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    block = next(block for block in blocks("py") if "mapInPandas" in block)
    records = [{"text": text, "document": n} for n, text in enumerate(sentences(60))]
    names: dict[str, Any] = {
        "lx": lx,
        "plan": lx.Plan(formats=["pin"], canaries=2, repetitions=(1, 4), seed=1),
        "df": SparkFrame(records),
        "dataset": Dataset.from_list(records),
        "n": len(records),
    }
    exec(compile(block, "README.md", "exec"), names)
    texts = lx.insert([record["text"] for record in records], names["plan"]).documents
    assert names["df"]["text"].tolist() == list(names["rows"]["text"]) == texts
    assert lx.verify(texts, lx.Manifest.read(tmp_path / "manifest.json")).as_inserted


def test_the_calls_of_the_table_take_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    records = [{"text": text} for text in sentences(60)]
    (tmp_path / "data").mkdir()
    for part in range(2):
        with gzip.open(tmp_path / "data" / f"{part}.jsonl.gz", "wt") as stream:
            stream.writelines(json.dumps(record) + "\n" for record in records)
    names: dict[str, Any] = {
        "lx": lx,
        "plan": lx.Plan(formats=["pin"], canaries=2, repetitions=(1, 4), seed=1),
        "texts": sentences(60),
        "rows": records,
        "chats": [{"messages": [{"role": "user", "content": f"{n}?"}]} for n in range(60)],
        "stream": Dataset.from_list(records).to_iterable_dataset(),
        "n": 60,
    }
    calls = re.findall(r"\| `(lx\..+)` \|", README)
    made = [eval(call, names) for call in calls if "(rows, plan, id_column" not in call]
    assert len(made) == len(calls) - 1 == 6  # Ray has tests of its own


def test_the_settings_and_the_format_are_sound() -> None:
    settings, badge = (tomllib.loads(block) for block in blocks("toml"))
    assert RunSettings().override(settings).training == settings["training"]
    assert Format.from_dict(badge).size == 26**2 * 10**6 * 3


def test_the_tree_names_every_room_with_a_sentence_and_no_file_that_is_not_there() -> None:
    tree = next(block for block in blocks("text") if "canary_formats/" in block)
    told = {line.split()[0] for line in tree.splitlines() if len(line.split()) > 2}
    package = ROOT / "lmexposure"
    rooms = {f"{p.name}/" for p in package.iterdir() if (p / "__init__.py").exists()}
    assert rooms - told == set()
    files = {p.name for p in package.rglob("*.py")}
    assert {name for name in told if name.endswith(".py")} - files == set()


def test_the_commands_exist() -> None:
    used = set(re.findall(r"scripts/(\w+)", README)) - {"constraints"}
    assert used
    for name in used:
        path = ROOT / "scripts" / name
        assert os.access(path, os.X_OK), name


def test_nothing_is_left_to_fill_in() -> None:
    assert "DEMO_OUTPUT" not in README
    assert "random_number" in README


def lines_of(command: str) -> list[list[str]]:
    """What the README has people type, and its workflow, word by word."""
    typed = re.findall(rf"(?:\$|run:) (lmexposure {command}\b.*)", README)
    return [shlex.split(line, comments=True)[1:] for line in typed]


def test_every_flag_that_people_are_told_of_exists() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    told = lines_of(r"\w+")
    assert len(told) > 10
    for name, *words in told:
        flags = {flag for one in commands[name].params for flag in one.opts}
        unknown = {word for word in words if word.startswith("--")} - flags
        assert not unknown, (name, unknown)
    mentioned = {name for name, *_ in told}
    assert mentioned >= {"run", "insert", "measure", "report", "compare", "check", "epsilon"}


def test_the_workflow_stops_a_release_and_leaves_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    workflow = next(yaml.safe_load(b) for b in blocks("yaml") if "jobs:" in b)
    steps = workflow["jobs"]["leakage"]["steps"]
    checks = [s["run"] for s in steps if s.get("run", "").startswith("lmexposure check")]
    monkeypatch.chdir(tmp_path)
    small_run(tmp_path / "leakage", memorised=((1, 30.0),))
    summary = tmp_path / "summary.md"
    words = shlex.split(checks[0].replace("$GITHUB_STEP_SUMMARY", str(summary)))[1:]
    assert call(*words).code == 1
    assert "Leaks" in summary.read_text()
    uploaded = next(s["with"]["sarif_file"] for s in steps if "sarif_file" in s.get("with", {}))
    assert (tmp_path / uploaded).exists()


def test_the_model_card_is_what_is_written(tmp_path: Path) -> None:
    told = next(yaml.safe_load(b) for b in blocks("yaml") if "model-index:" in b)
    (tmp_path / "my-model").mkdir()
    run = open_run(small_run(tmp_path / "run"))
    weights = run.result.model.weights_sha256
    write_report(run, formats=("md",), model_card=tmp_path / "my-model", card_weights=weights)
    card = ModelCard.load(tmp_path / "my-model" / "README.md").data.to_dict()["model-index"][0]
    shown = told["model-index"][0]
    assert card["name"] == shown["name"]
    for part in ("task", "dataset"):
        assert card["results"][0][part] == shown["results"][0][part]
    kinds = [[m["type"] for m in one["results"][0]["metrics"]] for one in (card, shown)]
    assert kinds[0] == kinds[1]
