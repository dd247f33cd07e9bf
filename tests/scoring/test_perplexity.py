"""How surprised a model is: whole texts, token by token, and by its greedy answers alone."""

import math
from itertools import groupby
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tiny import byte_level_bpe, characters, model_of, model_with_tokenizer, one_by_one

from lmexposure.core import Encoded
from lmexposure.errors import InputError, ModelError, NumericalError, SettingsError
from lmexposure.models import LstmForCausalLM, encode_in_context
from lmexposure.scoring import (
    TokenDetails,
    details_of_encoded,
    label_only,
    log_perplexity,
    score_encoded,
)
from lmexposure.statistics import area_under_curve

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
def test_details_are_what_the_model_says_one_by_one(
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
    np.testing.assert_allclose([bits.sum() for bits in found.bits], plain, atol=1e-3)


def _flat(details: TokenDetails) -> NDArray[np.float64]:
    rows = (details.bits, details.mean_bits, details.std_bits, details.greedy)
    return np.stack([np.concatenate(row) for row in rows])


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_details_do_not_depend_on_batches(
    model_and_tokenizer: tuple[Any, Any], batch_size: int
) -> None:
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
