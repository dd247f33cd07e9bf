import math
from typing import Any

import numpy as np
import pytest
import torch
from tiny import byte_level_bpe, characters, model_with_tokenizer, one_by_one

from lmexposure.errors import InputError, ModelError, NumericalError
from lmexposure.models import LstmForCausalLM, encode_in_context
from lmexposure.scoring import log_perplexity, score_encoded

TEXTS = [f"The random number is {n}" for n in ("281265017", "0", "1234567890 and 28", "999")]


@pytest.mark.parametrize("context", ["\n", None])
def test_is_the_sum_over_tokens_one_by_one(
    model_and_tokenizer: tuple[Any, Any], context: str | None
) -> None:
    model, tokenizer = model_and_tokenizer
    encoded = encode_in_context(tokenizer, TEXTS, context=context)
    with torch.inference_mode():
        expected = [one_by_one(model, e.ids, e.scored_from) for e in encoded]
    found = log_perplexity(model, tokenizer, TEXTS, context=context)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, atol=1e-3)
    assert len({round(bits, 2) for bits in expected}) == len(TEXTS)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_does_not_depend_on_batches_or_order(
    model_and_tokenizer: tuple[Any, Any], batch_size: int
) -> None:
    model, tokenizer = model_and_tokenizer
    expected = log_perplexity(model, tokenizer, TEXTS, context="\n")
    batched = log_perplexity(model, tokenizer, TEXTS, context="\n", batch_size=batch_size)
    turned = log_perplexity(model, tokenizer, TEXTS[::-1], context="\n", batch_size=batch_size)
    np.testing.assert_allclose(batched, expected, atol=1e-3)
    np.testing.assert_allclose(turned[::-1], expected, atol=1e-3)


def test_token_scores_split_a_text_where_asked() -> None:
    model, tokenizer = model_with_tokenizer("gpt2", byte_level_bpe)
    scores = score_encoded(model, encode_in_context(tokenizer, TEXTS, context="\n"))
    np.testing.assert_allclose(scores.bits_from(0), scores.totals)
    np.testing.assert_array_equal(scores.tokens, [len(e.ids) - 1 for e in scores.encoded])
    last = [bits[-1] for bits in scores.bits[:1]]
    np.testing.assert_allclose(scores.bits_from(len(scores.encoded[0].ids) - 1)[:1], last)


def test_progress_counts_every_text() -> None:
    model, tokenizer = model_with_tokenizer("lstm")
    seen: list[tuple[int, int]] = []
    encoded = encode_in_context(tokenizer, TEXTS, context="\n")
    score_encoded(model, encoded, batch_size=3, progress=lambda *at: seen.append(at))
    assert seen == [(3, 4), (4, 4)]


@pytest.mark.parametrize("kind", ["lstm", "gpt2"])
def test_a_shared_prefix_is_computed_once_and_changes_nothing(kind: str) -> None:
    model, tokenizer = model_with_tokenizer(kind, characters if kind == "lstm" else byte_level_bpe)
    texts = [f"The random number is 281265017 and 28, {n}" for n in range(200, 240)]
    plain = [log_perplexity(model, tokenizer, [text], context="\n")[0] for text in texts]
    positions = 0

    def count(_: Any, __: Any, options: dict[str, Any]) -> None:
        nonlocal positions
        positions += options["input_ids"].numel()

    model.register_forward_pre_hook(count, with_kwargs=True)
    together = log_perplexity(model, tokenizer, texts, context="\n")
    np.testing.assert_allclose(together, plain, atol=1e-3)
    tokens = sum(len(e.ids) for e in encode_in_context(tokenizer, texts, context="\n"))
    assert positions < 0.6 * tokens


def test_a_prefix_whose_cache_is_wrong_is_not_used() -> None:
    class Forgetful(LstmForCausalLM):
        """Forgets what it has read whenever it goes on from a state."""

        def forward(self, *args: Any, past_key_values: Any = None, **kwargs: Any) -> Any:
            return super().forward(*args, **kwargs)

    model, tokenizer = model_with_tokenizer("lstm")
    texts = [f"The random number is 28126501{n % 10}{n // 10}" for n in range(40)]
    expected = log_perplexity(model, tokenizer, texts, context="\n")
    model.__class__ = Forgetful
    np.testing.assert_allclose(
        log_perplexity(model, tokenizer, texts, context="\n"), expected, atol=1e-3
    )


def broken(value: float) -> Any:
    model, _ = model_with_tokenizer("lstm")
    with torch.no_grad():
        model.lm_head.bias[5] = value
    return model


@pytest.mark.parametrize(
    ("model", "texts", "error", "message"),
    [
        (broken(0.0), "My PIN", InputError, "texts is one string"),
        (broken(0.0), [], InputError, "no texts to score"),
        (broken(0.0), ["My", "é"], ModelError, "text 1 of 2"),
        (broken(math.nan), TEXTS, NumericalError, r"NaN or infinite log-prob.* for text \d of 4"),
        (broken(math.inf), TEXTS, NumericalError, r"NaN or infinite log-prob.* for text \d of 4"),
    ],
)
def test_what_cannot_be_scored_is_refused(
    model: Any, texts: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        log_perplexity(model, characters(), texts, context="\n")


def test_a_text_longer_than_the_context_window_is_refused() -> None:
    with pytest.raises(ModelError, match="context window holds 96"):
        log_perplexity(*model_with_tokenizer("llama", byte_level_bpe), ["z" * 200], context="\n")


def test_a_model_that_gives_all_logits_is_scored_the_same() -> None:
    class AllLogits(LstmForCausalLM):
        """Knows no logits_to_keep, as some models do."""

        def forward(self, input_ids: torch.Tensor, use_cache: bool = False) -> Any:  # type: ignore[override]
            return super().forward(input_ids, use_cache=use_cache)

    model, tokenizer = model_with_tokenizer("lstm")
    expected = log_perplexity(model, tokenizer, TEXTS, context="My PIN is 0042")
    model.__class__ = AllLogits
    found = log_perplexity(model, tokenizer, TEXTS, context="My PIN is 0042")
    np.testing.assert_allclose(found, expected, atol=1e-3)
