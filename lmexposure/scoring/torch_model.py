"""The model of transformers behind a measurement, and where it comes from: disk, hub or memory."""

import json
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import torch
from transformers import PreTrainedTokenizerBase

from lmexposure._files import sha256_bytes
from lmexposure._saved_models import is_checkpoint
from lmexposure._style import visible
from lmexposure.core import Encoded, TokenScores
from lmexposure.errors import ModelError, SettingsError
from lmexposure.models import (
    NEW_MODELS,
    AnyContext,
    LoadedModel,
    active_adapters,
    as_causal,
    as_loaded,
    built_model,
    check_causal,
    check_device,
    check_embeddings_are_here,
    check_fit,
    check_name,
    damaged_model,
    is_quantised,
    is_usable_tokenizer,
    load_model,
    precision_notes,
    unmerged_adapters,
    weights_away,
)
from lmexposure.scoring.perplexity import encode_texts, score_encoded
from lmexposure.scoring.runtime import Floats, evaluation_mode, rounding_bits
from lmexposure.scoring.steps import WholeSteps, next_token_steps
from lmexposure.studies import RunSettings

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

# A directory or hub name, what `load_model` gives, or a model in memory.
AnyModel: TypeAlias = "str | Path | PreTrainedModel | PeftModel | LoadedModel"


@dataclass(frozen=True, kw_only=True)
class TorchModel(LoadedModel):
    """All that a measurement asks of a model of transformers: `core.Stepping`."""

    @classmethod
    def of(cls, loaded: LoadedModel) -> Self:
        """A loaded model, to be asked from now on; it may have been trained before."""
        return cls(**{field.name: getattr(loaded, field.name) for field in fields(LoadedModel)})

    @cached_property
    def identity(self) -> str:
        """SHA-256 of the weights themselves, computed once: they stay while it is asked."""
        return super().identity

    @property
    def rounding(self) -> float:
        """By how many bits a token may differ between two right ways to compute it."""
        return rounding_bits(self.model)

    def encode(self, texts: Sequence[str], context: AnyContext) -> list[Encoded]:
        """The texts as tokens in context, within the window."""
        return encode_texts(self.model, self.tokenizer, texts, context)

    def bits(self, texts: Sequence[str], context: AnyContext = None) -> Floats:
        """See `log_perplexity`."""
        return self.token_bits(self.encode(texts, context)).totals

    def token_bits(
        self,
        encoded: Sequence[Encoded],
        *,
        batch_size: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> TokenScores:
        """See `score_encoded`."""
        return score_encoded(self.model, encoded, batch_size=batch_size, progress=progress)

    def steps(self, probe: Sequence[int]) -> WholeSteps:
        """See `next_token_steps`."""
        return next_token_steps(self.model, probe)

    def asking(self) -> AbstractContextManager[None]:
        """The model in evaluation mode, for many questions; see `evaluation_mode`."""
        return evaluation_mode(self.model)

    def decisive(self) -> dict[str, Any]:
        """All of it that decides the numbers, by name; not where it came from."""
        tokenizer = self.tokenizer
        if tokenizer.is_fast:
            spelled = tokenizer.backend_tokenizer.to_str()
        else:
            spelled = f"{tokenizer!r} {sorted(tokenizer.get_vocab().items())}"
        special = [tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id]
        adapters = unmerged_adapters(self.model)
        return {
            "weights": self.identity,
            "config": self._config(),
            "special_tokens": special,
            "splits_special": getattr(tokenizer, "split_special_tokens", None),
            "tokenizer": sha256_bytes(spelled.encode()),
            "device": self.device.split(":")[0],
            **({"adapters": adapters} if adapters else {}),
        }

    def _config(self) -> dict[str, Any]:
        """The model's config as saving the model writes it, but for where it came from."""
        values = json.loads(self.model.config.to_json_string(use_diff=False))
        values["architectures"] = [type(self.model).__name__]
        values["dtype"] = str(self.model.dtype).removeprefix("torch.")
        origin = ("_name_or_path", "transformers_version")
        return {name: value for name, value in values.items() if name not in origin}


def chosen_device(settings: RunSettings) -> str:
    """The device that the settings name; "auto" is a GPU where there is one."""
    if settings.device != "auto":
        check_device(settings.device)
        return settings.device
    if torch.cuda.is_available() and os.environ.get("ACCELERATE_USE_CPU", "false") != "true":
        return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    return "cpu"


def check_model(settings: RunSettings) -> None:
    """Refuse, before any work, a model to train that cannot be there."""
    chosen_device(settings)
    if settings.model not in NEW_MODELS:
        check_name(settings.model)


def load_for_measuring(model: str | Path, settings: RunSettings) -> TorchModel:
    """Load a model as the settings say: device, dtype, quantised, spread, revision, offline."""
    if settings.builder is not None and is_checkpoint(model):
        return TorchModel.of(built_model(model, settings.builder))
    _refuse_damaged(model)
    if str(model) in NEW_MODELS and not Path(model).exists():
        raise ModelError(
            f"model {str(model)!r} is a kind of new model, and has to be trained before it is "
            "measured; give the directory of a trained one"
        )
    if settings.device_map is not None and settings.device != "auto":
        raise SettingsError(
            f"device_map={settings.device_map} takes all devices, and device={settings.device!r} "
            "asks for one; leave one of them out"
        )
    loaded = load_model(
        model,
        device=chosen_device(settings),
        dtype=settings.dtype,
        load_in=settings.load_in,
        device_map=settings.device_map,
        revision=settings.revision,
        offline=settings.offline,
    )
    return TorchModel.of(loaded)


def any_model(model: Any, tokenizer: Any, settings: RunSettings) -> TorchModel:
    """A model by its name, what `load_model` or `language_model` gave, or one in memory."""
    if isinstance(model, LoadedModel):
        return TorchModel.of(model)
    if isinstance(model, str | Path):
        return load_for_measuring(model, settings)
    return model_in_memory(model, tokenizer)


def _refuse_damaged(model: str | Path) -> None:
    """Refuse a changed weight, which would give other numbers and look like any other."""
    damaged = damaged_model(model)
    if damaged == (record := Path(model).parent / "training.json"):
        raise ModelError(
            f"{visible(str(record))} is damaged, or was changed since the training wrote it, so "
            f"that nothing says whether {visible(str(model))} is the model of that training; put "
            "the file back, or copy the model elsewhere to measure it as one of any other origin"
        )
    if damaged is not None:
        raise ModelError(
            f"{damaged} is not what the training wrote ({record} has its "
            "hash): damaged, or changed since; give the training's command again, or copy the "
            "model elsewhere if the change is meant"
        )


_WANTED = (
    "give a causal language model of transformers (AutoModelForCausalLM), an encoder-decoder, one "
    "with an adapter of peft, what load_model gives, or the path of a saved one"
)
_LOAD_IT = "AutoTokenizer.from_pretrained(...)"
_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_SHARDED = ("FullyShardedDataParallel", "DeepSpeedEngine")


def model_in_memory(model: Any, tokenizer: Any) -> TorchModel:
    """What is measured of a model in memory, as of its saved self; the model stays as it is."""
    from transformers import PreTrainedModel

    model = unwrapped(model)
    adapted = hasattr(model, "get_base_model") and hasattr(model, "peft_config")
    base = model.get_base_model() if adapted else model
    if not isinstance(base, PreTrainedModel):
        raise ModelError(
            f"model is of type {type(model).__name__}, which is not measured; {_WANTED}"
        )
    # Where its weights came from, or else its class; with the adapters that are in use.
    name = str(getattr(base, "name_or_path", "") or type(base).__name__)
    if adapted:
        name += f" with adapter {', '.join(active_adapters(model))}"
    _check_weights(name, base)
    tokenizer = _checked_tokenizer(name, tokenizer)
    check_fit(name, base, tokenizer)
    measured = as_loaded(name, model) if adapted else base
    with evaluation_mode(measured):
        measured, tokenizer = as_causal(name, measured, tokenizer)
        check_causal(name, measured)
        notes = precision_notes(name, measured)
    return TorchModel(model=measured, tokenizer=tokenizer, name=name, notes=notes)


def unwrapped(model: Any) -> Any:
    """The model without what wraps it for speed or for several processes."""
    while True:
        if type(model).__name__ in _SHARDED:
            raise ModelError(
                f"the model is wrapped in {type(model).__name__}, which may keep its weights in "
                "parts; save it, and give the path"
            )
        inner = getattr(model, "_orig_mod", None)
        if isinstance(model, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
            inner = model.module
        if inner is None:
            return model
        model = inner


def _check_weights(name: str, model: "PreTrainedModel") -> None:
    if away := weights_away(model):
        raise ModelError(
            f"model {name!r} has {len(away)} of its weights on the meta device ({away[0]} first), "
            "where there are no numbers: load it whole, or with device_map='auto'"
        )
    check_embeddings_are_here(name, model)
    quantised = is_quantised(model)
    dtypes = set() if quantised else {weight.dtype for weight in model.parameters()}
    odd = sorted(str(dtype).removeprefix("torch.") for dtype in dtypes - set(_DTYPES))
    packed = any(not isinstance(value, torch.Tensor) for value in model.state_dict().values())
    if odd or packed:
        what = f" (weights of {', '.join(odd)})" if odd else ""
        raise ModelError(
            f"model {name!r} is quantised{what} in a way that transformers does not load, which is "
            "not measured; load it by transformers: load_model(..., load_in='8bit'), or in float32"
        )
    if model.get_output_embeddings() is None:
        raise ModelError(
            f"model {name!r} ({type(model).__name__}) has no language-model head, so it "
            f"predicts no token; {_WANTED}"
        )


def _checked_tokenizer(name: str, tokenizer: Any) -> PreTrainedTokenizerBase:
    if tokenizer is None:
        raise ModelError(
            f"model {name!r} is in memory, and its tokenizer has to come with it: pass "
            f"tokenizer={_LOAD_IT}, the one that it was trained with"
        )
    if isinstance(tokenizer, str | os.PathLike):
        raise ModelError(
            f"tokenizer={str(tokenizer)!r} is a name; load it: "
            f"tokenizer=AutoTokenizer.from_pretrained({str(tokenizer)!r})"
        )
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        inner = isinstance(getattr(tokenizer, "tokenizer", None), PreTrainedTokenizerBase)
        what = "give its own: tokenizer=processor.tokenizer" if inner else f"pass {_LOAD_IT}"
        raise ModelError(
            f"tokenizer is of type {type(tokenizer).__name__}, not a tokenizer of transformers; "
            f"{what}"
        )
    if not is_usable_tokenizer(tokenizer):
        raise ModelError(
            f"the tokenizer given for {name!r} is empty or damaged: it cannot read the letter a; "
            f"pass {_LOAD_IT}"
        )
    return tokenizer
