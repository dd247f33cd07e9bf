"""A committed tiny checkpoint measured, by the library and by the command.

One measurement is held with all that it left in its directory, others by what the terminal says, or
by the parts of a result that they are for; of canaries the first of each class. What differs
between processors, machines and days is taken out before it is compared, and nothing else is:

- numbers with a decimal point may differ by 1e-3, and by 1 in the last place on the terminal;
- ranks among draws, which follow from the last bits of weights, are compared as their log2;
- ends of a curve's intervals, which one refit of 39 may decide, are apart: log2(1 + bits), by 0.1;
- decimals within sentences are left out, and sentences stand once, under a label;
- hashes of inputs (the version is among them), of scores and of the record itself, versions,
  dates, machine and paths are named instead of shown. Hashes of manifest and weights stay:
  permutations are drawn by them.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import cli.conftest
import pyarrow.parquet as pq
import pytest
import torch
from cli.conftest import Call, Outcome
from golden_run import agree_values
from safetensors.torch import save_file

from lmexposure import __version__
from lmexposure.audit import (
    MeasureSettings,
    Progress,
    measure,
)
from lmexposure.models import load_model
from lmexposure.studies import Result, Validation

DATA = Path(__file__).parent / "data" / "measured"
SMALL = MeasureSettings(
    references=40,
    revealed=1,
    draws=1000,
    guesses=20,
    budget_steps=20_000,
    bootstraps=39,
    permutations=199,
)
# What a training of our own says of itself, of one that learned nothing and ended by the clock.
LEARNED_NOTHING = Validation(
    validation_bits=5.5,
    initial_validation_bits=5.25,
    best_epoch=0.0,
    epochs=1.0,
    stopped="max_seconds",
    improved=False,
)
_NAMED = {
    "lmexposure": "version",
    "git_revision": "revision",
    "python": "version",
    "platform": "platform",
    "measured": "date",
    "inputs_sha256": "hash",
    "scores_sha256": "hash",
    "content_sha256": "hash",
}
_BITS = ("log_perplexity_bits", "secret_bits")  # of scores.parquet
_ROWS = 8  # a canary, controls, and references
_LONG = 60  # characters of a text that is a sentence
_DECIMALS = re.compile(r"\d[\d,]*\.(\d+)")


call = cli.conftest.call


class _Comparable:
    """JSON values without what differs between machines.

    Attributes:
        sentences: those met, by label.
        ends: of the curves' intervals.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places
        self.sentences: dict[str, str] = {}
        self.ends: list[float] = []

    def of(self, value: Any) -> Any:
        """The value with names for what differs, and a label for each sentence."""
        if isinstance(value, dict):
            return {k: self._named(k, v, value) for k, v in value.items()}
        if isinstance(value, list):
            return [self.of(each) for each in value]
        if not isinstance(value, str):
            return value
        for place, name in self._places.items():
            value = value.replace(place, name)
        return self._labelled(value) if len(value) > _LONG and " " in value else value

    def _named(self, key: str, value: Any, row: dict[str, Any]) -> Any:
        if key == "git_revision":  # None in a tree that is no clone
            return _NAMED[key]
        if value is None:
            return None
        if key in _NAMED and isinstance(value, str):
            return _NAMED[key]
        if key == "versions":
            return dict.fromkeys(value, "version")
        if key == "seconds":
            return dict.fromkeys(value, "seconds") if isinstance(value, dict) else "seconds"
        if key in ("rank", "place") and row.get("method") == "importance":
            return {"log2": math.log2(int(value))}
        if key in ("low", "high") and row.get("method") == "skew_normal":
            self.ends.append(math.log2(1 + value))
            return "end"
        return self.of(value)

    def _labelled(self, sentence: str) -> str:
        text = _DECIMALS.sub("#.#", sentence)
        label = f"{text[:30]}~{hashlib.sha256(text.encode()).hexdigest()[:6]}"
        self.sentences[label] = text
        return label


def _agree_measured(name: str, out: Path) -> None:
    """Hold what a measurement left in a directory against its committed copy."""
    left = {
        "files": {
            path.relative_to(out).as_posix(): f"{path.stat().st_mode & 0o777:o}"
            for path in sorted(out.rglob("*"))
        },
        "result": _of_classes(_read(out / "result.json")),
        "scores": _scores(out / "scores.parquet"),
        "run": _read(out / "run.json"),
    }
    _agree(name, left, {str(out): "OUT"})


def _of_classes(result: dict[str, Any]) -> dict[str, Any]:
    """A result with the first canary of each class alone."""
    classes = {(c["format"], c["repetitions"]): c for c in reversed(result["canaries"])}
    return {**result, "canaries": [c for c in result["canaries"] if c in classes.values()]}


def _read(path: Path) -> Any:
    return json.loads(path.read_bytes())


def _scores(path: Path) -> dict[str, Any]:
    """The columns of scores.parquet; what is exact in one line a row, bits of the first rows."""
    table = pq.read_table(path)
    columns = table.to_pydict()
    exact = zip(*(columns[name] for name in columns if name not in _BITS), strict=True)
    return {
        "schema": str(table.schema).splitlines(),
        "rows": [" ".join(map(str, row)) for row in exact],
        **{name: columns[name][:_ROWS] for name in _BITS},
    }


def _agree_result(
    name: str, result: Result, *parts: str, places: Mapping[str, str] | None = None, **more: Any
) -> None:
    """Hold parts of a result that was not written down, its warnings and the first canary."""
    values: dict[str, Any] = result.to_dict()
    held = {part: values[part] for part in ("warnings", *parts)}
    _agree(name, {**held, "canary": values["canaries"][0], **more}, places)


def _agree(name: str, made: Any, places: Mapping[str, str] | None = None) -> None:
    comparable = _Comparable({**(places or {}), str(DATA): "DATA"})
    made = comparable.of(made)
    agree_values(
        f"measurement/{name}.json", {**made, "sentences": comparable.sentences}, within=1e-3
    )
    if comparable.ends:
        agree_values(f"measurement/{name}.curve_ends.json", comparable.ends, within=0.1)


def _agree_terminal(name: str, seen: Outcome, out: Path) -> None:
    """Hold a command's words against their committed copy, numbers to 1 in the last place.

    Of standard error the warnings alone: how far the work is depends on the machine's pace.
    """
    text = seen.out + "\n".join(line for line in seen.err.splitlines() if "warning: " in line)
    text = text.replace(f"lmexposure {__version__}", "lmexposure VERSION")
    text = re.sub(r"measured \S+Z", "measured DATE", text)
    text = re.sub(r"\d{4}-\d\d-\d\d, \d\d:\d\d UTC", "DATE", text)
    text = text.replace(str(out), "OUT").replace(str(DATA), "DATA")
    numbers = [
        float(found[0].replace(",", "")) * 10 ** len(found[1]) for found in _DECIMALS.finditer(text)
    ]
    masked = _DECIMALS.sub(lambda found: re.sub(r"\d", "#", found[0]), text)
    agree_values(
        f"measurement/{name}.terminal.json",
        {"lines": masked.splitlines(), "last_places": numbers},
        within=1.01,
    )


# The settings of SMALL that no flag has.
FILE = f"bootstraps = {SMALL.bootstraps}\npermutations = {SMALL.permutations}\n"
DRAWN = ("--set", "references=40", "--set", "draws=1000", "--set", "guesses=20")
CLAIM = ("--claimed-epsilon", 0.1, "--delta", 1e-5, "--set", "significance=0.1")
# Model, manifest, settings file and flags of a measurement on the command line; the terminal tells
# all classes.
MEASURED: dict[str, tuple[str, str, str, tuple[object, ...]]] = {
    # An LSTM; three formats, of which one has too many fills to count all ranks.
    "fixed": (
        "fixed",
        "fixed",
        FILE + "extraction = false\n",
        ("--set", "references=40", "--set", "draws=1000", "--set", "budget_steps=20000"),
    ),
    # Coins bound epsilon, and a claim is held against it.
    "coins": (
        "coins",
        "coins",
        FILE + "extraction = false\n",
        ("--set", "references=40", "--estimate", "sampled", *CLAIM, "--set", "bootstrap_seed=2"),
    ),
    "quick": ("gpt2", "gpt2", FILE, ("--effort", "quick", *DRAWN)),
    # All by default, where every fill is a reference, and nothing is to the left of a text.
    "defaults": ("fixed", "texts", "", ()),
}


@pytest.mark.parametrize("name", MEASURED)
def test_measure_writes_and_says(tmp_path: Path, call: Call, name: str) -> None:
    model, of_plan, settings, flags = MEASURED[name]
    out, file = tmp_path / "out", tmp_path / "small.toml"
    file.write_text(settings)
    words = ("measure", DATA / model / "model", DATA / of_plan / "manifest.json", "--out", out)
    seen = call(*words, *flags, *(("--settings", file) if settings else ()))
    assert seen.code == 0
    _agree_terminal(name, seen, out)
    if name == "quick":
        _agree_measured(name, out)


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("exact", {"budget_steps": 300}),  # too few: bounds
        ("importance", {"extraction": False}),
        ("skew_normal", {"extraction": False}),
        ("certificate", {"extraction": False}),
    ],
)
def test_an_estimate_by_name(method: str, values: dict[str, Any]) -> None:
    settings = replace(SMALL, estimate=method, **values)
    result = measure(DATA / "gpt2" / "model", DATA / "gpt2" / "manifest.json", settings=settings)
    _agree_result(f"by_{method}", result)


def test_what_is_known_of_the_training_and_of_the_clock_is_said() -> None:
    told: dict[str, int] = {}
    result = measure(
        load_model(DATA / "gpt2" / "model"),
        DATA / "gpt2" / "manifest.json",
        settings=replace(SMALL, budget_seconds=1e6, revealed=2, beam_width=10),
        validation=LEARNED_NOTHING,
        progress=_teller(told),
    )
    _agree_result("own_training", result, "model", told=list(told))


def test_a_model_that_never_saw_the_canaries() -> None:
    """What a base model gives, and a context of two line ends."""
    model, manifest = DATA / "fixed" / "model", DATA / "gpt2" / "manifest.json"
    result = measure(model, manifest, settings=replace(SMALL, guesses=5))
    _agree_result("never_saw", result, "context")


def test_a_first_token_that_nothing_stands_before() -> None:
    loaded = load_model(DATA / "gpt2" / "model")
    loaded.tokenizer.bos_token = loaded.tokenizer.eos_token = None
    settings = replace(SMALL, references=None, extraction=False)
    result = measure(loaded, DATA / "texts" / "manifest.json", settings=settings)
    _agree_result("no_left_context", result, "context")


# What peft still calls in transformers.
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_an_adapter_is_measured_on_its_base(tmp_path: Path) -> None:
    """Of rank one and powers of two, so that merging rounds alike on every processor."""
    pytest.importorskip("peft")
    changed = "base_model.model.transformer.h.0.attn.c_attn.lora"
    weights = {f"{changed}_A.weight": torch.full((1, 32), 0.25)}
    weights[f"{changed}_B.weight"] = torch.full((96, 1), 0.125)
    save_file(weights, tmp_path / "adapter_model.safetensors")
    said = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(DATA / "gpt2" / "model"),
        "target_modules": ["c_attn"],
        "layers_to_transform": [0],
        "fan_in_fan_out": True,
        "r": 1,
        "lora_alpha": 1,
    }
    (tmp_path / "adapter_config.json").write_text(json.dumps(said))
    settings = replace(SMALL, estimate="sampled", extraction=False)
    result = measure(tmp_path, DATA / "gpt2" / "manifest.json", settings=settings)
    _agree_result("adapter", result, "model", places={str(tmp_path): "ADAPTER"})


def _teller(told: dict[str, int]) -> Progress:
    """Progress that keeps what was told, in order."""

    def tell(what: str, done: int, total: int, note: str = "") -> None:
        told.setdefault(what, total)

    return tell
