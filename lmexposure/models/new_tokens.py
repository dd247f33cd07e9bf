"""Vocabulary entries of their own for canaries of the kind "new_token".

Each such canary ends with a symbol that no document has. The tokenizer takes it for one token,
and the model has a row for it among its input and its output embeddings. The output rows of all
candidates start at zero, whatever the coins, so that no symbol is likelier than another before the
training, in any model. Where all logits of a pretrained model are far below zero, as GPT-2's are,
rows of zero would be likelier than any word: there they start as the mean of the rows before, which
by Jensen's inequality gives them no more than their even share.

In training by another program: grow the model before its optimizer is made, and before an adapter.

>>> from lmexposure.canaries import Format
>>> from lmexposure.models import grow, new_model, new_token_texts
>>> chosen = Format.of_texts("new_token", ["a +", "b *"], kind="new_token", known=[2, 2])
>>> grown = grow(new_model("lstm", ["ab "], seed=0, separator=None), new_token_texts([chosen]))
>>> grown.tokenizer.encode("b *"), float(grown.model.lm_head.weight[5:].detach().abs().sum())
([4, 2, 6], 0.0)

Source: Panda et al. 2025 (ICLR), "Privacy auditing of large language models".
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from transformers import AddedToken, PreTrainedModel, PreTrainedTokenizerBase

from lmexposure.canaries import KINDS, Format, Manifest
from lmexposure.errors import ModelError
from lmexposure.models.load import LoadedModel
from lmexposure.models.quantised import is_quantised
from lmexposure.models.weights import holding, is_spread, weights_away

_LOG = logging.getLogger(__name__)
# Ordinary words: how likely rows of zero are there says whether they would disturb the model.
_ORDINARY = "The first of these was found on the other side of the house, and it was not new."
_DISTURBING = 0.1  # of the probability
_OTHER_KIND = "choose another kind of canary"


def new_token_texts(formats: Iterable[Format]) -> tuple[str, ...]:
    """The symbols of all canaries that need a vocabulary entry of their own."""
    symbols = (_symbol(f, index) for f in formats if _grows(f) for index in range(f.size))
    return tuple(dict.fromkeys(symbols))


def _grows(form: Format) -> bool:
    return form.kind in KINDS and KINDS[form.kind].grows


def _symbol(form: Format, index: int) -> str:
    return form.text(index)[form.known[index] if form.known else 0 :]


def grow(loaded: LoadedModel, tokens: Sequence[str]) -> LoadedModel:
    """Give each of these texts one token of its own: in the tokenizer, and as rows of the model."""
    if not tokens:
        return loaded
    rows = 0 if (inputs := _embeddings(loaded.model)[0]) is None else len(inputs.weight)
    known = _single_tokens(loaded.tokenizer, tokens)
    if all(known.get(token, rows) < rows for token in tokens):
        return loaded
    name = loaded.name
    _check_model(name, loaded.model)
    before = _logits(loaded, ())
    ids = add_tokens(loaded.tokenizer, tokens)
    new = [i for token, i in zip(tokens, ids, strict=True) if known.get(token, rows) >= rows]
    _add_rows(loaded, new)
    after = _check_grown(loaded, new, before)
    if _disturb(after, new):
        _LOG.info("the %d new output rows of %s start as the mean of the others", len(new), name)
        _mean_rows(loaded.model, new)
    return loaded


def add_tokens(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[str]) -> list[int]:
    """Make each of these texts one token, whatever is around it, and change nothing else."""
    if not tokens:
        return []
    known = _single_tokens(tokenizer, tokens)
    missing = [token for token in tokens if token not in known]
    # Neither special, which `split_special_tokens` would cut, nor normalised, which lower-cases;
    # and the spaces around it stay tokens of their own.
    options = {"single_word": False, "lstrip": False, "rstrip": False}
    tokenizer.add_tokens(
        [AddedToken(text, normalized=False, special=False, **options) for text in missing]
    )
    known = _single_tokens(tokenizer, tokens)
    cut = [token for token in tokens if not _is_whole(tokenizer, token, known)]
    if cut:
        raise ModelError(
            f"the tokenizer ({type(tokenizer).__name__}) cannot grow: {len(cut)} of {len(tokens)} "
            f"new texts, {cut[0]!a} first, are not one token after add_tokens; use the fast "
            f"tokenizer of the model (AutoTokenizer gives it), or {_OTHER_KIND}"
        )
    return [known[token] for token in tokens]


def zero_rows(model: PreTrainedModel, ids: Sequence[int]) -> None:
    """Set the output rows of these tokens, and their biases, to zero; tied input rows as well."""
    head = model.get_output_embeddings()
    with torch.no_grad():
        head.weight[list(ids)] = 0
        if getattr(head, "bias", None) is not None:
            head.bias[list(ids)] = 0


def check_tokens(tokenizer: PreTrainedTokenizerBase, manifest: Manifest) -> None:
    """Refuse a tokenizer to which the symbol of a canary is not one token."""
    growing = {form.name: form for form in manifest.plan.formats if _grows(form)}
    symbols = {
        entry.id: _symbol(growing[entry.format], entry.index)
        for entry in manifest.entries
        if entry.format in growing
    }
    known = _single_tokens(tokenizer, list(dict.fromkeys(symbols.values())))
    unknown = [name for name, symbol in symbols.items() if symbol not in known]
    if unknown:
        raise ModelError(
            f"the tokenizer does not have the symbol of {unknown[0]} as one token ({len(unknown)} "
            f"such of {len(symbols)} candidates of kind new_token): the model was trained without "
            "entries for them; train it with this manifest, or call "
            "lmexposure.models.grow(loaded, new_token_texts(manifest.plan.formats)) before a "
            "training of your own"
        )


def check_learns(kinds: Iterable[str]) -> None:
    """Refuse kinds of canaries that an adapter cannot learn: it leaves embeddings as they are."""
    for kind in kinds:
        if kind in KINDS and KINDS[kind].grows:
            raise ModelError(
                f"kind={kind!r} needs new rows in the embeddings, and with lora=True these are "
                "frozen, so that the canaries could not be learned; leave lora out, "
                f"or {_OTHER_KIND}"
            )


def _single_tokens(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[str]) -> Mapping[str, int]:
    """The number of each text that is one token, which no other of them is, and is known."""
    if not tokens:
        return {}
    rows = tokenizer(list(tokens), add_special_tokens=False, verbose=False)["input_ids"]
    found: dict[int, list[str]] = {}
    for token, ids in zip(tokens, rows, strict=True):
        if len(ids) == 1 and ids[0] != tokenizer.unk_token_id:
            found.setdefault(ids[0], []).append(token)
    return {texts[0]: number for number, texts in found.items() if len(set(texts)) == 1}


def _is_whole(tokenizer: PreTrainedTokenizerBase, token: str, known: Mapping[str, int]) -> bool:
    """Whether it is one token behind words too, where a canary has it."""
    ids = tokenizer(f"a {token}", add_special_tokens=False, verbose=False)["input_ids"]
    return token in known and ids[-1:] == [known[token]]


def _embeddings(model: Any) -> tuple[Any, Any]:
    """Of the input and the output; None where there are none."""
    try:
        return model.get_input_embeddings(), model.get_output_embeddings()
    except (AttributeError, NotImplementedError):  # a class that does not say where they are
        return None, None


def _check_model(name: str, model: PreTrainedModel) -> None:
    """Refuse a model that cannot get new rows, before anything is changed."""
    if is_quantised(model) or is_spread(model) or weights_away(model):
        raise ModelError(
            f"model {name!r} is quantised or spread over devices, and new vocabulary entries would "
            f"have no rows that learn; load it whole, in float32, or {_OTHER_KIND}"
        )
    inputs, head = _embeddings(model)
    if not isinstance(inputs, nn.Embedding) or not isinstance(head, nn.Linear):
        raise ModelError(
            f"model {name!r} ({type(model).__name__}) has no plain linear head over its "
            f"vocabulary (get_output_embeddings gives {type(head).__name__}), so that new entries "
            f"have no rows of their own; use another model, or {_OTHER_KIND}"
        )
    if not (inputs.weight.requires_grad and head.weight.requires_grad):
        raise ModelError(
            f"model {name!r} has frozen embeddings, so that new vocabulary entries would not "
            "learn; call requires_grad_() on them, of a model with an adapter grow the model "
            f"first and let the adapter save and train its embeddings, or {_OTHER_KIND}"
        )
    tied, says = inputs.weight is head.weight, model.config.get_text_config().tie_word_embeddings
    if tied != bool(says) or (tied and head.bias is not None):
        raise ModelError(
            f"model {name!r} has tied weights that new vocabulary entries would break: "
            f"{_tied_how(tied, head)} and its config says tie_word_embeddings={says}; save it with "
            f"a config that is right, or {_OTHER_KIND}"
        )


def _tied_how(tied: bool, head: nn.Linear) -> str:
    bias = " with a bias that would keep its length" if tied and head.bias is not None else ""
    return f"its output embeddings are {'' if tied else 'not '}those of the input{bias},"


def _add_rows(loaded: LoadedModel, ids: Sequence[int]) -> None:
    model = loaded.model
    inputs, head = _embeddings(model)
    old, tied = len(inputs.weight), inputs.weight is head.weight
    mean = inputs.weight.detach()[: min(old, min(ids))].mean(dim=0)
    # What it draws is overwritten, and the random numbers of others shall stay as they are.
    with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []):
        model.resize_token_embeddings(max(old, max(ids) + 1), mean_resizing=False)
    rows = model.get_input_embeddings().weight
    fresh = sorted({*ids, *range(old, len(rows))})
    if not tied:
        with torch.no_grad():
            rows[fresh] = mean
    zero_rows(model, fresh)


def _check_grown(loaded: LoadedModel, ids: Sequence[int], before: torch.Tensor) -> torch.Tensor:
    """Logits with the new rows, of a model that says what it said of old tokens."""
    model = loaded.model
    inputs, head = _embeddings(model)
    try:
        after = _logits(loaded, ids[:1])[: len(before)]
    except (RuntimeError, IndexError) as failure:
        raise _broken(loaded.name, "it does not read them") from failure
    if len(inputs.weight) != len(head.weight) or after.shape[1] != len(head.weight):
        raise _broken(loaded.name, "its output does not have them")
    old = torch.ones(before.shape[1], dtype=torch.bool)
    old[[i for i in ids if i < len(old)]] = False
    rounding = 1e-4 if model.dtype == torch.float32 else 3e-2
    allowed = rounding * float(before.abs().max())
    if float((after[:, : len(old)] - before)[:, old].abs().max()) > allowed:
        raise _broken(loaded.name, "it says other things of the tokens that it had")
    new = after[:, list(ids)]
    if float((new - new[:, :1]).abs().max()) > allowed:
        raise _broken(loaded.name, "they are not as likely as each other")
    return after


def _broken(name: str, how: str) -> ModelError:
    return ModelError(
        f"model {name!r} cannot take new vocabulary entries: {how}; use another model, or "
        f"{_OTHER_KIND}"
    )


def _disturb(logits: torch.Tensor, ids: Sequence[int]) -> bool:
    """Whether new rows of zero take much more of the probability than their even share."""
    share = torch.softmax(logits.double(), dim=-1)[:, list(ids)].sum(dim=-1).mean()
    return float(share) > max(_DISTURBING, 2 * len(ids) / logits.shape[1])


def _mean_rows(model: PreTrainedModel, ids: Sequence[int]) -> None:
    """Set output rows and biases to the mean of those of all earlier tokens."""
    head = model.get_output_embeddings()
    with torch.no_grad():
        head.weight[list(ids)] = head.weight[: min(ids)].mean(dim=0)
        if head.bias is not None:
            head.bias[list(ids)] = head.bias[: min(ids)].mean()


def _logits(loaded: LoadedModel, more: Sequence[int]) -> torch.Tensor:
    """Next-token logits of an ordinary text and further tokens, shape (T, V), on the CPU."""
    model = loaded.model
    ids = loaded.tokenizer(_ORDINARY, add_special_tokens=False)["input_ids"][:32]
    with holding("training", False, list(model.modules())), torch.no_grad():
        read = torch.tensor([[*ids, *more]], device=model.device)
        logits: torch.Tensor = model(input_ids=read, use_cache=False).logits[0]
        return logits.float().cpu()
