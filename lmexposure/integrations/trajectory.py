"""How exposure went while a model trained: a row for each evaluation, in exposure.jsonl.

The rows have the names of metrics.jsonl, so that a report draws them beside the loss.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite, log
from pathlib import Path
from typing import Any

from lmexposure._files import atomic_write
from lmexposure.errors import ResultError
from lmexposure.integrations.watched import ClassExposure

_FEW = 5  # canaries; a median of fewer is moved far by each of them


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What one look at the canaries gave; no secrets.

    Attributes:
        classes: exposures class by class; empty where nothing could be said.
        texts, texts_planned: how many texts were scored, of how many.
        canaries, canaries_planned: the canaries and controls among them.
        seconds: what the look took.
        budget_seconds: what it was allowed.
        spent_seconds: what all looks so far took, and getting ready for them.
        note: why something is missing; "" where nothing is.
        stops: the class whose median passed the threshold; "" where none did.
        full: whether all texts were to be scored, whatever was allowed.
    """

    classes: Sequence[ClassExposure] = field(default=())
    texts: int
    texts_planned: int
    canaries: int
    canaries_planned: int
    seconds: float
    budget_seconds: float
    spent_seconds: float
    note: str
    stops: str
    full: bool = False

    @property
    def few(self) -> str:
        """The classes whose numbers rest on few canaries, each with its n; "" where none does."""
        return "; ".join(
            f"{one.name}: n = {one.canaries} of {one.planned}"
            for one in self.classes
            if one.canaries < max(_FEW, one.planned)
        )

    def logs(self) -> dict[str, float]:
        """For the Trainer's loggers: medians and largest in bits, higher = more memorised."""
        values: dict[str, float] = {}
        for one in self.classes:
            values[f"exposure/{one.key}/median"] = one.median
            values[f"exposure/{one.key}/max"] = one.largest
            values[f"exposure/{one.key}/capped"] = one.capped / one.canaries
            values[f"exposure/{one.key}/n"] = one.canaries
            values[f"exposure/{one.format}/references"] = one.references
        return values | {
            "exposure/canaries": self.canaries,
            "exposure/canaries_planned": self.canaries_planned,
            "exposure/seconds": round(self.seconds, 4),
        }

    def row(
        self, step: int, epoch: float | None, losses: Mapping[str, float | None]
    ) -> dict[str, Any]:
        """A line of exposure.jsonl.

        Args:
            step: of the optimizer.
            epoch: None where it is not known.
            losses: "train" and "validation" in nats per token, as a Trainer logs them; one that
                is not finite, or 0 because a Trainer filtered it out, becomes null.
        """
        bits = {
            f"{part}_bits_per_token": nats / log(2) if nats and isfinite(nats) else None
            for part, nats in losses.items()
        }
        return {
            "step": step,
            "epoch": epoch,
            **bits,
            "exposure": {one.name: one.median for one in self.classes},
            **asdict(self),
        }


def read_rows(path: Path, *, until: int) -> list[dict[str, Any]]:
    """The rows of an earlier training up to a step, for one that goes on from there.

    Args:
        path: of exposure.jsonl; where there is none, there are no rows.
        until: the step; 0 for a training from the beginning, which takes over nothing.

    Raises:
        ResultError: the file is no exposure.jsonl.
    """
    if until == 0 or not path.exists():
        return []
    try:
        rows = [json.loads(line) for line in path.read_bytes().splitlines()]
        return [row for row in rows if row["step"] <= until]
    except (OSError, ValueError, KeyError, TypeError) as failure:
        raise ResultError(
            f"cannot read {path}, where the exposures so far should stand; move it away"
        ) from failure


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write all rows, a line each; the file is whole at any time.

    Raises:
        FileError: the disk refused.
    """
    with atomic_write(path) as stream:
        stream.writelines(json.dumps(row, allow_nan=False).encode() + b"\n" for row in rows)
