"""The name of what a measurement measures: by it a finished one is known, and none is mixed up."""

import json
from typing import Any

from lmexposure import __version__
from lmexposure._files import canonical_json, sha256_bytes
from lmexposure.audit.base import Base
from lmexposure.audit.context import ScoringContext
from lmexposure.canaries import Manifest
from lmexposure.models import LoadedModel, unmerged_adapters
from lmexposure.studies import MeasureSettings


def inputs_sha256(
    loaded: LoadedModel,
    described: dict[str, Any],
    manifest: Manifest,
    settings: MeasureSettings,
    context: ScoringContext,
    base: Base | None,
) -> str:
    """One hash for all that decides the numbers; where the model lies is not part of it."""
    tokenizer = loaded.tokenizer
    if tokenizer.is_fast:
        spelled = tokenizer.backend_tokenizer.to_str()
    else:
        spelled = f"{tokenizer!r} {sorted(tokenizer.get_vocab().items())}"
    values = {
        "version": __version__,
        "manifest": manifest.sha256,
        "weights": described["weights_sha256"],
        "config": _config(loaded),
        "special_tokens": [tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id],
        "splits_special": getattr(tokenizer, "split_special_tokens", None),
        "tokenizer": sha256_bytes(spelled.encode()),
        "device": loaded.model.device.type,
        "settings": settings.decisive(),
    }
    if adapters := unmerged_adapters(loaded.model):
        values["adapters"] = adapters
    if rows := context.decisive():
        values["rows"] = rows
    if base is not None:
        values["base"] = [base.weights_sha256, base.switched_off]
    return sha256_bytes(canonical_json(values))


def _config(loaded: LoadedModel) -> dict[str, Any]:
    """The model's config as saving the model writes it, but for where it came from."""
    values = json.loads(loaded.model.config.to_json_string(use_diff=False))
    values["architectures"] = [type(loaded.model).__name__]
    values["dtype"] = str(loaded.model.dtype).removeprefix("torch.")
    return {k: v for k, v in values.items() if k not in ("_name_or_path", "transformers_version")}
