import copy
from typing import Any

import numpy as np
import pytest
import torch
from faulty_steps import Off
from scoring.families import family
from slow_search import PIN, SMALL, biased, listed, paths_of, steps_of
from tiny import characters

from lmexposure.errors import NumericalError
from lmexposure.scoring import Budget, RankSearch, Rescorer, exact_search, token_space, walked_bits
from lmexposure.scoring.exact_search import TIE_BITS, measured_error

# Llama and Mistral round to float32 inside whatever their dtype.
FLOAT64 = {"lstm": 1e-10, "gpt2": 1e-10, "llama": 1e-4, "mistral": 1e-4}


@pytest.mark.parametrize("name", SMALL)
def test_whole_paths_are_scored_in_float64(name: str) -> None:
    model, _, space, bits = listed(name)
    paths = list(paths_of(space))
    rescorer = Rescorer(model, space)
    found = rescorer.bits(paths)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, bits, rtol=0, atol=FLOAT64[SMALL[name].kind])
    mixed = np.random.default_rng(0).permutation(len(paths))
    again = Rescorer(model, space).bits([paths[i] for i in [*mixed, *mixed[:3]]])
    # The other paths of a batch move a path's bits by less than a tie.
    np.testing.assert_allclose(again, bits[[*mixed, *mixed[:3]]], atol=FLOAT64[SMALL[name].kind])
    assert np.abs(again[: len(paths)] - found[mixed]).max() < TIE_BITS
    assert rescorer.bits([]).shape == (0,)
    assert model.dtype == torch.float32  # the model itself stays what it was


@pytest.mark.parametrize("name", SMALL)
def test_walked_bits_are_those_of_whole_passes(name: str) -> None:
    model, _, space, bits = listed(name)
    steps = steps_of(model, space)
    paths = list(paths_of(space))
    np.testing.assert_allclose(walked_bits(space, steps, paths), bits, rtol=0, atol=1e-3)
    some = [paths[i] for i in (3, 3, 0)]
    np.testing.assert_allclose(walked_bits(space, steps, some), bits[[3, 3, 0]], rtol=0, atol=1e-3)


def test_the_largest_error_of_a_sample() -> None:
    model, _, space, _ = listed("digits")
    steps, rescorer = steps_of(model, space), Rescorer(model, space)
    right = measured_error(space, steps, rescorer, sample=1000, seed=0)
    assert 0 < right < 1e-4
    broken = Off(steps, 0.25, space.path(37)[0])  # ten fills begin so, of a hundred
    for broken.by in (-0.25, 0.25):
        error = measured_error(space, broken, rescorer, sample=1000, seed=0)
        assert error == pytest.approx(0.25, abs=1e-4)
    few = [measured_error(space, broken, rescorer, sample=2, seed=s) for s in range(40)]
    assert min(few) < 1e-4 < 0.2 < max(few)


@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_broken_weights_are_refused(value: float) -> None:
    model, space = biased(PIN, {"7": value})
    with pytest.raises(NumericalError, match="NaN or infinite log-probabilities in float64"):
        Rescorer(model, space).bits([space.path(37)])


def _overflows(model: Any) -> Any:
    raise RuntimeError("value cannot be converted to type float without overflow\nmore")


def _is_nan(model: Any) -> Any:
    twin = copy.deepcopy(model).double()
    with torch.no_grad():
        twin.lm_head.weight.fill_(torch.nan)
    return twin


def _is_another_model(model: Any) -> Any:
    twin = copy.deepcopy(model).double()
    with torch.no_grad():
        twin.lm_head.weight.mul_(1.2)
    return twin


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (_overflows, "RuntimeError: value cannot be converted to type float without overflow"),
        (_is_nan, "it gives NaN or infinite log-probabilities"),
        (_is_another_model, "bits off the model in float32"),
    ],
)
def test_without_float64_the_model_is_asked_as_it_is(
    broken: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _, space, bits = listed("digits")
    monkeypatch.setattr(exact_search, "_copy_in_float64", broken)
    rescorer = Rescorer(model, space)
    found = rescorer.bits(list(paths_of(space)))
    np.testing.assert_allclose(found, bits, rtol=0, atol=1e-4)
    assert reason in rescorer.failure
    assert rescorer.tie_bits == 2e-5
    ranks = RankSearch(space, steps_of(model, space), model).ranks([37, 4], budget=Budget())
    assert [row.low for row in ranks] == [1 + int((bits < bits[i]).sum()) for i in (37, 4)]
    assert all(row.exact and row.margin.empirical for row in ranks)


def test_a_copy_that_fails_later_leaves_no_number_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, _, space, _ = listed("digits")
    paths = list(paths_of(space))
    rescorer = Rescorer(model, space)
    rescorer.bits(paths[:5])
    monkeypatch.setattr(exact_search, "walked_bits", _overflows)
    found = rescorer.bits(paths[:9])
    assert (
        rescorer.failure == "TypeError: _overflows() takes 1 positional argument but 3 were given"
    )
    monkeypatch.setattr(exact_search, "_copy_in_float64", _overflows)
    np.testing.assert_allclose(found, Rescorer(model, space).bits(paths[:9]), rtol=0, atol=1e-6)


EXPERTS = ["mixtral", "gpt_oss", "qwen3_next", "jamba", "xglm"]


@pytest.mark.parametrize("kind", EXPERTS)
def test_ranks_under_experts_are_those_of_listing_all_fills(kind: str) -> None:
    tokenizer = characters()
    model = family(kind, len(tokenizer))
    space = token_space(tokenizer, PIN, context=None)
    bits = Rescorer(model, space).bits(list(paths_of(space)))
    index = {tuple(path): i for i, path in enumerate(paths_of(space))}
    chosen = list(range(0, PIN.size, PIN.size // 10))
    search = RankSearch(space, steps_of(model, space), model)
    for secret, row in zip(chosen, search.ranks(chosen, budget=Budget()), strict=True):
        own = bits[index[tuple(space.path(secret))]]
        assert (row.low, row.exact) == (int((bits <= own + search.rescorer.tie_bits).sum()), True)
    assert search.margin.empirical  # rounding that moves a token to another expert knows no margin
