"""Manifests of canaries in chats, and what a naive scorer says of them."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from corpora import sentences

from lmexposure.canaries import Format, Manifest, Plan, Wrapping
from lmexposure.integrations import insert
from lmexposure.models import template_record

TWO = Format(name="two", template="My PIN is {digits:2}.")


def plain_manifest(*formats: Format) -> Manifest:
    plan = Plan(formats=formats or (TWO,), canaries=4, repetitions=(1, 2), controls=6, seed=1)
    return insert(sentences(50), plan).manifest


def wrapped_manifest(
    wrapping: Wrapping, tokenizer: Any = None, formats: tuple[Format, ...] = (), **changes: Any
) -> Manifest:
    """A manifest that says that its canaries are in records of this wrapping.

    Args:
        tokenizer: of the training, where the insertion was given it.
        changes: of the wrapping's record.
    """
    manifest = plain_manifest(*formats)
    record = wrapping if tokenizer is None else template_record(tokenizer, wrapping)
    record = replace(record, context="", chat_template=None, **changes)
    corpus = replace(manifest.corpus, wrapping=record, text_field=wrapping.place)
    return replace(manifest, corpus=corpus)


def naive_bits(model: Any, tokenizer: Any, wrapping: Wrapping, text: str) -> float:
    """Bits of the tokens that hold a character of the text, in one row without a cache."""
    chat = tokenizer.apply_chat_template(wrapping.messages(text), tokenize=False)
    row = tokenizer(chat, add_special_tokens=False, return_offsets_mapping=True)
    ids, begin = row["input_ids"], chat.index(text)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0].double()
    nats = -torch.log_softmax(logits[:-1], dim=-1)[range(len(ids) - 1), ids[1:]].numpy()
    own = [a < begin + len(text) and b > begin for a, b in row["offset_mapping"]]
    return float(nats[np.array(own[1:])].sum()) / math.log(2)
