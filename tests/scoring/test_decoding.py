"""The rule of sampling, against the warpers of transformers."""

import pytest
import torch
from transformers.generation.logits_process import (
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from lmexposure.errors import SettingsError
from lmexposure.scoring import DecodingRule

LOGITS = torch.randn(40, 50, generator=torch.Generator().manual_seed(3)).double() * 3


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("top_k", [None, 1, 7, 80])
@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_the_shares_are_those_that_generate_draws_from(
    temperature: float, top_k: int | None, top_p: float
) -> None:
    rule = DecodingRule(temperature=temperature, top_k=top_k, top_p=top_p)
    ids = torch.zeros((len(LOGITS), 1), dtype=torch.long)
    warped = TemperatureLogitsWarper(temperature)(ids, LOGITS) if temperature != 1 else LOGITS
    if top_k is not None:
        warped = TopKLogitsWarper(top_k)(ids, warped)
    if top_p < 1:
        warped = TopPLogitsWarper(top_p)(ids, warped)
    expected = warped.log_softmax(-1)
    found = rule.log_shares(LOGITS)
    torch.testing.assert_close(found, expected)
    tokens = torch.arange(len(LOGITS)) % LOGITS.shape[1]
    torch.testing.assert_close(
        rule.token_log_shares(LOGITS, tokens), expected.gather(1, tokens[:, None]).squeeze(1)
    )


def test_tokens_as_likely_as_the_last_one_stay() -> None:
    shares = DecodingRule(top_k=2).log_shares(torch.tensor([[1.0, 0.0, 0.0, -1.0]])).exp()
    assert (shares > 0).tolist() == [[True, True, True, False]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperature": 0}, "temperature=0 is greedy decoding"),
        ({"temperature": -1}, "temperature"),
        ({"top_k": 0}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "at most 1"),
    ],
)
def test_a_rule_that_nothing_is_drawn_by(values: dict[str, float], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        DecodingRule(**values)  # type: ignore[arg-type]
