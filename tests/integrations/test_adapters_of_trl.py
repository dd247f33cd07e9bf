"""An adapter that TRL's SFTTrainer trained and saved, with tokens of a cloned chat template."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chats import chat_tokenizer
from datasets import Dataset
from integrations.tiny_training import sft_trainer
from models.small_chats import chats
from tiny import byte_level_bpe, model_of

from lmexposure.models import load_model, save_model
from lmexposure.scoring import log_perplexity

pytestmark = pytest.mark.filterwarnings("ignore")  # of TRL, peft and the Trainer, not ours

pytest.importorskip("trl")
peft = pytest.importorskip("peft")

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
