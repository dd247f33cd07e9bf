import numpy as np
import pytest
import torch

from lmexposure.models import LstmConfig, LstmForCausalLM
from lmexposure.scoring.lstm_steps import LstmSteps

V = 40
ALL = np.arange(V)


def lstm(layers: int, hidden: int = 24, embedding: int = 16) -> LstmForCausalLM:
    torch.manual_seed(layers)
    config = LstmConfig(
        vocab_size=V,
        num_hidden_layers=layers,
        hidden_size=hidden,
        embedding_size=embedding,
        dropout=0.5,
    )
    model = LstmForCausalLM(config)
    model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)
    return model


def by_the_module(model: LstmForCausalLM, prefix: list[int]) -> np.ndarray:
    """Bits of every token behind a prefix, by nn.LSTM over all of it."""
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([prefix])).logits[0, -1]
    bits: np.ndarray = -logits.double().log_softmax(-1).numpy() / np.log(2)
    return bits


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float32, 1e-4), (torch.float64, 1e-10), (torch.bfloat16, 0.25)]
)
def test_steps_are_those_of_the_module(layers: int, dtype: torch.dtype, atol: float) -> None:
    model = lstm(layers).to(dtype)
    steps = LstmSteps(model)
    first, bits = steps.start([3, 1, 4], ALL)
    np.testing.assert_allclose(bits, by_the_module(model, [3, 1, 4]), rtol=0, atol=atol)
    prefixes = [[3, 1, 4]]
    state = first
    for parents, tokens in [([0, 0, 0], [1, 5, 9]), ([2, 0], [2, 6]), ([1, 1, 0, 1], [5, 3, 5, 8])]:
        N = len(parents)
        rows, columns = np.repeat(np.arange(N), V), np.tile(ALL, N)
        state, bits = steps.advance(state, np.array(parents), np.array(tokens), rows, columns)
        prefixes = [[*prefixes[p], t] for p, t in zip(parents, tokens, strict=True)]
        slow = np.concatenate([by_the_module(model, prefix) for prefix in prefixes])
        np.testing.assert_allclose(bits, slow, rtol=0, atol=atol)
    again, bits = steps.advance(first, np.array([0]), np.array([7]), np.zeros(V, int), ALL)
    np.testing.assert_allclose(bits, by_the_module(model, [3, 1, 4, 7]), rtol=0, atol=atol)
    assert (first.rows, state.rows, again.rows) == (1, 4, 1)
    assert steps.evaluated == 1 + 3 + 2 + 4 + 1


def test_states_stay_as_they_were() -> None:
    steps = LstmSteps(lstm(2))
    state, _ = steps.start([1], ALL)
    before = [t.clone() for t in (*state.hidden, *state.cell)]
    steps.advance(state, np.array([0, 0]), np.array([1, 2]), np.array([0]), np.array([0]))
    for old, now in zip(before, (*state.hidden, *state.cell), strict=True):
        torch.testing.assert_close(old, now, rtol=0, atol=0)


@pytest.mark.parametrize("rows", [1023, 1024, 1025, 2500])
def test_more_rows_than_a_block(rows: int) -> None:
    steps = LstmSteps(lstm(2))
    state, _ = steps.start([1, 2], ALL)
    tokens = np.arange(rows) % V
    zeros = np.zeros(rows, dtype=np.int64)
    state, _ = steps.advance(state, zeros, tokens, np.empty(0, int), np.empty(0, int))
    assert state.rows == rows
    parents = np.arange(rows)[::-1].copy()
    _, bits = steps.advance(state, parents, tokens, np.arange(rows), np.full(rows, 5))
    for n in (0, 1, rows // 2, rows - 2, rows - 1):
        small, _ = steps.start([1, 2, int(tokens[parents[n]])], ALL)
        _, alone = steps.advance(
            small, np.array([0]), tokens[n : n + 1], np.array([0]), np.array([5])
        )
        assert bits[n] == pytest.approx(alone[0], abs=1e-4)


def test_the_weights_of_the_model_are_not_touched() -> None:
    model = lstm(2)
    before = {name: p.clone() for name, p in model.named_parameters()}
    steps = LstmSteps(model)
    state, _ = steps.start([1, 2], ALL)
    steps.advance(state, np.zeros(3, int), np.array([1, 2, 3]), np.array([2]), np.array([0]))
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, before[name], rtol=0, atol=0)


def test_nothing_wanted_and_impossible_tokens() -> None:
    model = lstm(1)
    with torch.no_grad():
        model.lm_head.bias[7] = -torch.inf
    steps = LstmSteps(model)
    state, bits = steps.start([1], np.array([7, 8]))
    assert np.isposinf(bits[0])
    assert np.isfinite(bits[1])
    empty = np.empty(0, dtype=np.int64)
    _, bits = steps.advance(state, np.array([0]), np.array([7]), empty, empty)
    assert bits.shape == (0,)
    assert bits.dtype == np.float64
