"""One step for every model: from prefix states and next tokens to next-token bits and new states.

Branch and bound, sampling and beam search are written on this alone, so they work for the LSTM and
for any Hugging Face model. States are values: advancing one leaves it as it was, so that a search
can return to it. A fast way is trusted only after a numerical probe on the model at hand; otherwise
each prefix is computed again from its first token, which is always right.

The LSTM has steps of its own, one small matrix product a layer: its module is made for long
sequences, and a search asks for single tokens behind many states.
"""

import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from lmexposure.core import Stepping
from lmexposure.models import FunctionLm, LstmForCausalLM
from lmexposure.scoring.cached_steps import CachedSteps, PathSteps
from lmexposure.scoring.runtime import (
    LN2,
    MODEL_FAILURES,
    EvaluationMode,
    Floats,
    Ints,
    Proven,
    evaluation_mode,
    failure_text,
    in_batches,
    rounding_bits,
    working,
)

# (state to advance, its rows); what a walk does: fork, repeat, drop, come back.
_FORKS = ((0, (0, 0, 0)), (1, (2, 0)), (2, (1, 1, 0)), (1, (0, 1)), (2, (0,)))
_LSTM_ROWS = 1024  # the gates of this many rows fit into a core's cache
_FEW_ROWS, _MANY_ROWS = 16, 256
_TRIAL_SECONDS = 0.3  # so long that what else the machine does is seen
_PROVEN = Proven()
_KEPT_LOGITS = 1 << 26  # 256 MB of those that were computed anew from the first token
_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class Steps(Protocol):
    """Prefixes that grow token by token, many at once.

    States of N prefixes have `rows` (N), `nbytes` (the memory that they hold), and
    `row_bytes(further, every=...)`: that of one row, or of every row on the way, so much further.
    """

    evaluated: int

    def start(self, ids: Sequence[int], columns: Ints) -> tuple[Any, Floats]:
        """Begin with one prefix."""

    def advance(
        self, state: Any, parents: Ints, tokens: Ints, rows: Ints, columns: Ints
    ) -> tuple[Any, Floats]:
        """Row n of the new state is row parents[n] of the old one followed by tokens[n]."""


class WholeSteps(Steps, Protocol):
    """Steps that also show the whole distribution behind each prefix."""

    def start_all(self, ids: Sequence[int]) -> tuple[Any, Tensor]:
        """As `start`, with the logits of every next token, shape (1, V), float32 at least."""

    def advance_all(self, state: Any, parents: Ints, tokens: Ints) -> tuple[Any, Tensor]:
        """As `advance`, with the logits of every next token behind each row, shape (N, V)."""


class _LogitSteps(WholeSteps):
    """Steps whose bits are read off the whole distributions."""

    @torch.inference_mode()
    def start(self, ids: Sequence[int], columns: Ints) -> tuple[Any, Floats]:
        """See `Steps.start`."""
        state, logits = self.start_all(ids)
        return state, pair_bits(logits, np.zeros_like(columns), columns)

    @torch.inference_mode()
    def advance(
        self, state: Any, parents: Ints, tokens: Ints, rows: Ints, columns: Ints
    ) -> tuple[Any, Floats]:
        """See `Steps.advance`."""
        grown, logits = self.advance_all(state, parents, tokens)
        return grown, pair_bits(logits, rows, columns)


def path_bits(steps: Steps, beginning: Sequence[int], paths: Sequence[Sequence[int]]) -> Floats:
    """Bits of paths of tokens behind a beginning, many paths at once, shape (n,)."""
    parts = in_batches(paths, len(paths), lambda some: _walked_together(steps, beginning, some))
    return np.concatenate(list(parts))


def _walked_together(
    steps: Steps, beginning: Sequence[int], paths: Sequence[Sequence[int]]
) -> Floats:
    first = np.array([path[0] for path in paths], dtype=np.int64)
    state, bits = steps.start(beginning, first)
    totals = np.array(bits, dtype=np.float64)
    rows = np.zeros(len(paths), dtype=np.int64)  # of the state that each path has come to
    for depth in range(1, max(map(len, paths))):
        going = np.array([i for i, path in enumerate(paths) if len(path) > depth])
        read, wanted = np.array([paths[i][depth - 1 : depth + 1] for i in going]).T
        # Paths that begin alike share their states.
        alike = np.column_stack([rows[going], read])
        begun, own = np.unique(alike, axis=0, return_inverse=True)
        rows[going] = own.reshape(-1)
        state, bits = steps.advance(state, begun[:, 0], begun[:, 1], rows[going], wanted)
        totals[going] += bits
    return totals


def pair_bits(logits: torch.Tensor, rows: Ints, columns: Ints) -> Floats:
    """Bits of token columns[m] behind row rows[m]; logits (N, V) -> float64 (M,)."""
    logits = working(logits)
    at = torch.from_numpy(rows).to(logits.device)
    wanted = logits[at, torch.from_numpy(columns).to(logits.device)]
    nats = logits.logsumexp(-1)[at] - wanted
    return (nats.cpu().double() / LN2).numpy()


@dataclass(frozen=True)
class _Prefixes:
    """All tokens of each prefix, shape (N, T)."""

    ids: torch.Tensor

    @property
    def rows(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        return int(self.ids.nbytes)

    def row_bytes(self, further: int, *, every: bool) -> float:
        row = self.ids.itemsize * (self.ids.shape[1] + further)
        return row * further if every else row


class RecomputedSteps(_LogitSteps):
    """Steps that compute the whole prefix again: slow, right for every causal model."""

    def __init__(self, model: Any, why: str = "") -> None:
        self.model, self.why = model, why
        self.evaluated = 0
        self._known: dict[bytes, Tensor] = {}  # logits behind prefixes that were asked
        self._evaluation = EvaluationMode(model)
        named = inspect.signature(model.forward).parameters
        wished = {"use_cache": False, "logits_to_keep": 1}
        self._options = {name: value for name, value in wished.items() if name in named}

    @property
    def slower(self) -> str:
        """What this costs, and why; as `slower` of texts that are scored."""
        return (
            "each step of a search computes its whole prefix again, which is slower and gives the "
            f"same bits ({self.why})"
        )

    def start_all(self, ids: Sequence[int]) -> tuple[_Prefixes, Tensor]:
        """See `WholeSteps.start_all`."""
        state = _Prefixes(torch.tensor([list(ids)], dtype=torch.long))
        return state, self._logits(state)

    def advance_all(
        self, state: _Prefixes, parents: Ints, tokens: Ints
    ) -> tuple[_Prefixes, Tensor]:
        """See `WholeSteps.advance_all`."""
        before = state.ids[torch.from_numpy(parents)]
        grown = _Prefixes(torch.cat([before, torch.from_numpy(tokens)[:, None]], dim=1))
        return grown, self._logits(grown)

    @torch.inference_mode()
    def _logits(self, state: _Prefixes) -> Tensor:
        self.evaluated += state.rows
        keys = [row.tobytes() for row in state.ids.numpy()]
        new = [row for row, key in enumerate(keys) if key not in self._known]
        if new:
            with self._evaluation():
                out = self.model(input_ids=state.ids[new].to(self.model.device), **self._options)
            logits = working(out.logits[:, -1]).contiguous()
            self._known |= zip((keys[row] for row in new), logits, strict=True)
        found = torch.stack([self._known[key] for key in keys])
        if len(self._known) * found.shape[1] > _KEPT_LOGITS:
            self._known.clear()
        return found


def next_token_steps(model: Any, probe: Sequence[int], *, copied_from: Any = None) -> WholeSteps:
    """The fastest steps that give the right numbers on this model.

    They are tried on `probe`, once for each model: forks from one prefix, rows repeated and
    dropped, a return to an earlier state, against recomputation.

    Args:
        model: a causal language model, left in the mode that it was in.
        probe: at least 2 token ids, such as an encoded canary.
        copied_from: a model that this is a copy of in another dtype; what was right on it is here.
    """
    if isinstance(model, FunctionLm):
        return RecomputedSteps(model, "a function keeps no states")
    why = ""
    # The fastest first.
    makers: list[Callable[[], WholeSteps]]
    makers = [partial(PathSteps, model, probe), partial(CachedSteps, model, probe)]
    if isinstance(model, LstmForCausalLM):
        makers = [partial(LstmSteps, model)]
    with evaluation_mode(model):
        for make in makers:
            try:
                steps = make()
                way = type(steps)
                known = any(
                    _PROVEN.covers(each, way, len(probe))
                    for each in (model, copied_from)
                    if each is not None
                )
                if known or _agree(steps, RecomputedSteps(model), list(probe), model):
                    _PROVEN.add(model, way, len(probe))
                    steps.evaluated = 0
                    return steps
                why = "its cache gives other bits"
            except MODEL_FAILURES as failure:
                why = f"its cache fails with {failure_text(failure)}"
    return RecomputedSteps(model, why)


def _agree(fast: Steps, slow: Steps, probe: list[int], model: Any) -> bool:
    """Walk both kinds of steps through the same forks and compare the bits of some tokens."""
    size = int(model.config.get_text_config().vocab_size)
    columns = np.unique(np.array([*probe, *range(0, size, max(1, size // 64))], dtype=np.int64))
    columns = columns[columns < size]  # what ends a source is no token
    begun = probe[: max(1, len(probe) - 3)]  # forks at the end cross any sliding window
    pairs = [(fast.start(begun, columns), slow.start(begun, columns))]
    for depth, (origin, parents) in enumerate(_FORKS):
        N, K = len(parents), len(columns)
        # Not the probe's own, which may be all the same and hide that rows were confused.
        tokens = columns[(depth + np.arange(N)) % K]
        wanted = (np.array(parents), tokens, np.repeat(np.arange(N), K), np.tile(columns, N))
        a, b = pairs[origin]
        pairs.append((fast.advance(a[0], *wanted), slow.advance(b[0], *wanted)))
    return all(np.allclose(a[1], b[1], rtol=0, atol=rounding_bits(model)) for a, b in pairs)


def step_pace(lm: Stepping[Steps], ids: Sequence[int]) -> float:
    """Seconds to read one token more behind one of many prefixes: the first half of a fill's."""
    ids = [*ids, *ids] if len(ids) < 2 else list(ids)
    steps = lm.steps(ids)
    column = np.array([ids[-1]], dtype=np.int64)
    state, _ = steps.start(ids[: len(ids) // 2], column)

    def seconds(rows: int) -> float:
        # What was asked before is remembered.
        anew = RecomputedSteps(steps.model) if isinstance(steps, RecomputedSteps) else steps
        which, begun = np.arange(rows), time.perf_counter()
        anew.advance(state, 0 * which, 0 * which + ids[-1], which, np.repeat(column, rows))
        return time.perf_counter() - begun

    seconds(_FEW_ROWS)  # a first call is slower than all others
    few = seconds(_FEW_ROWS)
    if few > _TRIAL_SECONDS:
        return few / _FEW_ROWS
    spent = [seconds(_MANY_ROWS)]
    while sum(spent) < _TRIAL_SECONDS:
        spent.append(seconds(_MANY_ROWS))
    return sum(spent) / len(spent) / _MANY_ROWS


@dataclass(frozen=True)
class _States:
    """Hidden and cell state of each layer, shape (N, H) each."""

    layers: tuple[tuple[Tensor, Tensor], ...]

    @property
    def rows(self) -> int:
        return len(self.layers[0][0])

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for layer in self.layers for t in layer)

    def row_bytes(self, further: int, *, every: bool) -> float:
        row = self.nbytes / self.rows
        return row * further if every else row

    def select(self, index: Tensor) -> "_States":
        return _States(
            tuple((h.index_select(0, index), c.index_select(0, index)) for h, c in self.layers)
        )


class LstmSteps(_LogitSteps):
    """`Steps` of an `LstmForCausalLM`; its weights are read once, at the beginning."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.evaluated = 0
        lstm, head = model.lstm, model.lm_head
        with torch.inference_mode():
            # PyTorch's gate rows i, f, g, o in the order i, f, o, g.
            i, f, g, o = torch.arange(4 * lstm.hidden_size, device=model.device).chunk(4)
            order = torch.cat([i, f, o, g])
            weights = [
                [getattr(lstm, f"{name}_l{layer}")[order] for name in _WEIGHTS]
                for layer in range(lstm.num_layers)
            ]
            inputs, hidden, bias, more_bias = weights[0]
            self._table = model.embed_tokens.weight @ inputs.T + (bias + more_bias)  # (V, 4H)
            self._first = hidden.T.contiguous()  # (H, 4H)
            # Layers above read the layer below and themselves in one product.
            self._above = [
                (torch.cat([below, own], dim=1).T.contiguous(), b + c)  # (2H, 4H), (4H,)
                for below, own, b, c in weights[1:]
            ]
            self._head = (head.weight.T.contiguous(), head.bias.clone())  # (H, V), (V,)

    @torch.inference_mode()
    def start_all(self, ids: Sequence[int]) -> tuple[_States, Tensor]:
        """See `WholeSteps.start_all`."""
        self.evaluated += 1
        zeros = self._first.new_zeros(1, len(self._first))
        state = _States(((zeros, zeros),) * (1 + len(self._above)))
        for token in ids:
            state = self._step(state, torch.tensor([token], device=self.model.device))
        return state, self._logits(state)

    @torch.inference_mode()
    def advance_all(self, state: _States, parents: Ints, tokens: Ints) -> tuple[_States, Tensor]:
        """See `WholeSteps.advance_all`."""
        self.evaluated += len(parents)
        at, read = (torch.from_numpy(a).to(self.model.device) for a in (parents, tokens))
        blocks = [
            self._step(state.select(p), t)
            for p, t in zip(torch.split(at, _LSTM_ROWS), torch.split(read, _LSTM_ROWS), strict=True)
        ]
        new = blocks[0] if len(blocks) == 1 else _joined(blocks)
        return new, self._logits(new)

    def _step(self, state: _States, tokens: Tensor) -> _States:
        """Read one token a row."""
        (hidden, cell), *above = state.layers
        gates = self._table.index_select(0, tokens).addmm_(hidden, self._first)
        layers = [_cell(gates, cell)]
        for (weight, bias), (hidden, cell) in zip(self._above, above, strict=True):
            both = torch.cat([layers[-1][0], hidden], dim=1)  # (N, 2H)
            layers.append(_cell(torch.addmm(bias, both, weight), cell))
        return _States(tuple(layers))

    def _logits(self, state: _States) -> Tensor:
        """Of every next token, shape (N, V)."""
        weight, bias = self._head
        return torch.addmm(bias, state.layers[-1][0], weight)


def _cell(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """New hidden state and cell, (N, H) each, from gates (N, 4H), which are overwritten."""
    H = cell.shape[1]
    opened = gates[:, : 3 * H].sigmoid_()
    new = gates[:, 3 * H :].tanh_().mul_(opened[:, :H]).addcmul(opened[:, H : 2 * H], cell)
    return opened[:, 2 * H :] * new.tanh(), new


def _joined(blocks: Sequence[_States]) -> _States:
    of_layers = zip(*(block.layers for block in blocks), strict=True)
    both = (map(torch.cat, zip(*parts, strict=True)) for parts in of_layers)
    return _States(tuple((hidden, cell) for hidden, cell in both))
