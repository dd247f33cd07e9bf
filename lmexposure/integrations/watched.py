"""Which texts are scored while a model trains, and what each scoring gave.

The order in which texts are scored is always the same, and every beginning of it holds about the
same share of each format's references and of each class: a time budget that cuts it cuts all alike.
Canaries come sooner than references, for they are few and it is they who are asked about. Each
scoring is a row of exposure.jsonl, with the names of metrics.jsonl, so that a report draws it next
to the loss.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import isfinite, log
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure._files import atomic_write
from lmexposure._written import refuse_foreign, study
from lmexposure.canaries import Canary, Manifest, Wrapping
from lmexposure.errors import ManifestError, ModelError, ResultError
from lmexposure.integrations.wrapped_scoring import check_place, encode_wrapped
from lmexposure.models import Context, Encoded, check_tokens, context_window, encode_in_context
from lmexposure.statistics import sampled_exposure

LEAST_REFERENCES = 64  # with fewer the cap is so low that a class says little
_CANARIES_WITHIN = 0.25  # of the order, all canaries have had their turn


@dataclass(frozen=True, kw_only=True)
class ClassExposure:
    """Exposures of one class of canaries in bits; higher = more memorised.

    Attributes:
        format: its format.
        repetitions: how often each canary was inserted; 0: the controls.
        median, largest: of the exposures by rank among the references, in bits.
        capped: how many of the canaries lie below all references: their exposure is log2 of the
            references at least.
        canaries, planned: how many were scored, of how many.
        references: how many of the format were scored.
    """

    format: str
    repetitions: int
    median: float
    largest: float
    capped: int
    canaries: int
    planned: int
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
    """Texts in the order of scoring.

    Attributes:
        encoded: N canaries, controls and references in context, of all formats, scored where they
            carried loss in training.
        owners: the format of each, and its canary; None: a reference.
        least: how many texts from the beginning hold a canary of each class and the fewest
            references that are of use.
    """

    encoded: tuple[Encoded, ...]
    owners: tuple[tuple[str, Canary | None], ...]
    least: int

    @property
    def canaries(self) -> int:
        """Canaries and controls in all."""
        return self.canaries_within(len(self.owners))

    def canaries_within(self, texts: int) -> int:
        """Canaries and controls among this number of texts from the beginning."""
        return sum(canary is not None for _, canary in self.owners[:texts])

    def exposures(self, bits: NDArray[np.float64]) -> list[ClassExposure]:
        """Exposure by rank, class by class, in order of format and repetitions.

        Args:
            bits: log-perplexities of texts from the beginning of the order, shape (n,), n at least
                `least`.
        """
        planned = Counter((name, canary.inserted) for name, canary in self.owners if canary)
        found: dict[tuple[str, int], list[float]] = {of_class: [] for of_class in sorted(planned)}
        null: dict[str, list[float]] = {}
        for (name, canary), value in zip(self.owners, bits.tolist(), strict=False):
            at = null.setdefault(name, []) if canary is None else found[name, canary.inserted]
            at.append(value)
        return [
            _class_exposure(of_class, values, null[of_class[0]], planned[of_class])
            for of_class, values in found.items()
        ]


def _class_exposure(
    of_class: tuple[str, int], values: Sequence[float], null: Sequence[float], planned: int
) -> ClassExposure:
    exposure = sampled_exposure(values, null)
    return ClassExposure(
        format=of_class[0],
        repetitions=of_class[1],
        median=float(np.median(exposure.value)),
        largest=float(exposure.value.max()),
        capped=int(exposure.capped.sum()),
        canaries=len(values),
        planned=planned,
        references=exposure.references,
    )


def watch(
    manifest: Manifest,
    tokenizer: Any,
    config: Any,
    *,
    references: int,
    wrapping: Wrapping | None = None,
    row: Context | None = None,
) -> Watched:
    """The texts of a manifest, encoded as `measure` encodes them, in the order of scoring.

    Args:
        manifest: what was inserted; candidates that their coins kept out are not watched.
        tokenizer: of the model.
        config: of the model, for its context window.
        references: per format at most, drawn once: the same fills at each evaluation.
        wrapping: that of the training; None: the manifest's, or a document of its own behind the
            manifest's separator.
        row: in which the training has them, where that was seen.

    Raises:
        ManifestError: no canary was inserted, a format has no references left, or the canaries
            are in chats in another place than this wrapping's.
        ModelError: a fill meets an unknown token, is longer than the context window, cannot be
            distinguished from another by its tokens, or is changed by its wrapping; or its
            tokenizer lacks the entry that a canary has to itself (see `models.check_tokens`).
    """
    check_tokens(tokenizer, manifest)  # of all kinds, whatever is watched of them
    manifest = manifest.ranked
    if not manifest.canaries:
        raise ManifestError("the manifest holds no inserted canary, so there is nothing to watch")
    wrapping = wrapping or manifest.wrapping or Wrapping(context=manifest.separator)
    check_place(manifest, wrapping)
    texts: list[tuple[float, str, Canary | None, Encoded]] = []
    for name, form in manifest.formats.items():
        canaries = [c for c in manifest.entries if c.format == name and c.role != "held_out"]
        drawn = [form.text(index) for index in manifest.references(name, references)]
        if not drawn:
            raise ManifestError(
                f"format {name!r} has no secret left to compare with; plan fewer canaries"
            )
        owners: list[Canary | None] = [*canaries, *[None] * len(drawn)]
        fills = [c.text for c in canaries] + drawn
        encoded = _encoded(fills, tokenizer, config, name, row or wrapping)
        keys = [*_canary_keys(canaries), *_reference_keys(len(drawn))]
        texts += [(k, name, c, e) for k, c, e in zip(keys, owners, encoded, strict=True)]
    texts.sort(key=lambda text: text[0])  # stable: format by format where keys are the same
    return Watched(
        encoded=tuple(text[3] for text in texts),
        owners=tuple((text[1], text[2]) for text in texts),
        least=sum(text[0] == 0 for text in texts),
    )


def _canary_keys(canaries: Sequence[Canary]) -> list[float]:
    """The first of each class at 0, the others evenly up to a quarter of the references."""
    sizes, seen = Counter(c.inserted for c in canaries), Counter[int]()
    keys = []
    for canary in canaries:
        keys.append(_CANARIES_WITHIN * seen[canary.inserted] / sizes[canary.inserted])
        seen[canary.inserted] += 1
    return keys


def _reference_keys(references: int) -> list[float]:
    """The fewest of use at 0, the others evenly up to 1."""
    more = max(1, references - LEAST_REFERENCES)
    return [max(0, i + 1 - LEAST_REFERENCES) / more for i in range(references)]


def _encoded(
    texts: list[str], tokenizer: Any, config: Any, name: str, wrapping: Wrapping | Context
) -> list[Encoded]:
    """In their wrapping or row, scored from the same token on, each with tokens of its own."""
    window = context_window(config)
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
    """What one scoring of the canaries gave; no secrets.

    Attributes:
        classes: exposures class by class; empty where nothing could be said.
        texts, texts_planned: how many texts were scored, of how many.
        canaries, canaries_planned: the canaries and controls among them.
        seconds: what the scoring took.
        budget_seconds: what it was allowed.
        spent_seconds: what all scorings so far took, and getting ready for them.
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
            f"{exposure.name}: n = {exposure.canaries} of {exposure.planned}"
            for exposure in self.classes
            if exposure.canaries < max(_FEW, exposure.planned)
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
            "exposure": {exposure.name: exposure.median for exposure in self.classes},
            **asdict(self),
        }


def read_rows(path: Path, *, until: int) -> list[dict[str, Any]]:
    """The rows of an earlier training up to a step, for one that goes on from there.

    A training from the beginning, at step 0, takes over nothing.

    Raises:
        ResultError: the file is no exposure.jsonl.
        FileError: at step 0, the file was not written here.
    """
    if until == 0:
        refuse_foreign(path.parent, [path.name])
        return []
    if not path.exists():
        return []
    try:
        rows = [json.loads(line) for line in path.read_bytes().splitlines()]
        return [row for row in rows if row["step"] <= until]
    except (OSError, ValueError, KeyError, TypeError) as failure:
        raise ResultError(
            f"cannot read {path}, where the exposures so far should be; move it away"
        ) from failure


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write all rows, a line each; the file is whole at any time.

    Raises:
        FileError: the disk refused.
    """
    with study(path.parent), atomic_write(path) as stream:
        stream.writelines(json.dumps(row, allow_nan=False).encode() + b"\n" for row in rows)
