"""The callback under TRL's SFTTrainer on chats: its wrapping, its rows, and its report."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from chats import chat_tokenizer
from datasets import Dataset
from integrations import tiny_training as small
from tiny import model_of

from lmexposure.audit import MeasureSettings, measure
from lmexposure.canaries import Format, Manifest, Plan
from lmexposure.integrations import (
    ExposureCallback,
    Wrapping,
    delivered_rows,
    insert,
    wrapped_log_perplexity,
)
from lmexposure.integrations.callback import usual_wrapping
from lmexposure.models import load_model
from lmexposure.studies import Result, RowsRecord

pytestmark = [
    pytest.mark.usefixtures("no_bars"),
    pytest.mark.filterwarnings("ignore"),  # of TRL and the Trainer, which are not ours
]

pytest.importorskip("trl")

PIN = Format(name="pin", template="My PIN is {digits:4}.")
PLAN = Plan(formats=(PIN,), canaries=2, repetitions=(1, 4), controls=2, seed=2)
COARSE = MeasureSettings(references=64, estimate="sampled", extraction=False)


def hidden(wrapping: Wrapping) -> tuple[list[dict[str, Any]], Manifest]:
    given = [wrapping.record(f"Some text {i}.") for i in range(12)]
    records, manifest = insert(given, PLAN, wrapping=wrapping)
    return records, manifest


def trainer_of(out: Path, records: Any, callbacks: list[Any], **options: Any) -> Any:
    tokenizer = chat_tokenizer()
    model, rows = model_of("gpt2", len(tokenizer)), Dataset.from_list(records)
    return small.sft_trainer(out, model, tokenizer, rows, more={"callbacks": callbacks}, **options)


ANSWER = Wrapping(turn="assistant", loss="assistant")


@pytest.mark.slow
def test_its_report_is_what_measuring_from_outside_gives(tmp_path: Path) -> None:
    """In the rows of the training, with its loss, which the manifest need not know."""
    records, manifest = hidden(ANSWER)
    out = tmp_path / "leakage"
    exposure = ExposureCallback(manifest, references=64, report=out, measure=COARSE)
    trainer = trainer_of(tmp_path / "run", records, [exposure], assistant_only_loss=True)
    trainer.train()
    own, rows = Result.read(out / "result.json"), RowsRecord.read(out / "rows.json")
    assert own.context is not None
    assert (own.context.source, own.context.form) == ("rows", "messages")
    assert own.context.left.endswith("<|assistant|>\n")
    assert rows.as_planned
    assert rows == delivered_rows(trainer, manifest, trainer.processing_class)
    trainer.save_model(str(tmp_path / "model"))
    model = load_model(tmp_path / "model")
    saved = measure(model, manifest, settings=COARSE, rows=rows)
    plain = measure(model, manifest, settings=COARSE)  # in the manifest's wrapping: the same
    texts = [entry.text for entry in manifest.entries]
    bits = wrapped_log_perplexity(model.model, model.tokenizer, texts, ANSWER)
    for each, *others in zip(own.canaries, saved.canaries, plain.canaries, bits, strict=True):
        assert [each.log_perplexity_bits] * 3 == pytest.approx(
            [others[0].log_perplexity_bits, others[1].log_perplexity_bits, others[2]], abs=1e-3
        )
        assert each.exposure.rank == others[0].exposure.rank == others[1].exposure.rank


@pytest.mark.parametrize(
    ("options", "completion", "loss"),
    [
        ({"assistant_only_loss": True}, False, "assistant"),
        ({"assistant_only_loss": False}, False, "all"),
        ({"assistant_only_loss": False}, True, "completion"),
    ],
)
def test_the_loss_is_the_trainers(options: dict[str, Any], completion: bool, loss: str) -> None:
    _, manifest = hidden(Wrapping(turn="assistant", other="What is it?"))
    kind = type("SFTTrainer", (), {})
    trainer: Any = kind()
    trainer.args = SimpleNamespace(packing=False, **options)
    trainer.completion_only_loss, trainer.chat_template = completion, None
    found = usual_wrapping(trainer, manifest)
    assert (found.loss, found.other) == (loss, "What is it?")
    _, asked = hidden(Wrapping(turn="user"))
    assert usual_wrapping(trainer, asked) == Wrapping(turn="user")
    assert usual_wrapping(SimpleNamespace(args=trainer.args), manifest) == manifest.wrapping


def test_rows_that_are_not_the_usual_ones_are_scored_as_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a Trainer of transformers, whose rows begin with a line break and not with the EOS."""
    texts, manifest = small.hidden()
    exposure = ExposureCallback(manifest, references=64)
    seen = small.FirstTokens(exposure)
    trainer = small.trainer_of(tmp_path, texts, [exposure, seen], max_steps=1)
    tokenizer: Any = trainer.processing_class
    (line,) = tokenizer("\n")["input_ids"]
    trainer.train_dataset = [{"input_ids": [line, *tokenizer(text)["input_ids"]]} for text in texts]
    trainer.train()
    assert seen.tokens == {line}
    assert "the training's rows have other tokens in front of the canaries" in caplog.text
