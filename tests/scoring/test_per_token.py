import math
from itertools import groupby
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tiny import characters, model_of, model_with_tokenizer

from lmexposure.core import Encoded
from lmexposure.errors import InputError, ModelError, NumericalError, SettingsError
from lmexposure.models import LstmForCausalLM, encode_in_context
from lmexposure.scoring import TokenDetails, details_of_encoded, label_only, log_perplexity
from lmexposure.statistics import area_under_curve

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


def token_details(
    model: Any, tokenizer: Any, texts: list[str], context: str | None = "\n", **options: Any
) -> TokenDetails:
    return details_of_encoded(
        model, encode_in_context(tokenizer, texts, context=context), **options
    )


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
    expected = _flat(token_details(model, tokenizer, TEXTS))
    found = token_details(model, tokenizer, TEXTS, batch_size=batch_size)
    np.testing.assert_allclose(_flat(found), expected, atol=1e-3)


def test_a_token_that_is_masked_out_adds_nothing() -> None:
    model, tokenizer = model_with_tokenizer("lstm")
    unused = tokenizer.encode("d")[0]
    with torch.no_grad():
        model.lm_head.bias[unused] = -math.inf
    found = token_details(model, tokenizer, ["My PIN"])
    assert np.isfinite(_flat(found)).all()
    with pytest.raises(NumericalError, match="text 1 of 2"):
        token_details(model, tokenizer, ["My PIN", "random"])


def test_details_that_are_refused() -> None:
    model, tokenizer = model_with_tokenizer("lstm")
    with pytest.raises(InputError, match="no texts to score"):
        details_of_encoded(model, [])
    with pytest.raises(InputError, match="batch_size=0"):
        token_details(model, tokenizer, TEXTS, batch_size=0)
    with torch.no_grad():
        model.lm_head.bias.fill_(math.nan)
    with pytest.raises(NumericalError, match="NaN or infinite log-probabilities for text"):
        token_details(model, tokenizer, TEXTS)


PREFIX = "My PIN is "
SECRETS = [f"{n * 7919 % 10**6:06}" for n in range(1, 25)]
FIRST = 1 + len(PREFIX)  # a line break, then one token a character


class Masked(LstmForCausalLM):
    """Answers as before, but shows next to the same probability for every token."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        best = output.logits.argmax(-1, keepdim=True)
        # In float32 the difference is lost next to the logarithm of the vocabulary's size.
        output.logits = torch.zeros_like(output.logits).scatter(-1, best, 1e-7)
        return output


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return characters()


@pytest.fixture(scope="module")
def encoded(tokenizer: Any) -> list[Encoded]:
    return encode_in_context(tokenizer, [PREFIX + secret for secret in SECRETS], context="\n")


@pytest.fixture(scope="module")
def memorised(tokenizer: Any, encoded: list[Encoded]) -> Any:
    """A small LSTM that has learned the first half of the secrets, and not the others."""
    model = model_of("lstm", len(tokenizer))
    ids = torch.tensor([one.ids for one in encoded[:12]])
    steps = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(250):
        logits = model(input_ids=ids[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        steps.step()
        steps.zero_grad()
    return model


def _greedy(model: Any, prefixes: list[list[int]]) -> list[int]:
    with torch.inference_mode():
        return [
            int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()) for ids in prefixes
        ]


def test_counts_and_runs_against_a_slow_version(encoded: list[Encoded], memorised: Any) -> None:
    found = label_only(memorised, encoded, first=FIRST)
    for one, hits, share, run in zip(
        encoded, found.hits, found.share, found.longest_run, strict=True
    ):
        expected = [
            _greedy(memorised, [one.ids[:place]]) == [one.ids[place]]
            for place in range(FIRST, len(one.ids))
        ]
        assert hits.tolist() == expected
        assert len(expected) == 6
        assert share == pytest.approx(sum(expected) / 6)
        assert run == max([len(list(same)) for hit, same in groupby(expected) if hit], default=0)


def test_a_function_that_shows_only_tokens_gives_the_same(
    encoded: list[Encoded], memorised: Any
) -> None:
    asked = []

    def greedy(prefixes: list[list[int]]) -> list[int]:
        asked.append(len(prefixes))
        return _greedy(memorised, prefixes)

    found = label_only(greedy, encoded, first=FIRST, batch_size=50)
    expected = label_only(memorised, encoded, first=FIRST)
    for one, other in zip(found.hits, expected.hits, strict=True):
        np.testing.assert_array_equal(one, other)
    assert asked == [50, 50, 44]


def test_masked_confidence_hides_log_perplexity_but_not_the_answers(
    tokenizer: Any, encoded: list[Encoded], memorised: Any
) -> None:
    texts = [PREFIX + secret for secret in SECRETS]
    bits = log_perplexity(memorised, tokenizer, texts, context="\n")
    assert area_under_curve(-bits[:12], -bits[12:]).value == 1
    kind = memorised.__class__
    memorised.__class__ = Masked
    try:
        bits = log_perplexity(memorised, tokenizer, texts, context="\n")
        found = label_only(memorised, encoded, first=FIRST)
    finally:
        memorised.__class__ = kind
    assert area_under_curve(-bits[:12], -bits[12:]).value == 0.5
    shown = area_under_curve(found.share[:12], found.share[12:])
    assert shown.low > 0.6
    assert area_under_curve(found.longest_run[:12], found.longest_run[12:]).low > 0.6


def test_a_model_that_learned_nothing_shows_nothing(tokenizer: Any, encoded: list[Encoded]) -> None:
    found = label_only(model_of("lstm", len(tokenizer)), encoded, first=FIRST)
    shown = area_under_curve(found.share[:12], found.share[12:])
    assert shown.low < 0.5 < shown.high


def test_label_only_refusals(encoded: list[Encoded], memorised: Any) -> None:
    def short(_: Any) -> list[int]:
        return [0]

    for texts, model, given, error, message in (
        ([], memorised, {}, InputError, "no texts to score"),
        (encoded, memorised, {"first": 17}, InputError, "text 0 of 24 has 17 tokens, none of them"),
        (encoded, memorised, {"first": -1}, SettingsError, "first=-1 must be"),
        (encoded, short, {"batch_size": 0}, SettingsError, "batch_size=0 must be"),
        (encoded, short, {}, ModelError, "gave 1 tokens for 256 prefixes"),
    ):
        with pytest.raises(error, match=message):
            label_only(model, texts, **given)
