"""The benchmark of private training: seconds of a step, and memory, beside those of a plain one.

GPT-2, Llama and LSTM shapes, from scratch, read the same documents in batches of the same size: by
plain training, and by DP-SGD, where all documents of a step go through the model together. Each
turn is a process of its own, and the two take turns; of their seconds the least is counted. On a
CPU they are those of the processor, and memory is what the process has at its highest, beyond what
it had before there was a model; on a GPU it is what torch has of it. A claim is a line "reached" or
"MISSED", and the exit code counts the missed.
"""

import argparse
import multiprocessing
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from lmexposure.cli.console import print_table, say
from lmexposure.models import LstmConfig, LstmForCausalLM, TrainingSettings
from lmexposure.models.batches import Blocks
from lmexposure.models.chat_rows import TrainingRow
from lmexposure.models.dp_sgd import DpSgd
from lmexposure.models.padded_rows import PaddedRows
from lmexposure.models.plain import PlainTraining

_TIMES = {"gpt2": 3.0, "llama": 3.0, "lstm": 8.0}  # of a plain step, at most
_MEMORY = 2.5  # of a plain training's, at most
_VOCABULARY = {"gpt2": 1_000, "llama": 1_000, "lstm": 100}
_WARM = 2  # steps, in which memory is taken and the optimizer's state made
_MIB = 2**20


def main() -> int:
    arguments = parse()
    missed, rows = 0, []
    for shape in arguments.shape:
        most = _TIMES[shape]
        taken: dict[str, list[tuple[float, float]]] = {"plain": [], "private": []}
        for _ in range(arguments.rounds):
            for kind, found in taken.items():
                found.append(in_a_process(kind, shape, arguments))
        seconds = {kind: min(s for s, _ in found) for kind, found in taken.items()}
        memory = {kind: min(m for _, m in found) for kind, found in taken.items()}
        for kind in taken:
            rows.append([shape, kind, f"{1e3 * seconds[kind]:.1f} ms", f"{memory[kind]:.0f} MiB"])
        slower = seconds["private"] / seconds["plain"]
        more = memory["private"] / memory["plain"]
        missed += told(
            f"{shape}: a step takes {slower:.2f} times, at most {most:g}", slower <= most
        )
        missed += told(f"{shape}: memory is {more:.2f} times, at most {_MEMORY}", more <= _MEMORY)
    print_table(["shape", "training", "seconds of a step", "memory"], rows)
    return missed


def told(claim: str, held: bool) -> int:
    say(f"{'reached' if held else 'MISSED'}: {claim}")
    return int(not held)


def in_a_process(kind: str, shape: str, arguments: argparse.Namespace) -> tuple[float, float]:
    """Seconds of a step, and MiB at its highest, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=turn, args=(kind, shape, arguments, sender))
    process.start()
    taken: tuple[float, float] = receiver.recv()
    process.join()
    return taken


def turn(kind: str, shape: str, arguments: argparse.Namespace, sender: Any) -> None:
    device = torch.device(arguments.device)
    on_cpu = device.type == "cpu"
    if on_cpu:
        torch.set_num_threads(1)
    import opacus  # noqa: F401  both have it in memory

    size = arguments.batch
    settings = TrainingSettings(
        method="dp-sgd", noise_multiplier=1.0, delta=1e-6, batch_size=size, expected_batch=size
    )
    blocks = Blocks(documents(shape, size, arguments.tokens), device=device, precision="float32")
    before = resident()
    model = model_of(shape, arguments.tokens).to(device)
    made = DpSgd if kind == "private" else PlainTraining
    method = made(model, blocks, settings, Accelerator(cpu=on_cpu))
    numbers = np.arange(size)
    steps = []
    for step in range(_WARM + arguments.steps):
        began = time.process_time() if on_cpu else time.perf_counter()
        method.learn(numbers, step=step, rate=1e-3)
        if not on_cpu:
            torch.cuda.synchronize()
        steps.append((time.process_time() if on_cpu else time.perf_counter()) - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    if not on_cpu:
        peak = torch.cuda.max_memory_allocated() / _MIB
    sender.send((min(steps[_WARM:]), peak))


def documents(shape: str, count: int, tokens: int) -> PaddedRows:
    """Random tokens, a document a row."""
    ids = np.random.default_rng(1).integers(0, _VOCABULARY[shape], (count, tokens + 1))
    return PaddedRows.of(
        [TrainingRow(ids=row.tolist(), carried=np.ones(tokens + 1, bool)) for row in ids]
    )


def model_of(shape: str, tokens: int) -> Any:
    """Of the sizes of our own new models, and a Llama like that GPT-2."""
    torch.manual_seed(1)
    vocabulary = _VOCABULARY[shape]
    if shape == "lstm":
        config = LstmConfig(
            vocab_size=vocabulary, embedding_size=200, hidden_size=200, num_hidden_layers=2
        )
        return LstmForCausalLM(config)
    if shape == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(
                vocab_size=vocabulary,
                n_positions=tokens,
                n_embd=128,
                n_layer=4,
                n_head=4,
                bos_token_id=0,
                eos_token_id=0,
            )
        )
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=128,
            intermediate_size=352,
            num_hidden_layers=4,
            num_attention_heads=4,
            max_position_embeddings=tokens,
        )
    )


def resident() -> float:
    """MiB that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / _MIB


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16, help="documents")
    parser.add_argument("--tokens", type=int, default=128, help="of a document")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shape", choices=list(_TIMES), nargs="+", default=list(_TIMES))
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
