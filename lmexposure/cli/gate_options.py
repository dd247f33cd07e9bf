"""What `lmexposure check` was told: its thresholds, its files, and what does not go together."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from lmexposure._files import append, atomic_write, is_standard_output, read_toml
from lmexposure.errors import SettingsError

if TYPE_CHECKING:
    from lmexposure.gate import Thresholds, Verdict
    from lmexposure.records import Provenance, Result

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


@dataclass(frozen=True, kw_only=True)
class CheckFlags:
    """What the command was given; None: not said. See `check` for each."""

    run: Path | None
    model: str | None
    manifest: Path | None
    out: Path | None
    max_exposure: float | None
    median_exposure: float | None
    quantile_exposure: str | None
    max_guesses: int | None
    max_epsilon: float | None
    p_value: bool | None
    significance: float | None
    min_canaries: int | None
    repetitions: int | None
    json_file: Path | None
    junit: Path | None
    sarif: Path | None
    summary: Path | None
    quick: bool | None
    references: int | None
    delta: float | None
    claimed_epsilon: float | None
    seed: int | None
    device: str | None
    dtype: str | None
    offline: bool | None
    revision: str | None
    settings: Path | None

    def given(self, names: Iterable[str]) -> dict[str, object]:
        """Those of these flags that were given."""
        said = {name: getattr(self, name) for name in names}
        return {name: value for name, value in said.items() if value is not None}

    @property
    def outputs(self) -> dict[str, Path]:
        """The files that were asked for, by the flag's name."""
        every = {
            "json": self.json_file,
            "junit": self.junit,
            "sarif": self.sarif,
            "summary": self.summary,
        }
        return {name: path for name, path in every.items() if path is not None}


def gate_thresholds(flags: CheckFlags) -> "Thresholds":
    """Defaults, then the settings file's table [check], then the flags that were given.

    Raises:
        SettingsError: an unknown threshold, or one out of range.
    """
    from lmexposure.gate import Thresholds

    known = [field.name for field in fields(Thresholds)]
    said = {} if flags.settings is None else read_toml(flags.settings).get("check", {})
    if not isinstance(said, dict):
        raise SettingsError(f"[check] in {flags.settings} must be a table of thresholds by name")
    unknown = sorted(set(said) - set(known))
    if unknown:
        raise SettingsError(f"unknown threshold {unknown[0]!r}; there are {', '.join(known)}")
    values = {**said, **flags.given(known)}
    pair = values.get("quantile_exposure")
    if isinstance(pair, str | list):
        values["quantile_exposure"] = _pair(pair)
    return Thresholds(**values)


def refuse_mixed(flags: CheckFlags) -> None:
    """Either a result, or a model with its manifest.

    Raises:
        SettingsError: neither, both, or flags that would be without effect.
    """
    measure = flags.model is not None and flags.manifest is not None
    parts = flags.model is not None or flags.manifest is not None
    if (flags.run is None) != measure or (parts and not measure):
        raise SettingsError(
            "give either RUN_OR_RESULT, or both --model and --manifest to measure first"
        )
    vain = list(flags.given(("out", *MEASURING)))
    if vain and not measure:
        raise SettingsError(
            f"--{vain[0].replace('_', '-')} decides how a model is measured, and "
            f"{flags.run} is measured already; give --model and --manifest, or leave it out"
        )


def refuse_overwriting(flags: CheckFlags, source: Path) -> None:
    """No output may replace what was judged, a file of a run, the settings, or another output.

    Args:
        flags: of the command.
        source: the result or the manifest; what lies beside it is its run's, as is all in --out
            and all in the directory of --model.

    Raises:
        SettingsError: an output is one of them.
    """
    taken = {source.resolve(): "what is judged"}
    if flags.settings is not None:
        taken[flags.settings.resolve()] = "the settings file"
    homes = [source.parent, *([] if flags.out is None else [flags.out])]
    model = None if flags.model is None else Path(flags.model).resolve()
    for name, given in flags.outputs.items():
        path = Path(os.path.realpath(given))  # resolve() fails where links go in a circle
        if path.is_dir():
            raise SettingsError(f"{given} is a directory; give another file")
        if path in taken:
            raise SettingsError(f"{given} is {taken[path]} already; give another file")
        if any(of_a_run(path, home) for home in homes) or (model and path.is_relative_to(model)):
            raise SettingsError(
                f"{given} is a file of the run, or has the name of one; give another file"
            )
        taken[path] = f"--{name}"


def of_a_run(path: Path, home: Path) -> bool:
    """Whether a run in this directory holds such a file, by its place or through a link."""
    if any(path.is_relative_to(place.resolve()) for place in (home / d for d in _DIRECTORIES)):
        return True
    if path.parent == home.resolve() and (path.name in _RUN_FILES or path.stem == "report"):
        return True
    return path.exists() and any(
        there.exists() and path.samefile(there) for there in (home / name for name in _RUN_FILES)
    )


def writes_to_standard_output(flags: CheckFlags) -> bool:
    """Whether an output is for the next program in a pipe, and the verdict must not mix with it."""
    return any(map(is_standard_output, flags.outputs.values()))


def write_outputs(
    verdict: "Verdict",
    result: "Result",
    provenance: "Provenance",
    source: Path,
    flags: CheckFlags,
) -> None:
    """Every file that was asked for, from the one verdict.

    Raises:
        FileError: the disk refused.
    """
    from lmexposure.gate import verdict_json, verdict_junit, verdict_sarif, verdict_summary

    writers = {
        "json": lambda: verdict_json(verdict, result, provenance),
        "junit": lambda: verdict_junit(verdict, provenance),
        "sarif": lambda: verdict_sarif(verdict, source, provenance),
        "summary": lambda: verdict_summary(verdict, provenance),
    }
    for name, path in flags.outputs.items():
        content = writers[name]().encode()
        if name == "summary":
            append(path, content)  # steps of a job share one summary: what is there stays
            continue
        with atomic_write(path) as stream:
            stream.write(content)


def _pair(value: str | list[object]) -> tuple[float, float]:
    """A quantile and its bits: "0.9:8" on the command line, [0.9, 8] in a file."""
    parts = value.split(":") if isinstance(value, str) else value
    try:
        quantile, bits = (float(str(part)) for part in parts)
    except (TypeError, ValueError):
        raise SettingsError(
            f"quantile_exposure={value!r} must be a quantile and bits, such as 0.9:8"
        ) from None
    return quantile, bits
