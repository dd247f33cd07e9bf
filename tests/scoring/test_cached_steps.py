import pytest
import torch
from scoring.families import WINDOW, family
from transformers.cache_utils import DynamicSlidingWindowLayer

from lmexposure.errors import ModelError
from lmexposure.scoring.cached_steps import Paths, Workspace

PREFIX = torch.tensor([[5, 9, 3, 7, 4, 8, 6, 10, 11, 12, 5, 3]])


def test_a_workspace_is_used_again_and_grows() -> None:
    workspace, like = Workspace(), torch.empty(0, dtype=torch.float64)
    first = workspace.like(like, 4, 5)
    assert (first.shape, first.dtype) == ((4, 5), torch.float64)
    assert workspace.like(like, 2, 3).data_ptr() == first.data_ptr()
    assert workspace.like(like, 5, 2, 3).shape == (5, 2, 3)
    assert workspace.like(like, 2, 3).data_ptr() != first.data_ptr()
    assert workspace.like(torch.empty(0), 2).dtype == torch.float32


@pytest.mark.parametrize("name", ["mamba", "jamba", "falcon_h1"])
def test_layers_without_keys_and_values_alone_are_refused(name: str) -> None:
    model = family(name)
    with torch.inference_mode():
        output = model(input_ids=PREFIX, use_cache=True)
    cache = output["cache_params" if name == "mamba" else "past_key_values"]
    with pytest.raises(ModelError, match=r"a layer keeps its states in its own way \(Linear"):
        Paths.begun(cache, PREFIX.shape[1])


@pytest.mark.parametrize("name", ["gpt2", "gemma2"])
def test_a_pass_is_told_and_given_what_the_cache_of_the_model_would(name: str) -> None:
    model = family(name)
    with torch.inference_mode():
        own = model(input_ids=PREFIX, use_cache=True).past_key_values
        paths, workspace = Paths.begun(own, PREFIX.shape[1]), Workspace()
        for _ in range(2):
            new = paths.unread(1)
            forked = paths.forked(paths.places, new, workspace)
            assert forked.is_sliding == own.is_sliding
            for i, layer in enumerate(own.layers):
                heads, _, size = layer.keys.shape[1:]
                assert forked.get_seq_length(i) == own.get_seq_length(i)
                assert forked.get_mask_sizes(1, i) == own.get_mask_sizes(1, i)
                read = [torch.randn(1, heads, 1, size) for _ in range(2)]
                for ours, theirs in zip(forked.update(*read, i), own.update(*read, i), strict=True):
                    assert torch.equal(ours, theirs)
                if isinstance(layer, DynamicSlidingWindowLayer):
                    assert ours.shape[2] == WINDOW
            paths = paths.grown(paths.places, new)
