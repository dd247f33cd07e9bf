"""The callback benchmark: seconds of a Trainer run of a small GPT-2, with exposure and without.

Every claim stands as a line "reached" or "MISSED" at the end, and the exit code counts the missed.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from corpora import sentences
from transformers import GPT2LMHeadModel, PrinterCallback, Trainer, TrainingArguments
from transformers.utils import logging

from lmexposure.canaries import Plan, insert_into_texts, load_format
from lmexposure.cli.console import say
from lmexposure.integrations.callback import ExposureCallback
from lmexposure.models import byte_level_tokenizer, pack, tiny_gpt2_config

_MOST = 0.05  # of the training's time
_BLOCK, _BATCH, _HELD_OUT = 128, 16, 32


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One training: seconds by the wall clock and of the processor, and its looks at canaries."""

    wall: float
    processor: float
    looks: list[dict[str, Any]]


def main() -> int:
    arguments = parse()
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    blocks, tokenizer, manifest = corpus()
    say(
        f"GPT-2 of {GPT2LMHeadModel(tiny_gpt2_config(tokenizer)).num_parameters():,} parameters, "
        f"{arguments.steps} steps of {_BATCH} x {_BLOCK} tokens, {arguments.evaluations} "
        f"evaluations, {len(manifest.canaries)} canaries and controls, "
        f"{torch.get_num_threads()} threads"
    )

    def once(followed: bool, steps: int = arguments.steps) -> Cost:
        callback = ExposureCallback(manifest, budget_share=arguments.budget_share)
        every = max(1, steps // arguments.evaluations)
        return training(blocks, tokenizer, [callback] if followed else [], steps, every)

    once(True, 8)  # the first training of a process pays for what later ones find ready
    pairs = []
    for number in range(arguments.rounds):
        first = bool(number % 2)  # what else runs here must not meet one kind only
        one, other = once(first), once(not first)
        pairs.append((one, other) if first else (other, one))
        show(number, *pairs[-1])
    return sum(not told(claim) for claim in claims(pairs))


def corpus() -> tuple[list[dict[str, Any]], Any, Any]:
    """Blocks to train on with canaries in them, their tokenizer, and the manifest."""
    formats = [load_format("random_number"), load_format("pin")]
    plan = Plan(formats=formats, canaries=8, repetitions=[1, 4, 16], controls=16, seed=3)
    clean = [line for line in sentences(20_000) if line]
    texts, manifest = insert_into_texts(clean, plan)
    tokenizer = byte_level_tokenizer(clean, vocab_size=2048)
    tokenizer.pad_token = tokenizer.eos_token
    canaries = {c.text for c in manifest.canaries if c.role == "canary"}
    packed = pack(tokenizer, texts, separator=None, block_size=_BLOCK, atomic=canaries)
    ids = torch.from_numpy(packed.ids).long()
    return [{"input_ids": row, "labels": row} for row in ids], tokenizer, manifest


def training(
    blocks: list[dict[str, Any]], tokenizer: Any, callbacks: list[Any], steps: int, every: int
) -> Cost:
    """One training from scratch, evaluated every so many steps."""
    with tempfile.TemporaryDirectory() as out:
        settings = TrainingArguments(
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
            callbacks=callbacks,
        )
        trainer.pop_callback(PrinterCallback)
        wall, processor = time.perf_counter(), time.process_time()
        trainer.train()
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        path = Path(out) / "exposure.jsonl"
        looks = [json.loads(line) for line in path.read_text().splitlines()] if callbacks else []
    return Cost(wall=wall, processor=processor, looks=looks)


def show(number: int, followed: Cost, plain: Cost) -> None:
    looks = ", ".join(
        f"step {one['step']}: {one['texts']} of {one['texts_planned']} texts in "
        f"{one['seconds']:.2f} s"
        for one in followed.looks
    )
    say(
        f"round {number}: with {followed.wall:.2f} s, without {plain.wall:.2f} s (processor "
        f"{followed.processor:.2f} s, {plain.processor:.2f} s); {looks}"
    )


def claims(pairs: list[tuple[Cost, Cost]]) -> list[tuple[str, bool]]:
    """Medians over rounds; where other programs run beside, only the callback's own clock holds."""
    wall = statistics.median(a.wall / b.wall - 1 for a, b in pairs)
    processor = statistics.median(a.processor / b.processor - 1 for a, b in pairs)
    own = statistics.median(
        a.looks[-1]["spent_seconds"] / (a.wall - a.looks[-1]["spent_seconds"]) for a, _ in pairs
    )
    last = min(a.looks[-1]["canaries"] / a.looks[-1]["canaries_planned"] for a, _ in pairs)
    say(f"canaries and controls measured at the last evaluation: {last:.0%} in the worst round")
    said = [
        (f"time added to training: {wall:.1%} <= {_MOST:.0%}", wall <= _MOST),
        (f"processor time added: {processor:.1%} <= {_MOST:.0%}", processor <= _MOST),
        (f"time of the looks by their own clock: {own:.1%} <= {_MOST:.0%}", own <= _MOST),
    ]
    return [(f"{line}, median of {len(pairs)} rounds", held) for line, held in said]


def told(claim: tuple[str, bool]) -> bool:
    say(f"{'reached' if claim[1] else 'MISSED '}  {claim[0]}")
    return claim[1]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--evaluations", type=int, default=4)
    parser.add_argument("--budget-share", type=float, default=0.03)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
