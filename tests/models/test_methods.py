"""Goldfish: which tokens carry no loss, by a splitmix64 in Python's own numbers, and what follows.

Known values of splitmix64 are those of Vigna's splitmix64.c with seed 0.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from models.small_defences import (
    PLAIN,
    assert_alike,
    gradients_of,
    naive_gradients,
    packed,
    padded,
    read_one_by_one,
    setup_of,
    trained,
)
from numpy.typing import NDArray
from scipy.stats import binom
from torch.nn.functional import cross_entropy

from lmexposure.models import IGNORED
from lmexposure.models.methods import Goldfish, GoldfishRows, left_out
from lmexposure.models.packing import Batches

BY_CHANCE = 1e-6
GOLDEN = 0x9E3779B97F4A7C15


def splitmix64(state: int) -> int:
    """The first output of the generator with this seed."""
    z = (state + GOLDEN) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def naive(row: list[int], labels: list[int], k: int, width: int) -> list[bool]:
    """Token by token: the label and the width - 1 tokens in front of it, 0 where there is none."""
    dropped = []
    for t, label in enumerate(labels):
        text = [*([0] * width), *(i + 1 for i in row[: t + 1]), label + 1]
        state = 0
        for token in text[-width:]:
            state = splitmix64(state ^ (token * GOLDEN % 2**64))
        dropped.append(label != IGNORED and state < 2**64 // k)
    return dropped


def random_rows(
    seed: int, rows: int, length: int, tokens: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    ids = np.random.default_rng(seed).integers(0, tokens, (rows, length + 1)).astype(np.int32)
    return ids[:, :-1], ids[:, 1:].astype(np.int64)


def assert_by_chance(dropped: int, of: int, k: int) -> None:
    low, high = binom.ppf([BY_CHANCE, 1 - BY_CHANCE], of, 1 / k)
    assert low <= dropped <= high


def test_the_naive_hash_is_splitmix64() -> None:
    assert splitmix64(0) == 0xE220A8397B1DCDAF
    # Its second output, which token 0 by itself is given: .43 of the largest.
    assert splitmix64(GOLDEN) == 0x6E789E6AA1B965F4
    for k, lost in ((2, True), (3, False)):
        found = left_out(np.array([[5]], np.int32), np.array([[0]]), k=k, width=1)
        assert found.tolist() == [[lost]]


@given(
    st.lists(st.integers(0, 50_000), min_size=2, max_size=30),
    st.integers(2, 9),
    st.integers(1, 14),
    st.integers(0, 2**30),
)
def test_what_is_left_out_is_what_the_naive_hash_says(
    tokens: list[int], k: int, width: int, ignored: int
) -> None:
    labels = [IGNORED if ignored >> place & 1 else token for place, token in enumerate(tokens[1:])]
    found = left_out(np.array([tokens[:-1]], np.int32), np.array([labels]), k=k, width=width)
    assert found[0].tolist() == naive(tokens[:-1], labels, k, width)


@pytest.mark.parametrize("k", [2, 4, 50])
def test_one_token_in_k_is_left_out(k: int) -> None:
    ids, labels = random_rows(k, 40, 2_000, 1_000)
    assert_by_chance(int(left_out(ids, labels, k=k, width=13).sum()), labels.size, k)


@pytest.mark.parametrize("rows", [packed(), padded()], ids=["packed", "padded"])
def test_rows_keep_their_tokens_and_lose_labels_whatever_the_batch(rows: Batches) -> None:
    goldfish = GoldfishRows(rows, k=3, width=5)
    assert len(goldfish) == len(rows)
    assert (goldfish.parts, goldfish.names) == (rows.parts, rows.names)
    assert goldfish.sparse
    every = np.arange(len(rows))
    own_ids, own = rows.batch(every)
    ids, labels = goldfish.batch(every)
    assert np.array_equal(ids, own_ids)
    lost = labels != own
    assert (labels[lost] == IGNORED).all()
    for row, following, gone in zip(own_ids.tolist(), own.tolist(), lost.tolist(), strict=True):
        assert gone == naive(row, following, 3, 5)
    for number in range(len(rows)):
        alone = goldfish.batch(np.array([number]))[1][0]
        assert np.array_equal(alone, labels[number][: len(alone)])
        assert goldfish.predicted[number] == (alone != IGNORED).sum()
    assert 0 < goldfish.predicted.sum() < rows.predicted.sum()


def test_counts_of_many_rows_are_those_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = GoldfishRows(padded(), k=3, width=5).predicted
    monkeypatch.setattr("lmexposure.models.methods._AT_ONCE", 5)
    assert GoldfishRows(padded(), k=3, width=5).predicted.tolist() == expected.tolist()


def test_a_step_learns_from_what_is_left_alone() -> None:
    settings = replace(PLAIN, method="goldfish", goldfish_k=2, goldfish_width=3)
    method = Goldfish(setup_of(settings))
    rows = GoldfishRows(packed(), k=2, width=3)
    said: list[torch.Tensor] = []

    def keep(_: object, __: object, output: torch.Tensor) -> None:
        output.retain_grad()
        said.append(output)

    hook = method.model.lm_head.register_forward_hook(keep)
    numbers = [5, 0, 3]
    found, learned = gradients_of(method, numbers)
    hook.remove()
    labels = torch.from_numpy(rows.batch(np.array(numbers))[1])
    assert said[0].grad is not None
    sizes = said[0].grad.abs().sum(dim=2)
    assert (sizes[labels == IGNORED] == 0).all()
    assert (sizes[labels != IGNORED] > 0).all()
    logits, kept = read_one_by_one(method.model, rows, numbers)
    loss = cross_entropy(logits, kept)
    assert learned.tokens == len(kept) == rows.predicted[numbers].sum()
    assert learned.nats == pytest.approx(float(loss.detach()) * len(kept), rel=1e-5)
    assert_alike(found, naive_gradients(method.model, loss))


def test_a_training_reads_fewer_tokens(tmp_path: Path) -> None:
    settings = replace(PLAIN, method="goldfish", goldfish_k=3, goldfish_width=4)
    kept = GoldfishRows(packed(), k=3, width=4).predicted.sum()
    assert trained(tmp_path, settings).tokens == 2 * kept
