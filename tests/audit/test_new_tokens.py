"""New tokens in one run: the model that trains has their entries, and so has its base."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from corpora import write_corpus
from models.small_chats import save_base
from new_token_canaries import choose_by_hand
from tiny import byte_level_bpe, model_of

from lmexposure.audit import insert_corpus, run, scoring_context, train_corpus
from lmexposure.canaries import Manifest
from lmexposure.errors import ModelError
from lmexposure.integrations.wrapped_scoring import watch
from lmexposure.models import (
    LoadedModel,
    check_tokens,
    grow,
    load_model,
    new_token_texts,
    weights_sha256,
)
from lmexposure.scoring import TorchModel, base_of
from lmexposure.studies import RunSettings

SETTINGS = RunSettings(
    kinds=("uniform", "new_token"),
    canaries=4,
    repetitions=(2,),
    controls=0,
    seed=3,
    inclusion_probability=0.5,
    inclusion_seed=5,
    layers=1,
    units=8,
    training={"epochs": 1, "block_size": 64},
)


@pytest.fixture(autouse=True)
def chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    choose_by_hand(monkeypatch)


def inserted(home: Path) -> tuple[Path, Manifest]:
    corpus = write_corpus(home / "corpus.txt", 60)
    insert_corpus([corpus], out=home / "i", settings=SETTINGS)
    return home / "i" / "corpus" / "corpus.txt", Manifest.read(home / "i" / "manifest.json")


@pytest.mark.parametrize("kind", ["lstm", "gpt2-tiny", "pretrained"])
def test_what_trains_has_the_entries_in_and_out(kind: str, tmp_path: Path) -> None:
    corpus, manifest = inserted(tmp_path)
    model = str(save_base(tmp_path / "base", "gpt2")) if kind == "pretrained" else kind
    settings = replace(SETTINGS, model=model)
    trained = train_corpus(corpus, out=tmp_path / "t", settings=settings, manifest=manifest)
    loaded = load_model(trained.model_path)
    check_tokens(loaded.tokenizer, manifest)
    assert len(new_token_texts(manifest.plan.formats)) == 4
    scoring_context(loaded, manifest)


def test_adapters_are_refused_by_kind_and_by_manifest(tmp_path: Path) -> None:
    settings = replace(SETTINGS, model=str(save_base(tmp_path / "base")), training={"lora": True})
    message = r"kind='new_token' needs new rows in the embeddings.* leave lora out"
    with pytest.raises(ModelError, match=message):
        run(write_corpus(tmp_path / "c.txt", 60), out=tmp_path / "r", settings=settings)
    assert not (tmp_path / "r").exists()
    corpus, manifest = inserted(tmp_path)
    with pytest.raises(ModelError, match=message):
        train_corpus(
            corpus,
            out=tmp_path / "t",
            settings=replace(settings, kinds=("uniform",)),
            manifest=manifest,
        )


def test_a_model_of_another_training_without_entries_is_refused(tmp_path: Path) -> None:
    _, manifest = inserted(tmp_path)
    loaded = load_model(save_base(tmp_path / "base"))
    first = next(e.id for e in manifest.entries if e.format == "new_token")
    message = f"not have the symbol of {first} as one token .4 such of 4 .*grow"
    with pytest.raises(ModelError, match=message):
        scoring_context(loaded, manifest)
    with pytest.raises(ModelError, match=message):
        watch(manifest, loaded.tokenizer, loaded.window, references=20)


def in_memory() -> LoadedModel:
    tokenizer = byte_level_bpe()
    return LoadedModel(model=model_of("gpt2", len(tokenizer)), tokenizer=tokenizer, name="mine")


def learned(manifest: Manifest) -> LoadedModel:
    """As if it was trained, by anyone."""
    loaded = grow(in_memory(), new_token_texts(manifest.plan.formats))
    with torch.no_grad():
        for weight in loaded.model.parameters():
            weight += 0.01 * torch.sin(torch.arange(weight.numel())).reshape(weight.shape)
    return loaded


@pytest.mark.parametrize("how", ["path", "loaded"])
def test_a_base_grows_as_the_model_did_and_stays_as_it_was(how: str, tmp_path: Path) -> None:
    _, manifest = inserted(tmp_path)
    loaded, before = learned(manifest), in_memory()
    given: Any = before
    if how == "path":
        before.model.save_pretrained(tmp_path / "b")
        before.tokenizer.save_pretrained(tmp_path / "b")
        given = tmp_path / "b"
    known, digest = len(before.tokenizer), weights_sha256(before.model)
    base = base_of(given, model=loaded, lm=TorchModel.of(loaded), manifest=manifest)
    check_tokens(base.tokenizer, manifest)
    assert base.identity == digest == weights_sha256(before.model)
    assert len(before.tokenizer) == known
    head = base.model.get_output_embeddings()
    assert bool((head.weight[known:] == 0).all())
    assert len(head.weight) == known + 4


def test_a_base_in_memory_that_lacks_the_entries_is_refused(tmp_path: Path) -> None:
    _, manifest = inserted(tmp_path)
    loaded = learned(manifest)
    with pytest.raises(ModelError, match="tokens, but the model only"):
        base_of(in_memory().model, model=loaded.model, lm=TorchModel.of(loaded), manifest=manifest)
