"""What the scoring benchmark scores: references, three tokenizers, and a model of GPT-2's shape."""

import random
from collections.abc import Iterator
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from lmexposure.canaries import Format
from lmexposure.models import Encoded, encode_in_context

__all__ = ["CONTEXT", "FORMAT", "TOKENIZERS", "encoded_references", "gpt2_small", "tokenizer_of"]

FORMAT = Format(name="random_number", template="The random number is {digits:9}")
CONTEXT = "\n"
TOKENIZERS = {
    "uneven": None,  # digits merged as often as they stood together
    "single digits": r"\d",
    "digits by three": r"\d{1,3}",
}


def gpt2_small() -> Any:
    """Random weights, 124 million parameters, 50,257 tokens."""
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config()).eval()


def encoded_references(tokenizer: Any, references: int) -> list[Encoded]:
    """References of FORMAT in context."""
    texts = [FORMAT.text(index) for index in FORMAT.sample(references, seed=0)]
    return encode_in_context(tokenizer, texts, context=CONTEXT)


def tokenizer_of(kind: str, entries: int = 20_000, sentences: int = 60_000) -> Any:
    """A byte-level BPE trained on made-up words and numbers."""
    tokenizer = Tokenizer(models.BPE())
    bytes_of_words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pattern = TOKENIZERS[kind]
    tokenizer.pre_tokenizer = bytes_of_words
    if pattern is not None:
        digits = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, bytes_of_words])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=entries,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sentences(random.Random(0), sentences), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")


def _sentences(rng: random.Random, number: int) -> Iterator[str]:
    """Words whose frequency falls with their rank, and a number of 1 to 9 digits in each."""
    starts, ends = [*"bcdfghjklmnprstvwz", "st", "tr", "pl"], [*"aeiou", "ai", "er", "on"]
    words = [
        "".join(rng.choice(starts) + rng.choice(ends) for _ in range(rng.randint(1, 4)))
        for _ in range(30_000)
    ]
    weights = [1 / (rank + 5) for rank in range(len(words))]
    for _ in range(number):
        sentence = rng.choices(words, weights, k=12)
        numbers = (rng.randint(1900, 2030), rng.randrange(100), int(10 ** rng.uniform(0, 9)))
        sentence.insert(rng.randrange(12), str(rng.choice(numbers)))
        yield " ".join(sentence)
    yield from ["The random number is "] * 200
