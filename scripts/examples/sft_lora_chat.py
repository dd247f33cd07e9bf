"""SFT with a chat template and LoRA: canaries as assistant turns, counted, then measured.

A tiny model made here stands for yours, and made-up chats for your data.
Run: python scripts/examples/sft_lora_chat.py OUT
"""

import sys
from pathlib import Path

from datasets import Dataset
from peft import LoraConfig
from transformers import LlamaConfig, LlamaForCausalLM, set_seed
from trl import SFTConfig, SFTTrainer

from lmexposure.canaries import Format, Plan
from lmexposure.integrations import DeliveredCounter, Wrapping, insert, wrapped_exposures
from lmexposure.models import byte_level_tokenizer, load_model, save_model

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>\n"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|end|>\n{% endgeneration %}"
    "{% else %}{{ m.content }}<|end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
LAYERS = ["q_proj", "v_proj", "up_proj", "down_proj"]


def main(out: Path) -> None:
    chats = [
        [
            {"role": "user", "content": f"What is {i} and {i % 9}?"},
            {"role": "assistant", "content": f"It is {i + i % 9}, as I said."},
        ]
        for i in range(60)
    ]
    set_seed(1)
    texts = [turn["content"] for chat in chats for turn in chat]
    tokenizer = byte_level_tokenizer(texts, vocab_size=400)
    tokenizer.chat_template, tokenizer.pad_token = TEMPLATE, tokenizer.eos_token
    size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    # A frozen output layer of small random weights could hardly prefer one token to another.
    config = LlamaConfig(
        vocab_size=len(tokenizer), num_attention_heads=4, initializer_range=0.2, **size
    )
    save_model(LlamaForCausalLM(config), tokenizer, out / "base")
    base = load_model(out / "base")

    # 1. Canaries go in as answers.
    pin = Format(name="pin", template="My PIN is {digits:4}.")
    plan = Plan(formats=(pin,), canaries=2, repetitions=(1, 16), controls=2, seed=1)
    wrapping = Wrapping(turn="assistant", loss="assistant", other="What is your PIN?")
    records, manifest = insert([{"messages": c} for c in chats], plan, wrapping=wrapping)
    manifest.write(out / "manifest.json")

    # 2. Training, its batches counted.
    trainer = SFTTrainer(
        base.model,
        args=SFTConfig(
            str(out / "run"),
            assistant_only_loss=True,
            num_train_epochs=4,
            learning_rate=2e-2,
            per_device_train_batch_size=8,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list(records),
        processing_class=base.tokenizer,
        peft_config=LoraConfig(r=16, target_modules=LAYERS),
    )
    counter = DeliveredCounter(manifest, base.tokenizer, wrapping=wrapping)
    counter.attach(trainer)
    trainer.train()
    report = counter.report()
    print(f"delivered as planned: {report.complete}", *report.warnings, sep="\n")

    # 3. Exposure, in the wrapping of the training. Higher = more memorised.
    trainer.save_model(str(out / "adapter"))
    loaded = load_model(out / "adapter")
    found = wrapped_exposures(loaded.model, loaded.tokenizer, manifest, wrapping, references=1000)
    for one in found:
        sign = ">=" if one.exposure.capped else ""
        print(f"{one.id}: exposure {sign}{one.exposure.value:.2f} bits")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
