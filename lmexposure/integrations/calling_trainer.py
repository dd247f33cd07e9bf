"""The Trainer that calls, and what it says of its training."""

import inspect
from typing import Any

from transformers import PreTrainedTokenizerBase, Trainer

from lmexposure.canaries import Wrapping
from lmexposure.errors import ModelError, SettingsError


def calling_trainer() -> Any:
    """The Trainer whose call this is.

    A Trainer does not hand itself to its callbacks, but only it has the loggers, and the bare
    model. So it is looked for where it must be: among the callers.
    """
    frame = inspect.currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, Trainer):
            return caller
        frame = frame.f_back
    raise SettingsError(
        "ExposureCallback was called by no transformers.Trainer; give it to one: "
        "Trainer(..., callbacks=[ExposureCallback(manifest)])"
    )


def usual_wrapping(trainer: Any) -> Wrapping | None:
    """In SFTTrainer's rows nothing stands before a text; packed, the end of the row before."""
    rows = any(one.__name__ == "SFTTrainer" for one in type(trainer).__mro__)
    return Wrapping(context=None if trainer.args.packing else "") if rows else None


def tokenizer_of(trainer: Any) -> Any:
    """The Trainer's tokenizer, or that of its processor."""
    found = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    if isinstance(found, PreTrainedTokenizerBase):
        return found
    raise ModelError(
        f"the Trainer has processing_class={type(trainer.processing_class).__name__}, which is no "
        "tokenizer; without one no canary can be scored: Trainer(..., processing_class=tokenizer)"
    )


def refuse_sharded(trainer: Any) -> None:
    """The bare model must hold all of its weights."""
    if trainer.is_fsdp_enabled or any(hasattr(p, "ds_id") for p in trainer.model.parameters()):
        raise ModelError(
            "the weights are spread over processes (FSDP, or DeepSpeed's ZeRO-3), so that the model"
            " cannot be scored while it trains; leave ExposureCallback out, and measure the "
            "checkpoints with `lmexposure measure`"
        )
