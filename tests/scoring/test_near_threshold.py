from typing import Any

import numpy as np
import pytest
import torch
from tiny import byte_level_bpe, model_of

from lmexposure.errors import InputError, ModelError
from lmexposure.models import Encoded, encode_in_context
from lmexposure.scoring import score_encoded
from lmexposure.scoring.near_threshold import scores_near


@pytest.fixture(scope="module")
def model() -> Any:
    return model_of("gpt2", len(byte_level_bpe()))


@pytest.fixture(scope="module")
def encoded() -> list[Encoded]:
    texts = [f"The random number is {n * 7919 % 10**6:06}" for n in range(400)]
    return encode_in_context(byte_level_bpe(), texts, context="\n")


def test_those_near_the_threshold_have_the_bits_of_float32(
    model: Any, encoded: list[Encoded]
) -> None:
    expected = score_encoded(model, encoded).totals
    found = scores_near(model, encoded, quantile=0.1, seed=3, dtype=torch.bfloat16)
    np.testing.assert_allclose(found.bits[found.exact], expected[found.exact], atol=1e-3)
    assert (np.abs(found.bits - expected)[~found.exact] > 0).any()
    assert (np.abs(found.bits - found.threshold)[~found.exact] > found.margin).all()
    assert 0 < found.largest < found.margin < 2
    assert 64 <= found.exact.sum() < 400
    np.testing.assert_array_equal(found.bits < found.threshold, expected < found.threshold)
    assert np.mean(expected < found.threshold) == pytest.approx(0.1, abs=0.02)


def test_a_threshold_may_be_given_and_the_sample_repeats(
    model: Any, encoded: list[Encoded]
) -> None:
    at = float(np.median(score_encoded(model, encoded).totals))
    first, again = (
        scores_near(model, encoded, threshold=at, seed=5, sample=8, dtype=torch.bfloat16)
        for _ in range(2)
    )
    np.testing.assert_array_equal(first.bits, again.bits)
    assert first.threshold == at
    assert 8 <= first.sampled <= 8 + 400 // 64
    assert first.to_dict() == {
        "texts": 400,
        "rescored": int(first.exact.sum()),
        "threshold": at,
        "margin": first.margin,
        "largest": first.largest,
        "sampled": first.sampled,
    }


def test_a_sample_of_all_texts_is_exact(model: Any, encoded: list[Encoded]) -> None:
    found = scores_near(model, encoded[:20], quantile=0.5, seed=1)
    assert found.exact.all()
    assert found.sampled == 20


def test_a_cpu_that_only_imitates_bfloat16_scores_in_float32(
    model: Any, encoded: list[Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True}, raising=False)
    found = scores_near(model, encoded[:40], quantile=0.5, seed=1)
    assert found.exact.all()
    assert (found.margin, found.sampled) == (0.0, 40)
    np.testing.assert_array_equal(found.bits, score_encoded(model, encoded[:40]).totals)


def test_leaves_the_model_as_it_was(model: Any, encoded: list[Encoded]) -> None:
    scores_near(model, encoded[:20], quantile=0.5, seed=1)
    assert model.dtype == torch.float32
    assert not any("forward" in module.__dict__ for module in model.modules())


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({}, "give exactly one of them"),
        ({"threshold": 3.0, "quantile": 0.1}, "give exactly one of them"),
        ({"threshold": float("nan")}, "threshold is nan; give a finite number"),
        ({"quantile": 0.0}, "quantile is 0.0; give a share above 0"),
        ({"quantile": 1.5}, "quantile is 1.5; give a share above 0"),
        ({"quantile": 0.5, "sample": 1}, "sample"),
    ],
)
def test_refuses_what_is_unclear(
    model: Any, encoded: list[Encoded], wish: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        scores_near(model, encoded, seed=1, **wish)


def test_refuses_a_model_that_is_not_in_float32(encoded: list[Encoded]) -> None:
    half = model_of("gpt2", len(byte_level_bpe())).to(torch.bfloat16)
    with pytest.raises(ModelError, match="load it in float32, or use score_encoded"):
        scores_near(half, encoded, quantile=0.5, seed=1)
