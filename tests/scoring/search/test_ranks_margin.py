"""The margin within which a search for ranks scores again: measured, and found out when wrong."""

import numpy as np
import pytest
import torch
from faulty_steps import Off
from scoring.search.enumerated_ranks import assert_as_enumerated, search_of
from slow_search import LUHN, all_bits, listed, steps_of
from tiny import characters, model_of

from lmexposure.errors import NumericalError
from lmexposure.scoring import (
    Budget,
    token_space,
)

UNLIMITED = Budget()


def test_a_walk_worse_than_its_margin_is_found_out() -> None:
    """The canary itself comes out of the walk too dear, or cheap."""
    model, _, space, _ = listed("digits")
    for by in (0.5, -0.5):
        steps = Off(steps_of(model, space), by, space.path(37)[0])
        search = search_of(model, space, steps)
        steps.quiet = False
        with pytest.raises(NumericalError, match=r"missed fills that cost .* above the\s+margin"):
            search.ranks([37], budget=UNLIMITED)


def test_a_planted_sibling_that_the_walk_missed_is_found_out() -> None:
    model, _, space, bits = listed("digits")
    order = np.argsort(bits).tolist()
    best, cheap = order[0], space.path(order[0])[0]
    second = next(i for i in order if space.path(i)[0] != cheap)
    steps = Off(steps_of(model, space), 5.0, cheap)
    search = search_of(model, space, steps, excluded=[best])
    steps.quiet = False
    with pytest.raises(NumericalError, match="missed fills"):
        search.ranks([second], budget=UNLIMITED)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", ["lstm", "gpt2"])
def test_other_dtypes(kind: str, dtype: torch.dtype) -> None:
    tokenizer = characters()
    model = model_of(kind, len(tokenizer)).to(dtype)
    space = token_space(tokenizer, LUHN, context=None)
    bits = all_bits(model, tokenizer, LUHN, skip=len(space.beginning))
    search = search_of(model, space)
    half = dtype == torch.bfloat16
    assert search.margin.empirical == half
    indices = space.format.sample(40, seed=3)
    found = search.ranks(indices, budget=UNLIMITED)
    if not half:
        assert search.margin.bits == 1e-3
        assert search.margin.measured < 1e-6
    else:
        assert search.margin.sample == 256
        assert search.margin.bits == 4 * search.margin.measured > 1e-3
    # Within the margin fills were scored again, so that bfloat16 gives the float64 ranks, too.
    assert_as_enumerated(found, indices, bits)


def test_a_walk_in_bfloat16_of_a_float32_model_rests_on_a_sample() -> None:
    model, _, space, bits = listed("thousand")
    twin = model_of("lstm", len(characters())).to(torch.bfloat16)
    search = search_of(model, space, steps_of(twin, space))
    assert search.margin.empirical
    assert search.margin.bits >= 4 * search.margin.measured > 1e-3
    indices = [3, 500, int(bits.argmin())]
    assert_as_enumerated(search.ranks(indices, budget=UNLIMITED), indices, bits)


def test_a_float32_walk_with_a_larger_error_rests_on_a_sample() -> None:
    model, _, space, bits = listed("thousand")
    steps = Off(steps_of(model, space), 3e-3, space.path(370)[0])
    steps.quiet = False
    search = search_of(model, space, steps)
    assert search.margin.empirical
    assert search.margin.bits == pytest.approx(4 * 3e-3, rel=0.1)
    indices = list(range(0, 1000, 40))
    assert_as_enumerated(search.ranks(indices, budget=UNLIMITED), indices, bits)


def test_a_measured_error_has_to_stay_far_within_the_fixed_margin() -> None:
    model, _, space, _ = listed("thousand")
    for error, empirical in ((2e-4, False), (5e-4, True)):
        steps = Off(steps_of(model, space), error, space.path(370)[0])
        steps.quiet = False
        search = search_of(model, space, steps)
        assert search.margin.empirical == empirical
        assert search.margin.bits == pytest.approx(max(1e-3, 4 * error), rel=0.25)


def test_the_sample_depends_on_the_seed() -> None:
    model, _, space, _ = listed("thousand")
    measured = {search_of(model, space, seed=seed).margin.measured for seed in range(6)}
    assert len(measured) > 1
    assert search_of(model, space, seed=3).margin == search_of(model, space, seed=3).margin
