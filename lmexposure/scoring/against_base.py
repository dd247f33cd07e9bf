"""The same texts under a fine-tuned model and the model it came from, each with its tokenizer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure.errors import InputError, ModelError
from lmexposure.models import (
    context_window,
    encode_in_context,
)
from lmexposure.scoring.log_perplexity import TokenScores, score_encoded


@dataclass(frozen=True, kw_only=True, eq=False)
class AgainstBase:
    """Log-perplexities of n texts in bits under two models, shape (n,); lower = more memorised.

    `statistics.membership.scores.reference_difference` makes a score of the two.
    """

    bits: NDArray[np.float64]
    base_bits: NDArray[np.float64]


def bits_against_base(
    model: Any,
    tokenizer: Any,
    base: Any,
    base_tokenizer: Any,
    texts: Sequence[str],
    *,
    context: str | None = None,
    batch_size: int | None = None,
) -> AgainstBase:
    """Log-perplexity of each text under a model and under one that did not train on the texts.

    Sums over a whole text can be compared whatever the tokens are; means per token could not.

    Args:
        model: the audited model, a causal language model; left in the mode that it was in.
        tokenizer: its tokenizer.
        base: the reference model, such as the one before fine-tuning, likewise.
        base_tokenizer: its tokenizer, which may be another.
        texts: n texts.
        context: what stands to the left of each text, for both.
        batch_size: texts a forward pass; None chooses one. Halved when memory runs out.

    Raises:
        InputError: no texts, or a bare string.
        ModelError: either model or tokenizer cannot score a text, as in `log_perplexity`; or one
            of them leaves the first token of a text unscored, so that the two sums would not be
            of the same text.
        NumericalError: either model gave NaN or infinite logits.

    Source: Watson et al. 2021, On the importance of difficulty calibration in membership
    inference attacks.
    """
    if isinstance(texts, str):
        raise InputError("texts is one string; give a list of texts, [text] for a single one")
    scores = [
        _scores(one, its, texts, context, batch_size)
        for one, its in ((model, tokenizer), (base, base_tokenizer))
    ]
    unscored = [any(e.first_unscored for e in one.encoded) for one in scores]
    # With one tokenizer the same token is missing on both sides.
    same = [e.ids for e in scores[0].encoded] == [e.ids for e in scores[1].encoded]
    if any(unscored) and not same:
        raise ModelError(
            "a tokenizer without BOS and EOS leaves each text's first token unscored, so that the "
            "two models' bits are not of the same text; give a context, such as a line break"
        )
    return AgainstBase(bits=scores[0].totals, base_bits=scores[1].totals)


def _scores(
    model: Any, tokenizer: Any, texts: Sequence[str], context: str | None, batch_size: int | None
) -> TokenScores:
    window = context_window(model.config)
    encoded = encode_in_context(tokenizer, texts, context=context, max_length=window)
    return score_encoded(model, encoded, batch_size=batch_size)
