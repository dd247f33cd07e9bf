import random
from types import MethodType
from typing import Any

import numpy as np
import pytest
import torch
from tiny import model_of

from lmexposure.scoring import evaluation_mode, same_random_numbers


@pytest.fixture
def model() -> Any:
    model = model_of("gpt2", 50)
    model.train()
    model.transformer.h[0].eval()
    return model


def begin() -> None:
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(1)


def numbers() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_random_numbers_go_on_as_if_nothing_had_been(model: Any) -> None:
    begin()
    expected = numbers()
    begin()
    with pytest.raises(KeyError), same_random_numbers(), evaluation_mode(model):
        numbers()
        raise KeyError
    assert numbers() == expected


def test_each_module_gets_its_own_mode_back(model: Any) -> None:
    before = [module.training for module in model.modules()]
    assert len(set(before)) == 2
    with same_random_numbers(), evaluation_mode(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == before


def test_exchanged_buffers_are_put_back(model: Any) -> None:
    kept = torch.ones(3)
    model.transformer.register_buffer("angles", kept, persistent=False)
    with same_random_numbers(), evaluation_mode(model), torch.inference_mode():
        model.transformer.angles = torch.zeros(3)
    assert model.transformer.angles is kept


def test_the_forward_pass_inside_is_the_models_own(model: Any) -> None:
    own = model.forward
    model._original_forward = own
    patched = MethodType(lambda self: "mixed", model)
    model.forward = patched
    with same_random_numbers(), evaluation_mode(model):
        assert model.forward == own
    assert model.forward is patched
