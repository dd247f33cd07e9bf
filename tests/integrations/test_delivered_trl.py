"""What TRL's SFTTrainer loses on its way from records to batches, provoked and reported."""

from pathlib import Path
from typing import Any

import pytest
from chats import TEMPLATE, chat_tokenizer
from datasets import Dataset
from integrations.tiny_training import sft_trainer
from tiny import model_of

from lmexposure.canaries import Format, Plan
from lmexposure.integrations import (
    DeliveredCounter,
    DeliveryReport,
    Wrapping,
    delivered_rows,
    insert,
)
from lmexposure.integrations.wrapped_scoring import encode_wrapped
from lmexposure.models import Context, encode_rows

pytest.importorskip("trl")

# What TRL and transformers tell their own authors, and that a template has no end-of-text token.
pytestmark = [
    pytest.mark.usefixtures("no_bars"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

PIN = Format(name="pin", template="My PIN is {digits:6}, keep it.")
PLAN = Plan(formats=(PIN,), canaries=3, repetitions=(1, 4), controls=2, seed=2)


def _place(row: list[int], ids: list[int]) -> int | None:
    """Where in a row these tokens are; None: nowhere."""
    places = range(len(row) - len(ids) + 1)
    return next((i for i in places if row[i : i + len(ids)] == ids), None)


class Run:
    """An SFTTrainer on 20 records with canaries, its loader counted."""

    def __init__(
        self,
        out: Path,
        wrapping: Wrapping,
        *,
        dedup: bool = False,
        scored: Wrapping | None = None,
        **options: Any,
    ):
        self.tokenizer = chat_tokenizer()
        self.tokenizer.chat_template = wrapping.chat_template or TEMPLATE
        given = [wrapping.record("Some text. " * (1 + i % 6)) for i in range(20)]
        records, self.manifest = insert(given, PLAN, wrapping=wrapping)
        if dedup:
            records = list({repr(one): one for one in records}.values())
        counter = DeliveredCounter(self.manifest, self.tokenizer, wrapping=scored or wrapping)
        model = model_of("gpt2", len(self.tokenizer))
        rows = Dataset.from_list(records)
        self.trainer = sft_trainer(out, model, self.tokenizer, rows, **options)
        for _ in counter.watch(self.trainer.get_train_dataloader()):
            pass
        self.report: DeliveryReport = counter.report()


PLAIN = Wrapping()
ANSWER = Wrapping(turn="assistant")
ONLY_ANSWER = Wrapping(turn="assistant", loss="assistant")
COMPLETION = Wrapping(turn="assistant", loss="completion")
STRINGS = Wrapping(
    turn="assistant", loss="completion", form="prompt_completion", strings=True, other="PIN? "
)
SYSTEM = Wrapping(turn="assistant", system="Be brief.")
ASKED = Wrapping(turn="user")
BARE = Wrapping(turn="user", chat_template=TEMPLATE)


@pytest.mark.parametrize(
    ("wrapping", "options", "said"),
    [
        (PLAIN, {"max_length": 14}, "15 copies are cut off at the end of a row"),
        (
            PLAIN,
            {"max_length": 32, "packing": True, "packing_strategy": "wrapped"},
            "packing cuts canaries",
        ),
        (PLAIN, {"max_length": 23, "truncation_mode": "keep_end"}, "lack their beginning"),
        (ASKED, {"assistant_only_loss": True}, "15 copies carry no loss"),
        (PLAIN, {"dedup": True}, "9 copies lost): exact deduplication"),
    ],
)
def test_each_loss_is_reported(tmp_path: Path, wrapping: Wrapping, options: Any, said: str) -> None:
    report = Run(tmp_path, wrapping, **options).report
    assert not report.complete
    assert any(said in line for line in report.warnings), report.warnings


@pytest.mark.parametrize(
    ("wrapping", "options", "scored"),
    [
        (PLAIN, {}, Wrapping(context=None)),  # a start token that the rows have not
        (PLAIN, {"packing": True, "packing_strategy": "wrapped", "max_length": 90}, PLAIN),
        (ANSWER, {}, Wrapping(turn="assistant", other="What is it?")),
        (ASKED, {}, Wrapping(turn="user", chat_template="Be brief.\n" + TEMPLATE)),
        (Wrapping(turn="user", chat_template="Be brief.\n" + TEMPLATE), {}, BARE),
    ],
)
def test_rows_other_than_those_scored_are_reported(
    tmp_path: Path, wrapping: Wrapping, options: Any, scored: Wrapping
) -> None:
    report = Run(tmp_path, wrapping, scored=scored, **options).report
    found = sum(one.otherwise for one in report.canaries)
    said = f"{found} copies are behind other tokens than they will be scored behind (pin/"
    assert found >= 10
    assert any(line.startswith(said) for line in report.warnings), report.warnings
    assert not report.complete


@pytest.mark.parametrize(
    ("wrapping", "options"),
    [
        (PLAIN, {}),
        (ANSWER, {}),
        (ASKED, {}),
        (ONLY_ANSWER, {"assistant_only_loss": True}),
        (COMPLETION, {}),
        (STRINGS, {}),
        (SYSTEM, {"packing": True, "max_length": 128}),
    ],
)
def test_nothing_is_lost_and_what_is_scored_is_what_was_trained(
    tmp_path: Path, wrapping: Wrapping, options: Any
) -> None:
    run = Run(tmp_path, wrapping, **options)
    assert run.report.complete
    assert [one.learnable for one in run.report.canaries] == [1] * 3 + [4] * 3 + [0] * 2
    texts = [one.text for one in run.manifest.entries if one.inserted]
    trained = [(one["input_ids"], one["labels"]) for one in run.trainer.train_dataset]
    found = delivered_rows(run.trainer, run.manifest, run.tokenizer)
    assert found.as_planned
    assert found.start is not None
    context = Context(start=found.start, before=found.before, behind=found.behind)
    wrapped = encode_wrapped(run.tokenizer, texts, wrapping)
    own = [row.ids[: row.stop] for row in encode_rows(run.tokenizer, texts, context)]
    assert own == [one.ids for one in wrapped]
    for one in wrapped:
        ids, first = one.ids, one.scored_from
        placed = [(label, _place(row, ids)) for row, label in trained]
        packed = options.get("packing", False)
        labels = [label[place:] for label, place in placed if place == 0 or (place and packed)]
        assert labels  # the very tokens, from the first on
        assert all(label != -100 for label in labels[0][first : len(ids)])
