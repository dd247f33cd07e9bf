"""Names and values that a reader may ask for: what the model is, what was chosen, which versions.

A seed that was chosen stays out with the secrets: who has it and the formats can draw them.
"""

from collections.abc import Iterator, Mapping

from lmexposure._settings import Setting, settings_of
from lmexposure._style import MISSING, Value, number, setting_value, whole
from lmexposure.records import (
    MeasureOptions,
    MeasureSettings,
    RunFiles,
    RunOptions,
    RunRecord,
    RunSettings,
    TrainingSettings,
    Validation,
)
from lmexposure.reporting.data import Fact

_LEFT_OUT = "left out"
_SEED_MEANING = "decides the secrets; left out, for who has it and the formats can draw them"
_FRESH_MEANING = "decides the secrets, and the manifest alone has it; the training's is another"


def run_settings(options: RunOptions) -> dict[str, Value]:
    """Each setting but those of the training, by the name that a settings file gives it.

    A record counts canaries and candidates apart, and users give one number.

    Args:
        options: what was asked of a run.
    """
    apart = ("training", "candidates")
    settings: dict[str, Value] = {name: value for name, value in options if name not in apart}
    return settings | {"canaries": options.candidates or options.canaries}


def measure_settings(options: MeasureOptions) -> dict[str, Value]:
    """Each setting of a measurement, by the name that a settings file gives it.

    Args:
        options: what was asked of it.
    """
    return {"bootstrap_seed" if name == "seed" else name: value for name, value in options}


def model_facts(run: RunFiles) -> tuple[Fact, ...]:
    """What was measured, and what it learned.

    Args:
        run: its result says.
    """
    model = run.result.model
    return (
        Fact(name="model", value=model.path, meaning="where it lies, or its name on a hub"),
        Fact(name="type", value=model.type),
        Fact(name="parameters", value=whole(model.parameters)),
        Fact(name="measured in", value=model.dtype),
        Fact(
            name="context window",
            value=setting_value(model.context_window),
            meaning="tokens; n/a where it has no limit",
        ),
        Fact(name="weights, SHA-256", value=model.weights_sha256),
        *_validation_facts(model.validation),
    )


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
    yield Fact(name="best epoch", value=setting_value(validation.best_epoch))
    yield Fact(name="epochs", value=setting_value(validation.epochs))
    yield Fact(name="stopped", value=validation.stopped)
    yield Fact(name="learned", value=setting_value(validation.improved))


def setting_facts(run: RunFiles, *, show_seeds: bool = False) -> tuple[Fact, ...]:
    """Settings with their defaults, seeds, versions, device, times, hashes.

    Args:
        run: a whole run, or a measurement, of which only the measurement's settings are known.
        show_seeds: show a seed that was chosen, and that of who is included.
    """
    record, result = run.record, run.result
    options = None if record is None else record.settings
    return (
        *(() if options is None else _seed_facts(run, options, show_seeds)),
        *_option_facts(options, result.settings if record is None else record.measure),
        Fact(
            name="measured",
            value=run.provenance.measured or "date unknown",
            meaning="when the measuring ended, UTC",
        ),
        Fact(name="measured by", value=run.provenance.version),
        *(() if record is None else _version_facts(record)),
        Fact(name="manifest, SHA-256", value=result.manifest_sha256),
        Fact(
            name="inputs, SHA-256",
            value=result.inputs_sha256,
            meaning="of all that decides the numbers: manifest, weights, settings",
        ),
    )


def _option_facts(options: RunOptions | None, measure: MeasureOptions) -> Iterator[Fact]:
    """Training and measurement come before what was asked of the machine."""
    own = {} if options is None else run_settings(options)
    own.pop("seed", None)
    machine = ("device", "dtype", "offline", "revision")
    declared = settings_of(RunSettings)
    yield from _named({name: v for name, v in own.items() if name not in machine}, declared)
    if options is not None:
        yield from _training_facts(options.training)
    asked = measure_settings(measure)
    left_out = [name for name in ("quick", "threads") if not asked[name]]
    shown = {name: value for name, value in asked.items() if name not in left_out}
    yield from _named(shown, settings_of(MeasureSettings), "measure.")
    yield from _named({name: v for name, v in own.items() if name in machine}, declared)


def _training_facts(training: Mapping[str, Value]) -> Iterator[Fact]:
    yield from _named(training, settings_of(TrainingSettings), "training.")
    if not training:
        yield Fact(name="training", value="{}")


def _named(
    settings: Mapping[str, Value], declared: Mapping[str, Setting], table: str = ""
) -> Iterator[Fact]:
    for name, value in settings.items():
        meaning = declared[name].meaning(value) if name in declared else ""
        yield Fact(name=f"{table}{name}", value=setting_value(value), meaning=meaning)


def _seed_facts(run: RunFiles, options: RunOptions, show: bool) -> Iterator[Fact]:
    yield _seed_fact(options.seed, show)
    if options.inclusion_probability is not None:
        known = show and run.manifest is not None
        value = (
            setting_value(run.manifest.plan.inclusion_seed) if known and run.manifest else _LEFT_OUT
        )
        yield Fact(
            name="inclusion seed", value=value, meaning="decides who went in; the manifest has it"
        )


def _seed_fact(seed: int | None, show: bool) -> Fact:
    if seed is None:
        return Fact(name="seed", value="drawn fresh", meaning=_FRESH_MEANING)
    if not show:
        return Fact(name="seed", value=_LEFT_OUT, meaning=_SEED_MEANING)
    return Fact(
        name="seed", value=setting_value(seed), meaning="decides the secrets and the training"
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
