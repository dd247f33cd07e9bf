"""A model in memory, in the middle of its training: scored as in evaluation mode, and put back."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from audit.quick import ALL_FILLS
from corpora import sentences
from tiny import byte_level_bpe, model_of

from lmexposure.audit import measure
from lmexposure.canaries import Format, Manifest, Plan
from lmexposure.errors import NumericalError
from lmexposure.integrations import Wrapping, insert, wrapped_exposures, wrapped_log_perplexity
from lmexposure.models import (
    Encoded,
    LoadedModel,
    encode_in_context,
)
from lmexposure.scoring import (
    Budget,
    CachedSteps,
    Extractor,
    PathSteps,
    RankSearch,
    RecomputedSteps,
    bits_against_base,
    draw_fills,
    evaluation_mode,
    label_only,
    likeliest_fills,
    log_perplexity,
    next_token_steps,
    score_encoded,
    token_details,
    token_space,
)

PIN = Format(name="pin", template="My PIN is {digits:2}")
TEXTS = [PIN.text(i) for i in range(20)]
TOKENIZER = byte_level_bpe()
SPACE = token_space(TOKENIZER, PIN, context=None)
IDS = [*SPACE.beginning, *SPACE.path(7)]
ENCODED = encode_in_context(TOKENIZER, TEXTS, context=None)


def _manifest() -> Manifest:
    plan = Plan(formats=(PIN,), canaries=2, repetitions=(1,), controls=2, seed=3)
    return insert(sentences(20), plan).manifest


def _steps(kind: Callable[[Any], Any], model: Any) -> list[float]:
    steps, columns = kind(model), np.arange(40)
    state, first = steps.start(IDS[:3], columns)
    zeros = np.zeros_like(columns)
    _, second = steps.advance(state, zeros[:1], np.array(IDS[3:4]), zeros, columns)
    return [*first, *second]


def _searched(model: Any) -> list[float]:
    steps = next_token_steps(model, IDS)
    search = RankSearch(SPACE, steps, model)
    found = search.ranks([7, 70], budget=Budget())
    draws = draw_fills(SPACE, steps, draws=50, seed=1)
    best = likeliest_fills(
        SPACE, steps, search.rescorer, guesses=5, margin=search.margin.bits, budget=Budget()
    )
    bits = [row.bits for row in found]
    return [*bits, *(row.low for row in found), draws.expected_steps(bits[0]), *best.indices]


def _extracted(model: Any) -> list[float]:
    return [
        guess.bits for guess in Extractor(model, TOKENIZER, PIN, context=None).search("", width=3)
    ]


def _measured(model: Any) -> list[float]:
    loaded = LoadedModel(model=model, tokenizer=TOKENIZER, name="tiny")
    result = measure(loaded, _manifest(), settings=ALL_FILLS)
    return [float(canary.exposure.value or 0.0) for canary in result.canaries]


def _wrapped(model: Any) -> list[float]:
    found = wrapped_exposures(model, TOKENIZER, _manifest(), Wrapping())
    texts = wrapped_log_perplexity(model, TOKENIZER, TEXTS, Wrapping())
    return [*(float(canary.exposure.value or 0.0) for canary in found), *texts]


# Every function that takes a model in memory, as numbers.
TAKERS: dict[str, Callable[[Any], Any]] = {
    "log_perplexity": lambda model: log_perplexity(model, TOKENIZER, TEXTS),
    "score_encoded": lambda model: score_encoded(model, ENCODED).totals,
    "token_details": lambda model: token_details(model, TOKENIZER, TEXTS).totals,
    "label_only": lambda model: np.concatenate(label_only(model, ENCODED).hits),
    "bits_against_base": lambda model: (
        bits_against_base(model, TOKENIZER, model, TOKENIZER, TEXTS).base_bits
    ),
    "CachedSteps": partial(_steps, CachedSteps),
    "PathSteps": partial(_steps, PathSteps),
    "RecomputedSteps": partial(_steps, RecomputedSteps),
    "search": _searched,
    "Extractor": _extracted,
    "measure": _measured,
    "wrapped": _wrapped,
}


@pytest.fixture
def model() -> Any:
    """With dropout; one frozen part is in evaluation mode while the others train."""
    model = model_of("gpt2", len(TOKENIZER)).train()
    model.transformer.h[0].eval()
    return model


def modes(model: Any) -> list[bool]:
    return [module.training for module in model.modules()]


@pytest.mark.parametrize("name", TAKERS)
def test_a_model_in_training_is_scored_without_dropout_and_put_back(name: str, model: Any) -> None:
    before = modes(model)
    assert len(set(before)) == 2
    found = TAKERS[name](model)
    assert modes(model) == before
    np.testing.assert_array_equal(found, TAKERS[name](model.eval()))
    assert not model.training


def test_it_is_put_back_after_an_exception_too(model: Any) -> None:
    before = modes(model)
    with torch.no_grad():
        model.lm_head.weight.fill_(torch.nan)
    for score in (partial(score_encoded, model), partial(label_only, model)):
        with pytest.raises(NumericalError, match="NaN"):
            score([Encoded(ids=[1, 2, 3], scored_from=1)])
        assert modes(model) == before


def test_steps_kept_from_before_a_training_are_without_dropout_too(model: Any) -> None:
    model.eval()
    steps, columns = next_token_steps(model, IDS), np.arange(40)
    _, expected = steps.start(IDS, columns)
    model.train()
    _, found = steps.start(IDS, columns)
    np.testing.assert_array_equal(found, expected)
    assert all(modes(model))


def test_training_goes_on_where_the_forward_pass_makes_buffers_anew(model: Any) -> None:
    kept = torch.ones(3)
    model.transformer.register_buffer("angles", kept, persistent=False)
    with evaluation_mode(model), torch.inference_mode():
        model.transformer.angles = torch.zeros(3)
    assert model.transformer.angles is kept
