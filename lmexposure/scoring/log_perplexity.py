"""How surprised a model is by a text: log-perplexity in bits, summed over the text's tokens.

log-perplexity(x) = - sum_i log2 P(x_i | x_1 .. x_i-1), Carlini et al. 2019, Definition 1.
Lower = less surprised = more memorised. Never a mean per token.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lmexposure._validate import integer
from lmexposure.errors import InputError, NumericalError
from lmexposure.models.encoding import Encoded, context_window, encode_in_context
from lmexposure.scoring.batching import in_batches
from lmexposure.scoring.forward import (
    Forward,
    PlainForward,
    PrefixForward,
    refuse_training_mode,
)
from lmexposure.scoring.prefix import shared_tokens

__all__ = ["TokenScores", "log_perplexity", "score_encoded"]

_LN2 = log(2)
_BATCH_TOKENS = 1 << 14  # keeps small models busy
_BATCH_LOGITS = 1 << 26  # 256 MB of float32 logits: keeps large vocabularies within memory
# Fewer texts, or a shorter prefix, do not repay the probe.
_TEXTS_WORTH_A_PREFIX = 16
_TOKENS_WORTH_A_PREFIX = 4
_PROBE_BITS = 1e-3  # what the shared prefix may change in a token's bits


@dataclass(frozen=True, kw_only=True)
class TokenScores:
    """Bits of every scored token of some texts, in input order.

    Attributes:
        bits: for each text a float64 array, one number per token from `scored_from` on.
        encoded: the texts as tokens, in context.
    """

    bits: tuple[NDArray[np.float64], ...]
    encoded: tuple[Encoded, ...]

    @property
    def totals(self) -> NDArray[np.float64]:
        """Log-perplexity of each text in bits, shape (n,). Lower = more memorised."""
        return np.array([b.sum() for b in self.bits], dtype=np.float64)

    @property
    def tokens(self) -> NDArray[np.int64]:
        """How many tokens of each text were scored, shape (n,)."""
        return np.array([b.size for b in self.bits], dtype=np.int64)

    def bits_from(self, position: int) -> NDArray[np.float64]:
        """Bits of each text from token `position` of its encoding on, shape (n,).

        Tokens before `scored_from` have no bits; see `Beginning.scored`.
        """
        return np.array(
            [
                b[max(0, position - e.scored_from) :].sum()
                for b, e in zip(self.bits, self.encoded, strict=True)
            ],
            dtype=np.float64,
        )


def log_perplexity(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    *,
    context: str | None = None,
    batch_size: int | None = None,
) -> NDArray[np.float64]:
    """Log-perplexity of each text in bits. Lower = less surprised = more memorised.

    Each text is encoded as a whole behind its left context; the context's tokens are not counted,
    a token that straddles the two is. The result does not depend on the batch size beyond 1e-3
    bits in float32: log-softmax in float32, sums in float64.

    Args:
        model: a `transformers` causal language model, in evaluation mode.
        tokenizer: its tokenizer.
        texts: n texts.
        context: what stands to the left of each text, usually the document separator of the
            manifest. None: the model's BOS token, else its EOS token, else the first token of
            each text goes unscored.
        batch_size: texts a forward pass; None chooses one. Halved when memory runs out.

    Returns:
        float64 array of shape (n,), in input order.

    Raises:
        InputError: no texts, or a bare string.
        ModelError: a text holds an unknown token, or is longer than the context window; the model
            is in training mode.
        NumericalError: the model gave NaN or infinite logits.

    Source: Carlini et al. 2019, "The Secret Sharer", Definition 1.
    """
    if isinstance(texts, str):
        raise InputError("texts is one string; give a list of texts, [text] for a single one")
    window = context_window(model.config)
    encoded = encode_in_context(tokenizer, texts, context=context, max_length=window)
    return score_encoded(model, encoded, batch_size=batch_size).totals


@torch.inference_mode()
def score_encoded(
    model: Any,
    encoded: Sequence[Encoded],
    *,
    batch_size: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> TokenScores:
    """Bits of every scored token of texts that are encoded already.

    Args:
        model: a causal language model in evaluation mode.
        encoded: n texts as `encode_in_context` gives them.
        batch_size: texts a forward pass; None chooses one. Halved when memory runs out.
        progress: called with (texts done, texts in all) after each batch.

    Raises:
        InputError: no texts.
        ModelError: the model is in training mode.
        NumericalError: the model gave NaN or infinite logits; names the text by its number.
    """
    if not encoded:
        raise InputError("no texts to score; give at least one")
    refuse_training_mode(model)
    forward = _forward(model, encoded)
    size = _batch_size(model, encoded)
    size = size if batch_size is None else integer("batch_size", batch_size, low=1)
    # Texts of one length share a batch, so that hardly anything is padded.
    order = sorted(range(len(encoded)), key=lambda i: -len(encoded[i].ids))
    bits: list[NDArray[np.float64]] = [np.empty(0)] * len(encoded)
    done = 0

    def work(rows: Sequence[int]) -> list[tuple[int, NDArray[np.float64]]]:
        return list(zip(rows, _score_batch(forward, [encoded[i] for i in rows]), strict=True))

    for scored in in_batches(order, size, work):
        for i, token_bits in scored:
            if not np.isfinite(token_bits).all():
                raise NumericalError(
                    f"the model gave NaN or infinite log-probabilities for text {i} "
                    f"of {len(encoded)}; its weights or dtype are broken: check the checkpoint, "
                    "or score in float32"
                )
            bits[i] = token_bits
        done += len(scored)
        if progress is not None:
            progress(done, len(encoded))
    return TokenScores(bits=tuple(bits), encoded=tuple(encoded))


def _batch_size(model: Any, encoded: Sequence[Encoded]) -> int:
    """A batch that keeps the model busy without drowning in logits."""
    longest = max(len(e.ids) for e in encoded)
    by_logits = _BATCH_LOGITS // (longest * int(model.config.get_text_config().vocab_size))
    return max(1, min(_BATCH_TOKENS // longest, by_logits))


def _forward(model: Any, encoded: Sequence[Encoded]) -> Forward:
    """The shared prefix once where it is worth it and right, else every text from its beginning."""
    plain = PlainForward(model)
    prefix = shared_tokens([one.ids for one in encoded])
    if len(encoded) < _TEXTS_WORTH_A_PREFIX or len(prefix) < _TOKENS_WORTH_A_PREFIX:
        return plain
    by_length = sorted(encoded, key=lambda one: len(one.ids))
    probe = [by_length[0], by_length[len(by_length) // 2], by_length[-1]]
    try:
        quick = PrefixForward(model, prefix)
        pairs = zip(_score_batch(quick, probe), _score_batch(plain, probe), strict=True)
        right = all(np.allclose(a, b, rtol=0, atol=_PROBE_BITS) for a, b in pairs)
    except (RuntimeError, AttributeError, TypeError, NotImplementedError, ValueError, IndexError):
        return plain  # a cache that cannot be forked says so in many ways
    return quick if right else plain


def _score_batch(forward: Forward, batch: Sequence[Encoded]) -> list[NDArray[np.float64]]:
    """Token bits of one batch."""
    rows = [one.ids for one in batch]
    first = min(one.scored_from for one in batch)
    logits = forward(rows, first)  # (B, longest - first, V)
    longest = max(map(len, rows))
    target = torch.tensor([row[first:] + [0] * (longest - len(row)) for row in rows])
    target = target.to(logits.device)[:, :, None]  # (B, longest - first, 1)
    nats = logits.logsumexp(-1) - logits.gather(-1, target).squeeze(-1)
    token_bits = (nats.double() / _LN2).cpu().numpy()
    return [
        token_bits[row, one.scored_from - first : len(one.ids) - first].copy()
        for row, one in enumerate(batch)
    ]
