"""An LSTM whose gradients can be had of each document, at a few times the cost of torch's.

Opacus' own LSTM adds up a gradient of each document at each token. Here the states are found first,
without gradient; then the gates of all tokens are two linear layers read at once, of which Opacus
has the gradients of each document by one product, and only what gates pass back to the gates before
them goes token by token.
"""

from typing import Any

import torch
from torch import Tensor, nn


class _Layer(nn.Module):
    """One layer, by the weights of a layer of torch's LSTM, which it shares."""

    def __init__(self, lstm: nn.LSTM, number: int) -> None:
        super().__init__()
        self.of_input, self.of_state = (_linear(lstm, kind, number) for kind in ("ih", "hh"))

    def forward(self, read: Tensor) -> Tensor:
        """Outputs (B, T, H) for inputs (B, T, E), from a state of zeros."""
        states, cells = self._states(read)
        before = torch.cat([torch.zeros_like(states[:, :1]), states[:, :-1]], dim=1)
        gates = self.of_input(read) + self.of_state(before)
        recurrent = self.of_state.weight.detach()
        outputs: Tensor = _Cells.apply(gates, cells, recurrent)  # type: ignore[no-untyped-call]
        return outputs

    @torch.no_grad()
    def _states(self, read: Tensor) -> tuple[Tensor, Tensor]:
        """States and cells behind each token, (B, T, H) each."""
        given = nn.functional.linear(read, self.of_input.weight, self.of_input.bias)
        given = (given + self.of_state.bias).transpose(0, 1)
        recurrent = self.of_state.weight.T.contiguous()
        state = cell = read.new_zeros(read.shape[0], recurrent.shape[0])
        states, cells = [], []
        for token in given.unbind():
            gates = torch.addmm(token, state, recurrent)
            into, kept, new, out = gates.chunk(4, dim=1)
            cell = torch.addcmul(kept.sigmoid() * cell, into.sigmoid(), new.tanh())
            state = out.sigmoid() * cell.tanh()
            states.append(state)
            cells.append(cell)
        return torch.stack(states, dim=1), torch.stack(cells, dim=1)


class PrivateLstm(nn.Module):
    """In the place of torch's LSTM, for training alone; the weights are those of torch's."""

    def __init__(self, lstm: nn.LSTM) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(lstm, number) for number in range(lstm.num_layers))
        self.dropout = nn.Dropout(lstm.dropout)

    def forward(self, embedded: Tensor, start: None = None) -> tuple[Tensor, None]:
        """Outputs (B, T, H), from a state of zeros; no state is kept."""
        outputs = embedded
        for number, layer in enumerate(self.layers):
            outputs = layer(self.dropout(outputs) if number else outputs)
        return outputs, None


class _Cells(torch.autograd.Function):
    """What gates and cells put out, and what that passes back to all gates.

    The gates of a token come from the state before it, which they are told of as of a constant: the
    way back through that state is here.
    """

    @staticmethod
    def forward(ctx: Any, gates: Tensor, cells: Tensor, recurrent: Tensor) -> Tensor:
        ctx.save_for_backward(gates, cells, recurrent)
        outputs: Tensor = gates.chunk(4, dim=2)[3].sigmoid() * cells.tanh()
        return outputs

    @staticmethod
    def backward(ctx: Any, *of_outputs: Tensor) -> tuple[Tensor, None, None]:
        gates, cells, recurrent = ctx.saved_tensors
        into, kept, new, out = map(_tokens_first, gates.chunk(4, dim=2))
        into, kept, new, out = into.sigmoid(), kept.sigmoid(), new.tanh(), out.sigmoid()
        cells = _tokens_first(cells)
        shown, before = cells.tanh(), torch.cat([torch.zeros_like(cells[:1]), cells[:-1]])
        # What a gate's input changes: in the cell, the last one in the state.
        slopes = torch.stack(
            [
                new * into * (1 - into),
                before * kept * (1 - kept),
                into * (1 - new**2),
                shown * out * (1 - out),
            ],
            dim=2,
        )
        through, found = out * (1 - shown**2), torch.empty_like(slopes)
        of_state = of_cell = torch.zeros_like(shown[0])
        arriving = _tokens_first(of_outputs[0])
        for t in range(len(found) - 1, -1, -1):
            of_state = of_state + arriving[t]
            of_cell = torch.addcmul(of_cell, of_state, through[t])
            torch.mul(slopes[t, :, :3], of_cell[:, None], out=found[t, :, :3])
            torch.mul(slopes[t, :, 3], of_state, out=found[t, :, 3])
            of_state = found[t].flatten(1) @ recurrent
            of_cell = of_cell * kept[t]
        return found.flatten(2).transpose(0, 1), None, None


def _tokens_first(tensor: Tensor) -> Tensor:
    return tensor.transpose(0, 1).contiguous()


def _linear(lstm: nn.LSTM, kind: str, number: int) -> nn.Linear:
    """From inputs ("ih") or states ("hh") to gates, with the LSTM's own weights."""
    weight = getattr(lstm, f"weight_{kind}_l{number}")
    made = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    made.weight, made.bias = weight, getattr(lstm, f"bias_{kind}_l{number}")
    return made
