"""From hidden states to the bits of the tokens that are asked for, the vocabulary in blocks.

Most of a model's logits for many positions are numbers that are not asked for: with 50,000 tokens,
8,000 positions take 1.6 GB. The last hidden states are taken instead, and the head is applied to a
block of the vocabulary at a time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lmexposure.scoring.runtime import LN2, Floats, rounding_bits

_BLOCK = {"cpu": 1 << 22, "cuda": 1 << 27}  # logits held at once; on a CPU they stay in its cache
_ROWS = 1 << 13


class LmHead:
    """Reads a model in two halves, where a probe shows them right: hidden states, then bits."""

    def __init__(self, model: Any, probe: list[int]) -> None:
        self.model = model
        self.split = False  # "hidden states" are the logits themselves, which is always right
        config = model.config.get_text_config()
        self._cap = getattr(config, "final_logit_softcapping", None)
        self._scale = float(getattr(config, "logit_scale", None) or 1.0)
        self._scale /= float(getattr(config, "logits_scaling", None) or 1.0)
        head = model.get_output_embeddings()
        if type(head) is nn.Linear:  # a quantised or adapted head computes something else
            self._head = head
            self.split = self._is_right(probe)

    @torch.inference_mode()
    def hidden(self, **inputs: Any) -> tuple[Tensor, Any]:
        """Run the model; the hidden states under its head, and its output (for the cache)."""
        if not self.split:
            output = self.model(**inputs)
            return output.logits, output
        with _headless(self._head) as seen:
            output = self.model(**inputs)
        return seen.pop(), output

    @torch.inference_mode()
    def bits(self, hidden: Tensor, rows: Tensor, columns: Tensor) -> Floats:
        """Bits of token `columns[m]` after position `rows[m]`. Lower = more expected."""
        rows, columns = rows.to(hidden.device), columns.to(hidden.device)
        if len(hidden) <= _ROWS:
            return self._bits(hidden, rows, columns)
        found = np.empty(len(rows), dtype=np.float64)
        for first in range(0, len(hidden), _ROWS):
            inside = ((rows >= first) & (rows < first + _ROWS)).nonzero().squeeze(1)
            part = hidden[first : first + _ROWS]
            found[inside.cpu().numpy()] = self._bits(part, rows[inside] - first, columns[inside])
        return found

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Of every token, shape (N, V), in float32 at least."""
        return torch.cat([logits for _, logits in self._blocks(hidden)], dim=1)

    def sequence_bits(self, hidden: Tensor, ids: list[int]) -> Floats:
        """Bits of each token of a sequence, shape (T,); NaN for the first, which none predicts."""
        if len(ids) < 2:
            return np.full(len(ids), np.nan)
        bits = self.bits(hidden, torch.arange(len(ids) - 1), torch.tensor(ids[1:]))
        return np.concatenate([[np.nan], bits])

    def _bits(self, hidden: Tensor, rows: Tensor, columns: Tensor) -> Floats:
        """Running log of the sum of exponentials over the vocabulary's blocks."""
        total: Tensor | None = None  # (N,)
        dtype = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        wanted = torch.empty(len(rows), dtype=dtype, device=hidden.device)
        order = columns.argsort()
        ordered = columns[order].contiguous()
        for first, logits in self._blocks(hidden):  # (N, block)
            ends = torch.tensor([first, first + logits.shape[1]], device=hidden.device)
            low, high = torch.searchsorted(ordered, ends).tolist()
            inside = order[low:high]
            wanted[inside] = logits[rows[inside], columns[inside] - first]
            part = _log_sum_exp_(logits) if self.split else logits.logsumexp(-1)
            total = part if total is None else torch.logaddexp(total, part)
        assert total is not None
        nats: Tensor = total[rows].cpu().double() - wanted.cpu().double()
        return (nats / LN2).numpy()

    def _blocks(self, hidden: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Logits of a block of the vocabulary, with the number of its first token."""
        if not self.split:
            yield 0, working(hidden)
            return
        weight, bias = self._head.weight, self._head.bias
        budget = _BLOCK.get(hidden.device.type, _BLOCK["cuda"])
        size = max(256, budget // max(1, len(hidden)))
        for first in range(0, len(weight), size):
            part = slice(first, first + size)
            logits = working(
                nn.functional.linear(hidden, weight[part], None if bias is None else bias[part])
            )
            # What some models do behind their head; the probe finds what is missing here.
            if self._scale != 1.0:
                logits = logits * self._scale
            yield first, torch.tanh(logits / self._cap) * self._cap if self._cap else logits

    @torch.inference_mode()
    def _is_right(self, probe: list[int]) -> bool:
        """Compare a spread of tokens' bits with the model's own logits."""
        ids = torch.tensor([probe], device=self.model.device)
        try:
            whole = working(self.model(input_ids=ids).logits[0])  # (T, V)
            with _headless(self._head) as seen:
                self.model(input_ids=ids)
            self.split = True
            columns = torch.arange(0, whole.shape[1], max(1, whole.shape[1] // 997))
            pairs = torch.cartesian_prod(torch.arange(len(probe)), columns).to(ids.device)
            found = self.bits(seen.pop()[0], pairs[:, 0], pairs[:, 1])
        except (RuntimeError, AttributeError, TypeError, ValueError, IndexError):
            return False
        expected = -torch.log_softmax(whole, dim=-1)[pairs[:, 0], pairs[:, 1]].double() / LN2
        allowed = rounding_bits(self.model)
        return bool(np.allclose(found, expected.cpu().numpy(), rtol=0, atol=allowed))


def working(logits: Tensor) -> Tensor:
    """In float32 at least."""
    return logits.float() if logits.dtype.itemsize < 4 else logits


def _log_sum_exp_(logits: Tensor) -> Tensor:
    """Over the last axis, in place: the logits are no longer needed, and fresh memory is dear."""
    top = logits.amax(-1, keepdim=True)
    top.masked_fill_(top.isinf(), 0)
    return logits.sub_(top).exp_().sum(-1).log_().add_(top.squeeze(-1))


@contextmanager
def _headless(head: nn.Module) -> Iterator[list[Tensor]]:
    """Let the head pass its input through, and keep it: what is done behind it cannot blur it."""
    seen: list[Tensor] = []

    def keep(hidden: Tensor) -> Tensor:
        seen.append(hidden)
        return hidden

    # An attribute of the instance hides the method of the class, and goes away without a trace;
    # accelerate may have put one there.
    before = vars(head).get("forward")
    head.forward = keep
    try:
        yield seen
    finally:
        del head.__dict__["forward"]
        if before is not None:
            head.forward = before
