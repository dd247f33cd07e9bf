"""The model before a training, which scores the same texts: what was likely anyway.

The base is a model of its own, or the measured one with its adapters switched off. It scores the
very tokens that the model scores, so that a difference of bits is the training's alone.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from lmexposure.canaries import Manifest
from lmexposure.core import Encoded, TokenScores
from lmexposure.errors import ModelError
from lmexposure.models import (
    LoadedModel,
    adapters_off,
    as_causal,
    base_of_adapter,
    base_sha256,
    check_switch,
    comes_off,
    free_memory,
    grow,
    is_adapter,
    load_model,
    new_token_texts,
    unmerged_adapters,
)
from lmexposure.scoring.steps import WholeSteps
from lmexposure.scoring.torch_model import (
    TorchModel,
    load_for_measuring,
    model_in_memory,
    unwrapped,
)
from lmexposure.studies import RunSettings

ADAPTER_OFF = "adapter-off"
_COMPARED = 64  # texts that both tokenizers are asked for
_DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, kw_only=True)
class BaseModel(TorchModel):
    """A model before the training of another, with the tokenizer that it came with."""

    switched_off: bool = False  # it is the measured model without its adapter
    adapters: bool = False  # its adapters are to be switched off while it scores
    before: str = ""  # its identity before its vocabulary grew, where it did

    @cached_property
    def identity(self) -> str:
        """SHA-256 of its weights; of a model whose adapter is switched off, without it."""
        if self.before:
            return self.before
        return base_sha256(self.model) if self.adapters else super().identity

    def token_bits(self, encoded: Sequence[Encoded], **options: Any) -> TokenScores:
        """See `TorchModel.token_bits`."""
        with adapters_off(self.model) if self.adapters else nullcontext():
            return super().token_bits(encoded, **options)

    def steps(self, probe: Sequence[int]) -> WholeSteps:
        """See `TorchModel.steps`; an adapter that is switched off for a call is on again behind."""
        if self.adapters:
            raise ModelError(
                f"base model {self.name!r} is the model with its adapter switched off, which gives "
                "bits and no steps; load the base by its own directory or hub name"
            )
        return super().steps(probe)


def load_base(base: str | None, settings: RunSettings) -> TorchModel | str | None:
    """The base that a command names, loaded as the settings say; what is no model stays so."""
    if base is None or base == ADAPTER_OFF:
        return base
    try:
        return load_for_measuring(base, replace(settings, revision=None))
    except ModelError as failure:
        raise ModelError(f"no base: {failure}") from failure


def base_of(base: Any, *, model: Any, lm: TorchModel, manifest: Manifest) -> BaseModel:
    """The base that was asked for, checked to be one of this model, which was given as `model`."""
    found = _switched_off(model, lm) if base == ADAPTER_OFF else _another(base, lm)
    if found.identity == lm.identity:
        raise ModelError(
            f"base model {found.name!r} has the very weights of the measured model, so there is "
            "nothing between them; give the model before the fine-tuning"
        )
    if not found.adapters:
        found = _grown(found, lm, manifest)
        _refuse_other_tokenizer(found, lm, manifest)
        _refuse_other_base(found, model, lm)
    return found


def own_base(*, model: Any, lm: TorchModel, manifest: Manifest) -> BaseModel | None:
    """The base that a measured adapter brings along; None: no adapter, or no room for its base."""
    whole = _whole(model, lm)
    if is_adapter(Path(lm.name)) and not _is_switch(whole, lm.name):
        if not _has_room(lm.model):
            return None
    elif not _in_layers(whole):
        return None
    try:
        return base_of(ADAPTER_OFF, model=model, lm=lm, manifest=manifest)
    except ModelError:
        return None


def _has_room(model: Any) -> bool:
    """Whether another model of this size takes at most half of the memory that is free."""
    size = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    return bool(2 * size <= free_memory(str(model.device)))


def _grown(base: BaseModel, lm: TorchModel, manifest: Manifest) -> BaseModel:
    """The base in a copy, with the entries that canaries brought, all as likely as each other."""
    known = base.tokenizer.get_vocab()
    new = [text for text in new_token_texts(manifest.plan.formats) if text not in known]
    if not new or base.tokenizer is lm.tokenizer:
        return base
    # It may be somebody's in memory.
    model, tokenizer = deepcopy(base.model), deepcopy(base.tokenizer)
    copied = replace(base, model=model, tokenizer=tokenizer, before=base.identity)
    grow(copied, new)
    return copied


def _switched_off(model: Any, lm: TorchModel) -> BaseModel:
    """The measured model without its adapter."""
    whole = _whole(model, lm)
    if is_adapter(Path(lm.name)) and not _is_switch(whole, lm.name):
        # The base is read once more, from where the adapter says and where it has just been read.
        path, revision = base_of_adapter(Path(lm.name))
        again = _loaded_like(path, lm, revision=revision, offline=True)
        return replace(again, switched_off=True)
    check_switch(lm.name, whole)
    return BaseModel(
        model=_bare(whole, lm),
        tokenizer=lm.tokenizer,
        name=lm.name,
        switched_off=True,
        adapters=True,
    )


def _is_switch(whole: Any, name: str) -> bool:
    """Whether an adapter that was read from a directory comes off again, and leaves its base."""
    if not _in_layers(whole) or not comes_off(whole):
        return False
    path, revision = base_of_adapter(Path(name))
    try:
        config = AutoConfig.from_pretrained(
            path, revision=revision, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError):  # a base that brings its own code
        return True
    # Without an adapter that brought embeddings of more tokens, theirs are random numbers.
    rows = _rows(whole)
    return bool(getattr(config.get_text_config(), "vocab_size", rows) == rows)


def _rows(model: Any) -> int:
    return int(model.get_input_embeddings().weight.shape[0])


def _in_layers(model: Any) -> bool:
    return bool(unmerged_adapters(model)) or hasattr(model, "get_base_model")


def _whole(model: Any, lm: TorchModel) -> Any:
    """The model as it was given, its adapter in it, without what wraps it for speed."""
    return lm.model if isinstance(model, str | Path | LoadedModel) else unwrapped(model)


def _bare(model: Any, lm: TorchModel) -> Any:
    bare = model.get_base_model() if hasattr(model, "get_base_model") else model
    return as_causal(lm.name, bare, lm.tokenizer)[0]


def _another(base: Any, lm: TorchModel) -> BaseModel:
    if isinstance(base, LoadedModel):
        return BaseModel.of(base)
    if isinstance(base, str | Path):
        return _loaded_like(base, lm)
    return BaseModel.of(model_in_memory(base, lm.tokenizer))


def _loaded_like(
    path: str | Path, lm: TorchModel, *, revision: str | None = None, offline: bool = False
) -> BaseModel:
    """A base where the model is, and in its dtype, so that both round alike."""
    dtype = str(lm.model.dtype).removeprefix("torch.")
    try:
        loaded = load_model(
            path,
            device=lm.device,
            dtype=dtype if dtype in _DTYPES else "float32",
            revision=revision,
            offline=offline,
        )
    except ModelError as failure:
        raise ModelError(f"no base: {failure}") from failure
    return BaseModel.of(loaded)


def _refuse_other_tokenizer(base: BaseModel, lm: TorchModel, manifest: Manifest) -> None:
    """The base must know the same tokens by the same numbers, and cut the texts likewise."""
    own, others = lm.tokenizer, base.tokenizer
    if others is own:
        return
    here, there = own.get_vocab(), others.get_vocab()
    by_number = {number: token for token, number in there.items()}
    other = [token for token, number in here.items() if by_number.get(number, token) != token]
    texts = [canary.text for canary in manifest.entries[:_COMPARED]]
    cut = other or any(
        own(text, add_special_tokens=False)["input_ids"]
        != others(text, add_special_tokens=False)["input_ids"]
        for text in texts
    )
    if cut:
        what = (
            f"{len(other)} of {len(here)} tokens are others by their numbers"
            if other
            else "it cuts the canaries into other tokens"
        )
        raise ModelError(
            f"base model {base.name!r} has another tokenizer ({what}), so that the two models' "
            "bits are not of the same tokens; give the model that the fine-tuning began from"
        )


def _refuse_other_base(base: BaseModel, model: Any, lm: TorchModel) -> None:
    """What an adapter leaves alone is as in its base, to the bit."""
    whole, other = _whole(model, lm), base.model
    if unmerged_adapters(whole) and comes_off(whole) and _rows(whole) == _rows(other):
        bare = _bare(whole, lm)
        same = bare.dtype != other.dtype or base_sha256(bare) == base.identity
    elif is_adapter(Path(lm.name)) and not base.switched_off:
        same = _shares_weights(lm.model, other)
    else:
        return
    if not same:
        raise ModelError(
            f"base model {base.name!r} is not what the adapter of {lm.name!r} was trained on: its "
            f"weights differ where the adapter leaves them alone; give its own base, or base="
            f"{ADAPTER_OFF!r}"
        )


def _shares_weights(model: Any, base: Any) -> bool:
    """Whether some weight with more than two different numbers is the same in both."""
    # An adapter leaves embeddings, norms or biases alone; no two trainings end with the same there.
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
