"""A model that somebody holds in memory: measured as a saved one, and handed back as it was."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from audit.quick import ALL_FILLS
from corpora import sentences
from tiny import byte_level_bpe, model_of

from lmexposure.audit import measure
from lmexposure.canaries import Format, Plan, insert_into_texts
from lmexposure.models import load_model, save_model
from lmexposure.records import Result

PIN = Format(name="pin", template="My PIN is {digits:2}")
TOKENIZER = byte_level_bpe()
SETTINGS = replace(ALL_FILLS, extraction=False)
PLAN = Plan(formats=(PIN,), canaries=2, repetitions=(1, 4), controls=2, seed=3)
MANIFEST = insert_into_texts(sentences(20), PLAN)[1]


def in_memory(model: Any, **options: Any) -> Result:
    options = {"tokenizer": TOKENIZER, "settings": SETTINGS, **options}
    return measure(model, MANIFEST, **options)


def exposures(result: Result) -> list[float | None]:
    return [canary.exposure.value for canary in result.canaries]


def bits(result: Result) -> list[float | None]:
    return [canary.log_perplexity_bits for canary in result.canaries]


@pytest.fixture
def model() -> Any:
    """With dropout; one frozen part is in evaluation mode while the others train."""
    model = model_of("gpt2", len(TOKENIZER)).train()
    model.transformer.h[0].eval()
    model.transformer.wte.weight.requires_grad_(False)
    return model


@pytest.fixture(scope="module")
def measured() -> Result:
    return in_memory(model_of("gpt2", len(TOKENIZER)))


def test_a_model_in_memory_gives_the_numbers_of_its_saved_self(
    measured: Result, tmp_path: Path
) -> None:
    save_model(model_of("gpt2", len(TOKENIZER)), TOKENIZER, tmp_path / "m")
    saved = measure(tmp_path / "m", MANIFEST, settings=SETTINGS, out=tmp_path / "r")
    assert saved.inputs_sha256 == measured.inputs_sha256
    assert saved.canaries == measured.canaries
    assert measured.model == saved.model.model_copy(update={"path": "GPT2LMHeadModel"})
    result = tmp_path / "r" / "result.json"
    before = result.stat().st_mtime_ns
    again = in_memory(model_of("gpt2", len(TOKENIZER)), out=tmp_path / "r")
    assert again == saved
    assert result.stat().st_mtime_ns == before
    loaded = load_model(tmp_path / "m").model
    assert in_memory(loaded).model.path == (tmp_path / "m").as_posix()
