"""Follow canaries while a Trainer trains a small GPT-2 from scratch: trainer.py TEXT OUT."""

import sys

import datasets
import transformers as hf

import lmexposure as lx
from lmexposure.models import byte_level_tokenizer, encode_documents, tiny_gpt2_config

text, out = sys.argv[1:]
parts = datasets.load_dataset("text", data_files=text, split="train").train_test_split(0.1, seed=0)
tokenizer = byte_level_tokenizer(parts["train"]["text"], vocab_size=512)
tokenizer.pad_token = tokenizer.eos_token
plan = lx.Plan(formats=["random_number"], canaries=4, repetitions=[1, 32], controls=8, seed=1)
config = tiny_gpt2_config(tokenizer)
parts, manifest = lx.insert(parts, plan)
manifest.write(f"{out}/manifest.json")


def encode(rows: dict) -> dict:
    ids = encode_documents(tokenizer, rows["text"], context=manifest.separator)
    return {"input_ids": [one[: config.n_positions] for one in ids]}


encoded = parts.map(encode, batched=True, remove_columns="text")
trainer = hf.Trainer(
    model=hf.GPT2LMHeadModel(config),
    args=hf.TrainingArguments(out, num_train_epochs=4, eval_strategy="epoch", learning_rate=2e-3),
    train_dataset=encoded["train"],
    eval_dataset=encoded["test"],
    data_collator=hf.DataCollatorForLanguageModeling(tokenizer, mlm=False),
    processing_class=tokenizer,
    callbacks=[lx.ExposureCallback(manifest)],
)
trainer.train()
