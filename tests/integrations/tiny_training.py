"""A Trainer on a tiny GPT-2 with dropout, TRL's, and a few sentences with canaries."""

from pathlib import Path
from typing import Any

import torch
from corpora import sentences
from known import known
from tiny import byte_level_bpe, model_of
from transformers import (
    DataCollatorForLanguageModeling,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from lmexposure.canaries import Format, Manifest, Plan
from lmexposure.integrations import ExposureCallback, insert
from lmexposure.models import encode_documents

__all__ = ["PIN", "FirstTokens", "hidden", "sft_trainer", "trainer_of"]

PIN = Format(name="pin", template="My PIN is {digits:4}.")


def hidden(**plan: Any) -> tuple[list[str], Manifest]:
    """Texts with canaries of "pin": two inserted once, two inserted eight times, three controls."""
    asked = {"formats": [PIN], "canaries": 2, "repetitions": [1, 8], "controls": 3, "seed": 5}
    return insert([line for line in sentences(40) if line], Plan(**{**asked, **plan}))


def trainer_of(
    out: Path, texts: list[str], callbacks: list[Any], *, tokenizer: Any = None, **arguments: Any
) -> Trainer:
    """Four steps of 16 documents, evaluated every second one; the last at the end."""
    encoder = byte_level_bpe()
    encoder.pad_token = encoder.eos_token
    rows = [{"input_ids": ids} for ids in encode_documents(encoder, texts, context=None)]
    model = model_of("gpt2", len(encoder))
    with torch.no_grad():
        model.get_output_embeddings().weight.div_(8)
    asked = {
        "max_steps": 4,
        "eval_strategy": "steps",
        "eval_steps": 2,
        "per_device_train_batch_size": 16,
        "learning_rate": 0.01,
        "save_strategy": "no",
        "logging_steps": 1,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "seed": 0,
    }
    return Trainer(
        model=model,
        args=TrainingArguments(str(out), **{**asked, **arguments}),
        train_dataset=rows,
        eval_dataset=rows[:8],
        data_collator=DataCollatorForLanguageModeling(encoder, mlm=False),
        processing_class=encoder if tokenizer is None else tokenizer,
        callbacks=callbacks,
    )


class FirstTokens(TrainerCallback):  # type: ignore[misc]
    """Keeps the tokens that texts are scored behind, or begin with."""

    def __init__(self, exposure: ExposureCallback) -> None:
        self.exposure, self.tokens = exposure, set[int]()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.tokens = {each.ids[0] for each in known(self.exposure._watched).encoded}


def sft_trainer(
    out: Path, model: Any, tokenizer: Any, rows: Any, *, more: Any = None, **options: Any
) -> Any:
    """TRL's, for one step on a CPU; `options` are its settings, `more` its other arguments."""
    import trl

    asked = {
        "max_steps": 1,
        "per_device_train_batch_size": 4,
        "use_cpu": True,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    return trl.SFTTrainer(
        model,
        args=trl.SFTConfig(str(out), **{**asked, **options}),
        train_dataset=rows,
        processing_class=tokenizer,
        **(more or {}),
    )
