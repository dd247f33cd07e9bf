"""Which texts are scored while a model trains, and what each scoring gave.

Each scoring is a row of exposure.jsonl, with the names of metrics.jsonl, so that a report draws it
next to the loss.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite, log
from pathlib import Path
from typing import Any

import numpy as np

from lmexposure._files import atomic_write, read_bytes
from lmexposure._written import refuse_foreign, study
from lmexposure.canaries import Canary, Manifest, Wrapping
from lmexposure.core import Encoded
from lmexposure.errors import ManifestError, ModelError, ResultError
from lmexposure.integrations.wrapped_scoring import check_place, encode_wrapped
from lmexposure.models import Context, check_tokens, encode_in_context
from lmexposure.statistics import sampled_exposure

LEAST_REFERENCES = 64  # with fewer the cap is so low that a class says little


@dataclass(frozen=True, kw_only=True)
class ClassExposure:
    """Exposures of one class of canaries in bits, by rank among the references of its format."""

    format: str
    repetitions: int  # how often each canary was inserted; 0: the controls
    median: float
    largest: float
    capped: int  # canaries below all references: their exposure is log2 of these at least
    canaries: int
    references: int

    @property
    def name(self) -> str:
        """For people, as the report writes it."""
        many = "" if self.repetitions == 1 else "s"
        what = f"{self.repetitions} repetition{many}" if self.repetitions else "controls"
        return f"{self.format}, {what}"

    @property
    def key(self) -> str:
        """For loggers: "random_number/x16"."""
        return (
            f"{self.format}/x{self.repetitions}" if self.repetitions else f"{self.format}/controls"
        )


@dataclass(frozen=True, kw_only=True)
class Watched:
    """Texts of all formats, each format's canaries and controls first."""

    encoded: tuple[Encoded, ...]  # in context, scored where they carried loss in training
    owners: tuple[tuple[str, Canary | None], ...]  # format and canary of each; None: a reference

    @property
    def canaries(self) -> int:
        """Canaries and controls in all."""
        return sum(canary is not None for _, canary in self.owners)

    def exposures(self, bits: Sequence[float]) -> list[ClassExposure]:
        """Exposure by rank, class by class, in order of format and repetitions."""
        classes = sorted({(name, canary.inserted) for name, canary in self.owners if canary})
        of_class: dict[tuple[str, int], list[float]] = {key: [] for key in classes}
        null: dict[str, list[float]] = {}
        for (name, canary), value in zip(self.owners, bits, strict=True):
            alike = null.setdefault(name, []) if canary is None else of_class[name, canary.inserted]
            alike.append(value)
        return [
            _class_exposure(name, repetitions, values, null[name])
            for (name, repetitions), values in of_class.items()
        ]


def _class_exposure(
    name: str, repetitions: int, values: Sequence[float], null: Sequence[float]
) -> ClassExposure:
    exposure = sampled_exposure(values, null)
    return ClassExposure(
        format=name,
        repetitions=repetitions,
        median=float(np.median(exposure.value)),
        largest=float(exposure.value.max()),
        capped=int(exposure.capped.sum()),
        canaries=len(values),
        references=exposure.references,
    )


def watch(
    manifest: Manifest,
    tokenizer: Any,
    window: int | None,
    *,
    references: int,
    wrapping: Wrapping | None = None,
    row: Context | None = None,
) -> Watched:
    """The texts of a manifest, encoded as `measure` encodes them."""
    check_tokens(tokenizer, manifest)  # of all kinds, whatever is watched of them
    manifest = manifest.ranked
    if not manifest.canaries:
        raise ManifestError("the manifest holds no inserted canary, so there is nothing to watch")
    wrapping = wrapping or manifest.wrapping or Wrapping(context=manifest.separator)
    check_place(manifest, wrapping)
    encoded: list[Encoded] = []
    owners: list[tuple[str, Canary | None]] = []
    for name, form in manifest.formats.items():
        canaries = [c for c in manifest.entries if c.format == name and c.role != "held_out"]
        drawn = [form.text(index) for index in manifest.references(name, references)]
        if not drawn:
            raise ManifestError(
                f"format {name!r} has no secret left to compare with; plan fewer canaries"
            )
        fills = [canary.text for canary in canaries] + drawn
        encoded += _encoded(fills, tokenizer, window, name, row or wrapping)
        owners += [(name, canary) for canary in [*canaries, *[None] * len(drawn)]]
    return Watched(encoded=tuple(encoded), owners=tuple(owners))


def _encoded(
    texts: list[str],
    tokenizer: Any,
    window: int | None,
    name: str,
    wrapping: Wrapping | Context,
) -> list[Encoded]:
    """In their wrapping or row, scored from the same token on, each with tokens of its own."""
    try:
        if isinstance(wrapping, Context):
            return encode_in_context(tokenizer, texts, context=wrapping, max_length=window)
        wrapped = encode_wrapped(tokenizer, texts, wrapping, max_length=window)
    except ModelError as failure:
        raise ModelError(
            f"format {name!r}: {failure} (canaries and controls first, then references)"
        ) from failure
    if wrapping.loss != "all":  # nothing in front of the texts carries any
        return wrapped
    # Where some fills merge with what comes before them, its cost must be in all totals.
    earliest = min(text.scored_from for text in wrapped)
    return [replace(text, scored_from=earliest) for text in wrapped]


_FEW = 5  # canaries; a median of fewer is moved far by each of them


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What one scoring of the canaries gave; no secrets."""

    classes: Sequence[ClassExposure]  # empty where nothing could be said
    texts: int  # how many were scored
    canaries: int  # of them canaries and controls
    seconds: float  # what the scoring took
    note: str  # why nothing could be said; "" else
    stops: str  # the class whose median passed the threshold; "" where none did

    @property
    def few(self) -> str:
        """The classes whose numbers rest on few canaries, each with its n; "" where none does."""
        return "; ".join(
            f"{exposure.name}: n = {exposure.canaries}"
            for exposure in self.classes
            if exposure.canaries < _FEW
        )

    def logs(self) -> dict[str, float]:
        """For the Trainer's loggers: medians and largest in bits, higher = more memorised."""
        values: dict[str, float] = {}
        for exposure in self.classes:
            values[f"exposure/{exposure.key}/median"] = exposure.median
            values[f"exposure/{exposure.key}/max"] = exposure.largest
            values[f"exposure/{exposure.key}/capped"] = exposure.capped / exposure.canaries
            values[f"exposure/{exposure.key}/n"] = exposure.canaries
            values[f"exposure/{exposure.format}/references"] = exposure.references
        return values | {
            "exposure/canaries": self.canaries,
            "exposure/seconds": round(self.seconds, 4),
        }

    def row(self, step: int, losses: Mapping[str, float | None]) -> dict[str, Any]:
        """A line of exposure.jsonl: a step of the optimizer, with its `losses_at`."""
        exposures = {exposure.name: exposure.median for exposure in self.classes}
        return {"step": step, **losses, "exposure": exposures, **asdict(self)}


def losses_at(state: Any, step: int) -> dict[str, float | None]:
    """Epoch, and losses in bits per token, as a Trainer's state has logged them up to a step."""
    logged: dict[str, Any] = {}
    for row in state.log_history:
        if row["step"] == step or (row["step"] < step and "eval_loss" not in row):
            logged |= row

    def bits(nats: float | None) -> float | None:
        return nats / log(2) if nats and isfinite(nats) else None

    return {
        "epoch": state.epoch if step == state.global_step else logged.get("epoch"),
        "train_bits_per_token": bits(logged.get("loss")),
        "validation_bits_per_token": bits(logged.get("eval_loss")),
    }


def read_rows(path: Path, *, until: int) -> list[dict[str, Any]]:
    """The rows of an earlier training up to a step, for one that goes on from there."""
    if until == 0:
        refuse_foreign(path.parent, [path.name])
        return []
    if not path.exists():
        return []
    try:
        rows = [json.loads(line) for line in read_bytes(path).splitlines()]
        return [row for row in rows if row["step"] <= until]
    except (OSError, ValueError, KeyError, TypeError) as failure:
        raise ResultError(
            f"cannot read {path}, where the exposures so far should be; move it away"
        ) from failure


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write all rows, a line each; the file is whole at any time."""
    with study(path.parent), atomic_write(path) as stream:
        stream.writelines(json.dumps(row, allow_nan=False).encode() + b"\n" for row in rows)
