"""The name of a tokenizer: of what its token numbers mean, wherever it was loaded from."""

from transformers import PreTrainedTokenizerBase

from lmexposure._files import content_hash


def tokenizer_sha256(tokenizer: PreTrainedTokenizerBase) -> str:
    """SHA-256 of a tokenizer's vocabulary: each token with its number, in canonical JSON."""
    return content_hash(tokenizer.get_vocab())
