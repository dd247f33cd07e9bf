"""Fine-tune a model on chats with TRL and LoRA: sft_chats.py MODEL CHATS OUT [EPOCHS RATE].

A training that knows nothing of canaries, as yours: what it trained is measured afterwards.
"""

import sys

import datasets
import torch
import trl
from peft import LoraConfig
from transformers import AutoTokenizer

model, chats, out = sys.argv[1:4]
epochs, rate = (float(value) for value in sys.argv[4:] or (3, 2e-4))
# Where the template marks the assistant's turns they alone carry loss, else all tokens do.
marked = "{% generation" in (AutoTokenizer.from_pretrained(model).chat_template or "")
trainer = trl.SFTTrainer(
    model,
    args=trl.SFTConfig(
        out,
        assistant_only_loss=marked,
        num_train_epochs=epochs,
        learning_rate=rate,
        per_device_train_batch_size=8,
        report_to=[],
        save_strategy="no",
        use_cpu=not torch.cuda.is_available(),
    ),
    train_dataset=datasets.load_dataset("json", data_files=chats, split="train"),
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"),
)
trainer.train()
trainer.save_model(out)
