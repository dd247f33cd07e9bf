"""The callback under TRL's SFTTrainer, with adapters: it is a Trainer like any other."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset
from integrations.tiny_training import FirstTokens, hidden, sft_trainer
from tiny import byte_level_bpe, model_of

from lmexposure.audit import MeasureSettings, measure
from lmexposure.errors import ModelError
from lmexposure.integrations import ExposureCallback, Wrapping
from lmexposure.integrations.callback import usual_wrapping
from lmexposure.integrations.callback_reports import FinalReport
from lmexposure.models import load_model, save_model
from lmexposure.studies import Result, RowsRecord

pytestmark = pytest.mark.filterwarnings("ignore")  # of TRL and the Trainer, which are not ours

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
