"""A device that runs out of memory: batches are halved, which is said, and finished parts stay."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from audit.quick import QUICK, SAMPLED
from audit.small import TOKENIZER, gpt2, pins
from known import known

from lmexposure.audit import measure
from lmexposure.errors import ModelError
from lmexposure.models import LoadedModel

MANIFEST = pins(3)


class Cramped:
    """A model whose device holds so many tokens of a pass."""

    def __init__(self) -> None:
        self.most, self.seen = 1 << 30, list[str]()
        model = gpt2()
        model.register_forward_pre_hook(self._refuse, with_kwargs=True)
        self.loaded = LoadedModel(model=model, tokenizer=TOKENIZER, name="cramped")

    def _refuse(self, _: Any, __: Any, given: dict[str, Any]) -> None:
        if given["input_ids"].numel() > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        """Progress: the device is full once fills are drawn."""
        self.seen.append(what)
        if what == "pin: drawing secrets":
            self.most = 0


def test_a_batch_that_memory_does_not_hold_is_halved_and_said() -> None:
    cramped = Cramped()
    settings = replace(SAMPLED, scoring_batch=64)
    whole = measure(cramped.loaded, MANIFEST, settings=settings)
    assert not any("memory" in line for line in whole.warnings)
    cramped.most = 35
    halved = measure(cramped.loaded, MANIFEST, settings=settings)
    said = [line for line in halved.warnings if "memory ran out" in line]
    assert len(said) == 1
    assert re.match(r"memory ran out with 64 texts at a time; \d+ were computed at a time", said[0])
    bits = [[known(c.log_perplexity_bits) for c in r.canaries] for r in (whole, halved)]
    np.testing.assert_allclose(bits[0], bits[1], atol=1e-3)


def test_memory_that_runs_out_midway_keeps_what_was_measured(tmp_path: Path) -> None:
    cramped = Cramped()
    settings = replace(QUICK, extraction=False)
    with pytest.raises(
        ModelError,
        match=r"out of memory.*; what was measured is kept, and the same command goes on from there"
        "; it takes a device with more memory, dtype=bfloat16 or load_in=4bit$",
    ):
        measure(cramped.loaded, MANIFEST, settings=settings, out=tmp_path, progress=cramped)
    assert "scoring pin" in cramped.seen
    cramped.seen.clear()
    cramped.most = 1 << 30
    told: list[str] = []
    result = measure(
        cramped.loaded,
        MANIFEST,
        settings=settings,
        out=tmp_path,
        progress=lambda what, *_: told.append(what),
    )
    assert "pin: drawing secrets" in told
    assert "scoring pin" not in told  # kept by the first call
    assert result.canaries == measure(cramped.loaded, MANIFEST, settings=settings).canaries


def test_without_a_directory_nothing_is_kept() -> None:
    cramped = Cramped()
    with pytest.raises(ModelError, match="nothing of this measurement is kept, since out is not"):
        measure(cramped.loaded, MANIFEST, settings=QUICK, progress=cramped)
