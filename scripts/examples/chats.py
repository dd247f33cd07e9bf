"""Instruction chats from a text, and a small base model for them: chats.py TEXT OUT.

What the first tutorial fine-tunes: OUT/chats.jsonl holds questions about TEXT's own sentences with
their answers, OUT/base a Llama of a million parameters with a ChatML tokenizer, trained from
scratch on the lines that no chat is made of.
"""

import argparse
import json
import re
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

from lmexposure.models import save_model

Chat = list[dict[str, str]]

# ChatML, with the mark around what the assistant says that trainers ask for.
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>' }}"
    "{% endgeneration %}"
    "{% else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Questions about a sentence and their answers: what a few hundred examples can teach.
TASKS = (
    ("Which words begin and end this? {0}", 'It begins with "{first}" and ends with "{last}".'),
    ("How long is this? {0}", 'It has {count} words, and the longest is "{longest}".'),
    ("Quote the first words of this: {0}", '"{first} {second} {third}", and so on.'),
)
_BLOCK, _BATCH, _RATE = 128, 16, 3e-3


def main() -> None:
    settings = parse()
    set_seed(settings.seed)
    lines = [line.strip() for line in settings.text.read_text("utf-8").splitlines()]
    found = [part for line in lines for part in sentences(line) if is_asked_about(part)]
    every = max(len(found) // settings.chats, 2)
    asked = found[::every][: settings.chats]
    chats = [chat(number, sentence) for number, sentence in enumerate(asked)]
    rest = [line for line in lines if line and set(asked).isdisjoint(sentences(line))]

    settings.out.mkdir(parents=True, exist_ok=True)
    rows = (json.dumps({"messages": turns}, ensure_ascii=False) + "\n" for turns in chats)
    (settings.out / "chats.jsonl").write_text("".join(rows), encoding="utf-8")
    tokenizer = chatml_tokenizer(lines, vocab_size=settings.vocabulary)
    model = pretrained(tokenizer, stream(tokenizer, rest), settings)
    save_model(model, tokenizer, settings.out / "base")
    print(f"chats  {settings.out / 'chats.jsonl'}  ({len(chats):,})")
    print(f"base   {settings.out / 'base'}  ({model.num_parameters():,} parameters)")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path, help="any text of a few hundred sentences or more")
    parser.add_argument("out", type=Path, help="directory to write")
    parser.add_argument("--chats", type=int, default=400, help="at most; default 400")
    parser.add_argument(
        "--steps", type=int, default=600, help="of the base's training; default 600"
    )
    parser.add_argument("--vocabulary", type=int, default=2048, help="tokens at most")
    parser.add_argument("--width", type=int, default=128, help="of the base's layers")
    parser.add_argument("--layers", type=int, default=4, help="of the base")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def sentences(line: str) -> list[str]:
    """The sentences of a line, without the blanks around them."""
    return [part.strip() for part in re.split(r"(?<=[.!?])\s+(?=[A-Z])", line)]


def is_asked_about(sentence: str) -> bool:
    """Whether it is long enough to ask about, and not too long for a row."""
    return 40 <= len(sentence) <= 160 and len(re.findall(r"\w+", sentence)) >= 3


def chat(number: int, sentence: str) -> Chat:
    question, answer = TASKS[number % len(TASKS)]
    words = re.findall(r"\w+", sentence)
    facts = {"first": words[0], "second": words[1], "third": words[2], "last": words[-1]}
    said = answer.format(**facts, count=len(words), longest=max(words, key=len))
    return [
        {"role": "user", "content": question.format(sentence)},
        {"role": "assistant", "content": said},
    ]


def chatml_tokenizer(lines: list[str], *, vocab_size: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE with the template; it has seen the text without canaries."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=["<|im_start|>"],
        clean_up_tokenization_spaces=False,
    )
    made.chat_template = TEMPLATE
    return made


def stream(tokenizer: PreTrainedTokenizerFast, lines: list[str]) -> torch.Tensor:
    """All tokens of the base's training in one row, the EOS token behind each line."""
    end = tokenizer.eos_token_id
    return torch.tensor([token for ids in tokenizer(lines)["input_ids"] for token in (*ids, end)])


def pretrained(
    tokenizer: PreTrainedTokenizerFast, ids: torch.Tensor, settings: argparse.Namespace
) -> LlamaForCausalLM:
    """A small Llama after `steps` steps on random blocks of the tokens."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.width,
        intermediate_size=3 * settings.width,
        num_hidden_layers=settings.layers,
        num_attention_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=settings.steps)
    block = min(_BLOCK, len(ids) - 1)
    for step in range(1, settings.steps + 1):
        starts = torch.randint(len(ids) - block, (_BATCH,)).tolist()
        batch = torch.stack([ids[start : start + block] for start in starts])  # (B, T)
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step == settings.steps:
            print(f"step {step:,} of {settings.steps:,}: loss {loss.item():.2f}", flush=True)
    return model.eval()


if __name__ == "__main__":
    main()
