import pytest
import torch
from scoring.families import family
from transformers.activations import FastGELUActivation, NewGELUActivation

from lmexposure.scoring.activations import fused_activations


@pytest.mark.parametrize("chain", [NewGELUActivation, FastGELUActivation])
def test_the_kernel_is_the_chain_and_the_chain_comes_back(chain: type[torch.nn.Module]) -> None:
    module, x = torch.nn.Sequential(chain()), torch.linspace(-8, 8, 10_001)
    slow = module(x)
    with pytest.raises(KeyError), fused_activations(module):
        fast = module(x.clone())  # it works in place
        assert torch.allclose(fast, slow, rtol=0, atol=2e-6)
        assert not torch.equal(fast, slow)
        raise KeyError
    assert torch.equal(module(x), slow)


def test_a_whole_model_keeps_its_numbers() -> None:
    model, ids = family("gpt2"), torch.tensor([[3, 1, 4, 1, 5]])
    with torch.inference_mode(), fused_activations(model):
        fused = model(ids).logits
    with torch.inference_mode():
        assert torch.allclose(fused, model(ids).logits, atol=1e-4)
