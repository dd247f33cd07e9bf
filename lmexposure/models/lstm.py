"""The LSTM language model: a `transformers` causal LM with a recurrent state for a cache."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import transformers.initialization as init
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from lmexposure.errors import ModelError
from lmexposure.models.weights import holding


class LstmConfig(PretrainedConfig):  # type: ignore[misc]
    """Sizes of the LSTM; the defaults are those of Carlini et al. 2019, section 2."""

    model_type = "lmexposure_lstm"
    keys_to_ignore_at_inference = ("past_key_values",)

    vocab_size: int = 256
    """Number of tokens V."""
    num_hidden_layers: int = 2
    """Stacked LSTM layers L."""
    hidden_size: int = 200
    """Units H of each layer."""
    embedding_size: int = 200
    """Width E of the token embedding."""
    dropout: float = 0.0
    """Share of units dropped between layers while training, in [0, 1)."""
    use_cache: bool = True
    """Whether a pass gives its state, so that the next reads only what is new."""
    tie_word_embeddings: bool = False
    """Of transformers' own settings; the LSTM ties nothing."""


@dataclass
class LstmState:
    """What the LSTM remembers of the tokens read so far."""

    hidden: Tensor  # output of each layer after the last token, shape (L, B, H)
    cell: Tensor  # cell of each layer after the last token, shape (L, B, H)
    seen: int = 0  # number of tokens read, padding included

    def reorder_cache(self, index: Tensor) -> None:
        """Make row i the former row index[i]; `index`, shape (B',), may repeat and drop rows."""
        index = index.to(self.hidden.device)
        self.hidden = self.hidden.index_select(1, index)
        self.cell = self.cell.index_select(1, index)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Number of tokens read so far, the same for every layer."""
        return self.seen


class LstmForCausalLM(PreTrainedModel):  # type: ignore[misc]
    """Embedding, stacked LSTM, linear head; next-token logits over V tokens.

    Args:
        config: its sizes.
    """

    config_class = LstmConfig
    base_model_prefix = "model"
    _no_split_modules = ("LSTM",)
    _supports_sdpa = True
    accepts_loss_kwargs = False

    def __init__(self, config: LstmConfig) -> None:
        super().__init__(config)
        layers = config.num_hidden_layers
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)
        self.lstm = nn.LSTM(
            config.embedding_size,
            config.hidden_size,
            num_layers=layers,
            batch_first=True,
            dropout=config.dropout if layers > 1 else 0.0,
        )
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Draw weights as a bare torch model does; transformers would draw its own for an LSTM."""
        bound = float(self.config.hidden_size) ** -0.5
        if isinstance(module, nn.LSTM | nn.Linear):
            for parameter in module.parameters(recurse=False):
                init.uniform_(parameter, -bound, bound)
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight)

    def get_input_embeddings(self) -> nn.Module:
        """The token embedding, weight of shape (V, E)."""
        return self.embed_tokens

    def get_output_embeddings(self) -> nn.Module:
        """The linear head, weight of shape (V, H)."""
        return self.lm_head

    def forward(  # noqa: PLR0913  the arguments that transformers passes
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: LstmState | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        return_dict: bool | None = None,
    ) -> Any:
        """Next-token logits, (B, kept, V); padding may be on the right only, and changes nothing.

        The state is changed in place, and returned outside training alone unless asked for.
        """
        keep_state = self._keeps_state(use_cache, past_key_values)
        lengths = _right_padded_lengths(attention_mask, input_ids)
        embedded = self.embed_tokens(input_ids)  # (B, T, E)
        start = (past_key_values.hidden, past_key_values.cell) if past_key_values else None
        outputs, end = self._read(embedded, start, lengths if keep_state else None)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(outputs[:, kept])
        state = _advance(past_key_values, end, input_ids.shape[1]) if keep_state else None
        loss = None if labels is None else self._loss(logits, labels)
        result = CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=state)
        return result.to_tuple() if return_dict is False else result

    def _keeps_state(self, use_cache: bool | None, state: LstmState | None) -> bool:
        if use_cache is not None:
            return use_cache
        return state is not None or (bool(self.config.use_cache) and not self.training)

    def _read(
        self, embedded: Tensor, start: tuple[Tensor, Tensor] | None, lengths: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Outputs (B, T, H) and the state after the last token of each row."""
        if lengths is None:
            with _kernels(embedded):
                outputs, end = self.lstm(embedded, start)
            return outputs, end
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        with _kernels(embedded):
            outputs, end = self.lstm(packed, start)
        padded, _ = pad_packed_sequence(outputs, batch_first=True, total_length=embedded.shape[1])
        return padded, end

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        flat = logits[:, :-1].float().flatten(0, 1)
        return nn.functional.cross_entropy(flat, labels[:, 1:].flatten(), ignore_index=-100)


def _right_padded_lengths(mask: Tensor | None, input_ids: Tensor) -> Tensor | None:
    """Tokens in each row, shape (B,) on the CPU; None where nothing is padded."""
    if mask is None:
        return None
    columns = mask[:, -input_ids.shape[1] :].to(torch.bool)
    if bool(columns.all()):
        return None
    if bool((columns[:, 1:] & ~columns[:, :-1]).any()):
        raise ModelError(
            "attention_mask has a token right of padding: the LSTM reads rows that are padded on "
            "the right only; set tokenizer.padding_side='right'"
        )
    lengths = columns.sum(dim=1).cpu()
    if bool((lengths == 0).any()):
        row = int((lengths == 0).nonzero()[0])
        raise ModelError(f"attention_mask row {row} has no token at all; leave that row out")
    return lengths


def _advance(state: LstmState | None, end: tuple[Tensor, Tensor], tokens: int) -> LstmState:
    if state is None:
        return LstmState(hidden=end[0], cell=end[1], seen=tokens)
    state.hidden, state.cell = end
    state.seen += tokens
    return state


AutoConfig.register(LstmConfig.model_type, LstmConfig, exist_ok=True)
AutoModelForCausalLM.register(LstmConfig, LstmForCausalLM, exist_ok=True)


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
    """An LSTM whose gradients can be had of each document; the weights are those of torch's.

    Opacus' own LSTM adds up a gradient of each document at each token. Here the states are found
    first, without gradient; then the gates of all tokens are two linear layers read at once, of
    which Opacus has the gradients of each document by one product, and only what gates pass back to
    the gates before them goes token by token.
    """

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


@contextmanager
def _kernels(inputs: Tensor) -> Iterator[None]:
    """Let an LSTM read `inputs` without oneDNN where it has no kernel for autocast's precision."""
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    if dtype is None or inputs.device.type != "cpu" or _onednn_casts_lstm(dtype):
        yield
        return
    with holding("enabled", False, [torch.backends.mkldnn]):
        yield


@cache
def _onednn_casts_lstm(dtype: torch.dtype) -> bool:
    """Found by trying: without AVX-512 it is handed the LSTM all the same, and refuses it."""
    with torch.random.fork_rng(devices=[]):
        tried = nn.LSTM(1, 1)
    try:
        with torch.autocast("cpu", dtype=dtype):
            tried(torch.zeros(1, 1, 1))
    except RuntimeError:
        return False
    return True
