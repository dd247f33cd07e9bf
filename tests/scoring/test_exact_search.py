"""A search for ranks, and the enumeration that its ranks are held against.

What is proven when steps, seconds, memory or patience come to an end; the margin within which fills
are scored again: measured, and found out when wrong.
"""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from faulty_steps import Interrupted, Off
from numpy.typing import NDArray
from scoring.families import family
from slow_search import (
    LUHN,
    PIN,
    SMALL,
    Small,
    biased,
    listed,
    make_twins,
    naive_places,
    naive_ranks,
    paths_of,
    steps_of,
)
from tiny import characters, model_of

from lmexposure.canaries import Format
from lmexposure.errors import FormatError, NumericalError
from lmexposure.scoring import (
    Budget,
    ProvenRank,
    RankSearch,
    Rescorer,
    TokenSpace,
    exact_search,
    token_space,
    walked_bits,
)
from lmexposure.scoring.exact_search import TIE_BITS, measured_error


def search_of(model: Any, space: TokenSpace, steps: Any = None, **given: Any) -> RankSearch:
    return RankSearch(space, steps or steps_of(model, space), model, **given)


def assert_as_enumerated(
    found: Sequence[ProvenRank],
    indices: Sequence[int],
    bits: NDArray[np.float64],
    planted: Sequence[int] = (),
    *,
    slack: float = 1e-7,
) -> None:
    """Exact, and equal to the naive counts but where two costs differ by a tie, give or take."""
    places = [naive_places(bits, slack=s)[list(indices)] for s in (-slack, slack)]
    ranks = [naive_ranks(bits, planted, slack=s)[list(indices)] for s in (-slack, slack)]
    assert (places[0] != places[1]).mean() <= 0.05  # hardly ever
    for i, one in enumerate(found):
        assert one.exact
        assert one.place_low == one.place_high
        assert places[0][i] <= one.place_low <= places[1][i]
        assert ranks[0][i] <= one.low <= ranks[1][i]
        assert one.bits == pytest.approx(bits[indices[i]], abs=1e-4)


def assert_holds(
    found: Sequence[ProvenRank],
    indices: Sequence[int],
    bits: NDArray[np.float64],
    planted: Sequence[int] = (),
) -> None:
    """The proven bounds hold the truth."""
    places, ranks = naive_places(bits)[list(indices)], naive_ranks(bits, planted)[list(indices)]
    for one, place, rank in zip(found, places, ranks, strict=True):
        assert 1 <= one.place_low <= place <= one.place_high <= len(bits)
        assert 1 <= one.low <= rank <= one.high <= len(bits)
        assert one.exact == (one.low == one.high)
        assert one.low <= one.place_low
        assert one.high <= one.place_high


UNLIMITED = Budget()
ALL = [*SMALL, "thousand"]


@pytest.mark.parametrize("name", ALL)
def test_every_rank_is_that_of_the_enumeration(name: str) -> None:
    model, _, space, bits = listed(name)
    search = search_of(model, space)
    assert not search.margin.empirical
    assert search.margin.bits == 1e-3
    assert search.margin.measured < 2.5e-4
    assert search.margin.sample == min(64, space.size)
    indices = list(range(space.size))
    told: list[int] = []
    found = search.ranks(indices, budget=UNLIMITED, watch=told.append)
    assert told == sorted(told)
    assert told[-1] <= search.spent
    assert_as_enumerated(found, indices, bits)
    assert all(one.low == one.place_low for one in found)  # nothing is planted
    assert not search.interrupted


@pytest.mark.parametrize("name", ["thousand", "merged words", "nested", "nested and merged"])
def test_planted_siblings_are_set_aside(name: str) -> None:
    model, _, space, bits = listed(name)
    order = np.argsort(bits).tolist()
    for planted in (order[:4], order[-3:], order[1:7:2], [order[0]] * 3):
        search = search_of(model, space, excluded=planted)
        indices = [*order[:8], order[-1], order[len(order) // 2]]
        found = search.ranks(indices, budget=UNLIMITED)
        assert_as_enumerated(found, indices, bits, planted)
        for budget in (1, 3, 10):
            part = search.ranks(indices, budget=Budget(steps=budget))
            assert_holds(part, indices, bits, planted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_where_no_second_copy_is_to_be_had_numbers_are_of_one_kind(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = Format(name="p", template="My PIN is {digits:3}{luhn}")
    tokenizer, model = characters(), model_of("lstm", len(characters())).to(dtype)
    space = token_space(tokenizer, form, context=None)
    own = Rescorer(model, space)
    own.failure = "as it is"
    paths = [space.path(index) for index in range(space.size)]
    bits = own.bits(paths)
    copies, copied = [], exact_search._copy_in_float64

    def once(source: Any) -> Any:
        copies.append(source)
        if len(copies) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return copied(source)

    for index in form.sample(8, seed=3):
        copies.clear()
        monkeypatch.setattr(exact_search, "_copy_in_float64", once)
        search = RankSearch(space, steps_of(model, space), model)
        [found] = search.ranks([index], budget=Budget())
        monkeypatch.undo()
        if len(copies) > 1:
            as_it_is = int((bits <= bits[index] + own.tie_bits).sum())
            assert (found.place_low, found.place_high) == (as_it_is, as_it_is)
            assert found.margin.empirical
    assert copies


@pytest.mark.parametrize("kind", ["lstm", "gpt2", "llama", "mistral"])
def test_ties_count_against_the_canary(kind: str) -> None:
    small = Small(kind, characters, PIN)
    model, tokenizer, space = small.made()
    for one, other in ("37", "04", "05"):
        make_twins(model, *tokenizer.convert_tokens_to_ids([one, other]))
    bits = small.bits(model, tokenizer, space)
    planted = [33, 40]
    search = search_of(model, space, excluded=planted)
    indices = list(range(space.size))
    found = search.ranks(indices, budget=UNLIMITED)
    assert_as_enumerated(found, indices, bits, planted)
    ties = {index: found[index] for index in (33, 37, 73, 77)}
    assert len({one.place_low for one in ties.values()}) == 1  # each is behind the three
    # 33 was planted: it counts not for the others, and the three count for it.
    assert ties[33].low == ties[37].low + 1 == ties[77].low + 1


@pytest.mark.parametrize("index", [-1, 100, 10**30])
def test_an_index_outside_is_refused(index: int) -> None:
    model, _, space, _ = listed("digits")
    with pytest.raises(FormatError, match="index"):
        search_of(model, space).ranks([3, index], budget=UNLIMITED)
    with pytest.raises(FormatError, match="index"):
        search_of(model, space, excluded=[index])


HUGE = Format(name="huge", template="My PIN is {digits:40}")
SEVENS = 7 * (10**40 - 1) // 9  # forty of them


def test_memorised_canaries_among_ten_to_the_forty() -> None:
    """A model that says "7" again and again: behind that come the fills with one other digit."""
    model, space = biased(HUGE, {"7": 40.0})
    near = [SEVENS + (d - 7) * 10**k for k in range(40) for d in range(10) if d != 7]
    planted = near[5:300:31]
    search = search_of(model, space, excluded=planted, live_states=500)
    bits = search.bits([SEVENS, *near])
    assert bits.max() < search.bits([SEVENS - 55, SEVENS + 11]).min() - 10
    # The LSTM soon forgets where it read another digit, and costs come close to each other.
    clear = naive_places(bits, slack=-1e-7) == naive_places(bits, slack=1e-7)
    wanted = np.flatnonzero(clear)[:40].tolist()
    assert len(wanted) == 40
    found = search.ranks([[SEVENS, *near][i] for i in wanted], budget=UNLIMITED)
    positions = [1 + i for i in range(360) if near[i] in planted]
    assert_as_enumerated(found, wanted, bits, positions)
    assert search.most_live <= 500
    assert search.spent < 20_000


@pytest.mark.parametrize("name", SMALL)
def test_every_budget_gives_bounds_that_hold(name: str) -> None:
    model, _, space, bits = listed(name)
    order = np.argsort(bits).tolist()
    planted = order[1:6:2]
    search = search_of(model, space, excluded=planted, live_states=8 * (space.longest + 1))
    indices = [*order[:5], *order[5 :: max(1, len(order) // 5)], order[-1]]
    full = search_of(model, space)
    full.ranks(indices, budget=UNLIMITED)
    opened = False
    for steps in {*range(1, 9), *range(9, full.spent, max(1, full.spent // 5)), full.spent}:
        before = search.spent
        found = search.ranks(indices, budget=Budget(steps=steps))
        assert search.spent - before <= steps
        assert_holds(found, indices, bits, planted)
        opened = opened or not all(one.exact for one in found)
    assert opened
    assert_as_enumerated(found, indices, bits, planted) if steps == full.spent else None
    last = search.ranks(indices, budget=Budget(steps=full.spent))
    assert_as_enumerated(last, indices, bits, planted)


@pytest.mark.parametrize("name", ["thousand", "nested", "sentence piece"])
def test_an_interrupt_keeps_what_was_proven(name: str) -> None:
    model, _, space, bits = listed(name)
    order = np.argsort(bits).tolist()
    planted, indices = order[2:5], order[:6]
    for after in (1, 2, 3, 5, 9):
        steps = Interrupted(steps_of(model, space), 0)
        search = search_of(model, space, steps, excluded=planted, live_states=4 * space.longest)
        assert not search.margin.empirical  # measured before, without an interrupt
        steps.left = after
        found = search.ranks(indices, budget=UNLIMITED)
        assert search.interrupted == (steps.left <= 0)
        assert_holds(found, indices, bits, planted)
    steps.left = 0
    assert search.ranks([], budget=UNLIMITED) == []
    assert search.ranks(indices[:1], budget=UNLIMITED)[0].exact
    assert not search.interrupted


def test_an_interrupt_before_anything_was_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, space, bits = listed("digits")
    steps = steps_of(model, space)
    search = search_of(model, space, steps, excluded=[4, 5])
    assert search.margin.bits == 1e-3  # measured beforehand

    def interrupted(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(steps, "start", interrupted)
    (found,) = search.ranks([5], budget=UNLIMITED)
    assert search.interrupted
    assert_holds([found], [5], bits, [4, 5])
    assert (found.place_low, found.place_high) == (1, 100)


def test_a_walk_worse_than_its_margin_is_found_out() -> None:
    """The canary itself comes out of the walk too dear, or cheap."""
    model, _, space, _ = listed("digits")
    for by in (0.5, -0.5):
        steps = Off(steps_of(model, space), by, space.path(37)[0], quiet=True)
        search = search_of(model, space, steps)
        assert search.margin.bits == 1e-3
        steps.quiet = False
        with pytest.raises(NumericalError, match=r"missed secrets of .* above the\s+margin"):
            search.ranks([37], budget=UNLIMITED)


def test_a_planted_sibling_that_the_walk_missed_is_found_out() -> None:
    model, _, space, bits = listed("digits")
    order = np.argsort(bits).tolist()
    best, cheap = order[0], space.path(order[0])[0]
    second = next(i for i in order if space.path(i)[0] != cheap)
    steps = Off(steps_of(model, space), 5.0, cheap, quiet=True)
    search = search_of(model, space, steps, excluded=[best])
    assert search.margin.bits == 1e-3
    steps.quiet = False
    with pytest.raises(NumericalError, match="missed secrets"):
        search.ranks([second], budget=UNLIMITED)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", ["lstm", "gpt2"])
def test_other_dtypes(kind: str, dtype: torch.dtype) -> None:
    small = Small(kind, characters, LUHN)
    model, tokenizer, space = small.made()
    bits = small.bits(model.to(dtype), tokenizer, space)
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


def test_a_measured_error_has_to_stay_far_within_the_fixed_margin() -> None:
    model, _, space, _ = listed("thousand")
    for error, empirical in ((2e-4, False), (5e-4, True)):
        steps = Off(steps_of(model, space), error, space.path(370)[0])
        search = search_of(model, space, steps)
        assert search.margin.empirical == empirical
        assert search.margin.bits == pytest.approx(max(1e-3, 4 * error), rel=0.25)


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
    right = measured_error(space, steps, rescorer, range(space.size))
    assert 0 < right < 1e-4
    broken = Off(steps, 0.25, space.path(37)[0])  # ten fills begin so, of a hundred
    for broken.by in (-0.25, 0.25):
        error = measured_error(space, broken, rescorer, range(space.size))
        assert error == pytest.approx(0.25, abs=1e-4)
    few = [
        measured_error(space, broken, rescorer, space.format.sample(2, seed=s)) for s in range(40)
    ]
    assert min(few) < 1e-4 < 0.2 < max(few)


def test_canaries_are_part_of_the_sample() -> None:
    model, _, space, _ = listed("thousand")
    for number, least in ((0, 64), (30, 60), (64, 60)):
        search = search_of(model, space, excluded=range(number))
        measured = [search.is_measured]
        assert least <= search.margin.sample <= 64
        assert [*measured, search.is_measured] == [False, True]
        assert all(search.rescorer.known(space.path(i)) is not None for i in range(min(number, 48)))


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
    ranks = search_of(model, space).ranks([37, 4], budget=UNLIMITED)
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
    search = search_of(model, space)
    for secret, row in zip(chosen, search.ranks(chosen, budget=UNLIMITED), strict=True):
        own = bits[index[tuple(space.path(secret))]]
        assert (row.low, row.exact) == (int((bits <= own + search.rescorer.tie_bits).sum()), True)
    assert search.margin.empirical  # rounding that moves a token to another expert knows no margin
