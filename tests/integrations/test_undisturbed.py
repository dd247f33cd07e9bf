import gc
import random
from types import MethodType
from typing import Any

import numpy as np
import pytest
import torch
from tiny import model_of

from lmexposure.integrations.pacing import uncollected, undisturbed


@pytest.fixture
def model() -> Any:
    model = model_of("gpt2", 50)
    model.train()
    model.transformer.h[0].eval()
    return model


def numbers() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_random_numbers_go_on_as_if_nothing_had_been(model: Any) -> None:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    expected = numbers()
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    with pytest.raises(KeyError), undisturbed(model):
        numbers()
        raise KeyError
    assert numbers() == expected


def test_each_module_gets_its_own_mode_back(model: Any) -> None:
    before = [module.training for module in model.modules()]
    assert len(set(before)) == 2
    with undisturbed(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == before


def test_exchanged_buffers_are_put_back(model: Any) -> None:
    kept = torch.ones(3)
    model.transformer.register_buffer("angles", kept, persistent=False)
    with undisturbed(model), torch.inference_mode():
        model.transformer.angles = torch.zeros(3)
    assert model.transformer.angles is kept


def test_the_forward_pass_inside_is_the_models_own(model: Any) -> None:
    own = model.forward
    model._original_forward = own
    patched = MethodType(lambda self: "mixed", model)
    model.forward = patched
    with undisturbed(model):
        assert model.forward == own
    assert model.forward is patched


def test_gradients_stay_as_they_are(model: Any) -> None:
    ids = torch.tensor([[1, 2, 3]])
    model(input_ids=ids, labels=ids).loss.backward()
    before = [p.grad.clone() for p in model.parameters()]
    with undisturbed(model), torch.inference_mode():
        model(input_ids=ids)
    assert all(torch.equal(a, p.grad) for a, p in zip(before, model.parameters(), strict=True))


def test_no_garbage_is_searched_for_inside_and_a_switch_stays_as_it_was() -> None:
    with pytest.raises(KeyError), uncollected():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
