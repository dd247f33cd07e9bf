"""An encoder-decoder as the causal language model that its decoder is behind a source.

A row is the tokens of the source, `SOURCE_ENDS`, and all that the decoder reads, from its start
token on. What the decoder says behind each of its tokens is what the row predicts there; of the
tokens of the source nothing is predicted.
"""

import copy
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import EncoderDecoderCache, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutputWithPast

from lmexposure.errors import ModelError
from lmexposure.models.encoding import SOURCE_ENDS, reads_source


class BehindSource(PreTrainedModel):  # type: ignore[misc]  # transformers is not typed
    """An encoder-decoder that reads rows; a row without a source has the empty one.

    A cache is of one source, which all rows behind it share.
    """

    config_class: ClassVar[type] = PretrainedConfig
    # No mask lets texts of several branches lie side by side in a row, as with recurrent states.
    _is_stateful = True
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = True  # as the model itself does

    def __init__(self, inner: Any, empty: int) -> None:
        super().__init__(copy.deepcopy(inner.config))
        self.config, self.training = inner.config, inner.training
        self.inner, self._empty = inner, empty
        # What is saved is the model itself, which transformers loads again.
        self.save_pretrained = inner.save_pretrained
        self.get_input_embeddings = inner.get_input_embeddings
        self.get_output_embeddings = inner.get_output_embeddings
        self.resize_token_embeddings = inner.resize_token_embeddings

    def forward(
        self,
        input_ids: Tensor,
        past_key_values: Any = None,
        use_cache: bool = False,
        logits_to_keep: int = 0,
    ) -> CausalLMOutputWithPast:
        """Logits of the last places of each row, of all where 0 are asked for.

        Behind a cache the rows are what the decoder reads next.
        """
        B, T = input_ids.shape
        every = torch.arange(T, device=input_ids.device)
        ends = (input_ids == SOURCE_ENDS).long()
        # Of each row, where the tokens of its decoder begin, shape (B, 1).
        begins = torch.where(ends.any(1), ends.argmax(1) + 1, 0)[:, None]
        if past_key_values is None:
            hidden, mask = self._encoded(input_ids, begins)
        else:
            hidden, mask = past_key_values.source.expand(B, -1, -1), None
            past_key_values = _shared(past_key_values, B)
        D = max(1, T - int(begins.min()))
        own = begins + every[:D]  # (B, D); behind the end of a row comes padding
        read = input_ids.gather(1, own.clamp(max=T - 1)).masked_fill(own >= T, 0)
        out = self.inner(
            encoder_outputs=BaseModelOutput(last_hidden_state=hidden),
            attention_mask=mask,
            decoder_input_ids=read,
            past_key_values=past_key_values,
            use_cache=use_cache,
        )
        # Of each kept place of the row, which of the decoder's it is; those of the source have any.
        places = (every[-logits_to_keep:] - begins).clamp(min=0)
        logits = out.logits[torch.arange(B, device=places.device)[:, None], places]
        if not use_cache:
            return CausalLMOutputWithPast(logits=logits)
        cache = out.past_key_values.self_attention_cache
        cache.source, cache.cross = hidden[:1], out.past_key_values.cross_attention_cache
        return CausalLMOutputWithPast(logits=logits, past_key_values=cache)

    def _encoded(self, rows: Tensor, begins: Tensor) -> tuple[Tensor, Tensor]:
        """What the encoder makes of each row's source, (B, S, H), and which of it are tokens."""
        lengths = (begins - 1).clamp(min=1)
        S = int(lengths.max())
        mask = torch.arange(S, device=rows.device) < lengths
        source = rows[:, :S].masked_fill(~mask | (begins == 0), self._empty)
        both, same = torch.cat([source, mask.long()], dim=1), torch.arange(len(rows))
        if not self.training:  # there each row drops units of its own
            both, same = torch.unique(both, dim=0, return_inverse=True)
        read = self.inner.get_encoder()(input_ids=both[:, :S], attention_mask=both[:, S:])
        return read.last_hidden_state[same], mask.long()


def _shared(cache: Any, rows: int) -> EncoderDecoderCache:
    """A cache of the decoder with the keys and values of its one source, for each row."""
    cross = copy.copy(cache.cross)
    cross.layers = [copy.copy(layer) for layer in cross.layers]
    for layer in cross.layers:
        layer.keys = layer.keys[:1].expand(rows, -1, -1, -1)
        layer.values = layer.values[:1].expand(rows, -1, -1, -1)
    return EncoderDecoderCache(cache, cross)


def as_causal(name: str, model: Any, tokenizer: Any) -> tuple[Any, Any]:
    """A model and its tokenizer; of an encoder-decoder, such that they read rows of a source."""
    if not model.config.is_encoder_decoder or isinstance(model, BehindSource):
        return model, tokenizer
    tokenizer = reads_source(name, tokenizer, model.config)
    behind = BehindSource(model, tokenizer.eos_token_id)
    try:
        with torch.no_grad():
            behind(torch.tensor([[0, SOURCE_ENDS, 0]], device=model.device))
    except Exception as failure:  # its own code may raise anything
        raise ModelError(
            f"model {name!r} ({type(model).__name__}) is an encoder-decoder that does not read "
            f"tokens as T5 and BART do ({type(failure).__name__}); use one that does"
        ) from failure
    return behind, tokenizer
