from itertools import groupby
from typing import Any

import numpy as np
import pytest
import torch
from tiny import characters, model_of

from lmexposure.errors import InputError, ModelError, SettingsError
from lmexposure.models import Encoded, LstmForCausalLM, encode_in_context
from lmexposure.scoring import (
    LabelOnly,
    label_only,
    log_perplexity,
)
from lmexposure.statistics import (
    area_under_curve,
)

PREFIX = "My PIN is "
SECRETS = [f"{n * 7919 % 10**6:06}" for n in range(1, 25)]
FIRST = 1 + len(PREFIX)  # a line break, then one token a character


class Masked(LstmForCausalLM):
    """Answers as before, but shows next to the same probability for every token."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        best = output.logits.argmax(-1, keepdim=True)
        # In float32 the difference is lost beside the logarithm of the vocabulary's size.
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


def test_runs_of_flags() -> None:
    rows = ([0, 0], [1, 1, 1], [1, 0, 1, 1, 0], [0, 1])
    found = LabelOnly(hits=tuple(np.array(row, dtype=bool) for row in rows))
    assert found.longest_run.tolist() == [0, 3, 2, 1]
    assert found.share.tolist() == [0, 1, 0.6, 0.5]


def test_all_scored_tokens_count_without_a_place(encoded: list[Encoded], memorised: Any) -> None:
    assert [len(hits) for hits in label_only(memorised, encoded).hits] == [16] * 24


def test_refusals(encoded: list[Encoded], memorised: Any) -> None:
    with pytest.raises(InputError, match="no texts to score"):
        label_only(memorised, [])
    with pytest.raises(InputError, match=r"text 0 of 24 has 17 tokens, none of them from first=17"):
        label_only(memorised, encoded, first=17)
    with pytest.raises(SettingsError, match="first=-1 must be"):
        label_only(memorised, encoded, first=-1)
    with pytest.raises(SettingsError, match="batch_size=0 must be"):
        label_only(lambda prefixes: [0] * len(prefixes), encoded, batch_size=0)
    with pytest.raises(ModelError, match="gave 1 tokens for 256 prefixes"):
        label_only(lambda _: [0], encoded)
