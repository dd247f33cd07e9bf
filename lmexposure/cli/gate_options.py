"""What `lmexposure check` was told: its thresholds, its files, and what does not go together."""

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmexposure._files import append, atomic_write, is_standard_output, read_toml
from lmexposure.errors import SettingsError

if TYPE_CHECKING:
    from lmexposure.gate import Thresholds, Verdict
    from lmexposure.records import Provenance, Result

__all__ = [
    "MEASURING",
    "gate_thresholds",
    "of_a_run",
    "refuse_mixed",
    "refuse_overwriting",
    "write_outputs",
    "writes_to_standard_output",
]

# Flags that only a measurement can follow.
MEASURING = (
    "quick",
    "references",
    "delta",
    "claimed_epsilon",
    "seed",
    "device",
    "dtype",
    "offline",
    "revision",
)
_FILES = ("json_file", "junit", "sarif", "summary")
# What a run holds; the directories with all that is in them.
_RUN_FILES = (
    "manifest.json",
    "run.json",
    "result.json",
    "metrics.jsonl",
    "training.json",
    "scores.parquet",
)
_DIRECTORIES = ("model", "corpus", "source", "charts", ".measuring")


def gate_thresholds(flags: Mapping[str, Any]) -> "Thresholds":
    """Defaults, then the settings file's table [check], then the flags that were given.

    Raises:
        SettingsError: an unknown threshold, or one out of range.
    """
    from lmexposure.gate import Thresholds

    known = [field.name for field in fields(Thresholds)]
    said = {} if flags["settings"] is None else read_toml(flags["settings"]).get("check", {})
    if not isinstance(said, dict):
        raise SettingsError(f"[check] in {flags['settings']} must be a table of thresholds by name")
    unknown = sorted(set(said) - set(known))
    if unknown:
        raise SettingsError(f"unknown threshold {unknown[0]!r}; there are {', '.join(known)}")
    given = {name: flags[name] for name in known if flags[name] is not None}
    values = {**said, **given}
    if isinstance(values.get("quantile_exposure"), str | list):
        values["quantile_exposure"] = _pair(values["quantile_exposure"])
    return Thresholds(**values)


def refuse_mixed(flags: Mapping[str, Any]) -> None:
    """Either a result, or a model with its manifest.

    Raises:
        SettingsError: neither, both, or flags that would be without effect.
    """
    measure = flags["model"] is not None and flags["manifest"] is not None
    parts = flags["model"] is not None or flags["manifest"] is not None
    if (flags["run"] is None) != measure or (parts and not measure):
        raise SettingsError(
            "give either RUN_OR_RESULT, or both --model and --manifest to measure first"
        )
    vain = [name for name in ("out", *MEASURING) if flags[name] is not None]
    if vain and not measure:
        raise SettingsError(
            f"--{vain[0].replace('_', '-')} decides how a model is measured, and "
            f"{flags['run']} is measured already; give --model and --manifest, or leave it out"
        )


def refuse_overwriting(flags: Mapping[str, Any], source: Path) -> None:
    """No output may replace what was judged, a file of a run, the settings, or another output.

    Args:
        flags: of the command.
        source: the result or the manifest; what lies beside it is its run's, as is all in --out
            and all in the directory of --model.

    Raises:
        SettingsError: an output is one of them.
    """
    taken = {Path(source).resolve(): "what is judged"}
    if flags["settings"] is not None:
        taken[Path(flags["settings"]).resolve()] = "the settings file"
    homes = [Path(source).parent, *([] if flags["out"] is None else [Path(flags["out"])])]
    model = None if flags["model"] is None else Path(flags["model"]).resolve()
    for name in _FILES:
        if flags[name] is None:
            continue
        path = Path(os.path.realpath(flags[name]))  # resolve() fails where links go in a circle
        if path.is_dir():
            raise SettingsError(f"{flags[name]} is a directory; give another file")
        if path in taken:
            raise SettingsError(f"{flags[name]} is {taken[path]} already; give another file")
        if any(of_a_run(path, home) for home in homes) or (model and path.is_relative_to(model)):
            raise SettingsError(
                f"{flags[name]} is a file of the run, or has the name of one; give another file"
            )
        taken[path] = f"--{name.removesuffix('_file')}"


def of_a_run(path: Path, home: Path) -> bool:
    """Whether a run in this directory holds such a file, by its place or through a link."""
    if any(path.is_relative_to(place.resolve()) for place in (home / d for d in _DIRECTORIES)):
        return True
    if path.parent == home.resolve() and (path.name in _RUN_FILES or path.stem == "report"):
        return True
    return path.exists() and any(
        there.exists() and path.samefile(there) for there in (home / name for name in _RUN_FILES)
    )


def writes_to_standard_output(flags: Mapping[str, Any]) -> bool:
    """Whether an output is for the next program in a pipe, and the verdict must not mix with it."""
    return any(is_standard_output(flags[name]) for name in _FILES)


def write_outputs(
    verdict: "Verdict",
    result: "Result",
    provenance: "Provenance",
    source: Path,
    flags: Mapping[str, Any],
) -> None:
    """Every file that was asked for, from the one verdict.

    Raises:
        FileError: the disk refused.
    """
    from lmexposure.gate import verdict_json, verdict_junit, verdict_sarif, verdict_summary

    texts = {
        "json_file": verdict_json(verdict, result, provenance),
        "junit": verdict_junit(verdict, provenance),
        "sarif": verdict_sarif(verdict, source, provenance),
    }
    for name, text in texts.items():
        if flags[name] is not None:
            with atomic_write(flags[name]) as stream:
                stream.write(text.encode())
    if flags["summary"] is not None:
        # Steps of a job share one summary: what is there stays.
        append(flags["summary"], verdict_summary(verdict, provenance).encode())


def _pair(value: str | list[Any]) -> tuple[float, float]:
    """A quantile and its bits: "0.9:8" on the command line, [0.9, 8] in a file."""
    parts = value.split(":") if isinstance(value, str) else value
    try:
        quantile, bits = (float(part) for part in parts)
    except (TypeError, ValueError):
        raise SettingsError(
            f"quantile_exposure={value!r} must be a quantile and bits, such as 0.9:8"
        ) from None
    return quantile, bits
