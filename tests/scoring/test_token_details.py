import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tiny import byte_level_bpe, characters, model_of

from lmexposure.errors import InputError, ModelError, NumericalError
from lmexposure.scoring import (
    TokenDetails,
    log_perplexity,
    token_details,
)

TEXTS = [f"The random number is {n}" for n in ("281265017", "0", "1234567890 and 28", "999")]


def _slow(model: Any, ids: list[int], position: int) -> tuple[float, float, float, int]:
    """Bits of one token, with mean and spread over the vocabulary and the likeliest one."""
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids[:position]])).logits[0, -1].double()
    bits = (-torch.log_softmax(logits, dim=-1) / math.log(2)).tolist()
    p = [2.0**-b for b in bits]
    mean = sum(q * b for q, b in zip(p, bits, strict=True))
    square = sum(q * (b - mean) ** 2 for q, b in zip(p, bits, strict=True))
    return bits[ids[position]], mean, math.sqrt(square), int(np.argmin(bits))


@pytest.mark.parametrize("context", ["\n", None])
def test_is_what_the_model_says_one_by_one(
    model_and_tokenizer: tuple[Any, Any], context: str | None
) -> None:
    model, tokenizer = model_and_tokenizer
    found = token_details(model, tokenizer, TEXTS, context=context)
    for number, one in enumerate(found.encoded):
        places = range(one.scored_from, len(one.ids))
        expected = np.array([_slow(model, one.ids, place) for place in places]).T
        rows = (found.bits, found.mean_bits, found.std_bits)
        np.testing.assert_allclose([row[number] for row in rows], expected[:3], atol=1e-3)
        np.testing.assert_array_equal(found.greedy[number], expected[3])
        np.testing.assert_array_equal(
            found.top1[number], expected[3] == np.array(one.ids[one.scored_from :])
        )
    plain = log_perplexity(model, tokenizer, TEXTS, context=context)
    np.testing.assert_allclose(found.totals, plain, atol=1e-3)


def _flat(details: TokenDetails) -> NDArray[np.float64]:
    rows = (details.bits, details.mean_bits, details.std_bits, details.greedy)
    return np.stack([np.concatenate(row) for row in rows])


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_does_not_depend_on_batches(model_and_tokenizer: tuple[Any, Any], batch_size: int) -> None:
    model, tokenizer = model_and_tokenizer
    expected = _flat(token_details(model, tokenizer, TEXTS, context="\n"))
    found = token_details(model, tokenizer, TEXTS, context="\n", batch_size=batch_size)
    np.testing.assert_allclose(_flat(found), expected, atol=1e-3)


def test_a_uniform_model_has_no_spread() -> None:
    tokenizer = characters()
    model = model_of("lstm", len(tokenizer))
    with torch.no_grad():
        model.lm_head.weight.zero_()
        model.lm_head.bias.zero_()
    found = token_details(model, tokenizer, ["My PIN"], context="\n")
    entropy = [math.log2(len(tokenizer))] * 6
    assert found.bits[0] == pytest.approx(entropy, abs=1e-4)
    assert found.mean_bits[0] == pytest.approx(entropy, abs=1e-4)
    assert found.std_bits[0] == pytest.approx([0] * 6, abs=1e-5)


def test_a_token_that_is_masked_out_adds_nothing() -> None:
    tokenizer = characters()
    model = model_of("lstm", len(tokenizer))
    unused = tokenizer.encode("d")[0]
    with torch.no_grad():
        model.lm_head.bias[unused] = -math.inf
    found = token_details(model, tokenizer, ["My PIN"], context="\n")
    assert np.isfinite(_flat(found)).all()
    with pytest.raises(NumericalError, match="text 1 of 2"):
        token_details(model, tokenizer, ["My PIN", "random"], context="\n")


def test_memory_short_halves_the_batch() -> None:
    tokenizer = characters()
    model = model_of("lstm", len(tokenizer))
    expected = _flat(token_details(model, tokenizer, TEXTS, context="\n"))

    def refuse(_: Any, __: Any, options: dict[str, Any]) -> None:
        if len(options["input_ids"]) > 1:
            raise torch.OutOfMemoryError("out of memory")

    model.register_forward_pre_hook(refuse, with_kwargs=True)
    found = token_details(model, tokenizer, TEXTS, context="\n")
    np.testing.assert_allclose(_flat(found), expected, atol=1e-3)


def test_refusals() -> None:
    tokenizer = characters()
    model = model_of("lstm", len(tokenizer))
    with pytest.raises(InputError, match="texts is one string"):
        token_details(model, tokenizer, "My PIN", context="\n")
    with pytest.raises(InputError, match="no texts to score"):
        token_details(model, tokenizer, [], context="\n")
    with pytest.raises(ModelError, match="text 1 of 2"):
        token_details(model, tokenizer, ["My", "é"], context="\n")
    with pytest.raises(InputError, match="batch_size=0"):
        token_details(model, tokenizer, TEXTS, context="\n", batch_size=0)
    bpe = byte_level_bpe()
    with pytest.raises(ModelError, match="context window holds 96"):
        token_details(model_of("llama", len(bpe)), bpe, ["z" * 200], context="\n")
    broken = model_of("lstm", len(tokenizer))
    with torch.no_grad():
        broken.lm_head.bias.fill_(math.nan)
    with pytest.raises(NumericalError, match="NaN or infinite log-probabilities for text"):
        token_details(broken, tokenizer, TEXTS, context="\n")
