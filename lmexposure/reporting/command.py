"""The one command that gives a result again: every setting that differs from its default.

A seed that somebody chose is left out: who has it and the formats can draw the secrets. The
manifest has what was drawn, and a run goes on from the manifest in its directory.
"""

import json
import posixpath
import shlex
from collections.abc import Iterator, Mapping

from lmexposure.records import RunFiles
from lmexposure.reporting.facts import Setting, run_settings

# What is in the command instead; written bare, so that a shell shows what is missing.
SEED = "SEED"
# Where a demo's corpus is, from its run.
DEMO_TEXT = "source/python_topics.txt"
_SHORT = 12  # characters of a hash where people read it

# The defaults of the settings that a command has a flag for, and of those that only a file sets.
DEFAULTS: dict[str, Setting] = {
    "model": "lstm",
    "formats": ("random_number",),
    "canaries": 10,
    "inclusion_probability": None,
    "repetitions": (1, 4, 16),
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
    "quick": False,
}
# What --quick sets, where no flag says otherwise.
QUICK: dict[str, Setting] = {"revealed": 0, "draws": 2_000, "bootstraps": 39}
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


def command_of(run: RunFiles, *, show_seeds: bool = False) -> str:
    """The command line, quoted for a POSIX shell; words in capitals are left to the reader.

    It writes beside what is there, into a directory of another name, and takes the manifest along:
    that has the seeds that were drawn, and another corpus is refused. `where_of` says what must be
    there.

    Args:
        run: a whole run, or a measurement of any model.
        show_seeds: write a seed that was chosen, instead of `SEED`.
    """
    record = run.record
    if record is None or record.settings is None:
        return _measure_command(run)
    again = _again(run)
    words = [f"mkdir -p {again} && cp {_path(f'{run.name}/manifest.json')} {again} &&"]
    words += ["lmexposure run", _path(_corpus(run)), "--out", again]
    # What was asked of the machine is no setting of a run: the result says what it was.
    chosen = {
        **dict(record.measure),
        **run_settings(record.settings),
        "threads": run.result.settings.threads,
    }
    training = record.settings.training
    words += _flags(chosen, show_seeds or _is_demo(run))
    words += [
        f"{TRAINING_FLAGS[name]} {_word(value)}"
        for name, value in training.items()
        if name in TRAINING_FLAGS and value is not None
    ]
    rest = {
        name: value
        for name, value in training.items()
        if name not in TRAINING_FLAGS and value is not None
    }
    return _with_file(run, words, chosen, rest)


def where_of(run: RunFiles) -> str:
    """Where the command is given, and what must be there, by its hash: one sentence.

    Args:
        run: as for `command_of`.
    """
    place = f"Give it in the directory that holds {run.name}/"
    checksum = run.result.manifest_sha256[:_SHORT]
    weights = run.result.model.weights_sha256[:_SHORT]
    if not run.whole:
        beside = run.manifest is not None
        what = f"{run.name}/manifest.json" if beside else "MANIFEST is the manifest.json that"
        manifest = f"{what} has the checksum {checksum}"
        model = f"the model has weights with SHA-256 {weights}, wherever it lies now"
        return f"{place}; {manifest}, and {model}."
    corpus = _corpus(run)
    ours = corpus.startswith(f"{run.name}/")
    what = "" if ours else f", with {corpus}, the corpus before insertion; another is refused"
    return f"{place} (its manifest.json has the checksum {checksum}){what}."


def _corpus(run: RunFiles) -> str:
    """The corpus, from the directory that holds the run; its name alone if it was elsewhere."""
    said = None if run.record is None else run.record.corpus
    if said is not None:
        place = posixpath.normpath(posixpath.join(run.name, said))
        return posixpath.basename(place) if place.startswith("../") else place
    return (run.manifest.corpus.name if run.manifest is not None else "") or "CORPUS"


def _is_demo(run: RunFiles) -> bool:
    """Whether this is the demo with its own seed, which everyone knows, as its text."""
    record = run.record
    if record is None or record.settings is None:
        return False
    return record.corpus == DEMO_TEXT and record.settings.seed == 0


def _measure_command(run: RunFiles) -> str:
    """Where nobody knows how the model was trained, the measurement alone."""
    path = run.result.model.path or "MODEL"
    within = (run.result_path.parent / path).is_dir() and not posixpath.isabs(path)
    manifest = "MANIFEST" if run.manifest is None else _path(f"{run.name}/manifest.json")
    words = ["lmexposure measure", _path(f"{run.name}/{path}" if within else path), manifest]
    words += ["--out", _again(run)]
    # This seed is of shuffles and refits, not of the plan: no secret follows from it.
    seed = run.result.settings.seed
    settings = dict(run.result.settings) | {"seed": None}
    words += _flags(settings, show_seeds=True)
    words += [f"--seed {_word(seed)}"] if seed else []
    return _with_file(run, words, settings, {})


def _again(run: RunFiles) -> str:
    """A directory of its own: in that of the run itself the command would find all done."""
    return _path(f"{run.name}-again")


def _path(name: str) -> str:
    """A file's name that no command line takes for a flag."""
    return shlex.quote(f"./{name}" if name.startswith("-") else name)


def _flags(settings: Mapping[str, Setting], show_seeds: bool) -> Iterator[str]:
    usual = _usual(settings)
    for name, flag in FLAGS.items():
        value = settings.get(name, usual[name])
        if (value == usual[name] and name != "quick") or value is None or value is False:
            continue
        if name == "seed" and not show_seeds:
            yield f"{flag} {SEED}"
        elif name == "formats" and isinstance(value, tuple):
            yield from (f"{flag} {_word(part)}" for part in value)
        else:
            yield flag if value is True else f"{flag} {_word(value)}"


def _usual(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """The defaults, or those of a first look."""
    return {**DEFAULTS, **QUICK} if settings.get("quick") else DEFAULTS


def _word(value: Setting) -> str:
    """A value as a command line takes it: lists by commas."""
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return shlex.quote(text)


def _with_file(
    run: RunFiles,
    words: list[str],
    settings: Mapping[str, Setting],
    training: Mapping[str, Setting],
) -> str:
    """The words, behind a settings file where a setting has no flag."""
    usual = _usual(settings)
    lines = [
        f"{name} = {json.dumps(settings[name])}"
        for name in _BY_FILE
        if settings.get(name, usual[name]) != usual[name]
    ]
    if training:
        lines += ["[training]", *(f"{k} = {json.dumps(v)}" for k, v in training.items())]
    if not lines:
        return " ".join(words)
    text = "".join(line + "\n" for line in lines)
    file = _path(f"{run.name}-again.toml")
    return f"printf %s {shlex.quote(text)} > {file} && {' '.join(words)} --settings {file}"
