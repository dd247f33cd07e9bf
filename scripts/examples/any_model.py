"""Models that no library loads, measured as functions of token ids.

    python any_model.py

A module of the shape of nanoGPT's model.py, and an n-gram of numpy, neither of which was trained
on what is hidden: nothing shows that they saw it.
"""

import numpy as np
import torch
from torch import nn

import lmexposure as lx

TEXTS = [f"Line {n} of a text in which nothing is secret." for n in range(400)]
CHARACTERS = sorted(set(map(chr, range(32, 127))) | {"\n"})


def encode(text: str) -> list[int]:
    return [CHARACTERS.index(character) for character in text]


def decode(ids: list[int]) -> str:
    return "".join(CHARACTERS[i] for i in ids)


class NanoGpt(nn.Module):
    """As nanoGPT: logits of every place where targets are given, else of the last alone."""

    def __init__(self, vocabulary: int, window: int = 128, width: int = 32) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(window, width)
        self.block = nn.TransformerEncoderLayer(width, 2, 4 * width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: torch.Tensor, targets: torch.Tensor | None = None) -> tuple:
        length = ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        read = self.token(ids) + self.place(torch.arange(length))
        logits = self.head(self.block(read, src_mask=mask, is_causal=True))
        return (logits, None) if targets is not None else (logits[:, -1:], None)


def main() -> None:
    _, manifest = lx.insert(TEXTS, formats=["random_number"], canaries=10, repetitions=(4,), seed=1)
    torch.manual_seed(0)
    nano = NanoGpt(len(CHARACTERS)).eval()
    counts = np.ones((len(CHARACTERS), len(CHARACTERS)))
    for text in TEXTS:
        np.add.at(counts, (encode(text)[:-1], encode(text)[1:]), 1)
    table = np.log(counts / counts.sum(1, keepdims=True))
    by_character = encode, decode, CHARACTERS
    models = [
        lx.language_model(
            lambda ids: nano(ids, targets=ids), tokenizer=by_character, window=128, name="nano"
        ),
        lx.language_model(
            lambda ids: table[ids], tokenizer=by_character, window=None, name="bigrams"
        ),
    ]
    for model in models:
        result = lx.measure(model, manifest, effort="quick", estimate="sampled", extraction=False)
        print(model.name, lx.check(result, lx.Thresholds(accept_quick=True)).sentence)


if __name__ == "__main__":
    main()
