"""The LSTM's own step: one small matrix product a layer, in blocks that stay in the cache.

The module's LSTM is made for long sequences; a search asks for single tokens behind many states.
Here the embedding times the first layer's input weights is a table, looked up instead of computed,
and the three sigmoid gates stand side by side. (PyTorch's gate order is i, f, g, o.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_LN2 = log(2)
_BLOCK_ROWS = 1024  # gates of so many rows fit into a core's cache


@dataclass(frozen=True)
class _States:
    """Hidden and cell state of each layer, shape (N, H) each."""

    hidden: tuple[Tensor, ...]
    cell: tuple[Tensor, ...]

    @property
    def rows(self) -> int:
        return len(self.hidden[0])

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in self.hidden + self.cell)

    def row_bytes(self, further: int, *, every: bool) -> float:
        row = self.nbytes / self.rows
        return row * further if every else row

    def select(self, index: Tensor) -> "_States":
        return _States(
            tuple(h.index_select(0, index) for h in self.hidden),
            tuple(c.index_select(0, index) for c in self.cell),
        )


class LstmSteps:
    """`Steps` of an `LstmForCausalLM`; its weights are read once, at the beginning."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.evaluated = 0
        lstm, head = model.lstm, model.lm_head
        with torch.inference_mode():
            order = _gates(lstm.hidden_size).to(model.device)
            weights = [
                [getattr(lstm, f"{name}_l{layer}")[order] for name in _WEIGHTS]
                for layer in range(lstm.num_layers)
            ]
            inputs, hidden, bias, more_bias = weights[0]
            self._table = model.embed_tokens.weight @ inputs.T + (bias + more_bias)  # (V, 4H)
            self._first = hidden.T.contiguous()  # (H, 4H)
            # Layers above read the layer below and themselves in one product.
            self._above = [
                (torch.cat([i, h], dim=1).T.contiguous(), b + c)  # (2H, 4H), (4H,)
                for i, h, b, c in weights[1:]
            ]
            self._head = (head.weight.T.contiguous(), head.bias.clone())  # (H, V), (V,)

    @torch.inference_mode()
    def start(
        self, ids: Sequence[int], columns: NDArray[np.int64]
    ) -> tuple[_States, NDArray[np.float64]]:
        self.evaluated += 1
        state = self._nothing_read()
        for token in ids:
            state = self._step(state, torch.tensor([token], device=self.model.device))
        return state, self._bits(state.hidden[-1], np.zeros_like(columns), columns)

    @torch.inference_mode()
    def advance(
        self,
        state: _States,
        parents: NDArray[np.int64],
        tokens: NDArray[np.int64],
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
    ) -> tuple[_States, NDArray[np.float64]]:
        self.evaluated += len(parents)
        at, read = (torch.from_numpy(a).to(self.model.device) for a in (parents, tokens))
        blocks = [
            self._step(state.select(p), t)
            for p, t in zip(
                torch.split(at, _BLOCK_ROWS), torch.split(read, _BLOCK_ROWS), strict=True
            )
        ]
        new = blocks[0] if len(blocks) == 1 else _joined(blocks)
        return new, self._bits(new.hidden[-1], rows, columns)

    def _nothing_read(self) -> _States:
        layers = 1 + len(self._above)
        zeros = tuple(self._first.new_zeros(1, len(self._first)) for _ in range(layers))
        return _States(zeros, zeros)

    def _step(self, state: _States, tokens: Tensor) -> _States:
        """Read one token a row."""
        gates = self._table.index_select(0, tokens).addmm_(state.hidden[0], self._first)
        hidden, cell = _cell(gates, state.cell[0])
        hiddens, cells = [hidden], [cell]
        for layer, (weight, bias) in enumerate(self._above, 1):
            both = torch.cat([hidden, state.hidden[layer]], dim=1)  # (N, 2H)
            hidden, cell = _cell(torch.addmm(bias, both, weight), state.cell[layer])
            hiddens.append(hidden)
            cells.append(cell)
        return _States(tuple(hiddens), tuple(cells))

    def _bits(
        self, hidden: Tensor, rows: NDArray[np.int64], columns: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Bits of the wanted pairs, shape (M,)."""
        weight, bias = self._head
        logits = torch.addmm(bias, hidden, weight)  # (N, V)
        logits = logits.float() if logits.dtype.itemsize < 4 else logits
        at, wanted = (torch.from_numpy(a).to(logits.device) for a in (rows, columns))
        nats = logits.logsumexp(-1)[at] - logits[at, wanted]
        return (nats.cpu().double() / _LN2).numpy()


_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def _gates(units: int) -> Tensor:
    """PyTorch's gate rows i, f, g, o in the order i, f, o, g."""
    i, f, g, o = torch.split(torch.arange(4 * units), units)
    return torch.cat([i, f, o, g])


def _cell(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """New hidden state and cell, (N, H) each, from gates (N, 4H), which are overwritten."""
    H = cell.shape[1]
    opened = gates[:, : 3 * H].sigmoid_()
    new = gates[:, 3 * H :].tanh_().mul_(opened[:, :H]).addcmul(opened[:, H : 2 * H], cell)
    return opened[:, 2 * H :] * new.tanh(), new


def _joined(blocks: Sequence[_States]) -> _States:
    layers = range(len(blocks[0].hidden))
    return _States(
        tuple(torch.cat([b.hidden[i] for b in blocks]) for i in layers),
        tuple(torch.cat([b.cell[i] for b in blocks]) for i in layers),
    )
