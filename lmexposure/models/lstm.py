"""The LSTM language model: a `transformers` causal LM with a recurrent state for a cache."""

from dataclasses import dataclass
from typing import Any

import torch
import transformers.initialization as init
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from lmexposure.errors import ModelError
from lmexposure.models.cpu import lstm_kernels


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
        """Next-token logits for every position, or for those asked.

        Args:
            input_ids: tokens, shape (B, T).
            attention_mask: 1 for a token, 0 for padding, shape (B, T) or (B, seen + T); padding
                may be on the right only, and changes neither logits nor state.
            position_ids: accepted and not needed: an LSTM has no positions.
            past_key_values: the state after earlier tokens, changed in place.
            labels: tokens to predict, shape (B, T), -100 where none; the loss is their mean in
                nats, shifted by one as everywhere in transformers.
            use_cache: return the state; by default only outside training.
            logits_to_keep: the last n positions (0: all), or a 1D tensor of positions.
            return_dict: False gives a tuple.

        Returns:
            CausalLMOutputWithPast with `logits` (B, kept, V), `past_key_values`, `loss`.

        Raises:
            ModelError: left padding, or a row without any token.
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
            with lstm_kernels(embedded):
                outputs, end = self.lstm(embedded, start)
            return outputs, end
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        with lstm_kernels(embedded):
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
