"""Seconds of a step and memory of private training, beside plain training on the same documents.

GPT-2, Llama and LSTM shapes, from scratch, in batches of the same size; each turn is a process of
its own, and of their seconds the least is counted. On a CPU they are those of the processor, and
memory is what the process has at its highest, beyond what it had before there was a model.
"""

import resource
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from harness import Claims, Namespace, in_a_process, in_turn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from lmexposure.cli.console import print_table
from lmexposure.models import LstmConfig, LstmForCausalLM, TrainingSettings
from lmexposure.models.chat_rows import TrainingRow
from lmexposure.models.dp_sgd import DpSgd
from lmexposure.models.methods import PlainTraining, Setup
from lmexposure.models.padded_rows import PaddedRows

_TIMES = {"gpt2": 3.0, "llama": 3.0, "lstm": 8.0}  # of a plain step, at most
ARGUMENTS = {"rounds": 3, "steps": 8, "device": "cpu", "shape": tuple(_TIMES)}
_MEMORY = 2.5  # of a plain training's, at most
_VOCABULARY = {"gpt2": 1_000, "llama": 1_000, "lstm": 100}
_DOCUMENTS, _TOKENS = 16, 128
_WARM = 2  # steps, in which memory is taken and the optimizer's state made
_MIB = 2**20


def steps(given: Namespace) -> Claims:
    """Plain and private trainings in turn."""
    rows = []
    for shape in given.shape:
        sides = {
            kind: partial(in_a_process, turn, kind, shape, given.steps, given.device)
            for kind in ("plain", "private")
        }
        least = {
            kind: np.min(found, axis=0) for kind, found in in_turn(sides, given.rounds).items()
        }
        for kind, (seconds, memory) in least.items():
            rows.append([shape, kind, f"{1e3 * seconds:.1f} ms", f"{memory:.0f} MiB"])
        slower, more = least["private"] / least["plain"]
        most = _TIMES[shape]
        yield slower <= most, f"{shape}: a step takes {slower:.2f} times, at most {most:g}"
        yield more <= _MEMORY, f"{shape}: memory is {more:.2f} times, at most {_MEMORY}"
    print_table(["shape", "training", "seconds of a step", "memory"], rows)


def turn(kind: str, shape: str, count: int, device_name: str) -> tuple[float, float]:
    """Seconds of the quickest step, and MiB at its highest."""
    device = torch.device(device_name)
    on_cpu = device.type == "cpu"
    clock = time.process_time if on_cpu else time.perf_counter
    if on_cpu:
        torch.set_num_threads(1)
    import opacus  # noqa: F401  both have it in memory

    settings = TrainingSettings(
        method="dp-sgd",
        noise_multiplier=1.0,
        delta=1e-6,
        batch_size=_DOCUMENTS,
        expected_batch=_DOCUMENTS,
    )
    rows, accelerator = documents(shape), Accelerator(cpu=on_cpu)
    before = resident()
    model = model_of(shape).to(device)
    setup = Setup(model=model, rows=rows, settings=settings, accelerator=accelerator)
    method = DpSgd(setup) if kind == "private" else PlainTraining(setup)
    seconds = []
    for step in range(_WARM + count):
        began = clock()
        method.learn(np.arange(_DOCUMENTS), step=step, rate=1e-3)
        if not on_cpu:
            torch.cuda.synchronize()
        seconds.append(clock() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    if not on_cpu:
        peak = torch.cuda.max_memory_allocated() / _MIB
    return min(seconds[_WARM:]), peak


def documents(shape: str) -> PaddedRows:
    """Random tokens, a document a row."""
    ids = np.random.default_rng(1).integers(0, _VOCABULARY[shape], (_DOCUMENTS, _TOKENS + 1))
    return PaddedRows.of(
        [TrainingRow(ids=row.tolist(), carried=np.ones(_TOKENS + 1, bool)) for row in ids]
    )


def model_of(shape: str) -> Any:
    """Of the sizes of our own new models, and a Llama like that GPT-2."""
    torch.manual_seed(1)
    size: dict[str, Any] = {"vocab_size": _VOCABULARY[shape]}
    if shape == "lstm":
        size |= {"embedding_size": 200, "hidden_size": 200, "num_hidden_layers": 2}
        return LstmForCausalLM(LstmConfig(**size))
    if shape == "gpt2":
        size |= {"n_positions": _TOKENS, "n_embd": 128, "n_layer": 4, "n_head": 4}
        return GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0))
    size |= {"hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4}
    size |= {"num_attention_heads": 4, "max_position_embeddings": _TOKENS}
    return LlamaForCausalLM(LlamaConfig(**size))


def resident() -> float:
    """MiB that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / _MIB


PARTS = {"steps": steps}
