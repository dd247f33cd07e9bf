"""The LSTM of private training: torch's own, forward and back, with its very weights."""

import pytest
import torch
from torch import Tensor, nn

from lmexposure.models.lstm import PrivateLstm


def both(layers: int = 2, dropout: float = 0.0) -> tuple[nn.LSTM, PrivateLstm]:
    torch.manual_seed(3)
    lstm = nn.LSTM(3, 5, num_layers=layers, batch_first=True, dropout=dropout).double()
    return lstm, PrivateLstm(lstm)


def read(tokens: int = 7) -> Tensor:
    made = torch.randn((4, tokens, 3), dtype=torch.float64)
    return made.requires_grad_()


def gradients(
    lstm: nn.Module, given: Tensor, arriving: Tensor, weights: list[Tensor]
) -> list[Tensor]:
    outputs, _ = lstm(given)
    return list(torch.autograd.grad(outputs, [given, *weights], arriving))


@pytest.mark.parametrize(("layers", "tokens"), [(1, 1), (1, 7), (2, 7), (3, 2)])
def test_it_is_the_lstm_of_torch_forward_and_back(layers: int, tokens: int) -> None:
    lstm, private = both(layers)
    given = read(tokens)
    outputs, state = private(given)
    assert state is None
    assert torch.allclose(outputs, lstm(given)[0], rtol=1e-12, atol=1e-14)
    weights: list[Tensor] = list(lstm.parameters())
    arriving = torch.randn_like(outputs)
    expected = gradients(lstm, given, arriving, weights)
    for found, wanted in zip(gradients(private, given, arriving, weights), expected, strict=True):
        assert torch.allclose(found, wanted, rtol=1e-10, atol=1e-12)


def test_units_are_dropped_between_layers_and_in_training_alone() -> None:
    lstm, private = both(dropout=0.5)
    given = read()
    assert not torch.equal(private(given)[0], private(given)[0])
    assert torch.allclose(private.eval()(given)[0], lstm.eval()(given)[0], rtol=1e-12, atol=1e-14)
    _, one = both(layers=1, dropout=0.0)
    one.dropout.p = 0.5
    assert torch.equal(one(given)[0], one(given)[0])
