"""The callback under TRL's SFTTrainer, with adapters and on chats; the adapter that it saves."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from chats import chat_tokenizer
from datasets import Dataset
from integrations.tiny_training import FirstTokens, hidden, sft_trainer, trainer_of
from models.small_chats import chats
from tiny import byte_level_bpe, model_of

from lmexposure.audit import MeasureSettings, measure
from lmexposure.canaries import Format, Manifest, Plan
from lmexposure.errors import ModelError
from lmexposure.integrations import (
    ExposureCallback,
    Wrapping,
    delivered_rows,
    insert,
    wrapped_log_perplexity,
)
from lmexposure.integrations.callback import usual_wrapping
from lmexposure.integrations.callback_reports import FinalReport
from lmexposure.models import load_model, save_model
from lmexposure.scoring import log_perplexity
from lmexposure.studies import Result, RowsRecord

pytestmark = [
    pytest.mark.usefixtures("no_bars"),
    pytest.mark.filterwarnings("ignore"),  # of TRL and the Trainer, which are not ours
]
pytest.importorskip("trl")
peft = pytest.importorskip("peft")


@pytest.mark.slow
def test_adapters_end_with_the_very_weights_of_a_training_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmexposure.core.write_report", lambda run, out: [])
    texts, manifest = hidden()
    tokenizer = byte_level_bpe()
    tokenizer.pad_token = tokenizer.eos_token
    data = Dataset.from_dict({"text": texts})
    ends: list[Any] = []
    base = tmp_path / "base"
    save_model(model_of("gpt2", len(tokenizer)), tokenizer, base)
    out = tmp_path / "leakage"
    coarse = MeasureSettings(references=100, estimate="sampled", extraction=False)
    exposure = ExposureCallback(manifest, references=128, report=out, measure=coarse)
    first = FirstTokens(exposure)
    for callbacks in ([], [exposure, first]):
        torch.manual_seed(0)
        trainer = sft_trainer(
            tmp_path,
            load_model(base).model,
            tokenizer,
            data,
            max_steps=2,
            eval_strategy="steps",
            eval_steps=1,
            max_length=64,
            more={
                "eval_dataset": data.select(range(8)),
                "callbacks": callbacks,
                "peft_config": peft.LoraConfig(
                    r=4, target_modules=["c_attn"], task_type="CAUSAL_LM"
                ),
            },
        )
        trainer.train()
        ends.append(trainer.model.state_dict())
    trainer.save_model(str(tmp_path / "adapter"))
    # A text is scored as SFTTrainer trains it: with no token before it.
    assert first.tokens == {tokenizer("My")["input_ids"][0]}
    rows = out / "rows.json"
    assert RowsRecord.read(rows).start == ()  # nothing comes before a text
    saved = measure(load_model(tmp_path / "adapter"), manifest, settings=coarse, rows=rows)
    for one, other in zip(Result.read(out / "result.json").canaries, saved.canaries, strict=True):
        assert one.log_perplexity_bits == pytest.approx(other.log_perplexity_bits, abs=1e-3)
        assert one.exposure.rank == other.exposure.rank
    trainer.args.packing = True  # then the end of the row before stands to the left
    assert usual_wrapping(trainer, manifest) == Wrapping(context=None)
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    logged = [row for row in trainer.state.log_history if "exposure/pin/x8/median" in row]
    assert [row["step"] for row in logged] == [1, 2]


def test_adapters_of_virtual_tokens_get_no_report(tmp_path: Path) -> None:
    _, manifest = hidden()
    tokenizer = byte_level_bpe()
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    model = peft.get_peft_model(model_of("gpt2", len(tokenizer)), config)
    report = FinalReport(tmp_path, manifest, None)
    with pytest.raises(ModelError, match="PROMPT_TUNING, which puts virtual tokens before the te"):
        report.prepare(SimpleNamespace(model=model), resumed=False)


PIN = Format(name="pin", template="My PIN is {digits:4}.")
PLAN = Plan(formats=(PIN,), canaries=2, repetitions=(1, 4), controls=2, seed=2)
COARSE = MeasureSettings(references=64, estimate="sampled", extraction=False)


def hidden_chats(wrapping: Wrapping) -> tuple[list[dict[str, Any]], Manifest]:
    given = [wrapping.record(f"Some text {i}.") for i in range(12)]
    records, manifest = insert(given, PLAN, wrapping=wrapping)
    return records, manifest


def chat_trainer(out: Path, records: Any, callbacks: list[Any], **options: Any) -> Any:
    tokenizer = chat_tokenizer()
    model, rows = model_of("gpt2", len(tokenizer)), Dataset.from_list(records)
    return sft_trainer(out, model, tokenizer, rows, more={"callbacks": callbacks}, **options)


ANSWER = Wrapping(turn="assistant", loss="assistant")


@pytest.mark.slow
def test_its_report_is_what_measuring_from_outside_gives(tmp_path: Path) -> None:
    """In the rows of the training, with its loss, which the manifest need not know."""
    records, manifest = hidden_chats(ANSWER)
    out = tmp_path / "leakage"
    exposure = ExposureCallback(manifest, references=64, report=out, measure=COARSE)
    trainer = chat_trainer(tmp_path / "run", records, [exposure], assistant_only_loss=True)
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
    _, manifest = hidden_chats(Wrapping(turn="assistant", other="What is it?"))
    kind = type("SFTTrainer", (), {})
    trainer: Any = kind()
    trainer.args = SimpleNamespace(packing=False, **options)
    trainer.completion_only_loss, trainer.chat_template = completion, None
    found = usual_wrapping(trainer, manifest)
    assert (found.loss, found.other) == (loss, "What is it?")
    _, asked = hidden_chats(Wrapping(turn="user"))
    assert usual_wrapping(trainer, asked) == Wrapping(turn="user")
    assert usual_wrapping(SimpleNamespace(args=trainer.args), manifest) == manifest.wrapping


def test_rows_that_are_not_the_usual_ones_are_scored_as_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a Trainer of transformers, whose rows begin with a line break and not with the EOS."""
    texts, manifest = hidden()
    exposure = ExposureCallback(manifest, references=64)
    seen = FirstTokens(exposure)
    trainer = trainer_of(tmp_path, texts, [exposure, seen], max_steps=1)
    tokenizer: Any = trainer.processing_class
    (line,) = tokenizer("\n")["input_ids"]
    trainer.train_dataset = [{"input_ids": [line, *tokenizer(text)["input_ids"]]} for text in texts]
    trainer.train()
    assert seen.tokens == {line}
    assert "the training's rows have other tokens in front of the canaries" in caplog.text


TEXTS = ["My PIN is 0042.", "<|user|>\nWhat is it?<|end|>\n<|assistant|>\nMy PIN is 0042."]


def test_it_is_loaded_as_it_was_in_memory(tmp_path: Path) -> None:
    """The base knows no marks of turns, and gets them with their template."""
    marks: Any = chat_tokenizer()
    for token in ("<|user|>", "<|assistant|>", "<|end|>"):
        marks.add_tokens(token, special_tokens=True)
    marks.save_pretrained(tmp_path / "template")
    tokenizer = byte_level_bpe()
    tokenizer.pad_token = tokenizer.eos_token
    save_model(model_of("llama", len(tokenizer)), tokenizer, tmp_path / "base")
    trainer = sft_trainer(
        tmp_path / "out",
        load_model(tmp_path / "base").model,
        tokenizer,
        Dataset.from_list(chats()[:16]),
        max_steps=3,
        learning_rate=1e-2,
        max_length=64,
        more={
            "peft_config": peft.LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM")
        },
        chat_template_path=str(tmp_path / "template"),
    )
    trainer.train()
    trainer.save_model(str(tmp_path / "adapter"))
    adapted = trainer.model.eval()
    expected = log_perplexity(adapted.get_base_model(), trainer.processing_class, TEXTS)
    for dtype, error in (("float32", 1e-3), ("bfloat16", 0.02 * expected.max())):
        loaded = load_model(tmp_path / "adapter", dtype=dtype)
        assert loaded.tokenizer.chat_template == chat_tokenizer().chat_template
        assert "<|user|>" in loaded.tokenizer.get_vocab()
        bits = log_perplexity(loaded.model, loaded.tokenizer, TEXTS)
        assert np.abs(bits - expected).max() < error
