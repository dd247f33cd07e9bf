"""How surprised a model is by a text: log-perplexity in bits, summed over the text's tokens.

log-perplexity(x) = - sum_i log2 P(x_i | x_1 .. x_i-1), Carlini et al. 2019, Definition 1.
Lower = less surprised = more memorised. Never a mean per token.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lmexposure._validate import integer
from lmexposure.core import Encoded, TokenScores
from lmexposure.errors import InputError
from lmexposure.models import AnyContext, context_window, encode_in_context
from lmexposure.scoring.forward import choose_forward, refuse_nonfinite
from lmexposure.scoring.runtime import evaluation_mode, in_batches, share_spans


def log_perplexity(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    *,
    context: AnyContext = None,
    batch_size: int | None = None,
) -> NDArray[np.float64]:
    """Log-perplexity of each text in bits. Lower = less surprised = more memorised.

    Each text is encoded as a whole behind its left context; the context's tokens are not counted,
    a token that straddles the two is. The result does not depend on the batch size beyond 1e-3
    bits in float32: log-softmax in float32, sums in float64.

    Args:
        model: a `transformers` causal language model; scored in evaluation mode, and left in the
            mode that it was in.
        tokenizer: its tokenizer.
        texts: n texts.
        context: the text to the left of each text, usually the document separator of the
            manifest. None: the model's BOS token, else its EOS token, else the first token of
            each text goes unscored. A `Context`: the whole row around each text, of which the
            tokens that hold a character of the text and carry loss are scored.
        batch_size: texts a forward pass; None chooses one. Halved when memory runs out.

    Returns:
        float64 array of shape (n,), in input order.

    Raises:
        InputError: no texts, or a bare string.
        ModelError: a text holds an unknown token, or is longer than the context window.
        NumericalError: the model gave NaN or infinite logits.

    Source: Carlini et al. 2019, "The Secret Sharer", Definition 1.
    """
    encoded = encode_texts(model, tokenizer, texts, context)
    return score_encoded(model, encoded, batch_size=batch_size).totals


def encode_texts(
    model: Any, tokenizer: Any, texts: Sequence[str], context: AnyContext
) -> list[Encoded]:
    """Encode texts behind their left context or in their rows, within the model's window."""
    if isinstance(texts, str):
        raise InputError("texts is one string; give a list of texts, [text] for a single one")
    window = context_window(model.config)
    return encode_in_context(tokenizer, texts, context=context, max_length=window)


@torch.inference_mode()
def score_encoded(
    model: Any,
    encoded: Sequence[Encoded],
    *,
    batch_size: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> TokenScores:
    """Bits of every scored token of texts that are encoded already.

    What several texts begin with is computed once. Where torch.distributed is up, the processes
    share the texts; all must call this alike, and all get everything.
    """
    if not encoded:
        raise InputError("no texts to score; give at least one")

    def work(span: range) -> list[NDArray[np.float64]]:
        scored: list[NDArray[np.float64]] = []
        for some in in_batches(span, size, forward):
            for token_bits in some:
                refuse_nonfinite(token_bits, forward.order[span[len(scored)]], n)
                scored.append(token_bits)
            if progress is not None:
                progress(len(scored), len(span))
        return scored

    n = len(encoded)
    bits: list[NDArray[np.float64]] = [np.empty(0)] * n
    with evaluation_mode(model):
        forward = choose_forward(model, encoded)
        size = forward.size if batch_size is None else integer("batch_size", batch_size, low=1)
        for number, token_bits in zip(forward.order, share_spans(forward.costs, work), strict=True):
            bits[number] = token_bits
    return TokenScores(bits=tuple(bits), encoded=tuple(encoded), slower=forward.slower)
