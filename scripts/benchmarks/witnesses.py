"""Whether witnesses show what a model read: in usual trainings, never in models of another corpus.

`usual`: trainings as people make them, whole and by LoRA, on texts and on chats; the witnesses of
at least 95 of 100 are to be seen. `unseen`: models that were trained on another insertion into the
same text, half of them with a plan of the same seed, measured in full by the gate at significance
.1: no witness is to be seen, and false alarms are to be no more than chance explains.
"""

import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness import Claims, Namespace, spent
from scipy.stats import binomtest

import lmexposure as lx
from lmexposure.audit import demo_corpus, insert_corpus, measure, train_corpus
from lmexposure.canaries import Manifest
from lmexposure.core import Outcome, Thresholds, Verdict
from lmexposure.studies import MeasureSettings, Result, RunSettings

ARGUMENTS = {"runs": 0, "seed": 0}  # runs: by default 17 of each usual kind, 300 unseen
_LEAST_SEEN, _LEVEL = 0.95, 0.1
_SHORT = MeasureSettings(references=200, estimate="sampled", extraction=False, bootstraps=39)
_FULL = MeasureSettings(references=2_000, draws=2_000, bootstraps=39, revealed=0, beam_width=20)
_LSTM: Mapping[str, Any] = {"layers": 1, "units": 128, "training": {"epochs": 8}}
_SMALL: Mapping[str, Any] = {"layers": 1, "units": 48, "training": {"epochs": 3}}


def usual(given: Namespace) -> Claims:
    """Trainings as people make them: how many of each kind show their witnesses."""
    seen, trained = Counter[str](), 0
    with tempfile.TemporaryDirectory() as name:
        home = _home(name)
        for number in range(given.runs or 17):
            for kind, corpus, settings in _kinds(home, given.seed + number):
                shown = _outcome(_measured(home / f"{kind}-{number}", corpus, settings))
                seen[kind] += shown.get("accept_unseen_training") is Outcome.PASS
                trained += 1
    share = seen.total() / trained
    yield share >= _LEAST_SEEN, f"seen {seen.total()} of {trained}: {dict(seen)}"


def unseen(given: Namespace) -> Claims:
    """Models of another insertion of the same format: witnesses seen, and false alarms."""
    seen = alarms = 0
    runs = given.runs or 300
    whole = Thresholds(significance=_LEVEL, accept_unseen_training=True)
    with tempfile.TemporaryDirectory() as name:
        home = _home(name)
        for number in range(runs):
            place = home / f"unseen-{number}"
            corpus = _sample(home, place, lines=400, seed=given.seed + number)
            plan = RunSettings(formats=("random_number",), seed=number, **_SMALL)
            # Another format of the same seed, or the same format of another.
            other = (
                replace(plan, seed=number + runs) if number % 2 else replace(plan, formats=("pin",))
            )
            trained = _trained(place / "other", corpus, other)[0]
            _, manifest = insert_corpus([str(corpus)], out=place / "own", settings=plan)
            result = measure(trained, manifest, settings=_FULL)
            seen += _outcome(result)["accept_unseen_training"] is Outcome.PASS
            alarms += lx.check(result, whole).outcome is Outcome.LEAK
    p = binomtest(alarms, runs, _LEVEL, alternative="greater").pvalue
    yield not seen, f"{seen} of {runs} seen that never read the witnesses"
    yield p >= 0.01, f"{alarms} of {runs} false alarms at {_LEVEL}, p = {p:.3g}"


def _home(name: str) -> Path:
    demo_corpus(Path(name) / "text.txt")
    return Path(name)


def _kinds(home: Path, seed: int) -> Iterator[tuple[str, Path, RunSettings]]:
    chats, base = _chats(home)
    gpt2 = _gpt2(home)
    lines = _sample(home, home / f"lines-{seed}", lines=400, seed=seed)
    made = RunSettings(formats=("api_key",), canaries=3, repetitions=(1, 4), controls=3, seed=seed)
    # Of the tutorials, for models of this size.
    whole = {"epochs": 3, "learning_rate": 1e-3}
    adapter = {"lora": True, "epochs": 5, "learning_rate": 3e-3}
    yield "lstm", lines, replace(made, **_LSTM)
    yield "gpt2-whole", lines, replace(made, model=str(gpt2), training=whole)
    yield "gpt2-lora", lines, replace(made, model=str(gpt2), training=adapter)
    yield "llama-lora", lines, replace(made, model=str(base), training=adapter)
    yield "chats-whole", chats, replace(made, model=str(base), training=whole)
    yield "chats-lora", chats, replace(made, model=str(base), training=adapter)


def _chats(home: Path) -> tuple[Path, Path]:
    """Chats and a small base model for them, made once."""
    if not (home / "chats").exists():
        script = Path(__file__).parents[1] / "examples" / "chats.py"
        spent(script, home / "text.txt", home / "chats", "--chats", 300)
    return home / "chats" / "chats.jsonl", home / "chats" / "base"


def _gpt2(home: Path) -> Path:
    """A small GPT-2 that has read the first half of the text, made once."""
    out = home / "gpt2"
    if not out.exists():
        first, _ = _halves(home)
        (home / "first.txt").write_text("\n".join(first) + "\n")
        settings = RunSettings(model="gpt2-tiny", training={"epochs": 5})
        train_corpus([str(home / "first.txt")], out=out, settings=settings)
    return out / "model"


def _halves(home: Path) -> tuple[list[str], list[str]]:
    """What base models read, and what they are then trained on: neither has lines of the other."""
    lines = list(dict.fromkeys((home / "text.txt").read_text().splitlines()))
    lines = [line for line in lines if line.strip()]
    return lines[: len(lines) // 2], lines[len(lines) // 2 :]


def _sample(home: Path, place: Path, *, lines: int, seed: int) -> Path:
    place.mkdir(exist_ok=True)
    _, second = _halves(home)
    (place / "lines.txt").write_text("\n".join(random.Random(seed).sample(second, lines)) + "\n")
    return place / "lines.txt"


def _trained(out: Path, corpus: Path, settings: RunSettings) -> tuple[Path, Manifest]:
    tokenizer = None if corpus.suffix == ".txt" else settings.model
    copy, manifest = insert_corpus([str(corpus)], out=out, settings=settings, tokenizer=tokenizer)
    trained = train_corpus([str(copy)], out=out, settings=settings, manifest=manifest)
    return trained.model_path, manifest


def _measured(out: Path, corpus: Path, settings: RunSettings) -> Result:
    return measure(*_trained(out, corpus, settings), settings=_SHORT)


def _outcome(result: Result) -> dict[str, Outcome]:
    """By key, what each check of the whole run came to."""
    verdict: Verdict = lx.check(result)
    return {check.key: check.outcome for check in verdict.checks if not check.scope}


PARTS = {"usual": usual, "unseen": unseen}
