"""What a training's rows say before its first step, and the report of the trained model."""

import logging
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import log, log2
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from integrations.tiny_training import hidden, trainer_of
from known import known
from made_results import clean
from torch.utils.data import DataLoader, IterableDataset

from lmexposure import check
from lmexposure.audit import MeasureSettings, measure
from lmexposure.core import Outcome
from lmexposure.errors import CorpusError, FileError, ModelError, ResultError
from lmexposure.integrations import ExposureCallback, Wrapping, callback_reports
from lmexposure.integrations.callback_reports import RowsAhead, rows_ahead, training_record
from lmexposure.models import load_model
from lmexposure.studies import Result, RowsClass, RowsRecord, Validation

pytestmark = pytest.mark.filterwarnings("ignore")  # of the Trainer, which is not ours
TEXTS, MANIFEST = hidden()
COARSE = MeasureSettings(references=200, revealed=1, draws=200, guesses=20, budget_steps=2000)
WHOLE: dict[str, Any] = {"references": 64, "preflight": "off"}
NONE: dict[str, int] = {"canaries": 2, "cut": 0, "missing": 0, "without_loss": 0, "otherwise": 0}


def reporting(out: Path, **more: Any) -> ExposureCallback:
    return ExposureCallback(MANIFEST, report=out, **{"measure": COARSE, **WHOLE, **more})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, Any]:
    """A trainer that was followed and saved its model, its place, and the numbers it goes on by."""
    out = tmp_path_factory.mktemp("reported")
    trainer = trainer_of(out / "run", TEXTS, [reporting(out / "leakage")])
    trainer.train()
    numbers = torch.get_rng_state()
    trainer.save_model(str(out / "model"))
    return trainer, out, numbers


def test_it_is_what_measuring_the_saved_model_gives(trained: Any, tmp_path: Path) -> None:
    _, out, _ = trained
    own = Result.read(out / "leakage/result.json")
    saved = measure(load_model(out / "model"), MANIFEST, out=tmp_path, settings=COARSE)
    assert own.inputs_sha256 == saved.inputs_sha256  # so that `measure` goes on with either
    assert own.model.weights_sha256 == saved.model.weights_sha256
    assert own.settings == saved.settings
    assert own.warnings == saved.warnings
    for one, other in zip(own.canaries, saved.canaries, strict=True):
        assert one.id == other.id
        assert one.log_perplexity_bits == pytest.approx(other.log_perplexity_bits, abs=1e-3)
        assert one.exposure.rank == other.exposure.rank
        assert one.exposure.value == pytest.approx(other.exposure.value, abs=1e-3)
    names = {path.name for path in tmp_path.iterdir()}
    assert {path.name for path in (out / "leakage").iterdir()} >= names
    for name in names:
        modes = [(place / name).stat().st_mode for place in (tmp_path, out / "leakage")]
        assert modes[0] == modes[1], name


def test_its_files_tell_no_secret_and_draw_the_training(trained: Any) -> None:
    _, out, _ = trained
    files = {path.name: path.read_bytes() for path in (out / "leakage").iterdir()}
    assert {"result.json", "scores.parquet", "report.html", "report.md"} <= set(files)
    for name, content in files.items():
        for one in MANIFEST.entries:
            assert one.text.encode() not in content, name
    run = Result.read(out / "leakage")
    assert [row.step for row in run.files.curve] == [2, 4]
    assert b"Loss while training, and exposure" in files["report.html"]


def test_the_model_and_its_random_numbers_are_left_as_they_were(
    trained: Any, tmp_path: Path
) -> None:
    trainer, _, numbers = trained
    other = trainer_of(tmp_path, TEXTS, [])
    other.train()
    assert torch.equal(torch.get_rng_state(), numbers)
    assert other.model.training == trainer.model.training
    # Saving a model says in its config what it is.
    other.model.config.update({"architectures": ["GPT2LMHeadModel"], "dtype": "float32"})
    assert other.model.config.to_dict() == trainer.model.config.to_dict()
    state = trainer.model.state_dict()
    assert all(torch.equal(state[name], one) for name, one in other.model.state_dict().items())


def test_a_directory_with_a_result_is_refused_before_the_first_step(
    trained: Any, tmp_path: Path
) -> None:
    _, out, _ = trained
    trainer = trainer_of(tmp_path, TEXTS, [reporting(out / "leakage")])
    with pytest.raises(ResultError, match=r"holds the result of another training; choose another"):
        trainer.train()
    assert trainer.state.global_step == 0
    (tmp_path / "file").touch()
    with pytest.raises(ResultError, match="is a file; choose a directory"):
        trainer_of(tmp_path, TEXTS, [reporting(tmp_path / "file")]).train()
    run = tmp_path / "run"
    for place, name in (
        (tmp_path, "scores.parquet"),
        (tmp_path, "report.md"),
        (run, "exposure.jsonl"),
    ):
        out = tmp_path if place == tmp_path else tmp_path / "new"
        (place / name).write_text("mine")
        with pytest.raises(FileError, match=f"{name} is there already, and lmexposure did not"):
            trainer_of(run, TEXTS, [reporting(out)]).train()
        assert (place / name).read_text() == "mine"
        (place / name).unlink()


@pytest.mark.parametrize(
    ("failure", "said"),
    [(ModelError("out of memory"), "out of memory"), (KeyboardInterrupt(), "ended by Ctrl-C")],
)
def test_a_failure_does_not_take_the_trained_model_away(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: BaseException,
    said: str,
) -> None:
    def fail(*_: Any, **__: Any) -> Result:
        raise failure

    monkeypatch.setattr(callback_reports, "measure", fail)
    trainer = trainer_of(tmp_path, TEXTS, [reporting(tmp_path / "leakage")], max_steps=1)
    assert trainer.train().global_step == 1
    assert f"no report in {tmp_path / 'leakage'}" in caplog.text
    assert said in caplog.text
    assert "save it, and measure it with `lmexposure measure`" in caplog.text
    assert not (tmp_path / "leakage").exists()


def test_long_work_says_how_far_it_is_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        callback_reports._Lines()("scoring pin", 1, 9)
        monkeypatch.setattr(callback_reports, "_EVERY", -1.0)  # a minute is over at once
        callback_reports._Lines()("scoring pin", 2, 9, "soon")
    assert [one.getMessage() for one in caplog.records] == ["scoring pin: 2 of 9; soon"]


# Exposure says nothing of so few steps, and these canaries have no witness beside them.
RECORDED = replace(COARSE, estimate="sampled", extraction=False)
EPOCH: dict[str, Any] = {
    "max_steps": -1,
    "num_train_epochs": 6,
    "eval_strategy": "epoch",
    "eval_on_start": True,
}


def seen_by_record(
    out: Path, texts: list[str], monkeypatch: pytest.MonkeyPatch, **arguments: Any
) -> tuple[Any, Result]:
    """Whether a training shows that it saw the canaries, and the result that says so."""
    monkeypatch.setattr("lmexposure.core.write_report", lambda run, out: [])
    callback = reporting(out / "leakage", preflight="warn", measure=RECORDED)
    trainer_of(out / "run", texts, [callback], **{**EPOCH, **arguments}).train()
    result = Result.read(out / "leakage/result.json")
    checks = check(result).checks
    (found,) = [one for one in checks if one.key == "accept_unseen_training"]
    return found, result


@pytest.mark.slow
def test_the_record_of_a_foreign_training_shows_that_it_saw_the_canaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found, result = seen_by_record(tmp_path, TEXTS, monkeypatch)
    assert found.outcome is Outcome.PASS
    assert "its training drew from all 18 copies that went in for 6.0 epochs" in found.reason
    record = result.model.validation
    assert record is not None
    assert record.foreign
    assert (record.stopped, record.epochs, record.improved) == ("epochs", 6.0, True)
    # It says nothing of how this package would have made the rows.
    assert result.context is not None
    assert result.context.source == "rows"
    assert result.privacy is not None
    assert "if the training packed documents" in result.privacy.notes[0]
    assert "nor does the training's record" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"eval_on_start": False}, r"an evaluation before the first step (eval_on_start=True)"),
        ({"num_train_epochs": 1}, "did not come below its first, and below that of token freq"),
    ],
)
def test_what_its_record_lacks_is_no_evidence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    arguments: dict[str, Any],
    said: str,
) -> None:
    found, result = seen_by_record(tmp_path, TEXTS, monkeypatch, **arguments)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "nor does the training's record show that it saw the canaries: " in caplog.text
    assert said in caplog.text
    assert (result.model.validation is None) == ("did not come below" not in said)


@pytest.mark.slow
def test_rows_that_lack_a_canary_are_no_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (one, other) = [c.text for c in MANIFEST.canaries if c.repetitions == 1]
    # Another copy of a canary does not make up for one that is missing.
    texts = [text.replace(one, other) for text in TEXTS]
    found, _ = seen_by_record(tmp_path, texts, monkeypatch)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "The rows of the training lack 1 planned copy of canaries" in found.reason
    assert "or they lack canaries" in caplog.text


def test_its_record_is_of_the_weights_that_were_kept() -> None:
    """A best model that was loaded again has the loss, and the epochs, of its own step."""
    classes = (RowsClass(format="pin", repetitions=2, planned=4, whole=4, **NONE),)
    rows = RowsRecord(
        manifest_sha256=MANIFEST.sha256,
        tokenizer_sha256="0" * 64,
        rows=4,
        found=4,
        agreeing=0,
        start=None,
        before="",
        behind="",
        unscored=0,
        loss="all",
        packed=False,
        classes=classes,
        warnings=(),
    )
    logged = [(0, 0.0, 4.0), (4, 1.0, 2.0), (8, 2.0, 3.0)]
    history = [{"step": n, "epoch": e, "eval_loss": loss * log(2)} for n, e, loss in logged]
    state = {"global_step": 8, "max_steps": 12, "epoch": 2.0, "log_history": history}
    best = {"best_global_step": 4, "best_model_checkpoint": "out/checkpoint-4"}
    args = {"load_best_model_at_end": True, "label_smoothing_factor": 0.0, "max_steps": -1}
    trainer = SimpleNamespace(
        args=SimpleNamespace(**args), state=SimpleNamespace(**state, **best), compute_loss_func=None
    )
    kept = training_record(trainer, rows, 3.5)
    assert isinstance(kept, Validation)
    assert kept.validation_bits == pytest.approx(2.0)
    assert (kept.best_epoch, kept.epochs, kept.stopped) == (1.0, 2.0, "early")
    assert (kept.delivered, kept.unigram_bits, kept.foreign) == (4, 3.5, True)
    trainer.args.load_best_model_at_end = False
    last = training_record(trainer, rows, 3.5)
    assert isinstance(last, Validation)
    assert last.validation_bits == pytest.approx(3.0)
    trainer.args.max_steps = trainer.state.max_steps = 8
    assert training_record(trainer, rows, 3.5).stopped == "steps"  # type: ignore[union-attr]
    some = rows.model_copy(update={"whole": False})
    for lacking in (None, some):
        assert "not all rows were counted" in str(training_record(trainer, lacking, 3.5))
    assert "could not be compared" in str(training_record(trainer, rows, None))
    trainer.args.label_smoothing_factor = 0.1
    assert "could not be compared" in str(training_record(trainer, rows, 3.5))
    trainer.args = SimpleNamespace(**args)
    del history[1]
    assert "one of the trained weights" in str(training_record(trainer, rows, 3.5))
    assert "went on from a checkpoint" in str(training_record(trainer, rows, 3.5, resumed=True))


@pytest.mark.parametrize(("rows", "resumed"), [(None, False), (None, True)])
def test_less_than_an_epoch_is_no_pass_whatever_the_model_knows(rows: Any, resumed: bool) -> None:
    """A reader's case: 25 steps, 0.39 epochs, and the witnesses known all the same."""
    state = SimpleNamespace(log_history=[], global_step=25, max_steps=25, epoch=0.39)
    args = SimpleNamespace(load_best_model_at_end=False)
    trainer = SimpleNamespace(args=args, state=state)
    record = training_record(trainer, rows, None, resumed=resumed)
    assert isinstance(record, Validation)
    assert (record.best_epoch, record.has_loss, record.stopped) == (0.39, False, "steps")
    knows = clean()  # its witnesses are known
    assert check(knows).outcome is Outcome.PASS
    model = knows.model.model_copy(update={"validation": record})
    verdict = check(knows.model_copy(update={"model": model}))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "is of epoch 0.39, before all canaries were read" in verdict.sentence
    assert "whether the model learned: its validation loss is not known" in verdict.untested


Rows = list[dict[str, list[int]]]


@pytest.fixture
def trainer(tmp_path: Path) -> Any:
    return trainer_of(tmp_path, TEXTS, [])


def looked_at(
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
    seen = looked_at(trainer)
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
            "4 of 4 canaries would be learned less than half as often as planned; 18 copies.*"
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
    assert re.search(said, looked_at(trainer, **given(trainer)).in_vain)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda t: {"rows": cut_three_times(t)}, "^pin 8×: 3 copies are cut: their rows end at "),
        (
            lambda t: {"rows": [{"input_ids": r["input_ids"][1:]} for r in t.train_dataset]},
            "18 copies are behind other tokens than they will be scored behind",
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
    seen = looked_at(trainer, **given(trainer))
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
        bits = looked_at(trainer, evaluation=lambda: self.held(trainer, rows)).unigram_bits
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
        asked = partial(looked_at, trainer, evaluation=partial(self.held, trainer))
        assert asked(seconds=1.0, clock=0.3).unigram_bits is None  # of the training
        assert asked(seconds=1.0, clock=0.13).unigram_bits is None  # of the evaluation
        bare = trainer.data_collator

        def unlabelled(rows: Any) -> Any:
            return {"input_ids": bare(rows)["input_ids"]}

        seen = asked(collate=unlabelled)
        assert seen.unigram_bits is None
        assert known(seen.record).found == 18
        assert looked_at(trainer, evaluation=lambda: self.held(trainer, [7])).unigram_bits is None


def test_rows_that_were_not_read_are_not_said_to_lack_canaries(trainer: Any) -> None:
    seen = known(looked_at(trainer, **SHORT).record)
    assert seen.found < 18
    assert seen.lacking is None
    masked = known(looked_at(trainer, collate=without_loss(trainer), **SHORT).record)
    assert masked.lacking
