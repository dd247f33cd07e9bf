"""A model in memory, in the middle of its training: scored as in evaluation mode, and put back.

Texts shared by several processes.
"""

import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from forks import together
from hypothesis import given
from hypothesis import strategies as st
from scoring import score_in_processes
from scoring.families import family
from scoring.score_in_processes import texts
from tiny import byte_level_bpe, model_of
from transformers.activations import FastGELUActivation, NewGELUActivation

from lmexposure.canaries import Format
from lmexposure.core import Encoded
from lmexposure.errors import ModelError, NumericalError
from lmexposure.models import encode_in_context
from lmexposure.scoring import (
    Budget,
    CachedSteps,
    Extractor,
    PathSteps,
    RankSearch,
    RecomputedSteps,
    details_of_encoded,
    draw_fills,
    evaluation_mode,
    label_only,
    likeliest_fills,
    log_perplexity,
    next_token_steps,
    same_random_numbers,
    score_encoded,
    token_space,
)
from lmexposure.scoring.runtime import fused_activations, in_batches, spans

PIN = Format(name="pin", template="My PIN is {digits:2}")
TEXTS = [PIN.text(i) for i in range(20)]
TOKENIZER = byte_level_bpe()
SPACE = token_space(TOKENIZER, PIN, context=None)
IDS = [*SPACE.beginning, *SPACE.path(7)]
ENCODED = encode_in_context(TOKENIZER, TEXTS, context=None)


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


# Every function that takes a model in memory, as numbers.
TAKERS: dict[str, Callable[[Any], Any]] = {
    "log_perplexity": lambda model: log_perplexity(model, TOKENIZER, TEXTS),
    "score_encoded": lambda model: score_encoded(model, ENCODED).totals,
    "details_of_encoded": lambda model: np.concatenate(details_of_encoded(model, ENCODED).bits),
    "label_only": lambda model: np.concatenate(label_only(model, ENCODED).hits),
    "CachedSteps": partial(_steps, CachedSteps),
    "PathSteps": partial(_steps, PathSteps),
    "RecomputedSteps": partial(_steps, RecomputedSteps),
    "search": _searched,
    "Extractor": _extracted,
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


@pytest.mark.parametrize("chain", [NewGELUActivation, FastGELUActivation])
def test_the_kernel_is_the_chain_and_the_chain_comes_back(chain: type[torch.nn.Module]) -> None:
    module, x = torch.nn.Sequential(chain()), torch.linspace(-8, 8, 10_001)
    slow = module(x)
    with pytest.raises(KeyError), fused_activations(module):
        fast = module(x.clone())  # it works in place
        assert torch.allclose(fast, slow, rtol=0, atol=2e-6)
        assert not torch.equal(fast, slow)
        raise KeyError
    assert torch.equal(module(x), slow)


def needs(room: int, error: RuntimeError) -> Callable[[Sequence[int]], list[int]]:
    """Work that fails above `room` items."""

    def work(items: Sequence[int]) -> list[int]:
        if len(items) > room:
            raise error
        return list(items)

    return work


SHORT = RuntimeError("DefaultCPUAllocator: can't allocate memory")


@pytest.mark.parametrize("error", [SHORT, torch.OutOfMemoryError("CUDA out of memory")])
def test_batches_halve_until_they_fit_and_keep_the_order(error: RuntimeError) -> None:
    batches = list(in_batches(range(10), 8, needs(3, error)))
    assert batches == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    with pytest.raises(ModelError, match="out of memory with one text at a time"):
        list(in_batches(range(3), 3, needs(0, error)))
    with pytest.raises(RuntimeError, match="shape mismatch"):
        list(in_batches(range(3), 3, needs(0, RuntimeError("shape mismatch"))))


def test_random_numbers_go_on_as_if_nothing_had_been_drawn() -> None:
    def drawn() -> list[float]:
        return [random.random(), np.random.random(), float(torch.rand(1))]

    with same_random_numbers():
        first = drawn()
    assert drawn() == first
    assert drawn() != first


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(1, 8))
def test_spans_cover_every_place_once_at_about_the_same_cost(costs: list[int], parts: int) -> None:
    found = spans(np.array(costs), parts)
    assert len(found) == parts
    assert [place for span in found for place in span] == list(range(len(costs)))
    share = (sum(costs) + len(costs)) / parts
    for span in found:
        assert sum(costs[place] + 1 for place in span) <= share + 51


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    out = tmp_path_factory.mktemp("processes")
    together(2, score_in_processes.main, out, said=out / "said.txt")
    return [json.loads((out / f"process-{i}.json").read_text()) for i in (0, 1)]


@pytest.mark.slow
def test_two_processes_share_the_texts_and_both_get_the_bits_of_one(
    said: list[dict[str, object]],
) -> None:
    assert [one["processes"] for one in said] == [2, 2]
    assert said[0]["totals"] == said[1]["totals"]
    counts = [int(str(one["scored"])) for one in said]
    assert sum(counts) == len(texts())
    assert min(counts) > 0.3 * len(texts())
    found = [float.fromhex(bits) for bits in said[0]["totals"]]  # type: ignore[attr-defined]
    np.testing.assert_allclose(found, score_encoded(family("gpt2"), texts()).totals, atol=1e-3)


@pytest.mark.slow
def test_what_one_process_meets_is_raised_in_both(said: list[dict[str, object]]) -> None:
    assert said[0]["failure"] == said[1]["failure"]
    assert "log-probabilities for text 200 of 201" in str(said[0]["failure"])
