"""Seconds and memory of LoRA training on chats, beside a bare loop of peft on the same rows.

A small Llama with weights from scratch, or the model of `--model`, gets adapters twice: by
`lmexposure.models.train`, with all that it does next to its steps (finding the canaries,
validation, checkpoints), and by a loop as people write it with peft, which validates as often.
Each turn is a process of its own. On a CPU its seconds are those of the processor, which other work
on the machine hardly changes.
"""

import json
import math
import resource
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import Claims, Namespace, in_a_process, in_turn
from tokenizers import ByteLevelBPETokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from lmexposure.canaries import Wrapping
from lmexposure.cli.console import say
from lmexposure.models import TrainingSettings, load_model, train
from lmexposure.models.packing import epoch_steps
from lmexposure.models.padded_rows import rows_of_records

ARGUMENTS = {"corpus": Path, "model": "", "rounds": 3, "rows": 400, "device": "cpu"}
_SPEED, _MEMORY = 0.95, 1.02  # of the bare loop's; a process's memory differs by so much by itself
_VOCABULARY = 4_000
_WARM = 30  # records
_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}"
    "<|im_end|>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_WRAPPING = Wrapping(turn="assistant", loss="assistant")
_CANARIES = {f"The code is {number:06}.": 4 for number in range(10)}


def training(given: Namespace) -> Claims:
    """Both kinds in turn; of each the least."""
    with tempfile.TemporaryDirectory() as home:
        here = Path(home)
        make(here, given.corpus, given.rows, given.model)
        sides = {
            kind: partial(in_a_process, turn, kind, here, given.device) for kind in ("bare", "ours")
        }
        taken = in_turn(sides, given.rounds)
    for kind, found in taken.items():
        say(f"{kind}: " + ", ".join(f"{s:.2f} s {m:.0f} MiB" for s, m in found))
    bare, ours = (np.min(taken[kind], axis=0) for kind in sides)
    speed, memory = bare[0] / ours[0], ours[1] / bare[1]
    yield speed >= _SPEED, f"speed {speed:.3f} of a bare loop's, at least {_SPEED}"
    yield memory <= _MEMORY, f"memory {memory:.3f} of a bare loop's, at most {_MEMORY}"


def make(here: Path, corpus: Path, rows: int, model: str) -> None:
    """A base model with its tokenizer, and chats of the corpus's lines with canaries among them."""
    lines = [line.strip() for line in corpus.read_text("utf-8").splitlines()]
    lines = [line for line in lines if len(line) > 200][: 2 * rows]
    if model:
        (here / "base").symlink_to(Path(model).resolve())
    else:
        small_base(here / "base", lines)
    records = [
        {
            "messages": [
                {"role": "user", "content": asked[:80]},
                {"role": "assistant", "content": answer[: 200 + 37 * i % 400]},
            ]
        }
        for i, (asked, answer) in enumerate(zip(lines[::2], lines[1::2], strict=False))
    ]
    for text, repetitions in _CANARIES.items():
        records[5:5] = [_WRAPPING.record(text)] * repetitions
    (here / "records.json").write_text(json.dumps(records), encoding="utf-8")


def small_base(place: Path, lines: list[str]) -> None:
    """A Llama of a few million parameters, with a tokenizer made of the lines."""
    made = ByteLevelBPETokenizer()
    made.train_from_iterator(lines, vocab_size=_VOCABULARY, special_tokens=_SPECIAL)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made._tokenizer, eos_token=_SPECIAL[0], chat_template=_TEMPLATE
    )
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=512,
    )
    LlamaForCausalLM(config).save_pretrained(place)
    tokenizer.save_pretrained(place)


def turn(kind: str, here: Path, device: str) -> tuple[float, float]:
    """Seconds of the training, from loading the base on, and MiB at its highest."""
    records = json.loads((here / "records.json").read_text("utf-8"))
    settings = TrainingSettings.for_model(
        "pretrained", lora=True, epochs=2, block_size=512, batch_size=8
    )
    clock = time.process_time if device == "cpu" else time.perf_counter
    # What is imported and set up once in a process is none of a training's seconds.
    trained(kind, here, records[: 2 * _WARM], device, settings)
    begun = clock()
    trained(kind, here, records, device, settings)
    seconds = clock() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if device != "cpu":
        peak = torch.cuda.max_memory_allocated() / 2**20
    return seconds, peak


def trained(kind: str, here: Path, records: Any, device: str, settings: TrainingSettings) -> None:
    loaded = load_model(here / "base", device=device)
    canaries = Counter(
        text for text in _CANARIES for record in records if record == _WRAPPING.record(text)
    )
    with tempfile.TemporaryDirectory(dir=here) as out:
        if kind == "bare":
            bare(loaded, records, canaries, settings, Path(out))
            return
        train(
            loaded,
            records,
            settings=settings,
            separator=None,
            canaries=canaries,
            out=Path(out),
            wrapping=_WRAPPING,
        )


def bare(loaded: Any, records: Any, canaries: Any, settings: TrainingSettings, out: Path) -> None:
    """A loop as people write it: peft, AdamW, batches padded to their longest row."""
    from peft import LoraConfig, get_peft_model

    training, validation = rows_of_records(
        loaded.tokenizer, records, wrapping=_WRAPPING, canaries=canaries, settings=settings
    )
    config = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    model: Any = get_peft_model(loaded.model, config)
    learned = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=settings.learning_rate, weight_decay=0.0)
    steps = math.ceil(len(training) / settings.batch_size)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps * settings.epochs)
    evaluate(model, validation, settings.batch_size)
    for epoch in range(settings.epochs):
        model.train()
        for numbers in epoch_steps(
            len(training), batch_size=settings.batch_size, seed=settings.seed, epoch=epoch
        ):
            model(**batch(training, numbers, model.device)).loss.backward()
            torch.nn.utils.clip_grad_norm_(learned, settings.gradient_clip)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        evaluate(model, validation, settings.batch_size)
        model.save_pretrained(out)


def batch(rows: Any, numbers: Any, device: Any) -> dict[str, Any]:
    """Whole rows with their labels and mask, as a collator gives them."""
    longest = max(int(rows.starts[n + 1] - rows.starts[n]) for n in numbers)
    ids = torch.zeros((len(numbers), longest), dtype=torch.int64)
    labels = torch.full_like(ids, -100)
    mask = torch.zeros_like(ids)
    for i, n in enumerate(numbers):
        own = slice(rows.starts[n], rows.starts[n + 1])
        length = own.stop - own.start
        ids[i, :length] = torch.from_numpy(rows.ids[own].astype(np.int64))
        carried = torch.from_numpy(rows.carried[own])
        labels[i, :length] = torch.where(carried, ids[i, :length], -100)
        mask[i, :length] = 1
    return {
        "input_ids": ids.to(device),
        "labels": labels.to(device),
        "attention_mask": mask.to(device),
    }


@torch.no_grad()
def evaluate(model: Any, rows: Any, size: int) -> float:
    model.eval()
    parts = np.array_split(np.arange(len(rows)), math.ceil(len(rows) / size))
    return sum(float(model(**batch(rows, part, model.device)).loss) for part in parts)


PARTS = {"training": training}
