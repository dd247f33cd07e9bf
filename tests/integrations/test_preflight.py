"""Canaries that a training would lose stop it before its first step, and nothing else does."""

import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import log2
from pathlib import Path
from typing import Any

import pytest
import torch
from integrations.tiny_training import hidden, trainer_of
from known import known
from torch.utils.data import DataLoader, IterableDataset

from lmexposure.errors import CorpusError
from lmexposure.integrations import ExposureCallback, Wrapping
from lmexposure.integrations.callback_reports import RowsAhead, rows_ahead

pytestmark = pytest.mark.filterwarnings("ignore")  # of the Trainer, which is not ours

TEXTS, MANIFEST = hidden()
Rows = list[dict[str, list[int]]]


@pytest.fixture
def trainer(tmp_path: Path) -> Any:
    return trainer_of(tmp_path, TEXTS, [])


def found(
    trainer: Any, rows: Any = None, collate: Any = None, *, clock: float = 0.0, **more: Any
) -> RowsAhead:
    """What a pre-flight says of rows, by default those of the training."""
    loader = DataLoader(
        trainer.train_dataset if rows is None else rows,
        batch_size=8,
        collate_fn=collate or trainer.data_collator,
    )
    wrapping = Wrapping(context=MANIFEST.separator)
    more |= {"clock": Clock(clock)} if clock else {}
    return rows_ahead(MANIFEST, trainer.processing_class, wrapping, loader, **more)


def test_rows_as_planned_are_no_news(trainer: Any) -> None:
    seen = found(trainer)
    assert replace(seen, record=None) == RowsAhead()
    assert known(seen.record).as_planned


class Clock:
    """So many seconds pass whenever somebody looks."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def cut(trainer: Any, most: int) -> Rows:
    return [{"input_ids": row["input_ids"][:most]} for row in trainer.train_dataset]


def cut_three_times(trainer: Any) -> Rows:
    text = next(one.text for one in MANIFEST.entries if one.inserted == 8)
    rows, times = [], 0
    for row in trainer.train_dataset:
        short = text in trainer.processing_class.decode(row["input_ids"]) and times < 3
        times += short
        rows.append({"input_ids": row["input_ids"][: -3 if short else None]})
    return rows


def without_loss(trainer: Any) -> Any:
    """A collator without loss on the rows of canaries."""
    padded, tokenizer = trainer.data_collator, trainer.processing_class

    def collate(rows: Any) -> Any:
        batch = padded(rows)
        for labels, ids in zip(batch["labels"], batch["input_ids"], strict=True):
            if "PIN" in tokenizer.decode(ids):
                labels[:] = -100
        return batch

    return collate


class Endless:
    """Mixing a billion numbers would take minutes and gigabytes before the first is read."""

    def __init__(self, trainer: Any) -> None:
        self.row = trainer.train_dataset[0]

    def __len__(self) -> int:
        return 10**15

    def __getitem__(self, number: int) -> Any:
        return self.row


class Stream(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        raise AssertionError("it can be read but once")


SHORT: dict[str, Any] = {"seconds": 1.0, "clock": 0.3}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            lambda t: {"collate": without_loss(t)},
            "4 of 4 canaries would be learned less than half as often as planned; 18 occ.*"
            r"carry no loss \(pin/x1/0000.*put canaries into the assistant turn, or train on all",
        ),
        (lambda t: {"rows": cut(t, 6)}, "^4 of 4 canaries would.* end at 6 tokens; raise max_len"),
        (lambda t: {"rows": cut(t, 9), **SHORT}, "^2 of 4 canaries.*are cut: their rows end at 9"),
        (
            lambda t: {"rows": [{"input_ids": [5, 6, 7, 8]}] * 20},
            "^the training's rows hold no canary of the manifest; pin 1× and 8×:",
        ),
    ],
)
def test_what_stops(trainer: Any, given: Callable[[Any], dict[str, Any]], said: str) -> None:
    """Rows without loss, cut before the secret and in it, and those of another field."""
    assert re.search(said, found(trainer, **given(trainer)).in_vain)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda t: {"rows": cut_three_times(t)}, "^pin 8×: 3 copies are cut: their rows end at "),
        (
            lambda t: {"rows": [{"input_ids": r["input_ids"][1:]} for r in t.train_dataset]},
            "18 occurrences are behind other tokens than they will be scored behind",
        ),
        (
            lambda t: SHORT,
            "^32 of 54 rows were checked for canaries in 1 s; the others were not, nor whether all "
            "canaries come$",
        ),
        (lambda t: {"rows": Endless(t), **SHORT}, "32 of 1,000,000,000,000,000 rows were checked"),
        (lambda t: {"rows": Stream()}, "was not checked: its data is a stream"),
        (
            lambda t: {"rows": [{"words": "My PIN is 1."}]},
            r"was not checked: its rows could not be read and collated \((?!.*My PIN)",
        ),
        (lambda t: {"collate": lambda rows: {"embeds": rows}}, "no 'input_ids'; a row has embeds"),
    ],
)
def test_what_only_warns(trainer: Any, given: Callable[[Any], dict[str, Any]], said: str) -> None:
    seen = found(trainer, **given(trainer))
    assert not seen.in_vain
    assert re.search(said, seen.warnings[-1])


def test_no_loader_at_all_is_said(trainer: Any) -> None:
    said = rows_ahead(MANIFEST, trainer.processing_class, Wrapping(), None)
    assert "has no rows to read by number" in said.warnings[0]


class Noisy:
    """A collator that tosses coins of its own, and everybody's."""

    def __init__(self, collate: Any) -> None:
        self.collate, self.own = collate, random.Random(1)

    def __call__(self, rows: Any) -> Any:
        batch = self.collate(rows)
        batch["labels"][0, int(self.own.random() * 2 + random.random() + torch.rand(()))] = -100
        return batch


def test_a_training_is_bit_equal_with_a_preflight_and_without(tmp_path: Path) -> None:
    ends = []
    asked: tuple[Any, Any] = ("off", "stop")
    for when in asked:
        callback = ExposureCallback(MANIFEST, preflight=when)
        trainer = trainer_of(tmp_path, TEXTS, [callback])
        trainer.data_collator = Noisy(trainer.data_collator)
        trainer.train()
        ends.append((trainer.model.state_dict(), torch.get_rng_state(), random.getstate()))
    assert all(torch.equal(ends[0][0][name], ends[1][0][name]) for name in ends[0][0])
    assert torch.equal(ends[0][1], ends[1][1])
    assert ends[0][2] == ends[1][2]


@pytest.mark.parametrize("when", ["stop", "warn", "off"])
def test_it_begins_only_where_it_was_asked_to(
    tmp_path: Path, when: Any, caplog: pytest.LogCaptureFixture
) -> None:
    callback = ExposureCallback(MANIFEST, **({} if when == "stop" else {"preflight": when}))
    trainer = trainer_of(tmp_path, TEXTS, [callback], max_steps=1)
    trainer.data_collator = without_loss(trainer)
    if when == "stop":
        with pytest.raises(CorpusError, match=r"carry no loss .*; nothing was trained: change"):
            trainer.train()
    else:
        trainer.train()
    assert trainer.state.global_step == (when != "stop")
    assert ("carry no loss" in caplog.text) == (when == "warn")


class TestFrequencies:
    """What the tokens of the rows to train on say of those to evaluate on."""

    @staticmethod
    def held(trainer: Any, rows: Any = None) -> DataLoader[Any]:
        rows = trainer.eval_dataset if rows is None else rows
        return DataLoader(rows, batch_size=3, collate_fn=trainer.data_collator)

    def test_they_are_those_of_a_naive_count(self, trainer: Any) -> None:
        numbers = torch.get_rng_state()
        rows = [*trainer.eval_dataset, {"input_ids": [5, 999]}]
        bits = found(trainer, evaluation=lambda: self.held(trainer, rows)).unigram_bits
        times = Counter(n for row in trainer.train_dataset for n in row["input_ids"][1:] if n)
        total = times.total() + 1000
        means, weights = [], []
        for first in range(0, len(rows), 3):
            some = [n for row in rows[first : first + 3] for n in row["input_ids"][1:] if n]
            means.append(sum(-log2((times[n] + 1) / total) for n in some) / len(some))
            weights.append(len(rows[first : first + 3]))
        naive = sum(m * w for m, w in zip(means, weights, strict=True)) / sum(weights)
        assert bits == pytest.approx(naive, abs=1e-9)
        assert torch.equal(torch.get_rng_state(), numbers)

    def test_nothing_is_known_where_rows_or_labels_lack(self, trainer: Any) -> None:
        asked = partial(found, trainer, evaluation=partial(self.held, trainer))
        assert asked(seconds=1.0, clock=0.3).unigram_bits is None  # of the training
        assert asked(seconds=1.0, clock=0.13).unigram_bits is None  # of the evaluation
        bare = trainer.data_collator

        def unlabelled(rows: Any) -> Any:
            return {"input_ids": bare(rows)["input_ids"]}

        seen = asked(collate=unlabelled)
        assert seen.unigram_bits is None
        assert known(seen.record).found == 18
        assert found(trainer, evaluation=lambda: self.held(trainer, [7])).unigram_bits is None


def test_rows_that_were_not_read_are_not_said_to_lack_canaries(trainer: Any) -> None:
    seen = known(found(trainer, **SHORT).record)
    assert seen.found < 18
    assert seen.lacking is None
    masked = known(found(trainer, collate=without_loss(trainer), **SHORT).record)
    assert masked.lacking
