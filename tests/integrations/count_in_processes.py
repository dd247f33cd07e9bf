"""Called in each of several processes: what all of them together gave to the model."""

import json
from pathlib import Path

import torch
from chats import chat_tokenizer
from integrations.test_delivered import PIN, encoded, trainer_of

from lmexposure.canaries import Plan
from lmexposure.integrations import DeliveredCounter, insert


def main(out: Path) -> None:
    tokenizer = chat_tokenizer()
    plan = Plan(formats=(PIN,), canaries=2, repetitions=(1, 3), controls=1, seed=3)
    # 24 rows fill 3 batches of 4 in each of 2 processes: none is repeated.
    texts, manifest = insert([f"Some text {i}." for i in range(16)], plan)
    rows = encoded(tokenizer, texts)
    trainer = trainer_of(tokenizer, rows, out, num_train_epochs=2, size=4)
    counter = DeliveredCounter(manifest, tokenizer)
    counter.attach(trainer)
    trainer.train()
    processes, process = trainer.accelerator.num_processes, trainer.accelerator.process_index
    said = {"processes": processes, **counter.report().to_dict()}
    (out / f"{process}.json").write_text(json.dumps(said))
    torch.distributed.destroy_process_group()
