"""Chats as their templates write them, tokenizers that merge across a turn's edges, slow scores."""

import copy
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scoring.families import family
from tiny import (
    TEXT,
    byte_level_bpe,
    characters,
    from_settings,
    model_of,
    sentence_piece_bpe,
    unigram,
    word_piece,
    word_split_bpe,
)
from tokenizers import pre_tokenizers

from lmexposure.canaries import Format
from lmexposure.models import Context
from lmexposure.scoring import TokenSpace, token_space

PIN = Format(name="pin", template="My PIN is {digits:3}")
PINS = Format(name="pins", template="My PIN is {digits:3}.")
CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
LLAMA_3 = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
)
GEMMA = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>"
    "{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<end_of_turn>\n"
    "{% endfor %}"
)
MISTRAL = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)


def uneven_bpe(text: str) -> Any:
    """Byte-level, with no cut before it merges: digits go together with what is beside them."""
    cut = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made = byte_level_bpe([text], vocab_size=420, cut=cut, max_token_length=9)
    settings = json.loads(made.backend_tokenizer.to_str())
    pairs = (("7", "<"), ("<", "|"), ("1", "<|"), ("8", "<"), ("2", "8<"), ("0", "0"))
    join(settings, *pairs, first=True)
    return from_settings(settings)


def join(settings: dict[str, Any], *pairs: tuple[str, str], first: bool = False) -> None:
    """Give a BPE tokenizer these merges as well, before all others or behind them."""
    vocab, merges = settings["model"]["vocab"], settings["model"]["merges"]
    for left, right in pairs:
        for piece in (left, right, left + right):
            vocab.setdefault(piece, len(vocab))
    new = [list(pair) for pair in pairs]
    merges[:] = [*new, *merges] if first else [*merges, *new]


def joined_sentence_piece() -> Any:
    """As Llama's, and it has merged what ends a turn with what follows it."""
    made = sentence_piece_bpe(460)
    settings = json.loads(made.backend_tokenizer.to_str())
    join(settings, ("▁", "["), ("7", "▁["), ("1", "▁"), (".", "▁["), ("/", "I"))
    join(settings, ("▁", "4"), first=True)
    return from_settings(settings, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def marked(tokenizer: Any, *special: str, added: tuple[str, ...] = ()) -> Any:
    """The tokenizer with these marks as tokens of their own."""
    tokenizer.add_special_tokens({"additional_special_tokens": list(special)})
    tokenizer.add_tokens(list(added))
    return tokenizer


@dataclass(frozen=True)
class Chat:
    """A canary as a turn of a chat."""

    tokenizer: Callable[[], Any]
    template: str
    messages: tuple[tuple[str, str | None], ...]  # None where the canary is
    form: Format = PIN
    merges: bool = True  # the rule that proves it; else all encodings are listed

    def rendered(self, tokenizer: Any, text: str) -> str:
        """The whole row of a text as text."""
        said = [{"role": role, "content": text if c is None else c} for role, c in self.messages]
        row: str = tokenizer.apply_chat_template(said, chat_template=self.template, tokenize=False)
        return row

    def context(self, tokenizer: Any) -> Context:
        """The row around a text."""
        before, behind = self.rendered(tokenizer, "\0").split("\0")
        return Context(start=(), before=before, behind=behind)


ANSWER = (("user", "PIN?"), ("assistant", None))
QUESTION = (("user", None), ("assistant", "4 PIN"))
MARKS = "<|im_start|>user\nPIN?<|im_end|>\n<|im_start|>assistant\nMy PIN is 28<|im_end|>\n" * 3
UNEVEN = TEXT + MARKS + "is 7<|im_end|>281<|im_end|>17<|im_end|>\n" * 9
CHATS = {
    "characters": Chat(
        lambda: marked(characters(), "<|im_start|>", "<|im_end|>"), CHATML, ANSWER, PINS
    ),
    "uneven": Chat(lambda: uneven_bpe(UNEVEN), CHATML, ANSWER),
    "sentence piece": Chat(joined_sentence_piece, MISTRAL, QUESTION, PINS),
    "unigram": Chat(
        lambda: marked(unigram(), "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        LLAMA_3,
        ANSWER,
        merges=False,
    ),
    "word piece": Chat(
        word_piece, "{% for m in messages %}{{ m.content }}28 is{% endfor %}", ANSWER, merges=False
    ),
    "added": Chat(
        lambda: marked(
            word_split_bpe(r" ?\p{L}+| ?\d{1,3}|\s|\p{P}+"),
            "<start_of_turn>",
            added=("<end_of_turn>",),
        ),
        GEMMA,
        QUESTION,
    ),
}


@cache
def made(name: str) -> tuple[Chat, Any, Context]:
    """A chat, its tokenizer and the row around its canaries; made once."""
    chat = CHATS[name]
    tokenizer = chat.tokenizer()
    return chat, tokenizer, chat.context(tokenizer)


@cache
def space_of(name: str) -> TokenSpace:
    """The fills of a chat as token paths."""
    chat, tokenizer, context = made(name)
    return token_space(tokenizer, chat.form, context=context)


@cache
def chat_model(kind: str, vocabulary: int) -> Any:
    """A small random model; made once, not to be changed."""
    return family(kind, vocabulary) if kind in ("gemma2", "mamba") else model_of(kind, vocabulary)


@cache
def naive_rows(name: str) -> list[tuple[list[int], list[int]]]:
    """For each fill the tokens of its whole row, and the places of those that the text is in."""
    chat, tokenizer, context = made(name)
    first, found = len(context.before), []
    for index in range(chat.form.size):
        text = chat.form.text(index)
        row = tokenizer(
            chat.rendered(tokenizer, text), add_special_tokens=False, return_offsets_mapping=True
        )
        places = [
            place
            for place, (begin, end) in enumerate(row["offset_mapping"])
            if begin < first + len(text) and end > first
        ]
        found.append((row["input_ids"], places))
    return found


@torch.inference_mode()
def token_bits(model: Any, rows: list[list[int]]) -> list[NDArray[np.float64]]:
    """Bits of each row's tokens from the second on, in float64, by a pass over the whole row."""
    twin = copy.deepcopy(model).double()
    bits: list[NDArray[np.float64]] = [np.empty(0)] * len(rows)
    for length in {len(ids) for ids in rows}:
        mine = [i for i, ids in enumerate(rows) if len(ids) == length]
        for some in (mine[first : first + 100] for first in range(0, len(mine), 100)):
            ids = torch.tensor([rows[i] for i in some])
            logits = twin(input_ids=ids, use_cache=False).logits
            nats = -logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
            bits_of = (nats.double() / math.log(2)).numpy()
            for i, own in zip(some, bits_of, strict=True):
                bits[i] = own
    return bits


@cache
def naive_tokens(name: str, kind: str) -> list[NDArray[np.float64]]:
    """`token_bits` of all fills of a chat."""
    model = chat_model(kind, len(made(name)[1]))
    return token_bits(model, [ids for ids, _ in naive_rows(name)])


def naive_bits(name: str, kind: str, *, skip: int = 1) -> NDArray[np.float64]:
    """Bits of each fill's own tokens from place `skip` of its row on, shape (1000,)."""
    pairs = zip(naive_tokens(name, kind), naive_rows(name), strict=True)
    return np.array(
        [bits[[p - 1 for p in places if p >= skip]].sum() for bits, (_, places) in pairs]
    )
