"""The main use: a model that somebody trained with plain transformers, on an inserted corpus."""

import json
from pathlib import Path
from typing import Any

import pytest
from corpora import sentences
from datasets import load_dataset
from known import known
from tiny import byte_level_bpe, model_of
from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments

from lmexposure.audit import MeasureSettings, RunSettings, insert_corpus, measure

pytestmark = pytest.mark.filterwarnings("ignore")  # of the Trainer, which is not ours


def train_with_transformers(corpus: Path, out: Path) -> None:
    """What a user's own script does: a record is a sample, ended by EOS."""
    tokenizer = byte_level_bpe()
    tokenizer.pad_token = tokenizer.eos_token
    data = load_dataset("json", data_files=str(corpus), split="train", cache_dir=str(out / "cache"))

    def encode(rows: dict[str, list[str]]) -> Any:
        return tokenizer([t + tokenizer.eos_token for t in rows["text"]], truncation=False)

    data = data.map(encode, batched=True, remove_columns=data.column_names)
    arguments = TrainingArguments(
        output_dir=str(out / "trainer"),
        num_train_epochs=15,
        per_device_train_batch_size=16,
        learning_rate=0.01,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        seed=0,
        disable_tqdm=True,
        logging_strategy="no",
    )
    trainer = Trainer(
        model=model_of("gpt2", len(tokenizer)),
        args=arguments,
        train_dataset=data,
        processing_class=tokenizer,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    trainer.train()
    trainer.save_model(str(out / "model"))


@pytest.mark.slow
def test_canaries_of_a_foreign_training_are_measured(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    records = [json.dumps({"text": line, "source": "s"}) for line in sentences(120) if line]
    corpus.write_text("\n".join(records) + "\n")
    settings = RunSettings(formats=("pin",), canaries=3, repetitions=(20,), controls=10, seed=0)
    inserted, _ = insert_corpus(corpus, out=tmp_path, settings=settings)
    train_with_transformers(inserted, tmp_path)
    result = measure(
        tmp_path / "model",
        tmp_path / "manifest.json",
        settings=MeasureSettings(
            references=1000, revealed=0, draws=1_000, budget_steps=20_000, bootstraps=39
        ),
    )
    rows = {row.repetitions: row for row in result.summary}
    assert known(rows[20].guessing_test).p_value < 0.01
    assert rows[20].mean > 5
    assert known(rows[0].guessing_test).p_value > 0.001
