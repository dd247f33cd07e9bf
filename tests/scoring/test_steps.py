import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scoring.families import VOCABULARY, family

from lmexposure.models import LstmConfig, LstmForCausalLM
from lmexposure.scoring import (
    CachedSteps,
    PathSteps,
    RecomputedSteps,
    Steps,
    cached_steps,
    next_token_steps,
)
from lmexposure.scoring import steps as steps_module
from lmexposure.scoring.cached_steps import _PathLayer
from lmexposure.scoring.steps import LstmSteps, pair_bits

V = VOCABULARY
ALL = np.arange(V)
PROBE = [5, 9, 3, 7, 4, 8, 6, 10, 11, 12, 5, 3]  # longer than any sliding window here
RECOMPUTED = ["rwkv", "recurrent_gemma"]
# Each with another kind of cache, window or state.
CACHED = ["gpt2", "gpt_neox", "llama", "mistral", "qwen2", "qwen2_sliding", "gemma", "gemma2"]
CACHED += ["gemma3", "opt", "granite", "cohere", "bloom", "mamba", "mamba2", "jamba"]
LATER = ["mixtral", "qwen3_next", "deepseek_v3", "gpt_oss", "lfm2", "falcon_h1"]
FORKED = {
    "mamba",
    "mamba2",
    "jamba",
    "qwen3_next",
    "lfm2",
    "falcon_h1",
}  # not keys and values alone
BEGUN = [(name, PROBE) for name in CACHED + LATER] + [(name, PROBE[:1]) for name in CACHED]


class Prefixes:
    """Steps, and the prefixes that they are for, written out."""

    def __init__(
        self, model: Any, steps: Steps, begun: Sequence[int], atol: float | None = None
    ) -> None:
        self.model, self.steps = model, steps
        usual = {torch.float64: 1e-5, torch.float32: 1e-3}.get(model.dtype, 0.25)
        self.tolerance = usual if atol is None else atol
        state, bits = steps.start(begun, ALL)
        assert state.rows == 1
        self.made: list[tuple[Any, list[list[int]]]] = [(state, [list(begun)])]
        self.compare(bits[None], [list(begun)])

    def advance(self, origin: int, parents: list[int], tokens: list[int]) -> None:
        state, prefixes = self.made[origin]
        N = len(parents)
        new, bits = self.steps.advance(
            state, np.array(parents), np.array(tokens), np.repeat(np.arange(N), V), np.tile(ALL, N)
        )
        grown = [[*prefixes[p], t] for p, t in zip(parents, tokens, strict=True)]
        assert new.rows == N
        assert new.nbytes > 0
        self.compare(bits.reshape(N, V), grown)
        self.made.append((new, grown))

    def compare(self, bits: NDArray[np.float64], prefixes: list[list[int]]) -> None:
        assert bits.dtype == np.float64
        for found, prefix in zip(bits, prefixes, strict=True):
            with torch.inference_mode():
                out = self.model(input_ids=torch.tensor([prefix]), use_cache=False)
            slow = -out.logits[0, -1].double().log_softmax(-1).numpy() / np.log(2)
            np.testing.assert_allclose(found, slow, rtol=0, atol=self.tolerance)


def walk_about(model: Any, steps: Steps, begun: Sequence[int], atol: float | None = None) -> None:
    """Fork, repeat, drop, and come back to old states after newer ones were made from them."""
    walk = Prefixes(model, steps, begun, atol)
    walk.advance(0, [0, 0, 0], [3, 4, 5])
    walk.advance(1, [2, 0, 0, 1], [6, 7, 8, 9])
    walk.advance(2, [3, 3], [10, 11])
    walk.advance(2, [0, 1, 2], [12, 12, 12])
    walk.advance(1, [1], [13])
    walk.advance(0, [0, 0], [14, 15])
    walk.advance(3, [1, 0, 1, 0, 1], [1, 2, 3, 4, 5])
    walk.advance(2, [1, 0], [7, 6])
    walk.advance(1, [0, 1, 2], [5, 4, 3])
    assert steps.evaluated == 1 + 3 + 4 + 2 + 3 + 1 + 2 + 5 + 2 + 3


@pytest.mark.parametrize(("name", "begun"), BEGUN, ids=lambda value: str(value)[:12])
def test_every_family_walks_on_its_cache(name: str, begun: list[int]) -> None:
    model = family(name)
    steps = next_token_steps(model, PROBE)
    assert type(steps) is (CachedSteps if name in FORKED else PathSteps)
    assert steps.evaluated == 0  # the probe is not charged to the search
    walk_about(model, steps, begun)


@pytest.mark.parametrize("name", ["gpt2", "gemma2"])
def test_whole_caches_are_forked_where_keys_and_values_cannot_be_shared(name: str) -> None:
    model = family(name)
    walk_about(model, CachedSteps(model, PROBE), PROBE)


@pytest.mark.parametrize("name", ["gpt2", "gemma2"])
def test_rows_are_computed_in_blocks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cached_steps._BLOCK_ROWS, "cpu", 2)
    model = family(name)
    walk_about(model, PathSteps(model, PROBE), PROBE)


def test_blocks_are_of_one_size_and_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cached_steps._BLOCK_ROWS, "cpu", 100)
    steps = PathSteps(family("gpt2"), PROBE)
    state, _ = steps.start(PROBE, ALL)
    assert steps._blocks(state, 3) == [slice(0, 3)]
    assert steps._blocks(state, 201) == [slice(0, 67), slice(67, 134), slice(134, 201)]
    monkeypatch.setitem(cached_steps._BLOCK_BYTES, "cpu", 70 * state.attended_bytes)
    assert steps._blocks(state, 140) == [slice(0, 70), slice(70, 140)]
    monkeypatch.setitem(cached_steps._BLOCK_BYTES, "cpu", 1)  # the weights are read all the same
    assert steps._blocks(state, 128) == [slice(0, 64), slice(64, 128)]


@pytest.mark.parametrize("name", RECOMPUTED)
def test_a_model_without_a_cache_that_forks_is_recomputed(name: str) -> None:
    model = family(name)
    steps = next_token_steps(model, PROBE)
    assert isinstance(steps, RecomputedSteps)
    assert "computes its whole prefix again" in steps.slower
    assert "its cache fails with KeyError" in steps.slower
    walk_about(model, RecomputedSteps(model), PROBE)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["gpt2", "mamba"])
def test_other_dtypes_walk_on_their_cache(name: str, dtype: torch.dtype) -> None:
    model = family(name).to(dtype)
    steps = next_token_steps(model, PROBE)
    assert type(steps) is (CachedSteps if name in FORKED else PathSteps)
    walk_about(model, steps, PROBE)


def test_float64_is_not_rounded_on_the_way_to_bits() -> None:
    logits = torch.tensor([[1.0, 1.0 + 1e-12, 30.0]], dtype=torch.float64)
    bits = pair_bits(logits, np.array([0, 0]), np.array([0, 1]))
    assert bits[0] - bits[1] == pytest.approx(1e-12 / np.log(2), rel=0.02)


def test_rows_and_columns_may_be_left_out_and_come_in_any_order() -> None:
    model = family("llama")
    kinds: list[Any] = [PathSteps(model), CachedSteps(model), RecomputedSteps(model)]
    for steps in kinds:
        state, none = steps.start(PROBE, np.empty(0, dtype=np.int64))
        assert none.shape == (0,)
        parents, tokens = np.zeros(2, dtype=np.int64), np.array([3, 4])
        rows, columns = np.repeat(np.arange(2), V), np.tile(ALL, 2)
        _, whole = steps.advance(state, parents, tokens, rows, columns)
        _, some = steps.advance(state, parents, tokens, np.array([1, 0, 1]), np.array([9, 2, 9]))
        np.testing.assert_allclose(some, whole.reshape(2, V)[[1, 0, 1], [9, 2, 9]], atol=1e-6)
        empty = np.empty(0, dtype=np.int64)
        state, none = steps.advance(state, parents, tokens, empty, empty)
        assert state.rows == 2
        assert none.shape == (0,)


def test_each_token_of_a_tree_is_held_once() -> None:
    heads, size, layers, keys_and_values, float32 = 1, 16, 2, 2, 4
    token, place = heads * size * layers * keys_and_values * float32, 8
    steps = PathSteps(family("llama"))
    state, _ = steps.start(PROBE, ALL)
    assert state.nbytes == len(PROBE) * token
    for depth, N in enumerate((5, 9, 2), 1):
        state = grown(steps, state, N)
        assert state.rows == N
        fed = sum((5, 9, 2)[:depth])
        assert state.nbytes == (len(PROBE) + fed) * token + depth * N * place


def grown(steps: Any, state: Any, rows: int) -> Any:
    """States of this many rows that are one token further."""
    parents, none = np.arange(rows) % state.rows, np.empty(0, dtype=np.int64)
    return steps.advance(state, parents, np.full(rows, 3), none, none)[0]


@pytest.mark.parametrize("kind", [PathSteps, CachedSteps, RecomputedSteps, LstmSteps])
def test_the_memory_of_further_rows_is_foreseen(kind: Any) -> None:
    steps = kind(family("lstm" if kind is LstmSteps else "gpt2"))
    begun, _ = steps.start(PROBE, ALL)
    states = [begun]
    for _ in range(3):
        states.append(grown(steps, states[-1], 7))
    shared = begun.nbytes if kind is PathSteps else 0
    assert 7 * begun.row_bytes(3, every=False) == states[-1].nbytes - shared
    every = [states[-1].nbytes] if kind is PathSteps else [s.nbytes for s in states[1:]]
    assert 7 * begun.row_bytes(3, every=True) >= sum(every) - shared


@pytest.mark.parametrize("name", ["gpt2", "gemma2", "mistral", "mamba", "rwkv", "lstm"])
def test_whole_distributions_are_those_of_the_bits(name: str) -> None:
    steps, begun = next_token_steps(family(name), PROBE), list(PROBE)
    columns, parents = np.arange(VOCABULARY), np.zeros(3, dtype=np.int64)
    state, bits = steps.start(begun, columns)
    again, logits = steps.start_all(begun)
    np.testing.assert_allclose(_bits(logits).ravel(), bits, atol=1e-4)
    tokens, rows = np.array([3, 4, 60]), np.repeat(np.arange(3), VOCABULARY)
    _, bits = steps.advance(state, parents, tokens, rows, np.tile(columns, 3))
    _, logits = steps.advance_all(again, parents, tokens)
    np.testing.assert_allclose(_bits(logits).ravel(), bits, atol=1e-4)


def _bits(logits: torch.Tensor) -> np.ndarray[Any, Any]:
    bits: np.ndarray[Any, Any] = -torch.log_softmax(logits.double(), -1).numpy()
    return bits / math.log(2)


@pytest.mark.parametrize("name", ["llama", "mistral", "mamba", "lstm"])
def test_one_branch_that_is_nan_is_given_through_and_no_other(name: str) -> None:
    model = family(name)
    if name != "lstm":
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())  # tied in Mamba
    with torch.no_grad():
        model.get_input_embeddings().weight[9] = torch.nan
    steps = next_token_steps(model, PROBE[2:])
    state, bits = steps.start([3, 4], ALL)
    assert not np.isnan(bits).any()
    rows, columns = np.repeat(np.arange(3), V), np.tile(ALL, 3)
    tokens = np.array([8, 9, 10])
    _, bits = steps.advance(state, np.zeros(3, dtype=np.int64), tokens, rows, columns)
    assert np.isnan(bits.reshape(3, V)).all(axis=1).tolist() == [False, True, False]
    assert np.isnan(bits.reshape(3, V)).any(axis=1).tolist() == [False, True, False]


def forgets_rows(right: Any) -> Any:
    """A layer that ignores which row it is asked to fork."""

    class Forgetful(right):  # type: ignore[misc]
        def reorder_cache(self, index: torch.Tensor) -> None:
            super().reorder_cache(torch.zeros_like(index))

    return Forgetful


def works_in_place(right: Any) -> Any:
    """A layer that writes into the tensors that an older state still holds."""

    class InPlace(right):  # type: ignore[misc]
        def reorder_cache(self, index: torch.Tensor) -> None:
            old: Any = self.keys, self.values
            super().reorder_cache(index)
            for before, after in zip(old, (self.keys, self.values), strict=True):
                before.copy_(after[torch.arange(len(before)) % len(after)])

    return InPlace


def confuses_rows(right: Any) -> Any:
    return lambda self: right(self).roll(1, dims=1)


def fails(right: Any) -> Any:
    def gathered(self: Any) -> torch.Tensor:
        raise NotImplementedError

    return gathered


@pytest.mark.parametrize("fault", [confuses_rows, fails])
def test_paths_gathered_wrongly_are_found_out(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_PathLayer, "_gathered", fault(_PathLayer._gathered))
    assert type(next_token_steps(family("gpt2"), PROBE)) is CachedSteps


def cannot_fork(right: Any) -> Any:
    class Whole(right):  # type: ignore[misc]
        def reorder_cache(self, index: torch.Tensor) -> None:
            raise NotImplementedError

    return Whole


@pytest.mark.parametrize("fault", [forgets_rows, works_in_place, cannot_fork])
@pytest.mark.parametrize("probe", [PROBE, [5, 5, 5, 5], [5, 5]], ids=["mixed", "equal", "short"])
def test_a_wrong_cache_is_found_out(
    fault: Any, probe: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = family("gpt2")
    right = type(model).forward

    @functools.wraps(right)  # its signature is read to see what a model takes
    def forward(self: Any, **inputs: Any) -> Any:
        fresh = inputs.get("past_key_values") is None
        out = right(self, **inputs)
        if fresh and out.past_key_values is not None:
            for layer in out.past_key_values.layers:
                layer.__class__ = fault(type(layer))
        return out

    monkeypatch.setattr(type(model), "forward", forward)
    assert isinstance(next_token_steps(model, probe), RecomputedSteps)


def test_a_model_whose_output_names_no_cache_is_recomputed() -> None:
    model = family("gpt2")
    model.config.use_cache = False
    model.forward = lambda input_ids, attention_mask=None: type(model).forward(
        model, input_ids=input_ids, attention_mask=attention_mask, use_cache=False
    )
    steps = next_token_steps(model, PROBE)
    assert isinstance(steps, RecomputedSteps)
    walk_about(family("gpt2"), steps, PROBE)


@pytest.mark.parametrize(("kept", "computed"), [(1 << 26, 3), (0, 6)])
def test_what_is_computed_from_its_first_token_is_remembered_while_it_fits(
    kept: int, computed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps_module, "_KEPT_LOGITS", kept)
    model, rows = family("gpt2"), []
    steps = RecomputedSteps(model)
    begun, _ = steps.start_all(PROBE)
    model.register_forward_pre_hook(
        lambda _, given, named: rows.append(len(named["input_ids"])), with_kwargs=True
    )
    parents, tokens = np.zeros(3, dtype=np.int64), np.arange(3)
    (_, first), (_, again) = (steps.advance_all(begun, parents, tokens) for _ in range(2))
    assert torch.equal(first, again)
    assert sum(rows) == computed


def lstm(layers: int, hidden: int = 24, embedding: int = 16) -> LstmForCausalLM:
    torch.manual_seed(layers)
    config = LstmConfig(
        vocab_size=V,
        num_hidden_layers=layers,
        hidden_size=hidden,
        embedding_size=embedding,
        dropout=0.5,
    )
    model = LstmForCausalLM(config)
    model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)
    return model


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float32, 1e-4), (torch.float64, 1e-10), (torch.bfloat16, 0.25)]
)
def test_steps_are_those_of_the_module(layers: int, dtype: torch.dtype, atol: float) -> None:
    model = lstm(layers).to(dtype)
    steps = next_token_steps(model, PROBE)
    assert isinstance(steps, LstmSteps)
    walk_about(model, steps, [3, 1, 4], atol)


@pytest.mark.parametrize("rows", [1023, 1024, 1025, 2500])
def test_more_rows_than_a_block(rows: int) -> None:
    steps = LstmSteps(lstm(2))
    state, _ = steps.start([1, 2], ALL)
    tokens = np.arange(rows) % V
    zeros = np.zeros(rows, dtype=np.int64)
    state, _ = steps.advance(state, zeros, tokens, np.empty(0, int), np.empty(0, int))
    assert state.rows == rows
    parents = np.arange(rows)[::-1].copy()
    _, bits = steps.advance(state, parents, tokens, np.arange(rows), np.full(rows, 5))
    for n in (0, 1, rows // 2, rows - 2, rows - 1):
        small, _ = steps.start([1, 2, int(tokens[parents[n]])], ALL)
        _, alone = steps.advance(
            small, np.array([0]), tokens[n : n + 1], np.array([0]), np.array([5])
        )
        assert bits[n] == pytest.approx(alone[0], abs=1e-4)


def test_nothing_wanted_and_impossible_tokens() -> None:
    model = lstm(1)
    with torch.no_grad():
        model.lm_head.bias[7] = -torch.inf
    steps = LstmSteps(model)
    state, bits = steps.start([1], np.array([7, 8]))
    assert np.isposinf(bits[0])
    assert np.isfinite(bits[1])
    empty = np.empty(0, dtype=np.int64)
    _, bits = steps.advance(state, np.array([0]), np.array([7]), empty, empty)
    assert bits.shape == (0,)
    assert bits.dtype == np.float64


def test_a_probe_is_made_once_a_model_and_again_where_it_computes_in_another_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probed = list[int]()
    agree = steps_module._agree

    def counted(fast: Any, slow: Any, probe: list[int], model: Any) -> bool:
        probed.append(len(probe))
        return agree(fast, slow, probe, model)

    monkeypatch.setattr(steps_module, "_agree", counted)
    model = family("gpt2")
    kinds = [type(next_token_steps(model, PROBE[:n])) for n in (8, 5, 8, 12, 8)]
    assert set(kinds) == {PathSteps}
    assert probed == [8, 12]
    next_token_steps(family("gpt2"), PROBE)
    assert probed == [8, 12, 12]
    next_token_steps(model.double(), PROBE)
    assert probed == [8, 12, 12, 12]
    right = type(model).forward

    def wrong(self: Any, *args: Any, **named: Any) -> Any:
        out = right(self, *args, **named)
        if named.get("past_key_values") is not None:
            out.logits = out.logits.roll(1, dims=-1)
        return out

    monkeypatch.setattr(type(model), "forward", wrong)
    assert isinstance(next_token_steps(model, PROBE), RecomputedSteps)
