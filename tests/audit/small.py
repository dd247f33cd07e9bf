"""Few canaries, and models that nobody trained, small enough to be measured at once."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from corpora import sentences
from known import known
from tiny import byte_level_bpe, characters, model_of

from lmexposure.audit.workload import Task
from lmexposure.canaries import Format, Manifest, Plan
from lmexposure.integrations import insert
from lmexposure.models import LoadedModel
from lmexposure.scoring import TorchModel
from lmexposure.studies import MeasureSettings, Result, Validation

TOKENIZER = byte_level_bpe()


def pins(digits: int, documents: int = 20, **plan: Any) -> Manifest:
    """Canaries of a format with so many digits."""
    form = Format(name="pin", template=f"My PIN is {{digits:{digits}}}")
    return planned(form, documents=documents, **{"repetitions": (1, 4)} | plan)


def planned(*formats: Format, documents: int = 40, **plan: Any) -> Manifest:
    """Canaries of these formats in so many documents."""
    values: dict[str, Any] = {"canaries": 2, "repetitions": (1,), "controls": 2, "seed": 3} | plan
    return insert(sentences(documents), Plan(formats=formats, **values)).manifest


def stopping(at: str) -> Callable[..., None]:
    """Progress with Ctrl-C in what begins so."""

    def stop(what: str, done: int, total: int, note: str = "") -> None:
        if what.startswith(at):
            raise KeyboardInterrupt

    return stop


def task_of(
    lm: LoadedModel, manifest: Manifest, settings: MeasureSettings, contexts: Any = None
) -> Task:
    """What is measured; without contexts each text is behind the separator alone."""
    contexts = dict.fromkeys(manifest.formats, manifest.separator) if contexts is None else contexts
    return Task(lm=TorchModel.of(lm), manifest=manifest, settings=settings, contexts=contexts)


def gpt2() -> Any:
    return model_of("gpt2", len(TOKENIZER))


def loaded_of(kind: str, tokenizer: Any = None) -> TorchModel:
    """A model of the kind; without a tokenizer it reads characters."""
    tokenizer = characters() if tokenizer is None else tokenizer
    return TorchModel(model=model_of(kind, len(tokenizer)), tokenizer=tokenizer, name="tiny")


def with_lora(base: Any, **options: Any) -> Any:
    """The model with an adapter, whose draws leave the generator as it was."""
    peft = pytest.importorskip("peft")
    generator = torch.get_rng_state()
    torch.manual_seed(3)
    options = {"target_modules": ["c_attn"], "fan_in_fan_out": True, **options}
    adapted = peft.get_peft_model(base, peft.LoraConfig(r=4, init_lora_weights=False, **options))
    torch.set_rng_state(generator)
    return adapted


def bits(result: Result) -> list[float | None]:
    return [canary.log_perplexity_bits for canary in result.canaries]


def base_bits(result: Result) -> list[float]:
    return [canary.log_perplexity_bits for canary in known(result.base).canaries]


def training(**changes: Any) -> Validation:
    """The record of a training that learned."""
    values: dict[str, Any] = {
        "validation_bits": 1.0,
        "initial_validation_bits": 2.0,
        "best_epoch": 1.0,
    }
    values |= {"epochs": 1.0, "stopped": "epochs", "improved": True}
    return Validation(**values | changes)
