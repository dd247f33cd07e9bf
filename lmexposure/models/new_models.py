"""Models from scratch: a tokenizer from the corpus, weights from a seed.

Two kinds: an LSTM that reads characters, and a small GPT-2 that reads byte-level BPE.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from lmexposure._validate import integer, one_of
from lmexposure.errors import CorpusError, SettingsError
from lmexposure.models.load import LoadedModel
from lmexposure.models.lstm import LstmConfig, LstmForCausalLM
from lmexposure.models.new_tokens import add_tokens, zero_rows

UNKNOWN = "<unk>"
END_OF_TEXT = "<|endoftext|>"
NEW_MODELS = ("lstm", "gpt2-tiny")


def character_tokenizer(
    texts: Iterable[str], *, extra_characters: str = ""
) -> PreTrainedTokenizerFast:
    """Make a tokenizer that knows the characters of the texts, in code-point order.

    A text that spells out a special token, `<unk>` say, is read as its characters.

    Args:
        texts: the corpus, in any order and division.
        extra_characters: further characters to know, such as all that a format may draw.

    Returns:
        a tokenizer with ids 0 `<unk>`, 1 `<|endoftext|>` (between documents), then the characters;
        `save_pretrained` and `AutoTokenizer.from_pretrained` keep it as it is.

    >>> character_tokenizer(["banana"]).encode("nab")
    [4, 2, 3]
    """
    characters = set(extra_characters)
    for text in texts:
        characters.update(text)
    vocabulary = {UNKNOWN: 0, END_OF_TEXT: 1}
    vocabulary |= {character: 2 + i for i, character in enumerate(sorted(characters))}
    # BPE without merges splits into characters, and Fuse joins them again without adding spaces.
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=UNKNOWN))
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token=UNKNOWN,
        eos_token=END_OF_TEXT,
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )


def byte_level_tokenizer(
    documents: Iterable[str], *, vocab_size: int = 2048
) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE; the same documents give the same tokenizer."""
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


@dataclass(frozen=True, kw_only=True)
class LstmSizes:
    """Sizes of a new LSTM; the defaults are those of Carlini et al. 2019."""

    layers: int = 2  # stacked layers, at least 1
    units: int = 200  # units of each layer, at least 1
    embedding: int = 200  # width of the character embedding, at least 1
    dropout: float = 0.0  # share of units dropped between layers in training, in [0, 1)

    def __post_init__(self) -> None:
        for field in fields(self)[:3]:
            integer(field.name, getattr(self, field.name), low=1)
        if not 0 <= self.dropout < 1:
            raise SettingsError(f"dropout={self.dropout!r} must be at least 0 and below 1")


def new_model(  # noqa: PLR0913 (what decides a model; each of the rest may be left out)
    kind: str,
    documents: Iterable[str],
    *,
    seed: int,
    separator: str | None,
    extra_characters: str = "",
    lstm: LstmSizes | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    new_tokens: Sequence[str] = (),
    device: str = "cpu",
) -> LoadedModel:
    """Make an untrained model in float32, and its tokenizer, for a corpus."""
    one_of("kind", kind, NEW_MODELS)
    integer("seed", seed, low=0, high=2**63 - 1)
    if tokenizer is None:
        tokenizer = new_tokenizer(
            kind,
            documents,
            separator=separator,
            extra_characters=extra_characters,
            new_tokens=new_tokens,
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _untrained(kind, tokenizer, lstm or LstmSizes())
    zero_rows(model, add_tokens(tokenizer, new_tokens))
    return LoadedModel(model=model.eval().to(device), tokenizer=tokenizer, name=kind)


def new_tokenizer(
    kind: str,
    documents: Iterable[str],
    *,
    separator: str | None,
    extra_characters: str = "",
    new_tokens: Sequence[str] = (),
) -> PreTrainedTokenizerFast:
    """The tokenizer of a new model of this kind; see `new_model`, whose arguments these are."""
    texts = _not_empty(documents)
    if kind == "lstm":
        characters = extra_characters + (separator or "")
        tokenizer = character_tokenizer(texts, extra_characters=characters)
    else:
        tokenizer = byte_level_tokenizer(texts)
    add_tokens(tokenizer, new_tokens)
    return tokenizer


def _untrained(kind: str, tokenizer: PreTrainedTokenizerBase, sizes: LstmSizes) -> PreTrainedModel:
    if kind == "gpt2-tiny":
        return GPT2LMHeadModel(tiny_gpt2_config(tokenizer))
    config = LstmConfig(
        vocab_size=len(tokenizer),
        num_hidden_layers=sizes.layers,
        hidden_size=sizes.units,
        embedding_size=sizes.embedding,
        dropout=sizes.dropout,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LstmForCausalLM(config)


def _not_empty(documents: Iterable[str]) -> Iterator[str]:
    """Pass the documents on; refuse when they turn out to hold no text."""
    characters = 0
    for document in documents:
        characters += len(document)
        yield document
    if not characters:
        raise CorpusError(
            "documents holds no text at all; give a corpus with at least one document"
        )
