"""A small GPT-2 from scratch, with a byte-level BPE trained on the corpus."""

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from lmexposure.models.characters import END_OF_TEXT


def byte_level_tokenizer(
    documents: Iterable[str], *, vocab_size: int = 2048
) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE; the same documents give the same tokenizer.

    It knows every byte, so that no text meets an unknown token, and it has no padding token, as
    GPT-2 has none. What stands in the documents can become tokens, canaries included.

    Args:
        documents: the corpus.
        vocab_size: tokens at most; a small corpus gives fewer. At least 257: all bytes and the
            end-of-text token.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TEXT,
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )


def tiny_gpt2_config(tokenizer: PreTrainedTokenizerBase) -> GPT2Config:
    """GPT-2 with 4 layers of width 128, 4 heads and a window of 256 tokens: 1.1 M parameters."""
    end = tokenizer.eos_token_id
    return GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=256,
        n_embd=128,
        n_layer=4,
        n_head=4,
        bos_token_id=end,
        eos_token_id=end,
    )
