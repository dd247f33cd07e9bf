"""Names and values that a reader may ask for: what the model is, what was chosen, which versions.

A seed that was chosen stays out with the secrets: who has it and the formats can draw them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from lmexposure.records import RunFiles
from lmexposure.reporting.data import Fact

__all__ = ["model_facts", "setting_facts"]

_LEFT_OUT = "left out"
_SEED_MEANING = "decides the secrets; left out, for who has it and the formats can draw them"
_FRESH_MEANING = "decides the secrets, and the manifest alone has it; the training's is another"
_NO_SECRET = "of shuffles and refits; no secret follows from it"

_MODEL = {
    "path": ("model", "where it lies, or its name on a hub"),
    "type": ("type", ""),
    "parameters": ("parameters", ""),
    "dtype": ("measured in", ""),
    "context_window": ("context window", "tokens; none where it has no limit"),
    "weights_sha256": ("weights, SHA-256", ""),
}
_MEANING = {
    "measure.level": "coverage of the intervals",
    "measure.significance": "how often, at most, a bound on epsilon may be wrong",
    "measure.references": "fills to compare with, per format; none: 10,000, or all there are",
    "measure.permutations": "shuffles behind a p-value",
    "measure.bootstraps": "refits behind the goodness of the skew-normal curve",
    "measure.guesses": "likeliest fills that best-first search finds",
    "measure.draws": "fills drawn for importance sampling",
    "measure.revealed": "characters revealed to the searches, at most",
    "measure.budget_steps": "model steps for the exact search; none: by the size of the model",
    "measure.quick": "a first look in about a tenth of the time",
    "measure.seed": _NO_SECRET,
}


def model_facts(run: RunFiles) -> tuple[Fact, ...]:
    """What was measured, and what it learned.

    Args:
        run: its result says.
    """
    model = run.result.model
    rows = [
        Fact(name=name, value=_text(model[key]), meaning=meaning)
        for key, (name, meaning) in _MODEL.items()
        if key in model
    ]
    return (*rows, *_validation_facts(model.get("validation")))


def _validation_facts(validation: Any) -> Iterator[Fact]:
    if not isinstance(validation, Mapping):
        yield Fact(name="validation loss", value="not known", meaning="trained elsewhere")
        return
    for key, name in (
        ("validation_bits", "validation loss"),
        ("initial_validation_bits", "validation loss before training"),
    ):
        bits = validation.get(key)
        value = "not known" if bits is None else f"{bits:.3f} bits per token"
        yield Fact(name=name, value=value, meaning="lower = the model predicts better")
    for key in ("best_epoch", "epochs", "stopped"):
        if key in validation:
            yield Fact(name=key.replace("_", " "), value=_text(validation[key]))
    if "improved" in validation:
        yield Fact(name="learned", value="yes" if validation["improved"] else "no")


def setting_facts(run: RunFiles, *, show_seeds: bool = False) -> tuple[Fact, ...]:
    """Settings with their defaults, seeds, versions, device, times, hashes.

    Args:
        run: a whole run, or a measurement, of which only the measurement's settings are known.
        show_seeds: show a seed that was chosen, and that of the coins.
    """
    record = run.record or {"settings": {"measure": run.result.settings}}
    settings = [
        Fact(name=name, value=_text(value), meaning=_MEANING.get(name, ""))
        for name, value in _flat(record["settings"]).items()
        if name != "seed"
    ]
    return (
        *_seed_facts(run, record["settings"], show_seeds),
        *settings,
        Fact(
            name="measured",
            value=run.provenance.measured or "date unknown",
            meaning="when the measuring ended, UTC",
        ),
        Fact(name="measured by", value=run.provenance.version),
        *_version_facts(record),
        Fact(name="manifest, SHA-256", value=_text(run.result.manifest_sha256)),
        Fact(
            name="inputs, SHA-256",
            value=_text(run.result.inputs_sha256),
            meaning="of all that decides the numbers: manifest, weights, settings",
        ),
    )


def _seed_facts(run: RunFiles, settings: Mapping[str, Any], show: bool) -> Iterator[Fact]:
    if "seed" in settings:
        yield _seed_fact(settings["seed"], show)
    if settings.get("coins", "fixed") != "fixed":
        known = show and run.manifest is not None
        value = _text(run.manifest.plan.inclusion_seed) if known and run.manifest else _LEFT_OUT
        yield Fact(
            name="coin seed", value=value, meaning="decides who went in; the manifest has it"
        )


def _seed_fact(seed: Any, show: bool) -> Fact:
    if seed is None:
        return Fact(name="seed", value="drawn fresh", meaning=_FRESH_MEANING)
    if not show:
        return Fact(name="seed", value=_LEFT_OUT, meaning=_SEED_MEANING)
    return Fact(name="seed", value=_text(seed), meaning="decides the secrets and the training")


def _version_facts(record: Mapping[str, Any]) -> Iterator[Fact]:
    for key, name in (
        ("lmexposure", "record by lmexposure"),
        ("git_revision", "git revision"),
        ("python", "Python"),
        ("platform", "platform"),
        ("device", "device"),
    ):
        if key in record:
            yield Fact(name=name, value=_text(record[key]))
    for group, unit in (("versions", ""), ("seconds", " s")):
        for name, value in _flat(record.get(group) or {}).items():
            label = f"time to {name}" if unit else name
            yield Fact(name=label, value=_text(value) + unit)


def _flat(settings: Any) -> dict[str, Any]:
    """Settings within settings by dotted names: measure.references."""
    flat: dict[str, Any] = {}
    for name, value in settings.items() if isinstance(settings, Mapping) else ():
        inner = _flat(value)
        flat |= {f"{name}.{key}": one for key, one in inner.items()} or {name: value}
    return flat


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return f"{value:.10g}" if isinstance(value, float) else str(value)
