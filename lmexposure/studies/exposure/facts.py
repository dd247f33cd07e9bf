"""Facts of a run that a reader may ask for, and the one command that gives its result again.

A seed that was chosen stays out with the secrets, since whoever has it and the formats can draw
them. The manifest has what was drawn, and a run goes on from the manifest in its directory.
"""

import posixpath
from collections.abc import Iterator, Mapping

from lmexposure._settings import own_values, settings_of
from lmexposure._style import (
    MISSING,
    Value,
    count,
    listed,
    number,
    sentence,
    setting_value,
    short_hash,
    visible,
    whole,
)
from lmexposure.core import Fact
from lmexposure.studies.exposure.files import RunFiles
from lmexposure.studies.exposure.parts import BaseModelRecord
from lmexposure.studies.exposure.record import MOST_SHOWN, ContextRecord, Validation
from lmexposure.studies.exposure.run_record import SEVERAL, RunRecord
from lmexposure.studies.setting_words import (
    RARE,
    flag_words,
    named_facts,
    path_word,
    run_settings,
    word,
)
from lmexposure.studies.settings import EFFORTS, MeasureSettings, RunSettings
from lmexposure.studies.training_settings import TrainingSettings

# What is in the command instead; written bare, so that a shell shows what is missing.
SEED = "SEED"
_FILL_IN = "Fill in the words in capitals, if there are any"
# Where a demo's corpus is, from its run.
DEMO_TEXT = "source/python_topics.txt"

_RUN, _TRAINING = settings_of(RunSettings), settings_of(TrainingSettings)
_MEASURE = {
    name: setting for name, setting in settings_of(MeasureSettings).items() if name not in _RUN
}
# In no record: what changes speed alone, and what the manifest has.
_NO_FLAG = ("scoring_batch", "inclusion_seed")
_DECLARED = {
    name: setting for name, setting in (dict(_RUN) | _MEASURE).items() if name not in _NO_FLAG
}
_LEFT_OUT = "left out"
# How it is known in which rows canaries were trained.
_KNOWN = {
    "training": "as in the training",
    "manifest": "as the manifest says",
    "rows": "as in the rows of the training",
    "setting": "as was said of the training",
    "assumed": "which is assumed: the rows of the training are not known",
}
_LOSS = {
    "all": "on all tokens",
    "assistant": "on the assistant's turns",
    "completion": "on what follows the prompt",
}
_SEED_MEANING = "decides the secrets; left out: whoever has it and the formats can draw them"
_FRESH_MEANING = "decides the secrets, and is in the manifest only; the training has another"


def model_facts(run: RunFiles) -> tuple[Fact, ...]:
    """What was measured, and what it learned."""
    model = run.result.model
    return (
        Fact(name="model", value=model.path, meaning="its path, or its name on a hub"),
        Fact(name="type", value=model.type),
        Fact(name="parameters", value=whole(model.parameters or None)),
        Fact(name="measured in", value=model.dtype),
        Fact(
            name="context window",
            value=setting_value(model.context_window),
            meaning="tokens; n/a where it has no limit",
        ),
        Fact(name="weights, SHA-256", value=model.weights_sha256),
        *_base_facts(run.result.base),
        *_validation_facts(model.validation),
        *(() if run.result.context is None else _context_facts(run.result.context)),
    )


def scored_in(context: ContextRecord) -> str:
    """In which rows canaries and references were scored, in a sentence."""
    if context.turn == "plain":
        place = "as texts of their own"
    else:
        whose = "assistant's" if context.turn == "assistant" else "user's"
        place = f"as the {whose} turn of a record ({visible(context.form)})"
    front = f"behind {count(context.left_tokens, 'token')}" if context.left_tokens else ""
    around = [front or "with nothing in front"]
    if context.right_tokens:
        around.append(f"before {count(context.right_tokens, 'token')}")
    known = _KNOWN[context.source]
    return sentence(f"canaries and references were scored {place}, {listed(around)}, {known}")


def _context_facts(context: ContextRecord) -> Iterator[Fact]:
    """The row around each canary and reference."""
    turn = "" if context.turn == "plain" else f", the {context.turn}'s turn"
    yield Fact(
        name="scored as", value=f"{visible(context.form)}{turn}", meaning=_KNOWN[context.source]
    )
    tokens = count(context.left_tokens, "token")
    yield Fact(
        name="in front of each text",
        value=repr(context.left) if context.left_tokens else "nothing",
        meaning=tokens if len(context.left) < MOST_SHOWN else f"the end of {tokens}",
    )
    if context.turn != "plain" or context.right_tokens:
        behind = count(context.right_tokens, "token")
        yield Fact(name="behind each text", value=behind, meaning="not scored")
        yield Fact(name="loss in the training", value=_LOSS[context.loss])
    if context.unscored_tokens:
        value = f"the first {count(context.unscored_tokens, 'token')}"
        yield Fact(name="not scored of each text", value=value)
    if context.template_sha256 is not None:
        yield Fact(name="chat template, SHA-256", value=context.template_sha256)
    if context.chat_date is not None:
        yield Fact(name="day in the chat template", value=context.chat_date)


def _base_facts(base: BaseModelRecord | None) -> Iterator[Fact]:
    if base is None:
        return
    yield Fact(
        name="base",
        value="the model with its adapter switched off" if base.switched_off else base.path,
        meaning="the model before the training, measured on the same texts",
    )
    yield Fact(name="weights of the base, SHA-256", value=base.weights_sha256)


def _validation_facts(validation: Validation | None) -> Iterator[Fact]:
    if validation is None:
        yield Fact(name="validation loss", value=MISSING, meaning="trained elsewhere")
        return
    for name, bits in (
        ("validation loss", validation.validation_bits),
        ("validation loss before training", validation.initial_validation_bits),
    ):
        value = MISSING if bits is None else f"{number(bits, 3)} bits per token"
        yield Fact(name=name, value=value, meaning="lower = the model predicts better")
    learned = validation.improved if validation.has_loss else None
    yield Fact(name="best epoch", value=setting_value(validation.best_epoch))
    yield Fact(name="epochs", value=setting_value(validation.epochs))
    yield Fact(name="stopped", value=validation.stopped)
    yield Fact(name="learned", value=setting_value(learned))


def setting_facts(run: RunFiles, *, show_seeds: bool = False) -> tuple[Fact, ...]:
    """Settings with their defaults, seeds, versions, device, times, hashes."""
    record, result = run.record, run.result
    options = None if record is None else record.settings
    return (
        *(() if options is None else _seed_facts(run, options, show_seeds)),
        *chosen_facts(run),
        Fact(
            name="measured",
            value=result.when or "date unknown",
            meaning="when the measuring ended, UTC",
        ),
        Fact(name="measured by", value=f"lmexposure {result.lmexposure}"),
        *(() if record is None else _version_facts(record)),
        Fact(name="manifest, SHA-256", value=result.manifest_sha256),
        Fact(
            name="inputs, SHA-256",
            value=result.inputs_sha256,
            meaning="of all that decides the numbers: manifest, weights, settings",
        ),
    )


def chosen_facts(run: RunFiles) -> tuple[Fact, ...]:
    """What was chosen of the training and of the measurement, but for seeds."""
    record = run.record
    if record is None:
        return tuple(_option_facts(None, run.result.settings))
    return tuple(_option_facts(record.settings, record.measure))


def _option_facts(options: RunSettings | None, measure: MeasureSettings) -> Iterator[Fact]:
    """Training and measurement come before what was asked of the machine."""
    own = {} if options is None else run_settings(options)
    own.pop("seed", None)
    own = {name: value for name, value in own.items() if name not in RARE or value is not None}
    machine = ("device", "dtype", "load_in", "builder", "device_map", "offline", "revision")
    declared = settings_of(RunSettings)
    yield from named_facts({name: v for name, v in own.items() if name not in machine}, declared)
    if options is not None:
        yield from named_facts(options.training, settings_of(TrainingSettings), "training.")
        if not options.training:
            yield Fact(name="training", value="{}")
    asked = own_values(measure)
    left_out = [name for name in ("threads", "left_context") if not asked[name]]
    shown = {name: value for name, value in asked.items() if name not in left_out}
    yield from named_facts(shown, settings_of(MeasureSettings), "measure.")
    yield from named_facts({name: v for name, v in own.items() if name in machine}, declared)


def _seed_facts(run: RunFiles, options: RunSettings, show: bool) -> Iterator[Fact]:
    value, meaning = setting_value(options.seed), "decides the secrets and the training"
    if options.seed is None:
        value, meaning = "drawn fresh", _FRESH_MEANING
    elif not show:
        value, meaning = _LEFT_OUT, _SEED_MEANING
    yield Fact(name="seed", value=value, meaning=meaning)
    if options.inclusion_probability is not None:
        value = _LEFT_OUT
        if show and run.manifest is not None:
            value = setting_value(run.manifest.plan.inclusion_seed)
        yield Fact(
            name="inclusion seed",
            value=value,
            meaning="decides which canaries were inserted; the manifest has it",
        )


def _version_facts(record: RunRecord) -> Iterator[Fact]:
    yield Fact(name="record by lmexposure", value=record.lmexposure)
    yield Fact(name="git revision", value=setting_value(record.git_revision))
    yield Fact(name="Python", value=record.python)
    yield Fact(name="platform", value=record.platform)
    if record.device is not None:
        yield Fact(name="device", value=record.device)
    for name, version in record.versions.items():
        yield Fact(name=name, value=version)
    for name, seconds in record.seconds.items():
        yield Fact(name=f"time to {name}", value=f"{setting_value(seconds)} s")


def command_of(run: RunFiles, *, show_seeds: bool = False) -> str:
    """The command line, quoted for a POSIX shell; words in capitals are left to the reader."""
    record = run.record
    if record is None or record.settings is None:
        return _measure_command(run)
    again = _again(run)
    words = [f"mkdir -p {again} && cp {path_word(f'{run.name}/manifest.json')} {again} &&"]
    words += ["lmexposure run", *map(path_word, _corpus(run)), "--out", again]
    # What was asked of the machine is no setting of a run: the result says what it was.
    chosen = {
        **own_values(record.measure),
        **run_settings(record.settings),
        "threads": run.result.settings.threads,
    }
    # The demo's own seed is known to everyone, as its text is.
    demo = record.corpus == DEMO_TEXT and record.settings.seed == 0
    words += _flags("run", chosen, show_seeds or demo)
    for name, value in record.settings.training.items():
        words += flag_words("run", _TRAINING[name], value) if value is not None else ()
    return " ".join(words)


def where_of(run: RunFiles) -> str:
    """Where the command is given, what must be there, by its hash, and what is left to fill in."""
    place = f"Run it in the directory that holds {run.name}/"
    checksum = short_hash(run.result.manifest_sha256)
    weights = short_hash(run.result.model.weights_sha256)
    if not run.whole:
        has_manifest = run.manifest is not None
        what = f"{run.name}/manifest.json" if has_manifest else "MANIFEST is the manifest.json that"
        manifest = f"{what} has the checksum {checksum}"
        rows = ""
        if run.result.context is not None and run.result.context.source == "rows":
            rows = ", with the rows.json that was next to it"
        model = f"the model, wherever it is now, has weights with SHA-256 {weights}"
        return f"{place}; {manifest}{rows}, and {model}. {_FILL_IN}."
    corpus = _corpus(run)
    ours = corpus[0].startswith(f"{run.name}/")
    named = " ".join(map(path_word, corpus)) if len(corpus) > 1 else corpus[0]
    what = "" if ours else f", with {named}, the corpus before insertion; another is refused"
    text = f"{place} (its manifest.json has the checksum {checksum}){what}."
    return f"{text} {_FILL_IN}: {SEED} is plan.seed in manifest.json."


def _corpus(run: RunFiles) -> list[str]:
    """The corpus' files, from the directory that holds the run; names alone if elsewhere."""
    corpus = None if run.record is None else run.record.corpus
    if corpus is None:
        return [(run.manifest.corpus.name if run.manifest is not None else "") or "CORPUS"]
    places = [posixpath.normpath(posixpath.join(run.name, n)) for n in corpus.split(SEVERAL)]
    return [posixpath.basename(p) if p.startswith("../") else p for p in places]


def _measure_command(run: RunFiles) -> str:
    """Where it is not on record how the model was trained, the measurement alone."""
    path = run.result.model.path or "MODEL"
    home = run.result.home
    within = home is not None and (home / path).is_dir() and not posixpath.isabs(path)
    manifest = "MANIFEST" if run.manifest is None else path_word(f"{run.name}/manifest.json")
    shown = f"{run.name}/{path}" if within else path
    # Checkpoints of a training lie next to each other.
    names = list(dict.fromkeys(row.checkpoint for row in run.result.trajectory))
    others = [posixpath.join(posixpath.dirname(shown), name) for name in names[:-1]]
    scores = ["--scores"] if run.result.model.type == "scores" else []
    given = [*scores, path_word(shown)]
    if run.result.model.type == "function":  # a checkpoint with its builder, or one in memory
        given = ["MODEL", "--builder", "MODULE:FUNCTION"]
    words = ["lmexposure measure", *map(path_word, others), *given, manifest]
    words += ["--out", _again(run)]
    if (base := run.result.base) is not None:
        words += ["--base", "adapter-off" if base.switched_off else path_word(base.path)]
    if (dtype := run.result.model.dtype) != RunSettings().dtype and not scores:
        words += ["--dtype", word(dtype)]
    context = run.result.context
    for name in () if context is None else context.said:
        # A template is a file that only its owner has.
        value = "TEMPLATE" if name == "chat_template" else getattr(context, name)
        words += flag_words("measure", _RUN[name], value)
    words += _flags("measure", own_values(run.result.settings), show_seeds=True)
    return " ".join(words)


def _again(run: RunFiles) -> str:
    """A directory of its own: in that of the run itself the command would find all done."""
    return path_word(f"{run.name}-again")


def _flags(command: str, settings: Mapping[str, Value], show_seeds: bool) -> Iterator[str]:
    usual = _usual(settings)
    for name, setting in _DECLARED.items():
        value = settings.get(name, usual[name])
        if value is None or value == usual[name]:
            continue
        if name == "seed" and not show_seeds:
            yield f"--seed {SEED}"
        else:
            yield from flag_words(command, setting, value)


def _usual(settings: Mapping[str, Value]) -> dict[str, Value]:
    """The defaults, by the effort; candidates have none."""
    usual: dict[str, Value] = {name: setting.default for name, setting in _DECLARED.items()}
    if settings.get("inclusion_probability") is None:
        usual["canaries"] = RunSettings().per_class
    return {**usual, **EFFORTS.get(str(settings.get("effort")), {})}
