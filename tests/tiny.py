"""Tiny real models and tokenizers: random weights, real architectures."""

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
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


def byte_level_bpe(
    texts: Sequence[str] = (TEXT,), *, vocab_size: int = 320, cut: Any = None, **options: Any
) -> Any:
    """A byte-level BPE that merges digits unevenly; `cut` says how texts are cut before."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = cut or pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>"],
        show_progress=False,
        **options,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")


def gpt2_like_bpe() -> Any:
    """Byte-level, with a token for two line breaks that stands only where no word follows."""
    return byte_level_bpe(["\n\n"] * 50 + [TEXT], vocab_size=300)


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


def sentence_piece_bpe(vocab_size: int = 400) -> Any:
    """As Llama's: a leading-space mark, no cutting into words, bytes for unknown characters."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256))],
        max_token_length=12,
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    settings = json.loads(tokenizer.to_str())
    # Only the unknown token and the start are special: bytes are ordinary tokens.
    settings["added_tokens"] = settings["added_tokens"][:2]
    return from_settings(settings, unk_token="<unk>", bos_token="<s>")


def from_settings(settings: dict[str, Any], **marks: str) -> Any:
    """The tokenizer that these settings describe, as tokenizer.json has them."""
    made = Tokenizer.from_str(json.dumps(settings))
    return PreTrainedTokenizerFast(tokenizer_object=made, **marks or {"eos_token": "<|endoftext|>"})


def word_split_bpe(pattern: str, vocab_size: int = 400, *, text: str = TEXT) -> Any:
    """Byte-level, cut by a regular expression before it is merged."""
    words = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    cut = pre_tokenizers.Sequence([words, level])
    return byte_level_bpe([text], vocab_size=vocab_size, cut=cut)


def unigram() -> Any:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=90, special_tokens=["<unk>", "<s>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>")


def model_of(kind: str, vocab_size: int) -> Any:
    """A random model of the kind, wide enough that its tokens differ in probability."""
    torch.manual_seed(7)
    small = {"vocab_size": vocab_size, "num_hidden_layers": 2, "hidden_size": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 64}
    model: Any
    if kind == "lstm":
        model = LstmForCausalLM(LstmConfig(embedding_size=32, **small))
    elif kind == "gpt2":
        sizes = {"n_layer": 2, "n_embd": 32, "n_head": 2, "n_positions": 96}
        ends = {"bos_token_id": 0, "eos_token_id": 0}
        model = GPT2LMHeadModel(GPT2Config(vocab_size=vocab_size, **sizes, **ends))
    elif kind == "llama":
        model = LlamaForCausalLM(LlamaConfig(max_position_embeddings=96, **small, **heads))
    else:
        window = {"max_position_embeddings": 96, "sliding_window": 8}
        model = MistralForCausalLM(MistralConfig(**window, **small, **heads))
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(8)
    return model.eval()


def model_with_tokenizer(kind: str, make: Callable[[], Any] = characters) -> tuple[Any, Any]:
    """A random model of the kind, and the tokenizer that it reads by."""
    tokenizer = make()
    return model_of(kind, len(tokenizer)), tokenizer


def one_by_one(model: Any, ids: list[int], scored_from: int) -> float:
    """Definition 1 of the Secret Sharer, a token at a time, with the whole prefix each time."""
    bits = 0.0
    for position in range(scored_from, len(ids)):
        logits = model(input_ids=torch.tensor([ids[:position]])).logits[0, -1].double()
        bits -= float(torch.log_softmax(logits, dim=-1)[ids[position]]) / math.log(2)
    return bits
