from typing import Any

import pytest
import torch
from tiny import characters, model_of

from lmexposure.models.lstm import LstmForCausalLM, LstmState
from lmexposure.scoring import CachedSteps, RecomputedSteps, next_token_steps

PROBE = [5, 9, 3, 7, 4, 8, 6, 10, 11, 12, 5, 3]  # longer than Mistral's sliding window here


def test_cache_is_trusted_and_agrees_with_recomputing(
    model_and_tokenizer: tuple[Any, Any],
) -> None:
    model, _ = model_and_tokenizer
    fast, slow = next_token_steps(model, PROBE), RecomputedSteps(model)
    assert isinstance(fast, CachedSteps)
    torch.testing.assert_close(fast.start(PROBE), slow.start(PROBE), atol=1e-3, rtol=0)
    for parents, tokens in [([0, 0], [3, 4]), ([1, 1, 0], [5, 6, 7]), ([2], [8])]:
        a = fast.advance(torch.tensor(parents), torch.tensor(tokens))
        b = slow.advance(torch.tensor(parents), torch.tensor(tokens))
        assert a.shape == (len(parents), model.config.vocab_size)
        torch.testing.assert_close(a, b, atol=1e-3, rtol=0)
    assert fast.evaluated == slow.evaluated == 7


def test_next_token_bits_are_of_a_distribution() -> None:
    steps = RecomputedSteps(model_of("lstm", len(characters())))
    assert float((2.0 ** -steps.start([3, 4])).sum()) == pytest.approx(1, abs=1e-5)


class ForgetfulState(LstmState):
    """A cache that silently ignores which row it is asked to fork."""

    def reorder_cache(self, index: torch.Tensor) -> None:
        super().reorder_cache(torch.zeros_like(index))


class Forgetful(LstmForCausalLM):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        out = super().forward(*args, **kwargs)
        if out.past_key_values is not None:
            state = out.past_key_values
            out.past_key_values = ForgetfulState(state.hidden, state.cell, state.seen)
        return out


class Unforkable(LstmForCausalLM):
    def forward(self, *args: Any, past_key_values: Any = None, **kwargs: Any) -> Any:
        out = super().forward(*args, **kwargs)
        out.past_key_values = "no state at all"
        return out


@pytest.mark.parametrize("broken", [Forgetful, Unforkable])
def test_a_wrong_cache_is_found_out(broken: type[LstmForCausalLM]) -> None:
    model = model_of("lstm", len(characters()))
    model.__class__ = broken
    assert isinstance(next_token_steps(model, PROBE), RecomputedSteps)
