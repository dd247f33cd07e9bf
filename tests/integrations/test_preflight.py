"""Canaries that a training would lose stop it before its first step, and nothing else does."""

import random
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
from torch.utils.data import DataLoader, IterableDataset
from transformers import DataCollatorForLanguageModeling

from lmexposure.errors import CorpusError, SettingsError
from lmexposure.integrations import ExposureCallback, Wrapping
from lmexposure.integrations.preflight import RowsAhead, rows_ahead

pytestmark = pytest.mark.filterwarnings("ignore")  # of the Trainer, which is not ours

TEXTS, MANIFEST = hidden()
Rows = list[dict[str, list[int]]]


def collator(tokenizer: Any, *, masked: Callable[[str], bool] = lambda text: False) -> Any:
    """Loss everywhere but on the rows whose text is `masked`."""
    padded = DataCollatorForLanguageModeling(tokenizer, mlm=False)

    def collate(rows: Any) -> Any:
        batch = padded(rows)
        for labels, ids in zip(batch["labels"], batch["input_ids"], strict=True):
            if masked(tokenizer.decode(ids)):
                labels[:] = -100
        return batch

    return collate


@pytest.fixture
def trainer(tmp_path: Path) -> Any:
    return trainer_of(tmp_path, TEXTS, [])


def found(trainer: Any, rows: Any = None, collate: Any = None, **more: Any) -> RowsAhead:
    """What a pre-flight says of rows, by default those of the training."""
    loader = DataLoader(
        trainer.train_dataset if rows is None else rows,
        batch_size=8,
        collate_fn=collate or trainer.data_collator,
    )
    wrapping = Wrapping(context=MANIFEST.separator)
    return rows_ahead(MANIFEST, trainer.processing_class, wrapping, loader, **more)


def test_rows_as_planned_are_no_news(trainer: Any) -> None:
    seen = found(trainer)
    assert replace(seen, record=None) == RowsAhead()
    assert seen.record is not None
    assert seen.record.as_planned


class TestWhatStops:
    def test_canaries_without_loss(self, trainer: Any) -> None:
        collate = collator(trainer.processing_class, masked=lambda text: "PIN" in text)
        stop = found(trainer, collate=collate).in_vain
        assert "4 of 4 canaries would be learned less than half as often as planned; 18 occ" in stop
        assert "carry no loss (pin/x1/0000" in stop
        assert "put canaries into the assistant turn, or train on all tokens" in stop

    @pytest.mark.parametrize(("kept", "told"), [(6, 4), (9, 2)])  # before the secret, and in it
    def test_canaries_that_are_cut(self, trainer: Any, kept: int, told: int) -> None:
        rows = [{"input_ids": row["input_ids"][:kept]} for row in trainer.train_dataset]
        stop = found(trainer, rows).in_vain
        assert f"{told} of 4 canaries would be learned less than half" in stop
        assert f"copies are cut: their rows end at {kept} tokens" in stop
        assert "raise max_length" in stop

    def test_a_text_field_that_holds_no_canary(self, trainer: Any) -> None:
        rows = [{"input_ids": [5, 6, 7, 8]}] * 20
        stop = found(trainer, rows).in_vain
        assert stop.startswith("the training's rows hold no canary of the manifest; pin 1× and 8×:")

    def test_what_stops_is_said_of_a_beginning_too(self, trainer: Any) -> None:
        rows = [{"input_ids": row["input_ids"][:9]} for row in trainer.train_dataset]
        said = found(trainer, rows, seconds=1.0, clock=Clock(0.3))
        assert "copies are cut: their rows end at 9 tokens" in said.in_vain
        assert "32 of 54 rows were checked for canaries in 1 s; the others" in said.warnings[0]


class TestWhatOnlyWarns:
    def test_a_canary_or_two_held_out(self, trainer: Any) -> None:
        rows = [row for i, row in enumerate(trainer.train_dataset) if i % 4]
        said = found(trainer, rows)
        assert not said.in_vain
        assert "copies never came" in said.warnings[0]

    def test_a_few_cut_repetitions(self, trainer: Any) -> None:
        text = next(one.text for one in MANIFEST.entries if one.inserted == 8)
        rows, cut = [], 0
        for row in trainer.train_dataset:
            short = text in trainer.processing_class.decode(row["input_ids"]) and cut < 3
            cut += short
            rows.append({"input_ids": row["input_ids"][: -3 if short else None]})
        said = found(trainer, rows)
        assert not said.in_vain
        assert said.warnings[0].startswith("pin 8×: 3 copies are cut: their rows end at ")

    def test_rows_other_than_are_scored(self, trainer: Any) -> None:
        rows = [{"input_ids": row["input_ids"][1:]} for row in trainer.train_dataset]
        said = found(trainer, rows)
        assert not said.in_vain
        assert (
            "18 occurrences are behind other tokens than they will be scored behind"
            in said.warnings[0]
        )

    def test_rows_beyond_the_time_are_named(self, trainer: Any) -> None:
        said = found(trainer, seconds=1.0, clock=Clock(0.3))
        assert not said.in_vain
        assert said.warnings == (
            "32 of 54 rows were checked for canaries in 1 s; the others were not, nor whether all "
            "canaries come",
        )

    def test_more_rows_than_could_be_put_in_order(self, trainer: Any) -> None:
        """Mixing a billion numbers would take minutes and gigabytes before the first is read."""
        row = trainer.train_dataset[0]

        class Endless:
            def __len__(self) -> int:
                return 10**15

            def __getitem__(self, number: int) -> Any:
                return row

        said = found(trainer, rows=Endless(), seconds=1.0, clock=Clock(0.3))
        assert "32 of 1,000,000,000,000,000 rows were checked" in said.warnings[-1]

    def test_a_stream_is_not_checked(self, trainer: Any) -> None:
        class Stream(IterableDataset):  # type: ignore[type-arg]
            def __iter__(self) -> Any:
                raise AssertionError("it can be read but once")

        said = found(trainer, Stream())
        assert not said.in_vain
        assert "was not checked: its data is a stream" in said.warnings[0]

    @pytest.mark.parametrize("rows", [[{"words": "My PIN is 1."}], [7]])
    def test_rows_that_cannot_be_collated(self, trainer: Any, rows: Any) -> None:
        said = found(trainer, rows)
        assert not said.in_vain
        assert "was not checked: its rows could not be read and collated (" in said.warnings[0]
        assert "My PIN" not in said.warnings[0]

    def test_batches_of_another_kind(self, trainer: Any) -> None:
        said = found(trainer, collate=lambda rows: {"inputs_embeds": rows})
        assert "was not checked: no 'input_ids'; a row has inputs_embeds" in said.warnings[0]

    def test_no_loader_at_all(self, trainer: Any) -> None:
        said = rows_ahead(MANIFEST, trainer.processing_class, Wrapping(), None)
        assert "has no rows to read by number" in said.warnings[0]


class Clock:
    """So many seconds pass whenever somebody looks."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


class Noisy:
    """A collator that tosses coins of its own, and everybody's."""

    def __init__(self, tokenizer: Any) -> None:
        self.collate, self.own = collator(tokenizer), random.Random(1)

    def __call__(self, rows: Any) -> Any:
        batch = self.collate(rows)
        batch["labels"][0, int(self.own.random() * 2 + random.random() + torch.rand(()))] = -100
        return batch


def masked(trainer: Any) -> None:
    tokenizer = trainer.processing_class
    trainer.data_collator = collator(tokenizer, masked=lambda text: "PIN" in text)


def test_a_training_is_bit_equal_with_a_preflight_and_without(tmp_path: Path) -> None:
    ends = []
    asked: tuple[Any, Any] = ("off", "stop")
    for when in asked:
        callback = ExposureCallback(MANIFEST, preflight=when)
        trainer = trainer_of(tmp_path, TEXTS, [callback])
        trainer.data_collator = Noisy(trainer.processing_class)
        trainer.train()
        ends.append((trainer.model.state_dict(), torch.get_rng_state(), random.getstate()))
    assert all(torch.equal(ends[0][0][name], ends[1][0][name]) for name in ends[0][0])
    assert torch.equal(ends[0][1], ends[1][1])
    assert ends[0][2] == ends[1][2]


def test_the_training_does_not_begin(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, TEXTS, [ExposureCallback(MANIFEST)])
    masked(trainer)
    with pytest.raises(
        CorpusError, match=r"carry no loss .*; nothing was trained: change that, or"
    ):
        trainer.train()
    assert trainer.state.global_step == 0


@pytest.mark.parametrize("when", ["warn", "off"])
def test_it_begins_where_it_was_asked_to(
    tmp_path: Path, when: Any, caplog: pytest.LogCaptureFixture
) -> None:
    callback = ExposureCallback(MANIFEST, preflight=when)
    trainer = trainer_of(tmp_path, TEXTS, [callback], max_steps=1)
    masked(trainer)
    trainer.train()
    assert trainer.state.global_step == 1
    assert ("carry no loss" in caplog.text) == (when == "warn")


def test_another_word_is_refused() -> None:
    with pytest.raises(SettingsError, match="preflight='no'"):
        ExposureCallback(MANIFEST, preflight="no")  # type: ignore[arg-type]


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
        assert asked(seconds=1.0, clock=Clock(0.3)).unigram_bits is None  # of the training
        assert asked(seconds=1.0, clock=Clock(0.13)).unigram_bits is None  # of the evaluation
        bare = trainer.data_collator

        def unlabelled(rows: Any) -> Any:
            return {"input_ids": bare(rows)["input_ids"]}

        seen = asked(collate=unlabelled)
        assert seen.unigram_bits is None
        assert seen.record is not None
        assert seen.record.found == 18
        assert found(trainer, evaluation=lambda: self.held(trainer, [7])).unigram_bits is None


def test_rows_that_were_not_read_are_not_said_to_lack_canaries(trainer: Any) -> None:
    seen = found(trainer, seconds=1.0, clock=Clock(0.3)).record
    assert seen is not None
    assert seen.found < 18
    assert seen.lacking is None
    collate = collator(trainer.processing_class, masked=lambda text: "PIN" in text)
    masked = found(trainer, collate=collate, seconds=1.0, clock=Clock(0.3)).record
    assert masked is not None
    assert masked.lacking
