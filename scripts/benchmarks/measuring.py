"""The benchmark of `lmexposure measure`: seconds and memory of the command as people type it.

A byte-level BPE tokenizer and a GPT-2 of 2.6 million parameters are made from the corpus's first
half; the model is then fine-tuned on the second half with canaries of two formats. GPT-2-small's
shape has weights from scratch and one format: what a search costs there does not need a training.
Every claim is a line "reached" or "MISSED" at the end, and the exit code counts the missed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from lmexposure.cli.console import say

_VOCABULARY, _BLOCK, _BATCH = 4_000, 128, 16
_EPOCHS_BEFORE, _EPOCHS_TUNED = 2, 4
_END = "<|endoftext|>"
# What is measured, with the seconds and the GiB that it may take.
_CLAIMS = {"small": (120.0, 1.0), "quick": (30.0, 1.0), "large": (720.0, None)}


def main() -> int:
    arguments = parse()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as made_here:
        here = Path(made_here)
        lines = [
            one.strip() for one in arguments.corpus.read_text("utf-8").splitlines() if one.strip()
        ]
        half = len(lines) // 2
        (here / "before.txt").write_text("\n".join(lines[:half]) + "\n", encoding="utf-8")
        (here / "tuned.txt").write_text("\n".join(lines[half:]) + "\n", encoding="utf-8")
        tokenizer = tokenizer_of(here / "before.txt", _VOCABULARY)
        inputs: dict[str, tuple[Path, Path]] = {}
        if {"small", "quick"} & set(arguments.only):
            inputs["small"] = inputs["quick"] = fine_tuned(here, tokenizer)
        if "large" in arguments.only:
            inputs["large"] = untrained(here, tokenizer)
        return sum(
            not told(name, *measured(here / f"out-{name}", *inputs[name], quick=name == "quick"))
            for name in arguments.only
        )


def tokenizer_of(text: Path, size: int) -> Any:
    """A byte-level BPE tokenizer of its own."""
    made = ByteLevelBPETokenizer()
    made.train([str(text)], vocab_size=size, special_tokens=[_END])
    return PreTrainedTokenizerFast(tokenizer_object=made._tokenizer, bos_token=_END, eos_token=_END)


def fine_tuned(here: Path, tokenizer: Any) -> tuple[Path, Path]:
    """A model that read canaries of two formats, and their manifest."""
    inserted(here / "tuned.txt", here / "two", "ssn", "api_key")
    torch.manual_seed(0)
    shape = {"n_positions": 256, "n_embd": 192, "n_layer": 4, "n_head": 4}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=_VOCABULARY, **shape, **_special()))
    read(model, tokenizer, here / "before.txt", _EPOCHS_BEFORE, 1e-3)
    read(model, tokenizer, here / "two" / "corpus" / "tuned.txt", _EPOCHS_TUNED, 5e-4)
    return saved(model, tokenizer, here / "small"), here / "two" / "manifest.json"


def untrained(here: Path, tokenizer: Any) -> tuple[Path, Path]:
    """GPT-2-small's shape, 124 million weights from scratch."""
    inserted(here / "tuned.txt", here / "one", "ssn")
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(**_special()))
    return saved(model, tokenizer, here / "large"), here / "one" / "manifest.json"


def _special() -> dict[str, Any]:
    return {"bos_token_id": 0, "eos_token_id": 0, "resid_pdrop": 0, "attn_pdrop": 0}


def saved(model: Any, tokenizer: Any, place: Path) -> Path:
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


def inserted(corpus: Path, out: Path, *formats: str) -> None:
    """Insert by the command, with its defaults and one seed."""
    flags = [word for name in formats for word in ("--format", name)]
    command("insert", str(corpus), *flags, "--seed", "1", "--out", str(out))


def read(model: Any, tokenizer: Any, corpus: Path, epochs: int, learning_rate: float) -> None:
    """A plain training on documents behind their end tokens, packed into blocks."""
    documents = corpus.read_text("utf-8").splitlines()
    ids = torch.tensor([t for one in documents for t in (0, *tokenizer(one)["input_ids"])])
    blocks = ids[: len(ids) // _BLOCK * _BLOCK].view(-1, _BLOCK)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    model.train()
    for _ in range(epochs):
        for batch in blocks[torch.randperm(len(blocks))].split(_BATCH):
            optimizer.zero_grad()
            model(input_ids=batch, labels=batch).loss.backward()
            optimizer.step()


def measured(out: Path, model: Path, manifest: Path, *, quick: bool) -> tuple[float, float]:
    """Wall-clock seconds of the command, and the most memory that it held, in GiB."""
    flags = ["--quick"] if quick else []
    begun = time.perf_counter()
    words = ("measure", str(model), str(manifest), "--out", str(out), *flags)
    process = subprocess.Popen(line(*words), stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"lmexposure {' '.join(words)} failed")
    return time.perf_counter() - begun, used.ru_maxrss / 2**20


def command(*words: str) -> None:
    subprocess.run(line(*words), check=True, stdout=subprocess.DEVNULL)


def line(*words: str) -> list[str]:
    return [sys.executable, "-m", "lmexposure", *words]


def told(name: str, seconds: float, memory: float) -> bool:
    most_seconds, most_memory = _CLAIMS[name]
    reached = seconds <= most_seconds and (most_memory is None or memory <= most_memory)
    within = f"{most_seconds:.0f} s" + ("" if most_memory is None else f" and {most_memory:g} GiB")
    say(
        f"{'reached' if reached else 'MISSED':8} {name}: {seconds:.0f} s and {memory:.2f} GiB "
        f"(at most {within})"
    )
    return reached


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path, help="English text, a megabyte or so.")
    parser.add_argument("--only", nargs="+", choices=list(_CLAIMS), default=list(_CLAIMS))
    parser.add_argument("--directory", type=Path, help="Where its files are made.")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
