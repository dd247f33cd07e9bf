"""The model before the training, measured on the same texts: what was likely anyway.

The base is a model of its own, or the measured one with its adapters switched off. It scores the
very tokens that the model scores, so that a difference of bits is the training's alone.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from transformers import AutoConfig, PreTrainedTokenizerBase

from lmexposure._record import Record, Rows
from lmexposure.audit.calibration import BesideBase
from lmexposure.audit.directory import keep_part, read_part
from lmexposure.audit.loaded_model import load_for_measuring, model_in_memory
from lmexposure.canaries import Manifest
from lmexposure.core import Part
from lmexposure.errors import ModelError, NumericalError
from lmexposure.models import (
    Encoded,
    LoadedModel,
    adapters_off,
    base_of_adapter,
    base_sha256,
    check_switch,
    comes_off,
    context_window,
    grow,
    is_adapter,
    load_model,
    new_token_texts,
    unmerged_adapters,
    weights_sha256,
)
from lmexposure.scoring import score_encoded
from lmexposure.studies import BaseModelRecord, RunSettings

ADAPTER_OFF = "adapter-off"
_COMPARED = 64  # texts that both tokenizers are asked for
_DTYPES = ("float32", "bfloat16", "float16")


class _BaseBits(Record):
    """Log-perplexities under the base, kept between interruptions."""

    bits: Rows[float]


@dataclass(frozen=True, kw_only=True)
class Base:
    """A base model, ready to score."""

    loaded: LoadedModel  # the model, with the tokenizer that it came with
    weights_sha256: str  # of its weights; of a model whose adapter is switched off, without it
    switched_off: bool = False  # it is the measured model without its adapter
    adapters: bool = False  # its adapters are to be switched off while it scores

    def bits(
        self,
        encoded: Sequence[Encoded],
        *,
        batch_size: int | None,
        kept: Part | None,
        progress: Callable[[int, int], None],
    ) -> NDArray[np.float64]:
        """Log-perplexity of each text under the base, in bits, shape (n,)."""
        saved = read_part(kept, _BaseBits)
        if saved is not None and len(saved.bits) == len(encoded):
            return np.array(saved.bits, dtype=np.float64)
        self._check_rows(encoded)
        model = self.loaded.model
        try:
            with adapters_off(model) if self.adapters else nullcontext():
                scores = score_encoded(model, encoded, batch_size=batch_size, progress=progress)
        except NumericalError as failure:
            raise NumericalError(f"base model {self.loaded.name!r}: {failure}") from failure
        keep_part(kept, _BaseBits(bits=tuple(scores.totals.tolist())))
        return scores.totals

    def reads(self, encoded: Sequence[Encoded]) -> bool:
        """Whether the base has every token of the texts, and a window for them."""
        try:
            self._check_rows(encoded)
        except ModelError:
            return False
        return True

    def record(
        self, formats: Sequence[BesideBase | None], out: str | Path | None
    ) -> BaseModelRecord:
        """What the result says of the base; a path within `out` is given from there on."""
        path, parts = Path(self.loaded.name), [part for part in formats if part is not None]
        if out is not None and path.is_relative_to(out):
            path = path.relative_to(out)
        return BaseModelRecord(
            path=path.as_posix(),
            weights_sha256=self.weights_sha256,
            switched_off=self.switched_off,
            canaries=tuple(canary for part in parts for canary in part.canaries),
            classes=tuple(row for part in parts for row in part.classes),
        )

    def _check_rows(self, encoded: Sequence[Encoded]) -> None:
        window = context_window(self.loaded.model.config)
        longest = max(len(text.ids) for text in encoded)
        if window is not None and longest > window:
            raise ModelError(
                f"base model {self.loaded.name!r} reads {window} tokens, and a text has {longest} "
                "with its context; give a base with the model's context window"
            )
        known = min(_rows(self.loaded.model), len(self.loaded.tokenizer))
        new = sum(any(token >= known for token in text.ids) for text in encoded)
        if new:
            raise ModelError(
                f"{new} of {len(encoded)} texts hold tokens that base model {self.loaded.name!r} "
                f"does not have (it knows {known}): they were added for the fine-tuning, so that "
                "the base cannot read the same rows; measure without a base"
            )


def load_base(base: str | None, settings: RunSettings) -> "LoadedModel | str | None":
    """The base that a command names, loaded as the settings say; what is no model stays so."""
    if base is None or _is_off(base):
        return base
    try:
        return load_for_measuring(base, replace(settings, revision=None))
    except ModelError as failure:
        raise ModelError(f"no base: {failure}") from failure


def base_of(
    base: Any,
    *,
    model: Any,
    loaded: LoadedModel,
    model_sha256: str,
    manifest: Manifest,
) -> Base:
    """The base that was asked for, checked to be one of this model."""
    found = _switched_off(model, loaded) if _is_off(base) else _another(base, loaded)
    name = found.loaded.name
    if found.weights_sha256 == model_sha256:
        raise ModelError(
            f"base model {name!r} has the very weights of the measured model, so there is nothing "
            "between them; give the model before the fine-tuning"
        )
    if not found.adapters:
        found = _grown(found, loaded, manifest)
        _refuse_other_tokenizer(name, found.loaded.tokenizer, loaded.tokenizer, manifest)
        _refuse_other_base(name, found, model, loaded)
    return found


def own_base(
    model: Any, loaded: LoadedModel, *, model_sha256: str, manifest: Manifest
) -> Base | None:
    """The base that a measured adapter brings along; None: no adapter, or no room for its base."""
    whole = _whole(model, loaded)
    if is_adapter(Path(loaded.name)) and not _is_switch(whole, loaded):
        if not _has_room(loaded.model):
            return None
    elif not _in_layers(whole):
        return None
    try:
        return base_of(
            ADAPTER_OFF, model=model, loaded=loaded, model_sha256=model_sha256, manifest=manifest
        )
    except ModelError:
        return None


def _has_room(model: Any) -> bool:
    """Whether another model of this size takes at most half of the memory that is free."""
    size = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    device = model.device
    free = (
        torch.cuda.mem_get_info(device)[0]
        if device.type == "cuda"
        else psutil.virtual_memory().available
    )
    return bool(2 * size <= free)


def _grown(base: Base, loaded: LoadedModel, manifest: Manifest) -> Base:
    """The base with the vocabulary entries that canaries brought: all as likely as each other.

    It grows as the model did before its training, in a copy: it may be somebody's in memory.
    """
    known = base.loaded.tokenizer.get_vocab()
    new = [text for text in new_token_texts(manifest.plan.formats) if text not in known]
    if not new or base.loaded.tokenizer is loaded.tokenizer:
        return base
    copied = replace(
        base.loaded,
        model=deepcopy(base.loaded.model),
        tokenizer=deepcopy(base.loaded.tokenizer),
    )
    return replace(base, loaded=grow(copied, new))


def _is_off(base: Any) -> bool:
    return isinstance(base, str) and base == ADAPTER_OFF


def _switched_off(model: Any, loaded: LoadedModel) -> Base:
    """The measured model without its adapter."""
    whole = _whole(model, loaded)
    if is_adapter(Path(loaded.name)) and not _is_switch(whole, loaded):
        # The base is read once more, from where the adapter says and where it has just been read.
        path, revision = base_of_adapter(Path(loaded.name))
        again = _loaded_like(path, loaded, revision=revision, offline=True)
        return Base(loaded=again, weights_sha256=weights_sha256(again.model), switched_off=True)
    check_switch(loaded.name, whole)
    bare = _bare(whole)
    off = LoadedModel(model=bare, tokenizer=loaded.tokenizer, name=loaded.name)
    return Base(loaded=off, weights_sha256=base_sha256(bare), switched_off=True, adapters=True)


def _is_switch(whole: Any, loaded: LoadedModel) -> bool:
    """Whether an adapter that was read from a directory comes off again, and leaves its base.

    Not where it was merged, changed weights of the base, or brought embeddings of more tokens:
    without it, theirs are random numbers.
    """
    if not _in_layers(whole) or not comes_off(whole):
        return False
    path, revision = base_of_adapter(Path(loaded.name))
    try:
        config = AutoConfig.from_pretrained(
            path, revision=revision, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError):  # a base that brings its own code
        return True
    rows = _rows(whole)
    return bool(getattr(config.get_text_config(), "vocab_size", rows) == rows)


def _rows(model: Any) -> int:
    return int(model.get_input_embeddings().weight.shape[0])


def _in_layers(model: Any) -> bool:
    return bool(unmerged_adapters(model)) or hasattr(model, "get_base_model")


def _whole(model: Any, loaded: LoadedModel) -> Any:
    """The model as it was given, its adapter in it, without what wraps it for speed."""
    if isinstance(model, str | Path | LoadedModel):
        return loaded.model
    while (
        inner := getattr(model, "_orig_mod", None) or getattr(model, "module", None)
    ) is not None:
        model = inner
    return model


def _bare(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _another(base: Any, loaded: LoadedModel) -> Base:
    if isinstance(base, LoadedModel):
        found = base
    elif isinstance(base, str | Path):
        found = _loaded_like(base, loaded)
    else:
        found = model_in_memory(base, loaded.tokenizer)
    return Base(loaded=found, weights_sha256=weights_sha256(found.model))


def _loaded_like(
    path: str | Path, loaded: LoadedModel, *, revision: str | None = None, offline: bool = False
) -> LoadedModel:
    """A base where the model is, and in its dtype, so that both round alike."""
    dtype = str(loaded.model.dtype).removeprefix("torch.")
    try:
        return load_model(
            path,
            device=str(loaded.model.device),
            dtype=dtype if dtype in _DTYPES else "float32",
            revision=revision,
            offline=offline,
        )
    except ModelError as failure:
        raise ModelError(f"no base: {failure}") from failure


def _refuse_other_tokenizer(
    name: str,
    base: PreTrainedTokenizerBase,
    own: PreTrainedTokenizerBase,
    manifest: Manifest,
) -> None:
    """The base must know the same tokens by the same numbers, and cut the texts likewise."""
    if base is own:
        return
    here, there = own.get_vocab(), base.get_vocab()
    by_number = {number: token for token, number in there.items()}
    other = [token for token, number in here.items() if by_number.get(number, token) != token]
    texts = [canary.text for canary in manifest.entries[:_COMPARED]]
    cut = other or any(
        own(text, add_special_tokens=False)["input_ids"]
        != base(text, add_special_tokens=False)["input_ids"]
        for text in texts
    )
    if cut:
        what = (
            f"{len(other)} of {len(here)} tokens are others by their numbers"
            if other
            else "it cuts the canaries into other tokens"
        )
        raise ModelError(
            f"base model {name!r} has another tokenizer ({what}), so that the two models' bits are "
            "not of the same tokens; give the model that the fine-tuning began from"
        )


def _refuse_other_base(name: str, base: Base, model: Any, loaded: LoadedModel) -> None:
    """What an adapter leaves alone is as in its base, to the bit."""
    whole = _whole(model, loaded)
    other = base.loaded.model
    if unmerged_adapters(whole) and comes_off(whole) and _rows(whole) == _rows(other):
        bare = _bare(whole)
        same = bare.dtype != other.dtype or base_sha256(bare) == base.weights_sha256
    elif is_adapter(Path(loaded.name)) and not base.switched_off:
        same = _shares_weights(loaded.model, other)
    else:
        return
    if not same:
        raise ModelError(
            f"base model {name!r} is not what the adapter of {loaded.name!r} was trained on: its "
            f"weights differ where the adapter leaves them alone; give its own base, or base="
            f"{ADAPTER_OFF!r}"
        )


def _shares_weights(model: Any, base: Any) -> bool:
    """Whether some weight with more than two different numbers is the same in both.

    An adapter leaves embeddings, norms or biases alone, and no two trainings end with the same
    numbers there.
    """
    theirs = base.state_dict()
    return any(
        key in theirs
        and tensor.shape == theirs[key].shape
        and tensor.dtype == theirs[key].dtype
        and tensor.unique().numel() > 2
        and bool((tensor.cpu() == theirs[key].cpu()).all())
        for key, tensor in model.state_dict().items()
        if tensor.is_floating_point()
    )
