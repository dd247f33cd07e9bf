"""Called in each of several processes: what a training with the callback, and without, gave."""

import json
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from chats import chat_tokenizer
from integrations.test_delivered import PIN, encoded
from integrations.test_delivered import trainer_of as counted_trainer
from integrations.tiny_training import hidden, trainer_of

from lmexposure.audit import MeasureSettings
from lmexposure.canaries import Plan
from lmexposure.integrations import DeliveredCounter, ExposureCallback, insert
from lmexposure.models import weights_sha256


def main(out: Path) -> None:
    texts, manifest = hidden()
    coarse = MeasureSettings(references=100, estimate="sampled", extraction=False)
    reported: dict[str, Any] = {"report": out / "leakage", "measure": coarse}
    followed = ExposureCallback(manifest, references=128, **reported)
    odd = ExposureCallback(manifest, references=128, every=3, preflight="off")
    weights, trainers = [], []
    for name, callbacks in (("without", []), ("followed", [followed]), ("odd", [odd])):
        trainer = trainer_of(out / name, texts, callbacks)
        trainer.train()
        torch.distributed.barrier()  # where the others wait for the one that reports
        trainers.append(trainer)
        weights.append(weights_sha256(trainer.model))
    history = [row for row in trainers[1].state.log_history if "exposure/seconds" in row]
    said = {
        "processes": trainers[1].accelerator.num_processes,
        "wrapped": type(trainers[1].model_wrapped).__name__,
        "weights": weights,
        "medians": [{k: v for k, v in row.items() if "median" in k} for row in history],
    }
    (out / f"process-{trainers[1].accelerator.process_index}.json").write_text(json.dumps(said))
    torch.distributed.destroy_process_group()


def count(out: Path) -> None:
    tokenizer = chat_tokenizer()
    plan = Plan(formats=(PIN,), canaries=2, repetitions=(1, 3), controls=1, seed=3)
    # 24 rows fill 3 batches of 4 in each of 2 processes: none is repeated.
    texts, manifest = insert([f"Some text {i}." for i in range(16)], plan)
    rows = encoded(tokenizer, texts)
    trainer = counted_trainer(tokenizer, rows, out, num_train_epochs=2, size=4)
    counter = DeliveredCounter(manifest, tokenizer)
    counter.attach(trainer)
    trainer.train()
    processes, process = trainer.accelerator.num_processes, trainer.accelerator.process_index
    said = {"processes": processes, **counter.report().to_dict()}
    (out / f"{process}.json").write_text(json.dumps(said))
    torch.distributed.destroy_process_group()
