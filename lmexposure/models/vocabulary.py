"""What is a tokenizer, and its name: of what its token numbers mean, wherever it came from."""

from typing import Any

from transformers import PreTrainedTokenizerBase

from lmexposure._files import content_hash


def is_tokenizer(value: Any) -> bool:
    """Whether it is a tokenizer of transformers."""
    return isinstance(value, PreTrainedTokenizerBase)


def tokenizer_sha256(tokenizer: PreTrainedTokenizerBase) -> str:
    """SHA-256 of a tokenizer's vocabulary: each token with its number, in canonical JSON."""
    return content_hash(tokenizer.get_vocab())
