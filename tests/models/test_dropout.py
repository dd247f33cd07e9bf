"""Dropout throughout a model: where it is set, what drops, and what has no place for it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from models.small_defences import PLAIN, trained
from models.small_private import PRIVATE, made
from models.small_private import lstm as private_lstm
from models.small_training import small_documents, small_lstm
from tiny import characters, model_of
from torch import Tensor

from lmexposure.errors import ModelError
from lmexposure.models import LstmSizes, load_model, new_model
from lmexposure.models.trainer import set_dropout

IDS = torch.arange(2, 14).reshape(2, 6)


def said(model: Any, seed: int) -> Tensor:
    torch.manual_seed(seed)
    with torch.no_grad():
        logits: Tensor = model(input_ids=IDS, use_cache=False).logits
    return logits


def places_of(model: Any) -> list[float]:
    """The share at each place of the kinds that there are in these models."""
    shares = [m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)]
    shares += [m.dropout for m in model.modules() if isinstance(m, torch.nn.LSTM)]
    return shares + [m.attention_dropout for m in model.modules() if "attention_dropout" in vars(m)]


@pytest.mark.parametrize(("kind", "places"), [("lstm", 1), ("gpt2", 7), ("llama", 2)])
def test_it_is_set_everywhere_and_drops_in_training_alone(kind: str, places: int) -> None:
    model = small_lstm(0.0).model if kind == "lstm" else model_of(kind, len(characters()))
    model.eval()
    before = said(model, 1)
    set_dropout(model, 0.4)
    assert places_of(model) == [0.4] * places
    assert torch.equal(said(model, 1), before)
    model.train()
    assert torch.equal(said(model, 1), said(model, 1))
    assert not torch.allclose(said(model, 1), said(model, 2))
    assert not torch.allclose(said(model, 1), before)


def test_a_model_without_a_place_is_refused(tmp_path: Path) -> None:
    sizes = LstmSizes(units=8, embedding=4, layers=1)
    one = new_model("lstm", small_documents(), seed=1, separator="\n", lstm=sizes)
    message = "LstmForCausalLM has no place where units could be dropped, such as between"
    with pytest.raises(ModelError, match=message):
        trained(tmp_path, replace(PLAIN, dropout=0.3), loaded=one)


def test_a_training_has_the_dropout_of_its_settings_and_else_the_models_own(tmp_path: Path) -> None:
    def weights(name: str, own: float, **changes: Any) -> Tensor:
        few = replace(PLAIN, epochs=1, **changes)
        path = trained(tmp_path / name, few, loaded=small_lstm(own)).model_path
        return torch.cat([w.flatten() for w in load_model(path).model.parameters()])

    own = weights("own", 0.2)
    assert torch.equal(weights("set", 0.0, dropout=0.2), own)
    assert not torch.equal(weights("more", 0.2, dropout=0.5), own)
    assert not torch.equal(weights("none", 0.0), own)


def test_a_private_training_drops_too() -> None:
    loaded = private_lstm(0.0)
    set_dropout(loaded.model, 0.4)
    method = made(loaded.model, replace(PRIVATE, dropout=0.4))
    method._model.train()
    assert not torch.allclose(said(method._model, 1), said(method._model, 2))
