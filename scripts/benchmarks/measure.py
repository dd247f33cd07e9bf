"""How long and in how much memory `lmexposure measure` takes, as people type it.

A byte-level BPE tokenizer and a GPT-2 of 2.6 million parameters are made from the corpus's first
half; the model is then fine-tuned on the second half with canaries of two formats. GPT-2-small's
shape has weights from scratch and one format: what a search costs there does not need a training.
"""

import tempfile
from pathlib import Path
from typing import Any

import torch
from harness import Claims, Namespace, all_cores, spent
from tokenizers import ByteLevelBPETokenizer
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

ARGUMENTS = {"corpus": Path}  # English text, a megabyte or so
_VOCABULARY, _BLOCK, _BATCH = 4_000, 128, 16
_EPOCHS_BEFORE, _EPOCHS_TUNED = 2, 4
_END = "<|endoftext|>"


def small(given: Namespace) -> Claims:
    """The fine-tuned model, whole and with --effort quick."""
    with tempfile.TemporaryDirectory() as home:
        here = Path(home)
        made = fine_tuned(here, prepared(here, given.corpus))
        yield measured("whole", here / "whole", *made, most=120)
        yield measured("quick", here / "quick", *made, "--effort", "quick", most=30)


def large(given: Namespace) -> Claims:
    """GPT-2-small's shape."""
    with tempfile.TemporaryDirectory() as home:
        here = Path(home)
        made = untrained(here, prepared(here, given.corpus))
        yield measured("large", here / "large", *made, most=720, gigabytes=float("inf"))


def measured(
    name: str,
    out: Path,
    model: Path,
    manifest: Path,
    *flags: str,
    most: float,
    gigabytes: float = 1,
) -> tuple[bool, str]:
    took = spent("-m", "lmexposure", "measure", model, manifest, "--out", out, *flags)
    memory = took.megabytes / 1024
    held = took.wall <= most and memory <= gigabytes
    return (
        held,
        f"{name}: {took.wall:.0f} s, {memory:.2f} GiB (at most {most:g} s, {gigabytes:g} GiB)",
    )


def prepared(here: Path, corpus: Path) -> Any:
    """Both halves of the corpus as files, and the tokenizer of the first."""
    all_cores()
    lines = [line.strip() for line in corpus.read_text("utf-8").splitlines() if line.strip()]
    half = len(lines) // 2
    for name, part in (("before.txt", lines[:half]), ("tuned.txt", lines[half:])):
        (here / name).write_text("\n".join(part) + "\n", encoding="utf-8")
    made = ByteLevelBPETokenizer()
    made.train([str(here / "before.txt")], vocab_size=_VOCABULARY, special_tokens=[_END])
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
    spent("-m", "lmexposure", "insert", corpus, *flags, "--seed", 1, "--out", out)


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


PARTS = {"small": small, "large": large}
