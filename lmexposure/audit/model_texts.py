"""Texts that a base model chooses: pairs that it thinks unlikely, and what it says when heated.

Sources: Panda et al. 2025, Privacy auditing of large language models (pairs); Mitchell et al. 2026
(arXiv 2606.10481, texts at a high temperature).
"""

import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lmexposure.audit.loaded_model import chosen_device
from lmexposure.canaries import (
    KINDS,
    Format,
    Material,
    derive_seed,
    held_in,
    permutation,
    texts_apart,
)
from lmexposure.errors import ModelError
from lmexposure.models import NEW_MODELS, LoadedModel, load_model, tokenizer_sha256
from lmexposure.records import RunSettings
from lmexposure.scoring import evaluation_mode

_TOKENS, _CHARACTERS = 24, 100  # of a sampled text at most
_SHORTEST = 20  # characters of a text that is worth a canary
_TRIES = 20  # texts sampled for each that is wanted, at most
_BATCH = 64
_FIRSTS = 4_096  # tokens that are tried as the first of a pair
_UNLIKELY = 1e-3  # probability of the second at which the search of a first ends
_PAIRS, _TIMES = 3, 2  # pairs in a text, and how often each
_SOURCES = {
    "model_pair": "Panda et al. 2025, Privacy auditing of large language models",
    "high_temperature": "Mitchell et al. 2026, arXiv 2606.10481",
}


def base_of(settings: RunSettings) -> LoadedModel:
    """The base of `settings.kind_base`, where the settings say."""
    name = str(settings.kind_base)
    base = load_model(name, device=chosen_device(settings), offline=settings.offline)
    if settings.model in NEW_MODELS:
        return base
    trained = load_model(settings.model, revision=settings.revision, offline=settings.offline)
    if tokenizer_sha256(base.tokenizer) != tokenizer_sha256(trained.tokenizer):
        raise ModelError(
            f"kind_base={name!r} has another tokenizer than {settings.model!r}, which cuts its "
            "texts into other tokens; give a base of the same tokenizer, such as the model itself"
        )
    return base


def texts_of(name: str, base: LoadedModel, material: Material, *, temperature: float) -> Format:
    """The texts of "model_pair" or "high_temperature"."""
    with evaluation_mode(base.model), torch.inference_mode():
        if name == "model_pair":
            found = _pair_texts(base, material)
        else:
            found = _sampled_texts(base, material, temperature)
    if len(found) < material.count:
        raise ModelError(
            f"kind {name}: the base {base.name!r} gave {len(found):,} texts that can be used, of "
            f"{material.count:,}; plan at most {len(found):,}, or give another base"
        )
    return Format.of_texts(
        name, found, kind=name, description=KINDS[name].meaning, source=_SOURCES[name]
    )


def _sampled_texts(base: LoadedModel, material: Material, temperature: float) -> list[str]:
    """Different texts of the base, none within another or in the corpus."""
    most, steps = _TRIES * material.count, _steps(base)
    seen: set[str] = set()
    fresh: list[str] = []  # not yet compared with the corpus, which is read for many at once
    free: list[str] = []
    chosen: list[str] = []
    for first in range(0, most, _BATCH):
        numbers = range(first, min(first + _BATCH, most))
        drawn = filter(None, _sampled(base, material, numbers, temperature, steps))
        new = [text for text in dict.fromkeys(drawn) if text not in seen]
        seen.update(new)
        fresh += new
        if len(fresh) >= material.count - len(chosen) or numbers.stop == most:
            free += _not_held(fresh, material)
            chosen, fresh = texts_apart(free, material.count), []
        if len(chosen) == material.count:
            break
    return chosen


def _not_held(texts: Sequence[str], material: Material) -> list[str]:
    """Those that no document of the corpus holds."""
    held = held_in(texts, material.documents()) if texts else set()
    return [text for text in texts if text not in held]


def _sampled(
    base: LoadedModel, material: Material, numbers: Sequence[int], temperature: float, steps: int
) -> Iterator[str | None]:
    """Texts of at most `steps` tokens, each by its own stream; None for one of no use."""
    streams = [material.random("high_temperature", str(number)) for number in numbers]
    rows = torch.full((len(numbers), 1), _start(base), device=base.model.device)
    for _ in range(steps):
        logits = _last_logits(base, rows) / temperature
        drawn = [_draw(row, stream) for row, stream in zip(logits, streams, strict=True)]
        more = torch.tensor(drawn, device=rows.device)[:, None]
        rows = torch.cat([rows, more], dim=1)
    for row in rows[:, 1:].tolist():
        yield _as_text(base.tokenizer, row)


def _draw(logits: NDArray[np.float64], stream: random.Random) -> int:
    """By the inverse of the cumulated probabilities, which no other row changes."""
    shares = np.exp(logits - logits.max()).cumsum()
    return int(np.searchsorted(shares, stream.random() * shares[-1], side="right"))


def _as_text(tokenizer: Any, ids: Sequence[int]) -> str | None:
    """One line without special tokens, up to the first of these or a line end; None: too short."""
    special = set(tokenizer.all_special_ids)
    end = next((place for place, token in enumerate(ids) if token in special), len(ids))
    text = _decode(tokenizer, ids[:end])
    text = re.split(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]", text.lstrip())[0].strip()[:_CHARACTERS]
    text = text.rstrip()
    sound = len(text) >= _SHORTEST and text.isprintable() and "\ufffd" not in text
    return text if sound and _decode(tokenizer, _encode(tokenizer, text)) == text else None


def _pair_texts(base: LoadedModel, material: Material) -> list[str]:
    """Chains of pairs x y, where y is about the last token that the base awaits behind x."""
    chains = _chains(base, material)
    found = dict.fromkeys(_decode(base.tokenizer, chain) for chain in chains)
    return texts_apart(_not_held(list(found), material), material.count)


def _chains(base: LoadedModel, material: Material) -> list[list[int]]:
    """Token ids of as many chains as are wanted, or as the vocabulary gives."""
    usable = _usable_tokens(base.tokenizer)
    bare = [token for token, text in usable.items() if text == text.lstrip()]
    tokens = list(usable)
    material.random("model_pair").shuffle(tokens)
    wanted = material.count * _PAIRS
    # A small vocabulary has too few tokens to use each once: there pairs alone are used once.
    once = len(tokens) >= 4 * wanted
    chains: list[list[int]] = []
    chain: list[int] = []
    pairs: set[tuple[int, int]] = set()
    taken: set[int] = set()
    for number in range(2 * wanted if len(tokens) * (len(tokens) - 1) >= wanted else 0):
        if len(chains) == material.count:
            break
        second = tokens[number % len(tokens)]
        able = tokens if chain else bare
        firsts = [x for x in able if x != second and x not in taken and (x, second) not in pairs]
        if second in taken or not firsts:
            continue
        seed = derive_seed(material.seed, "crafting", "model_pair", str(number))
        first = _unlikely_before(base, second, firsts, seed)
        longer = chain + [first, second] * _TIMES
        if not _survives(base.tokenizer, longer):
            continue
        pairs.add((first, second))
        taken |= {first, second} if once else set()
        chain = longer
        if len(chain) == 2 * _PAIRS * _TIMES:
            chains.append(chain)
            chain = []
    return chains


def _unlikely_before(base: LoadedModel, second: int, firsts: Sequence[int], seed: int) -> int:
    """The first x with P(y | start, x) below 1e-3, batch by batch; else that of the least P."""
    tried = [
        firsts[n] for n, _ in zip(permutation(len(firsts), seed), range(_FIRSTS), strict=False)
    ]
    least, best = 2.0, tried[0]
    for begin in range(0, len(tried), _BATCH):
        batch = tried[begin : begin + _BATCH]
        rows = torch.tensor([[_start(base), x] for x in batch], device=base.model.device)
        logits = _last_logits(base, rows)
        logits -= logits.max(axis=1, keepdims=True)
        shares = np.exp(logits[:, second]) / np.exp(logits).sum(axis=1)
        place = int(shares.argmin())
        if shares[place] < least:
            least, best = float(shares[place]), batch[place]
        if least < _UNLIKELY:
            break
    return best


def _usable_tokens(tokenizer: Any) -> dict[int, str]:
    """The text of each token that is printable by itself, with no space at its end."""
    special = set(tokenizer.all_special_ids)
    kept = {}
    for token in sorted(set(tokenizer.get_vocab().values()) - special):
        text = _decode(tokenizer, [token])
        if text and text == text.rstrip() and text.isprintable() and "\ufffd" not in text:
            kept[token] = text
    return kept


def _survives(tokenizer: Any, ids: list[int]) -> bool:
    """Whether the text is one line that gives these tokens again, nothing of it cut off."""
    text = _decode(tokenizer, ids)
    return text == text.strip() and _encode(tokenizer, text) == ids


def _encode(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def _decode(tokenizer: Any, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))


def _start(base: LoadedModel) -> int:
    """What is in front of a document: EOS where there is one, else BOS."""
    found = [base.tokenizer.eos_token_id, base.tokenizer.bos_token_id]
    for token in found:
        if token is not None:
            return int(token)
    raise ModelError(
        f"the tokenizer of the base {base.name!r} has neither BOS nor EOS, so that no text can "
        "begin; give another base"
    )


def _steps(base: LoadedModel) -> int:
    """Tokens of a sampled text at most: they fit behind the start."""
    texts = list(_usable_tokens(base.tokenizer).values())
    most = _TOKENS if sum(map(len, texts)) > 2 * len(texts) else _CHARACTERS
    window = getattr(base.model.config, "max_position_embeddings", None)
    return most if window is None else max(1, min(most, int(window) - 1))


def _last_logits(base: LoadedModel, rows: torch.Tensor) -> NDArray[np.float64]:
    """Of the token behind each row, shape (B, V); all rows are of one length."""
    mask = torch.ones_like(rows)
    logits = base.model(input_ids=rows, attention_mask=mask).logits[:, -1]
    known: NDArray[np.float64] = logits.double().cpu().numpy()[:, : len(base.tokenizer)]
    return known
