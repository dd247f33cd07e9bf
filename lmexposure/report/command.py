"""The one command that gives a result again: every setting that differs from its default.

A seed that somebody chose is left out: who has it and the formats can draw the secrets. Where none
was chosen, the manifest has what was drawn, and a run goes on from the manifest in its directory.
"""

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from lmexposure.run_files import RunFiles

__all__ = ["COIN_SEED", "DEFAULTS", "FLAGS", "SEED", "TRAINING_FLAGS", "command_of"]

# What stands in the command instead; written bare, so that a shell shows what is missing.
SEED, COIN_SEED = "SEED", "COIN_SEED"

# The defaults of the settings that a command has a flag for, and of those that only a file sets.
DEFAULTS: dict[str, Any] = {
    "model": "lstm",
    "formats": ["random_number"],
    "canaries": 10,
    "coins": "fixed",
    "candidates": None,
    "repetitions": [1, 4, 16],
    "controls": 32,
    "seed": None,
    "layout": None,
    "text_field": "text",
    "existing": "refuse",
    "layers": 2,
    "units": 200,
    "device": "auto",
    "dtype": "float32",
    "threads": None,
    "offline": False,
    "revision": None,
    "references": None,
    "revealed": 4,
    "beam_width": None,
    "extraction": True,
    "method": "auto",
    "draws": 20_000,
    "guesses": 1_000,
    "budget_steps": None,
    "budget_seconds": None,
    "live_states": None,
    "level": 0.95,
    "bootstraps": 199,
    "permutations": 9_999,
    "significance": 0.05,
    "delta": None,
    "claimed_epsilon": None,
}
_BY_FILE = ("extraction", "level", "bootstraps", "permutations")
FLAGS = {
    name: "--format" if name == "formats" else "--" + name.replace("_", "-")
    for name in DEFAULTS
    if name not in _BY_FILE
}
TRAINING_FLAGS = {
    name: "--" + name.replace("_", "-")
    for name in (
        "epochs",
        "patience",
        "batch_size",
        "block_size",
        "learning_rate",
        "accumulation",
        "precision",
        "max_seconds",
    )
}
_FILE = "settings.toml"


def command_of(run: RunFiles, *, show_seeds: bool = False) -> str:
    """The command line, quoted for a POSIX shell; words in capitals are left to the reader.

    Args:
        run: a whole run, or a measurement of any model.
        show_seeds: write seeds that were chosen, instead of `SEED` and `COIN_SEED`.
    """
    if run.record is None:
        return _measure_command(run)
    settings = run.record["settings"]
    corpus = run.manifest.corpus.name if run.manifest is not None else ""
    fresh = settings.get("seed") is None
    words = _with_manifest(_path(run.name)) if fresh else []
    words += ["lmexposure run", _path(corpus) if corpus else "CORPUS"]
    words += ["--out", _path(run.name)]
    # What was asked of the machine is no setting of a run: the result says what it was.
    threads = run.result.settings.get("threads")
    chosen = {**_table(settings.get("measure")), **settings, "threads": threads}
    training = _table(settings.get("training"))
    words += _flags(chosen, show_seeds)
    words += [] if fresh else _coin_seed(run, settings, show_seeds)
    words += [
        f"{TRAINING_FLAGS[name]} {_word(value)}"
        for name, value in training.items()
        if name in TRAINING_FLAGS and value is not None
    ]
    rest = {k: v for k, v in training.items() if k not in TRAINING_FLAGS and v is not None}
    return _with_file(words, chosen, rest)


def _measure_command(run: RunFiles) -> str:
    """Where nobody knows how the model was trained, the measurement alone."""
    model = run.result.model.get("path")
    words = ["lmexposure measure", _path(str(model)) if model else "MODEL", "MANIFEST"]
    words += ["--out", _path(run.name)]
    # This seed is of shuffles and refits, not of the plan: no secret follows from it.
    settings = run.result.settings
    seed = settings.get("seed")
    words += _flags({**settings, "seed": None}, show_seeds=True)
    words += [f"--seed {_word(seed)}"] if seed else []
    return _with_file(words, settings, {})


def _with_manifest(out: str) -> list[str]:
    """What puts the seeds of a run where the same command elsewhere looks for them."""
    return [f"mkdir -p {out} && cp MANIFEST {out}/manifest.json &&"]


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _path(name: str) -> str:
    """A file's name that no command line takes for a flag."""
    return shlex.quote(f"./{name}" if name.startswith("-") else name)


def _flags(settings: Mapping[str, Any], show_seeds: bool) -> Iterator[str]:
    for name, flag in FLAGS.items():
        value = settings.get(name, DEFAULTS[name])
        if value == DEFAULTS[name] or value is None:
            continue
        if name == "seed" and not show_seeds:
            yield f"{flag} {SEED}"
        elif name == "formats":
            yield from (f"{flag} {_word(one)}" for one in value)
        else:
            yield flag if value is True else f"{flag} {_word(value)}"


def _word(value: Any) -> str:
    """A value as a command line takes it: lists by commas."""
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return shlex.quote(text)


def _coin_seed(run: RunFiles, settings: Mapping[str, Any], show_seeds: bool) -> list[str]:
    if settings.get("coins", "fixed") == "fixed":
        return []
    known = show_seeds and run.manifest is not None
    seed = str(run.manifest.plan.coin_seed) if known and run.manifest is not None else COIN_SEED
    return [f"--coin-seed {seed}"]


def _with_file(words: list[str], settings: Mapping[str, Any], training: dict[str, Any]) -> str:
    """The words, behind a settings file where a setting has no flag."""
    lines = [
        f"{name} = {json.dumps(settings[name])}"
        for name in _BY_FILE
        if settings.get(name, DEFAULTS[name]) != DEFAULTS[name]
    ]
    if training:
        lines += ["[training]", *(f"{k} = {json.dumps(v)}" for k, v in training.items())]
    if not lines:
        return " ".join(words)
    text = "".join(line + "\n" for line in lines)
    return f"printf %s {shlex.quote(text)} > {_FILE} && {' '.join(words)} --settings {_FILE}"
