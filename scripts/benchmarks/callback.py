"""What following exposure adds to a training of a small GPT-2 by transformers' Trainer.

Trainings with the callback and without take turns. What the scorings take is said; that little else
is added is the claim. With MALLOC_MMAP_THRESHOLD_=1073741824 and MALLOC_TRIM_THRESHOLD_=4294967296
the C library keeps the memory of large tensors, and rounds differ half as much.
"""

import json
import logging
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers
from corpora import sentences
from harness import Claims, Namespace, in_turn
from transformers import GPT2LMHeadModel, PrinterCallback, Trainer
from transformers import TrainingArguments as Arguments

from lmexposure.canaries import Plan, load_format
from lmexposure.cli.console import say
from lmexposure.integrations import ExposureCallback, insert
from lmexposure.models import byte_level_tokenizer, pack, tiny_gpt2_config

ARGUMENTS = {"rounds": 12, "steps": 60, "evaluations": 3}
_MOST = 0.05  # of the training's time, beside the scorings
_BLOCK, _BATCH, _HELD_OUT = 128, 16, 32


def added(given: Namespace) -> Claims:
    """Seconds, the scorings' taken off."""
    transformers.utils.logging.set_verbosity_error()
    logging.getLogger("lmexposure").setLevel(logging.ERROR)  # the looks are shown below
    warnings.simplefilter("ignore")
    blocks, tokenizer, manifest = corpus()
    train = partial(
        training, blocks, tokenizer, steps=given.steps, every=given.steps // given.evaluations
    )
    sides = {
        "without": lambda: train(None),
        "with": lambda: train(ExposureCallback(manifest, preflight="off")),
    }
    in_turn(sides, 1)  # the first training pays for what later ones find ready
    found = in_turn(sides, given.rounds)
    for name, costs in found.items():
        say(f"{name}: " + ", ".join(f"{whole:.2f} s" for whole, _ in costs))
    pairs = list(zip(found["with"], found["without"], strict=True))
    scoring = median(looks / whole for (_, looks), (whole, _) in pairs)
    say(f"the scorings add {scoring:.1%} to training")
    more = median((own - looks) / whole - 1 for (own, looks), (whole, _) in pairs)
    yield more <= _MOST, f"time added beside the scorings: {more:.1%}, at most {_MOST:.0%}"


def corpus() -> tuple[list[dict[str, Any]], Any, Any]:
    """Blocks to train on with canaries in them, their tokenizer, and the manifest."""
    formats = [load_format("random_number"), load_format("pin")]
    plan = Plan(formats=formats, canaries=8, repetitions=[1, 4, 16], controls=16, seed=3)
    clean = [line for line in sentences(20_000) if line]
    texts, manifest = insert(clean, plan)
    tokenizer = byte_level_tokenizer(clean, vocab_size=2048)
    tokenizer.pad_token = tokenizer.eos_token
    canaries = {c.text for c in manifest.canaries if c.role == "canary"}
    packed = pack(tokenizer, texts, separator=None, block_size=_BLOCK, atomic=canaries)
    ids = torch.from_numpy(packed.ids).long()
    return [{"input_ids": row, "labels": row} for row in ids], tokenizer, manifest


def training(
    blocks: list[dict[str, Any]],
    tokenizer: Any,
    callback: ExposureCallback | None,
    *,
    steps: int,
    every: int,
) -> tuple[float, float]:
    """Seconds of one training from scratch, and those of its scorings."""
    with tempfile.TemporaryDirectory() as out:
        settings = Arguments(
            out,
            max_steps=steps,
            per_device_train_batch_size=_BATCH,
            learning_rate=1e-3,
            eval_strategy="steps",
            eval_steps=every,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        torch.manual_seed(0)
        trainer = Trainer(
            model=GPT2LMHeadModel(tiny_gpt2_config(tokenizer)),
            args=settings,
            train_dataset=blocks[_HELD_OUT:],
            eval_dataset=blocks[:_HELD_OUT],
            processing_class=tokenizer,
            callbacks=[] if callback is None else [callback],
        )
        trainer.pop_callback(PrinterCallback)
        began = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - began
        path = Path(out) / "exposure.jsonl"
        looks = [json.loads(line) for line in path.read_text().splitlines()] if callback else []
    return seconds, sum(look["seconds"] for look in looks)


PARTS = {"added": added}
