"""The chats of the tutorial under published templates, by TRL and by `run --lora`: one verdict.

For each template: a base that knows its markers, `insert`, a training by TRL's SFTTrainer as it
comes (loss on answers where TRL knows the template, else its default), `measure`, `check`; and
`run --lora`, `check`. About five minutes each; with 100 chats and --quick one.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import trl
from harness import Claims, Namespace
from peft import LoraConfig
from published_templates import PUBLISHED, TWINS, family_of
from tokenizers import AddedToken
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = Path(__file__).parents[1]
TWELVE = (
    *("qwen2_5", "qwen3", "llama3", "llama3_2", "gemma3", "phi3"),
    *("deepseekv3", "gptoss", "mistral_nemo", "zephyr", "llama2", "smollm2"),
)
ARGUMENTS = {"text": Path, "out": Path, "names": TWELVE, "chats": 400, "quick": False}
PLAN = ("--format", "pin", "--repetitions", "1,16")
EPOCHS, RATE = 5, 3e-3
SAID = {0: "pass", 1: "leak", 2: "inconclusive"}


def verdicts(given: Namespace) -> Claims:
    """One verdict of both ways for each template."""
    out = given.out
    if not (out / "base").exists():
        run(HERE / "examples" / "chats.py", given.text, out, "--chats", given.chats)
    quick = ["--effort", "quick"] if given.quick else []
    for name in given.names:
        by = {"TRL": by_trl(name, out, quick), "run --lora": by_run(name, out, quick)}
        alike = len(set(by.values())) == 1
        yield alike and by["TRL"] in SAID.values(), f"{name}: {by}"


def run(*words: object) -> int:
    return subprocess.run([sys.executable, *map(str, words)], check=False).returncode


def lmexposure(*words: object) -> int:
    return run("-m", "lmexposure", *words)


def base_of(name: str, out: Path) -> Path:
    """The tutorial's base, with this template and the markers of its family."""
    place = out / f"base-{name}"
    if place.exists():
        return place
    model = AutoModelForCausalLM.from_pretrained(out / "base")
    tokenizer: Any = AutoTokenizer.from_pretrained(out / "base")
    family = family_of(name)
    own = [*family.special.split(), *filter(None, [family.bos, family.eos])]
    tokenizer.add_tokens([AddedToken(text, special=True, normalized=False) for text in own])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in family.plain.split()])
    tokenizer.bos_token, tokenizer.eos_token = family.bos, family.eos
    tokenizer.pad_token = family.eos
    tokenizer.chat_template = PUBLISHED[name]
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


def by_trl(name: str, out: Path, quick: list[str]) -> str:
    """Inserted, trained by TRL, measured and judged."""
    canaried, adapter = out / f"canaried-{name}", out / f"adapter-{name}"
    base = base_of(name, out)
    if lmexposure("insert", out / "chats.jsonl", *PLAN, "--out", canaried):
        return "insert failed"
    if not adapter.exists():
        trainer = trl.SFTTrainer(
            str(base),
            args=trl.SFTConfig(
                str(adapter),
                assistant_only_loss=name in TWINS,
                num_train_epochs=EPOCHS,
                learning_rate=RATE,
                report_to=[],
                save_strategy="no",
                use_cpu=True,
            ),
            train_dataset=datasets.load_dataset(
                "json", data_files=str(canaried / "corpus" / "chats.jsonl"), split="train"
            ),
            peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"),
        )
        trainer.train()
        trainer.save_model(str(adapter))
    result = canaried / "result"
    if lmexposure("measure", adapter, canaried / "manifest.json", "--out", result, *quick):
        return "measure failed"
    return verdict(result)


def by_run(name: str, out: Path, quick: list[str]) -> str:
    """The same by one command."""
    place = out / f"run-{name}"
    trained = ("--model", base_of(name, out), "--lora", "--epochs", EPOCHS, "--learning-rate", RATE)
    if lmexposure("run", out / "chats.jsonl", *trained, *PLAN, "--out", place, *quick):
        return "run failed"
    return verdict(place)


def verdict(place: Path) -> str:
    code = lmexposure("check", place)
    return SAID.get(code, f"check failed ({code})")


PARTS = {"verdicts": verdicts}
