"""Models from scratch: tokenizer from the corpus, weights from a seed."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

import torch
from transformers import GPT2LMHeadModel, PreTrainedModel, PreTrainedTokenizerBase

from lmexposure._validate import integer, one_of
from lmexposure.errors import CorpusError, SettingsError
from lmexposure.models.characters import character_tokenizer
from lmexposure.models.load import LoadedModel
from lmexposure.models.lstm import LstmConfig, LstmForCausalLM
from lmexposure.models.tiny_gpt2 import byte_level_tokenizer, tiny_gpt2_config

NEW_MODELS = ("lstm", "gpt2-tiny")


@dataclass(frozen=True, kw_only=True)
class LstmSizes:
    """Sizes of a new LSTM; the defaults are those of Carlini et al. 2019.

    Args:
        layers: stacked layers, at least 1.
        units: units of each layer, at least 1.
        embedding: width of the character embedding, at least 1.
        dropout: share of units dropped between layers in training, in [0, 1).

    Raises:
        SettingsError: a size out of its range.
    """

    layers: int = 2
    units: int = 200
    embedding: int = 200
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self)[:3]:
            integer(field.name, getattr(self, field.name), low=1)
        if not 0 <= self.dropout < 1:
            raise SettingsError(f"dropout={self.dropout!r} must be at least 0 and below 1")


def new_model(
    kind: str,
    documents: Iterable[str],
    *,
    seed: int,
    separator: str | None,
    extra_characters: str = "",
    lstm: LstmSizes | None = None,
) -> LoadedModel:
    """Make an untrained model and its tokenizer for a corpus, on the CPU in float32.

    Args:
        kind: "lstm" (characters) or "gpt2-tiny" (byte-level BPE).
        documents: the corpus, read once.
        seed: decides the initial weights; torch's global generator is left as it was.
        separator: the text between documents, None for records.
        extra_characters: characters that the LSTM shall know besides those of the corpus: all that
            a format may draw, since a reference must not meet an unknown character.
        lstm: sizes of the LSTM; `LstmSizes()` by default.

    Raises:
        SettingsError: another kind, or a seed that is no whole number from 0 to 2^63 - 1.
        CorpusError: no documents, or nothing in them.
    """
    one_of("kind", kind, NEW_MODELS)
    integer("seed", seed, low=0, high=2**63 - 1)
    texts = _not_empty(documents)
    if kind == "lstm":
        characters = extra_characters + (separator or "")
        tokenizer = character_tokenizer(texts, extra_characters=characters)
    else:
        tokenizer = byte_level_tokenizer(texts)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _untrained(kind, tokenizer, lstm or LstmSizes())
    return LoadedModel(model=model.eval(), tokenizer=tokenizer, name=kind)


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
