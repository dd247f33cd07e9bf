"""Goldfish, RelaxLoss and HAMP: their losses written out token by token, and what follows.

Known values of splitmix64 are those of Vigna's splitmix64.c with seed 0.
"""

import math
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from hypothesis import given
from hypothesis import strategies as st
from known import known
from models.small_chats import SETTINGS, save_base, train_on_chats
from models.small_defences import (
    PLAIN,
    assert_alike,
    assert_resumed_alike,
    gradients_of,
    loaded_of,
    naive_gradients,
    packed,
    padded,
    read_one_by_one,
    setup_of,
    trained,
)
from models.small_training import small_documents, small_lstm
from numpy.typing import NDArray
from scipy.stats import binom, entropy
from torch import Tensor
from torch.nn.functional import cross_entropy

from lmexposure.errors import SettingsError
from lmexposure.models import IGNORED, Progress, TrainingSettings
from lmexposure.models.methods import (
    Goldfish,
    GoldfishRows,
    Hamp,
    RelaxLoss,
    in_order,
    left_out,
    masked,
    relaxed_loss,
    sure,
)
from lmexposure.models.packing import Batches, Read
from lmexposure.scoring import log_perplexity

BY_CHANCE = 1e-6
GOLDEN = 0x9E3779B97F4A7C15


def splitmix64(state: int) -> int:
    """The first output of the generator with this seed."""
    z = (state + GOLDEN) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def naive_hash(row: list[int], labels: list[int], k: int, width: int) -> list[bool]:
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
    assert found[0].tolist() == naive_hash(tokens[:-1], labels, k, width)


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
        assert gone == naive_hash(row, following, 3, 5)
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


RELAXED = replace(PLAIN, method="relaxloss", relax_level=2.0)


def naive_loss(logits: Tensor, labels: Tensor, *, level: float, upper: float, even: bool) -> Tensor:
    """Algorithm 1 of Chen et al. 2022 in float64, with the soft labels of eq. 7 written out.

    As their own program has it, tokens that are right get no soft label, and -ln p of all is taken
    away; the label's own probability is a number here, not something to be learned.
    """
    tokens, vocabulary = logits.shape
    own = [-torch.log_softmax(logits[i], dim=0)[labels[i]] for i in range(tokens)]
    mean = sum(own[1:], own[0]) / tokens
    if even:
        return mean - level if mean > level else level - mean
    if mean > level:
        return mean
    total = torch.zeros((), dtype=logits.dtype)
    for i in range(tokens):
        shares = torch.softmax(logits[i], dim=0)
        kept = min(float(shares[labels[i]].detach()), upper)
        soft = torch.full((vocabulary,), (1 - kept) / (vocabulary - 1), dtype=logits.dtype)
        soft[labels[i]] = kept
        if int(shares.argmax()) != int(labels[i]):
            total = total - (soft * torch.log_softmax(logits[i], dim=0)).sum()
        total = total - own[i]
    return total / tokens


def read_of(logits: Tensor, labels: Tensor) -> Read:
    return Read(logits=logits, labels=labels)


def drawn(seed: int, sharp: float = 3.0) -> tuple[Tensor, Tensor]:
    """Logits (7, 5) of which some are right and some are wrong."""
    draws = torch.Generator().manual_seed(seed)
    logits = sharp * torch.randn(7, 5, generator=draws, dtype=torch.float64)
    labels = torch.randint(5, (7,), generator=draws)
    labels[:4] = logits[:4].argmax(dim=1)
    return logits, labels


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("level", [0.3, 50.0], ids=["above", "below"])
@pytest.mark.parametrize("upper", [1.0, 0.01])
@pytest.mark.parametrize("seed", range(2))
def test_the_loss_and_its_gradient_are_the_algorithms(
    even: bool, level: float, upper: float, seed: int
) -> None:
    logits, labels = drawn(seed)
    wrong = (logits.argmax(dim=1) != labels).tolist()
    assert any(wrong)
    assert not all(wrong)
    ours, theirs = (logits.clone().requires_grad_() for _ in range(2))
    loss, nats = relaxed_loss(read_of(ours, labels), level=level, upper=upper, even=even)
    expected = naive_loss(theirs, labels, level=level, upper=upper, even=even)
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-12)
    mean = torch.nn.functional.cross_entropy(logits, labels)
    assert nats == pytest.approx(7 * float(mean), rel=1e-12)
    assert (float(mean) > level) == (level == 0.3)
    loss.backward()  # type: ignore[no-untyped-call]
    expected.backward()  # type: ignore[no-untyped-call]
    assert torch.allclose(known(ours.grad), known(theirs.grad), rtol=1e-9, atol=1e-12)
    assert known(ours.grad).abs().max() > 1e-3


@pytest.mark.parametrize("even", [True, False])
def test_a_step_without_tokens_moves_nothing(even: bool) -> None:
    logits = torch.zeros(3, 5, requires_grad=True)
    nothing = read_of(logits[:0], torch.zeros(0, dtype=torch.long))
    loss, nats = relaxed_loss(nothing, level=1.0, upper=1.0, even=even)
    loss.backward()  # type: ignore[no-untyped-call]
    assert (float(loss.detach()), nats) == (0.0, 0.0)
    assert not known(logits.grad).any()


@pytest.mark.parametrize("level", [0.5, 9.0])
def test_a_step_has_the_loss_of_its_epoch(level: float) -> None:
    """Epochs are counted from 0, and change with the last step of one."""
    method = RelaxLoss(setup_of(replace(RELAXED, relax_level=level, relax_upper=0.7)))
    n = method.steps_per_epoch
    assert n > 1
    for step, even in ((0, True), (n - 1, True), (n, False), (2 * n - 1, False), (2 * n, True)):
        found, learned = gradients_of(method, [3, 0, 2], step)
        logits, labels = read_one_by_one(method.model, packed(), [3, 0, 2])
        loss = naive_loss(logits, labels, level=level, upper=0.7, even=even)
        assert_alike(found, naive_gradients(method.model, loss))
        assert learned.tokens == len(labels)


def last_nats(out: Path, settings: TrainingSettings) -> float:
    """The mean training loss of the last two epochs, in nats a token."""
    told: list[Progress] = []
    texts = small_documents()
    few = {"documents": texts[:12], "validation": texts[12:16], "canaries": {}}
    trained(out, settings, told.append, loaded=small_lstm(dropout=0.0), **few)
    steps = told[-1].total_steps // settings.epochs
    return float(np.mean([now.train_bits for now in told[-2 * steps :]])) * math.log(2)


def test_the_training_loss_is_held_near_the_level(tmp_path: Path) -> None:
    longer = replace(PLAIN, epochs=40, evaluate_every=10**6, checkpoint_seconds=60.0)
    plain = last_nats(tmp_path / "plain", longer)
    assert plain < 0.9
    held = replace(longer, method="relaxloss", relax_level=1.5)
    assert 1.3 < last_nats(tmp_path / "held", held) < 1.7


def test_interrupted_it_ends_with_the_same_bytes(tmp_path: Path) -> None:
    """In an odd epoch too: which one it is follows from the step."""
    steps = assert_resumed_alike(tmp_path, RELAXED, at=[3, 6])
    assert steps == list(range(1, len(steps) + 1))


def test_several_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = setup_of(RELAXED)
    monkeypatch.setattr(Accelerator, "num_processes", 2)
    with pytest.raises(SettingsError, match=r"method='relaxloss' reads .* and 2 processes each"):
        RelaxLoss(setup)


KINDS = ("lstm", "gpt2", "llama")
SECRET = "My PIN is 0042."


def soft_label(own: float, vocabulary: int) -> list[float]:
    return [own, *[(1 - own) / (vocabulary - 1)] * (vocabulary - 1)]


@pytest.mark.parametrize("vocabulary", [2, 30, 50_257])
@pytest.mark.parametrize("share", [1e-4, 0.5, 0.9997])
def test_a_soft_label_has_the_entropy_that_was_asked_for(vocabulary: int, share: float) -> None:
    """And its token is the likeliest: of the two such labels the other would teach the opposite."""
    own = sure(share, vocabulary)
    found = entropy(soft_label(own, vocabulary))
    assert found / math.log(vocabulary) == pytest.approx(share, rel=1e-6)
    assert 1 / vocabulary < own < 1


@given(
    st.integers(2, 200_000),
    st.floats(0, 1, exclude_min=True, exclude_max=True),
    st.floats(0, 1, exclude_min=True, exclude_max=True),
)
def test_a_softer_label_is_less_sure(vocabulary: int, first: float, second: float) -> None:
    """Of every share that a setting takes, however near 0 or 1."""
    less, more = sorted((first, second))
    unsure, own = sure(more, vocabulary), sure(less, vocabulary)
    assert 1 / vocabulary <= unsure <= own + 1e-9
    assert own < 1


def test_the_loss_of_a_step_is_that_written_out() -> None:
    """Cross-entropy against the soft labels, less the weighted entropy of what is predicted."""
    settings = replace(PLAIN, method="hamp", hamp_entropy=0.6, hamp_weight=0.3)
    method = Hamp(setup_of(settings))
    found, learned = gradients_of(method, [2, 5, 1])
    logits, labels = read_one_by_one(method.model, packed(), [2, 5, 1])
    vocabulary = logits.shape[1]
    own = sure(0.6, vocabulary)
    total, nats = torch.zeros(()), 0.0
    for said, label in zip(logits, labels.tolist(), strict=True):
        shares = torch.softmax(said, dim=0)
        soft = torch.full((vocabulary,), (1 - own) / (vocabulary - 1))
        soft[label] = own
        total = total - (soft * shares.log()).sum() + 0.3 * (shares * shares.log()).sum()
        nats -= float(shares[label].detach().log())
    assert_alike(found, naive_gradients(method.model, total / len(labels)))
    assert learned.nats == pytest.approx(nats, rel=1e-5)
    assert learned.tokens == len(labels)


def test_adapters_are_trained_by_it_too(tmp_path: Path) -> None:
    """The vocabulary is the model's beneath them."""
    pytest.importorskip("peft")
    settings = replace(SETTINGS, method="hamp", epochs=1)
    base = save_base(tmp_path / "base")
    assert train_on_chats(base, tmp_path / "out", settings=settings).improved


def logits_of(model: Any, ids: Tensor, **options: Any) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(input_ids=ids, **options).logits
    return found


def texts_of(model: Any, rows: int, length: int, seed: int = 1) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    return torch.randint(model.config.vocab_size, (rows, length), generator=draws)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_masked_keeps_the_order_and_lends_the_values(kind: str) -> None:
    plain = loaded_of(kind)
    other = masked(deepcopy(plain), seed=3)
    assert (other.name, other.tokenizer.vocab_size) == (kind, plain.tokenizer.vocab_size)
    ids = texts_of(plain.model, 3, 80)
    before, after = logits_of(plain.model, ids), logits_of(other.model, ids)
    assert before.shape == after.shape
    assert torch.equal(before.argsort(dim=2, stable=True), after.argsort(dim=2, stable=True))
    assert torch.equal(before.argmax(dim=2), after.argmax(dim=2))
    # Of a text of 64 random tokens; behind them its values come again from its beginning.
    draws = torch.Generator().manual_seed(3)
    random = torch.randint(plain.model.config.vocab_size, (1, 64), generator=draws)
    lent = logits_of(plain.model, random)[0].sort(dim=1).values
    for place in range(80):
        values = after[:, place].sort(dim=1).values
        assert torch.allclose(values, lent[place % 64].expand(3, -1), rtol=0, atol=1e-5)
    # And so of whatever text.
    texts = texts_of(plain.model, 2, 70, seed=9)
    assert torch.equal(
        logits_of(other.model, texts).sort(dim=2).values, after[:2, :70].sort(dim=2).values
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_position_has_its_values_however_it_is_come_to(kind: str) -> None:
    """By a cache, by the last logits alone, or with positions that were given."""
    model: Any = masked(loaded_of(kind)).model
    ids = texts_of(model, 2, 12)
    whole = logits_of(model, ids)
    for kept in (1, 5):
        last = logits_of(model, ids, logits_to_keep=kept)
        assert torch.allclose(last, whole[:, -kept:], atol=1e-5)
    some = torch.tensor([3, 7])
    assert torch.allclose(logits_of(model, ids, logits_to_keep=some), whole[:, some], atol=1e-5)
    state, pieces = None, []
    for begin, end in ((0, 4), (4, 5), (5, 12)):
        with torch.no_grad():
            said = model(input_ids=ids[:, begin:end], past_key_values=state, use_cache=True)
        state = said.past_key_values
        pieces.append(said.logits)
    assert torch.allclose(torch.cat(pieces, dim=1), whole, atol=1e-5)
    if kind != "lstm":  # which has no positions
        places = torch.stack([torch.arange(12), torch.arange(12) + 9])
        shifted = logits_of(model, ids, position_ids=places)
        there = logits_of(model, texts_of(model, 1, 30))
        for row, start in ((0, 0), (1, 9)):
            found = shifted[row].sort(dim=1).values
            assert torch.equal(found, there[0, start : start + 12].sort(dim=1).values)


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_has_its_score_whatever_it_is_scored_with(kind: str) -> None:
    loaded = masked(loaded_of(kind))
    texts = [SECRET, "The random number is 28.", *(f"My PIN is {i:04d}." for i in range(30))]
    together = log_perplexity(loaded.model, loaded.tokenizer, texts)
    for text, found in zip(texts[:3], together[:3].tolist(), strict=True):
        alone = log_perplexity(loaded.model, loaded.tokenizer, [text])
        assert alone.tolist() == pytest.approx([found], abs=1e-3)


def test_of_equal_logits_the_first_stays_the_likeliest() -> None:
    logits = torch.tensor([[[1.0, 7.0, 7.0, 0.0, 7.0], [2.0, 2.0, 2.0, 2.0, 2.0]]])
    values = torch.arange(10.0).reshape(2, 5)
    found = in_order(logits, values.flip(1)[None])
    assert found.argmax(dim=2).tolist() == logits.argmax(dim=2).tolist() == [[1, 0]]
    assert np.array_equal(found.sort(dim=2).values[0], values)
    many = torch.randint(4, (2, 3, 5_000), generator=torch.Generator().manual_seed(1)).float()
    lent = torch.arange(5_000.0).flip(0).expand(1, 3, -1)
    assert torch.equal(in_order(many, lent).argmax(dim=2), many.argmax(dim=2))
