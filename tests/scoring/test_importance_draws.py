import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from faulty_steps import Cramped, NanBehind
from numpy.typing import NDArray
from scipy import stats
from slow_search import NESTED, PIN, SMALL, biased, listed, paths_of, steps_of
from tiny import byte_level_bpe, characters, model_of

from lmexposure.canaries import Format
from lmexposure.errors import InputError, ModelError, NumericalError, SettingsError
from lmexposure.scoring import (
    BranchAndBound,
    Budget,
    Draws,
    TokenSpace,
    draw_fills,
    importance_draws,
    token_space,
)

APART = [name for name in SMALL if not name.startswith("nested")]


# As documented: of twenty draws two of the model, one uniform.
TURNS = [5, 3, 2, 1, 4, 0, 3, 2, 1, 3, 2, 1, 4, 3, 2, 1, 0, 3, 2, 1]
J = 6
Path = tuple[int, ...]


def draws_of(name: str, **given: Any) -> Draws:
    model, _, space, _ = listed(name)
    return draw_fills(space, steps_of(model, space), **given)


class Listed:
    """Every beginning of a fill: its bits, and the fills behind it."""

    def __init__(self, model: Any, space: TokenSpace) -> None:
        self.fills = list(paths_of(space))
        self.bits: dict[Path, float] = {(): 0.0}
        self.below: dict[Path, int] = {}
        for path in self.fills:
            for n in range(len(path) + 1):
                self.below[path[:n]] = self.below.get(path[:n], 0) + 1
        self.children: dict[Path, list[Path]] = {}
        for path in self.below:
            if path:
                self.children.setdefault(path[:-1], []).append(path)
        self.inner = sorted(self.children, key=len)
        for prefix in self.inner:
            with torch.inference_mode():
                logits = model(input_ids=torch.tensor([[*space.beginning, *prefix]])).logits[0, -1]
            bits = -logits.double().log_softmax(-1).numpy() / math.log(2)
            for child in self.children[prefix]:
                self.bits[child] = self.bits[prefix] + bits[child[-1]]

    def h(self, path: Path, limit: float, top: int) -> float:
        """No more fills than this cost the limit or less, seen from `top` levels down."""
        if len(path) < top and path in self.children:
            return sum(self.h(child, limit, top) for child in self.children[path])
        return float(min(self.below[path], 2 ** min(limit - self.bits[path], 1e3)))

    def top(self, most_nodes: int) -> int:
        """So many whole levels have no more nodes than this, the root's apart."""
        sizes = np.bincount([len(prefix) for prefix in self.inner])
        return max(1, int((np.cumsum(sizes) <= max(1, most_nodes)).sum()))

    def probabilities(self, limits: Sequence[float], draws: int) -> dict[Path, NDArray[np.float64]]:
        """Of each beginning under each component, shape (J,)."""
        top = self.top(draws // 10)
        q: dict[Path, NDArray[np.float64]] = {(): np.ones(J)}
        for prefix in self.inner:
            children = self.children[prefix]
            h = np.array([[self.h(child, t, top) for t in limits] for child in children])
            for child, share in zip(children, h / h.sum(axis=0), strict=True):
                q[child] = q[prefix] * share
        return q


@cache
def enumerated(name: str) -> Listed:
    model, _, space, _ = listed(name)
    return Listed(model, space)


def q_of(name: str, found: Draws) -> dict[Path, NDArray[np.float64]]:
    """The limits lie where they lie; the probabilities follow from them."""
    return known_q(name, tuple(found.limits.tolist()), len(found))


@cache
def known_q(name: str, limits: tuple[float, ...], draws: int) -> dict[Path, NDArray[np.float64]]:
    return enumerated(name).probabilities(limits, draws)


def shares(draws: int) -> NDArray[np.float64]:
    turns = [TURNS[i % len(TURNS)] for i in range(draws)]
    return np.bincount(turns, minlength=J) / draws


def path_of(row: NDArray[np.int64]) -> Path:
    return tuple(row[row >= 0].tolist())


def groups_of(found: Draws) -> list[list[Path]]:
    """The fills of each group, by their paths."""
    seen = found.seen
    fills: list[list[Path]] = [[] for _ in seen.prefixes]
    for group, token in zip(seen.groups.tolist(), seen.tokens.tolist(), strict=True):
        fills[group].append((*path_of(seen.prefixes[group]), token))
    return fills


def grouped(truth: Listed, together: int = 64) -> dict[Path, tuple[Path, ...]]:
    """For each fill those that it is drawn with: all that end behind the same node, if few."""
    behind: dict[Path, list[Path]] = {}
    for path in truth.fills:
        behind.setdefault(path[:-1], []).append(path)
    few = {node: tuple(sorted(fills)) for node, fills in behind.items()}
    return {
        path: few[path[:-1]] if len(few[path[:-1]]) <= together else (path,) for path in truth.fills
    }


@pytest.mark.parametrize("together", [64, 3])
@pytest.mark.parametrize("name", APART)
@pytest.mark.parametrize("draws", [10, 107, 700])
def test_each_weight_is_one_over_the_probability_under_the_mixture(
    name: str, draws: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importance_draws, "_TOGETHER", together)
    truth, found = enumerated(name), draws_of(name, draws=draws, seed=1)
    q, limits = q_of(name, found), found.limits.tolist()
    assert limits == sorted(limits)
    assert (limits[0], limits[-1]) == (0, math.inf)
    np.testing.assert_allclose(found.shares, shares(draws))
    assert len(found) == len(found.seen.drawn) == draws
    assert np.bincount(found.components).tolist() == (shares(draws) * draws).round().tolist()
    groups, expected = groups_of(found), grouped(truth, together)
    assert sorted(set(found.seen.drawn.tolist())) == list(range(len(groups)))
    for fills, weight in zip(groups, found.seen.log2_weights, strict=True):
        assert tuple(sorted(fills)) == expected[fills[0]]
        probability = sum(q[path] @ shares(draws) for path in fills)
        assert weight == pytest.approx(-math.log2(probability), abs=1e-3)
    paths = [path for fills in groups for path in fills]
    assert len(paths) == len(set(paths)) == len(found.seen.bits)
    for path, bits in zip(paths, found.seen.bits, strict=True):
        assert bits == pytest.approx(truth.bits[path], abs=1e-3)
    top = truth.top(draws // 10)
    totals = [math.log2(truth.h((), t, max(top, 1))) for t in limits]
    np.testing.assert_allclose(found.log2_totals, totals, rtol=0, atol=1e-3)
    assert (found.log2_totals <= np.minimum(limits, math.log2(len(truth.fills))) + 1e-6).all()
    # Known beforehand: no fill is less likely than this.
    for path in truth.fills:
        least = np.minimum(1, np.exp2(np.array(limits) - truth.bits[path])) / np.exp2(totals)
        assert (q[path] >= least * (1 - 1e-4)).all()


@pytest.mark.parametrize("name", APART)
def test_fills_are_found_by_their_paths(name: str) -> None:
    found = draws_of(name, draws=400, seed=2)
    paths = [path for fills in groups_of(found) for path in fills]
    truth = enumerated(name)
    missing = [path for path in truth.fills if path not in paths][:3]
    for path in [*paths[:20], *missing, paths[0][:-1], ()]:
        assert found.seen.of(list(path)).tolist() == [other == path for other in paths]
    assert not found.seen.of([1] * (max(map(len, truth.fills)) + 2)).any()


def counts_of(
    found: Draws, groups: list[tuple[Path, ...]], component: int | None = None
) -> NDArray[np.int64]:
    """How often each group was drawn."""
    number = {fills: i for i, fills in enumerate(groups)}
    names = [number[tuple(sorted(fills))] for fills in groups_of(found)]
    mine = found.components == component if component is not None else slice(None)
    return np.bincount([names[i] for i in found.seen.drawn[mine]], minlength=len(groups))


@pytest.mark.parametrize("name", APART)
def test_each_component_draws_as_its_distribution_says(name: str) -> None:
    truth, found = enumerated(name), draws_of(name, draws=20_000, seed=3)
    q = q_of(name, found)
    groups = sorted(set(grouped(truth).values()))
    for j in range(J):
        counts = counts_of(found, groups, j)
        expected = np.array([sum(q[path][j] for path in fills) for fills in groups])
        expected *= counts.sum()
        enough = expected >= 5
        observed = [*counts[enough], counts[~enough].sum()]
        wanted = [*expected[enough], expected[~enough].sum()]
        kept = np.array(wanted) > 0.5
        statistic = ((np.array(observed) - wanted) ** 2 / np.maximum(wanted, 0.5))[kept].sum()
        assert stats.chi2.sf(statistic, max(1, kept.sum() - 1)) > 1e-4


@pytest.mark.parametrize("name", ["check digit", "merged words", "sentence piece"])
def test_expected_steps_are_those_of_a_walk_on_average(name: str) -> None:
    truth = enumerated(name)
    model, _, space, bits = listed(name)
    steps = steps_of(model, space)
    limits = [float(np.quantile(bits, q)) for q in (0.0, 0.2, 0.7)] + [1e6]
    inner = np.array([truth.bits[prefix] for prefix in truth.inner])
    found = [draw_fills(space, steps, draws=300, seed=seed) for seed in range(40)]
    for limit in limits:
        walk = BranchAndBound(space, steps, limit=limit, visit=lambda leaves: None, budget=Budget())
        walk.run()
        assert abs(walk.spent - (inner <= limit).sum()) <= 1  # rounding at the limit
        guessed = np.array([one.expected_steps(limit) for one in found])
        error = guessed.std(ddof=1) / math.sqrt(len(found)) + 1e-9
        assert abs(guessed.mean() - walk.spent) < 4.5 * error + 1


@pytest.mark.parametrize("name", ["check digit", "merged words", "sentence piece"])
def test_so_many_fills_are_listed_by_a_walk_of_so_many_steps(name: str) -> None:
    truth = enumerated(name)
    model, _, space, bits = listed(name)
    inner = np.array([truth.bits[prefix] for prefix in truth.inner])
    costs = np.array([(inner <= limit + 1e-3).sum() for limit in np.sort(bits)])
    found = [draw_fills(space, steps_of(model, space), draws=2_000, seed=s) for s in range(10)]
    assert {one.likeliest_within(0.5, 1e-3) for one in found} == {0}
    for allowed in (0.3 * costs[-1], 0.6 * costs[-1], costs[-1]):
        guessed = np.median([one.likeliest_within(allowed, 1e-3) for one in found])
        # Many fills become affordable at once, with the node before them.
        fewer, more = np.searchsorted(costs, [0.85 * allowed, 1.15 * allowed], "right")
        assert 0.85 * fewer - 1 <= guessed <= 1.15 * more + 1


def test_the_seed_decides_everything() -> None:
    one, same, other = (draws_of("merged words", draws=200, seed=s) for s in (5, 5, 6))
    for column in ("components", "prefix_bits", "prefix_log2_weights"):
        np.testing.assert_array_equal(getattr(one, column), getattr(same, column))
    for column in ("bits", "tokens", "groups", "prefixes", "log2_weights", "drawn"):
        np.testing.assert_array_equal(getattr(one.seen, column), getattr(same.seen, column))
    assert not np.array_equal(one.seen.prefixes, other.seen.prefixes)
    assert one.steps == same.steps


@pytest.mark.parametrize("block", [50, 601])
def test_blocks_change_the_draws_and_not_their_distribution(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importance_draws, "_block_size", lambda *arguments: block)
    truth, M, seeds = enumerated("digits"), 601, 5
    groups = sorted(set(grouped(truth).values()))
    counts = np.zeros(len(groups))
    for seed in range(seeds):
        found = draws_of("digits", draws=M, seed=seed)
        q = q_of("digits", found)
        assert len(found) == M
        for fills, weight in zip(groups_of(found), found.seen.log2_weights, strict=True):
            probability = sum(q[path] @ shares(M) for path in fills)
            assert weight == pytest.approx(-math.log2(probability), abs=1e-3)
        counts += counts_of(found, groups)
    expected = np.array([sum(q[path] @ shares(M) for path in fills) for fills in groups])
    expected *= M * seeds
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert stats.chi2.sf(statistic, len(counts) - 1) > 1e-4


def test_blocks_follow_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[int]()
    right = importance_draws._DrawBlock

    def noted(space: Any, steps: Any, top: Any, components: Any, *rest: Any) -> Any:
        made.append(len(components))
        return right(space, steps, top, components, *rest)

    monkeypatch.setattr(importance_draws, "_DrawBlock", noted)
    draws_of("digits", draws=100, seed=0)
    monkeypatch.setattr(importance_draws, "_MOST_CHILDREN", 300)
    draws_of("digits", draws=100, seed=0)
    monkeypatch.setattr(importance_draws, "_BLOCK_BYTES", 1)
    draws_of("digits", draws=100, seed=0)
    assert made == [100, *[30] * 3, 10, *[10] * 10]


@pytest.mark.parametrize("tokenizer", [characters, byte_level_bpe])
def test_fills_that_begin_one_another_are_refused(tokenizer: Any) -> None:
    made = tokenizer()
    model, space = model_of("lstm", len(made)), token_space(made, NESTED, context=None)
    with pytest.raises(InputError, match="one secret of the format begins another"):
        draw_fills(space, steps_of(model, space), draws=60, seed=0)


@pytest.mark.parametrize("draws", [9, 0, -1])
def test_too_few_draws_are_refused(draws: int) -> None:
    with pytest.raises(SettingsError, match=f"draws={draws} must be .* at least 10"):
        draws_of("digits", draws=draws, seed=0)


def test_nan_in_one_branch_is_refused() -> None:
    model, _, space, _ = listed("digits")
    steps = NanBehind(steps_of(model, space), space.path(37)[0])
    with pytest.raises(NumericalError, match="NaN 1 tokens into the secrets"):
        draw_fills(space, steps, draws=600, seed=0)


def test_logits_out_of_range_are_refused() -> None:
    """At 1e38 float32 knows no difference of log V, so that each token has probability 1."""
    model, space = biased(PIN)
    with torch.no_grad():
        model.lm_head.weight.zero_()
        model.lm_head.bias.fill_(1e38)
    with pytest.raises(NumericalError, match=r"logits are out of range: .* check the checkpoint"):
        draw_fills(space, steps_of(model, space), draws=60, seed=0)


def test_a_token_without_probability_is_drawn_by_the_uniform_alone() -> None:
    model, space = biased(PIN, {"3": -math.inf})
    dead = space.path(33)[0]
    found = draw_fills(space, steps_of(model, space), draws=6000, seed=0)
    seen = found.seen
    hit = (seen.prefixes[seen.groups] == dead).any(axis=1) | (seen.tokens == dead)
    assert (seen.bits[hit] >= 1e6).all()
    assert seen.bits[~hit].max() < 1e3
    # All ten behind the dead token are drawn by the uniform component alone, one draw in twenty.
    behind = (seen.prefixes == dead).any(axis=1)
    assert (found.components[behind[seen.drawn]] == J - 1).all()
    np.testing.assert_allclose(seen.log2_weights[behind], math.log2(10 * 20))
    weights = np.exp2(seen.log2_weights[seen.drawn])
    alive = np.bincount(seen.groups[~hit], minlength=len(weights))[seen.drawn]
    assert (weights * alive).mean() == pytest.approx(81, rel=0.1)


def test_a_huge_space_has_finite_weights() -> None:
    form = Format(name="huge", template="My PIN is {digits:40}")
    model, space = biased(form)
    found = draw_fills(space, steps_of(model, space), draws=60, seed=0)
    weights = found.seen.log2_weights
    assert np.isfinite(weights).all()
    # of ten fills a group, a twentieth of the draws
    assert weights.max() <= 39 * math.log2(10) + math.log2(20) + 1e-6
    assert weights[found.seen.drawn[found.components == J - 1]].min() > 100
    assert found.expected_steps(-1.0) == 1
    assert found.expected_steps(1e6) > 10**30


def test_memory_short_halves_the_block_and_goes_on() -> None:
    form = Format(name="six", template="My PIN is {digits:6}")
    model, space = biased(form)
    cramped = Cramped(steps_of(model, space), most=60)
    found = draw_fills(space, cramped, draws=1000, seed=0)
    assert cramped.refused > 0
    assert len(found) == 1000
    weights = np.exp2(found.seen.log2_weights)[found.seen.drawn]
    assert 10 * weights.mean() == pytest.approx(form.size, rel=0.5)
    with pytest.raises(ModelError, match="out of memory with one text at a time"):
        draw_fills(space, Cramped(steps_of(model, space), most=0), draws=10, seed=0)


def test_draws_tell_how_far_they_are_and_are_the_same_watched() -> None:
    told: list[tuple[int, int]] = []
    name = APART[0]
    watched = draws_of(name, draws=100, seed=3, progress=lambda *at: told.append(at))
    alone = draws_of(name, draws=100, seed=3)
    assert (watched.seen.bits == alone.seen.bits).all()
    assert told == sorted(told)
    assert told[-1] == (100, 100)
