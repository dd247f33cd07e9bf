"""What a training begins with: models from scratch, and new adapters (LoRA) on frozen weights."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from lmexposure._saved_models import NEW_MODELS, is_adapter
from lmexposure._validate import integer, one_of
from lmexposure.canaries import derive_seed
from lmexposure.errors import CorpusError, ModelError, SettingsError
from lmexposure.models.load import LoadedModel
from lmexposure.models.lstm import LstmConfig, LstmForCausalLM
from lmexposure.models.new_tokens import add_tokens, zero_rows
from lmexposure.models.quantised import without_torchao
from lmexposure.studies import TrainingSettings

if TYPE_CHECKING:
    from peft import PeftModel

UNKNOWN = "<unk>"
END_OF_TEXT = "<|endoftext|>"
_OPTIONS = {
    "eos_token": END_OF_TEXT,
    "split_special_tokens": True,
    "clean_up_tokenization_spaces": False,
}


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
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=UNKNOWN, **_OPTIONS)


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
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **_OPTIONS)


def tiny_gpt2_config(tokenizer: PreTrainedTokenizerBase) -> GPT2Config:
    """GPT-2 with 4 layers of width 128, 4 heads and a window of 256 tokens: 1.1 M parameters."""
    ends = dict.fromkeys(("bos_token_id", "eos_token_id"), tokenizer.eos_token_id)
    sizes = {"n_positions": 256, "n_embd": 128, "n_layer": 4, "n_head": 4}
    return GPT2Config(vocab_size=len(tokenizer), **sizes, **ends)


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
    sizes, made = lstm or LstmSizes(), LstmForCausalLM if kind == "lstm" else GPT2LMHeadModel
    config = tiny_gpt2_config(tokenizer)
    if kind == "lstm":
        config = LstmConfig(
            vocab_size=len(tokenizer),
            num_hidden_layers=sizes.layers,
            hidden_size=sizes.units,
            embedding_size=sizes.embedding,
            dropout=sizes.dropout,
            eos_token_id=tokenizer.eos_token_id,
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = made(config)
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


_ALL_LINEAR = "all-linear"
_SHOWN = 8


def check_lora(name: str) -> None:
    """Refuse a model that no adapter can be trained for."""
    if name in NEW_MODELS:
        raise SettingsError(
            f"lora=True is for a pretrained model, whose weights stay as they are, and "
            f"{name!r} is a new one; leave lora out, or give the directory or hub name of a model"
        )
    if is_adapter(Path(name)):
        raise ModelError(
            f"model {name!r} is itself an adapter, and an adapter on it could not be loaded again; "
            "merge it into its base with merge_and_unload of peft, save that, and give it"
        )
    try:
        import peft  # noqa: F401  whether it is there
    except ImportError as failure:
        raise ModelError(
            "lora=True needs peft; install it: pip install 'lmexposure[peft]'"
        ) from failure


def with_new_adapter(loaded: LoadedModel, settings: TrainingSettings) -> "PeftModel":
    """The model with an untrained adapter, which changes nothing yet, and all else frozen.

    Source: Hu et al. 2022, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1.
    """
    check_lora(loaded.name)
    from peft import LoraConfig, get_peft_model

    targets: Any = list(settings.lora_targets)
    place = Path(loaded.name)
    config = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha or 2 * settings.lora_rank,
        target_modules=_ALL_LINEAR if targets == [_ALL_LINEAR] else targets,
        task_type="CAUSAL_LM",
        # A directory's name wherever it is asked from; a hub name as it is.
        base_model_name_or_path=str(place.resolve()) if place.is_dir() else loaded.name,
        revision=getattr(loaded.model.config, "_commit_hash", None),
    )
    device = loaded.model.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(derive_seed(settings.seed, "adapter"))
        try:
            # It warns of what concerns its authors.
            with warnings.catch_warnings(action="ignore"), without_torchao():
                adapted: Any = get_peft_model(loaded.model, config)
        except ValueError as failure:
            raise ModelError(
                f"no adapter can be put into {', '.join(targets)} of model {loaded.name!r}; its "
                f"linear layers are {_linear_layers(loaded.model)}: name some of them "
                "(lora_targets=[...])"
            ) from failure
    # A set, whose order differs from one process to the next, and with it the file's bytes.
    config.target_modules = sorted(config.target_modules or ())
    return adapted


def is_lora(model: Any) -> bool:
    """Whether a model in training is one by `with_new_adapter`."""
    return hasattr(model, "peft_config")


def _linear_layers(model: torch.nn.Module) -> str:
    """By the ends of their names, as targets are given."""
    linear = {
        name.rpartition(".")[2]
        for name, layer in model.named_modules()
        if hasattr(layer, "weight")
        and getattr(layer.weight, "ndim", 0) == 2  # Conv1D of GPT-2 too
        and not isinstance(layer, torch.nn.Embedding)
    }
    return ", ".join(sorted(linear)[:_SHOWN]) + (", ..." if len(linear) > _SHOWN else "")
