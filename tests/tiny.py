"""Tiny real models and tokenizers: random weights, real architectures."""

import math
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
)

from lmexposure.models import LstmConfig, LstmForCausalLM, character_tokenizer

TEXT = "The random number is 281265017. My PIN is 0042, or 1234567890 and 28 28 281. " * 20


def characters() -> Any:
    return character_tokenizer([TEXT], extra_characters="\n0123456789")


def byte_level_bpe() -> Any:
    """A byte-level BPE that merges digits unevenly."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")


def gpt2_like_bpe() -> Any:
    """Byte-level, with a token for two line breaks that stands only where no word follows."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(["\n\n"] * 50 + [TEXT], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")


def word_piece() -> Any:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    trainer = trainers.WordPieceTrainer(
        vocab_size=100, special_tokens=["[UNK]"], show_progress=False
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")


def model_of(kind: str, vocab_size: int) -> Any:
    """A random model of the kind, wide enough that its tokens differ in probability."""
    torch.manual_seed(7)
    small = {"vocab_size": vocab_size, "num_hidden_layers": 2, "hidden_size": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 64}
    model: Any
    if kind == "lstm":
        model = LstmForCausalLM(LstmConfig(embedding_size=32, **small))
    elif kind == "gpt2":
        model = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=vocab_size,
                n_layer=2,
                n_embd=32,
                n_head=2,
                n_positions=96,
                bos_token_id=0,
                eos_token_id=0,
            )
        )
    elif kind == "llama":
        model = LlamaForCausalLM(LlamaConfig(max_position_embeddings=96, **small, **heads))
    else:
        model = MistralForCausalLM(
            MistralConfig(max_position_embeddings=96, sliding_window=8, **small, **heads)
        )
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(8)
    return model.eval()


def one_by_one(model: Any, ids: list[int], scored_from: int) -> float:
    """Definition 1 of the Secret Sharer, a token at a time, with the whole prefix each time."""
    bits = 0.0
    for position in range(scored_from, len(ids)):
        logits = model(input_ids=torch.tensor([ids[:position]])).logits[0, -1].double()
        bits -= float(torch.log_softmax(logits, dim=-1)[ids[position]]) / math.log(2)
    return bits
