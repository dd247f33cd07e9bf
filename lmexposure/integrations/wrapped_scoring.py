"""Canaries scored in the wrapping that they were trained in, once or while a model trains.

A model that met a canary inside a chat template has memorised it there. So canary and references
are scored in that very wrapping, and over no token that carried no loss.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite, log
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure._files import atomic_write, read_bytes
from lmexposure._validate import coverage
from lmexposure._written import refuse_foreign, study
from lmexposure.canaries import Canary, Manifest, Wrapping
from lmexposure.core import Encoded
from lmexposure.errors import InputError, ManifestError, ModelError, ResultError
from lmexposure.models import (
    AnyContext,
    Context,
    check_tokens,
    encode_in_context,
    is_tokenizer,
    row_context,
)
from lmexposure.scoring import TorchModel
from lmexposure.statistics import sampled_exposure
from lmexposure.studies import CanaryResult


def wrapped_log_perplexity(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    wrapping: Wrapping,
    *,
    batch_size: int | None = None,
) -> NDArray[np.float64]:
    """Log-perplexity in bits of each text in its wrapping. Lower = more memorised.

    Source: Carlini et al. 2019, "The Secret Sharer", Definition 1, given the wrapping.
    """
    lm = TorchModel(model=model, tokenizer=tokenizer, name="trained")
    wrapped = encode_wrapped(tokenizer, texts, wrapping, max_length=lm.window)
    return lm.token_bits(wrapped, batch_size=batch_size).totals


def encode_wrapped(
    tokenizer: Any, texts: Sequence[str], wrapping: Wrapping, *, max_length: int | None = None
) -> list[Encoded]:
    """Tokens of each text as the training had them, scored where they carry loss."""
    if isinstance(texts, str) or not texts:
        raise InputError("texts must be a list of at least one text; give [text] for a single one")
    if not is_tokenizer(tokenizer):
        raise ModelError(
            f"{type(tokenizer).__name__} is no tokenizer of transformers; give that of the training"
        )
    context: AnyContext = wrapping.context
    if wrapping.turn != "plain" or wrapping.context == "":
        context = row_context(tokenizer, wrapping, texts)
    wrapped = encode_in_context(tokenizer, texts, context=context, max_length=max_length)
    # Where two texts are written alike, no rank could tell them apart.
    if len({tuple(text.ids) for text in wrapped}) < len(set(texts)):
        raise ModelError(
            "the tokenizer gives two different secrets the same tokens; use a format whose "
            "characters it keeps"
        )
    return wrapped


def check_place(manifest: Manifest, wrapping: Wrapping) -> None:
    """Refuse canaries that are in chats in another place than they would be scored in."""
    if manifest.wrapping is not None and manifest.corpus.text_field != wrapping.place:
        raise ManifestError(
            f"the canaries of this manifest were inserted as {manifest.corpus.text_field}, and "
            f"this wrapping scores them as {wrapping.place}, where they would look unknown; give "
            "the wrapping of insert(...)"
        )


def wrapped_exposures(
    model: Any,
    tokenizer: Any,
    manifest: Manifest,
    wrapping: Wrapping,
    *,
    references: int | None = None,
    level: float = 0.95,
    batch_size: int | None = None,
) -> list[CanaryResult]:
    """Exposure of each canary and control by its rank among references wrapped alike.

    Args:
        model: a `transformers` causal language model, one with adapters too; scored in evaluation
            mode, also right after a training, and left in the mode that it was in.
        tokenizer: its tokenizer, with the chat template of the training.
        manifest: what was inserted.
        wrapping: that of the training.
        references: per format, at least 1; by default 10,000, or all that are left.
        level: two-sided coverage of each canary's interval.
        batch_size: texts a forward pass; None chooses one.

    Returns:
        canaries and controls in the manifest's order; `exposure` is the estimate "sampled", in
        bits, higher = more memorised.

    Raises:
        ManifestError: the manifest holds no inserted canary, or says that they are in another
            place of a record than this wrapping does.
        ModelError: see `wrapped_log_perplexity`.
        NumericalError: the model gave NaN or infinite logits.
        PlanError: a format has fewer references than were asked for.
        SettingsError: `level` is not strictly between 0 and 1, or hardly.

    Source: Carlini et al. 2019, The Secret Sharer, section 4.
    """
    manifest = manifest.ranked
    if not manifest.canaries:
        raise ManifestError("the manifest holds no inserted canary, so there is nothing to measure")
    check_place(manifest, wrapping)
    coverage("level", level)
    results = []
    for name, form in manifest.formats.items():
        drawn = [canary for canary in manifest.entries if canary.format == name]
        indices = manifest.references(name, references, strict=references is not None)
        texts = [canary.text for canary in drawn] + [form.text(index) for index in indices]
        bits = wrapped_log_perplexity(model, tokenizer, texts, wrapping, batch_size=batch_size)
        results += _by_rank(drawn, bits, size=form.size, level=level)
    return results


def _by_rank(
    drawn: Sequence[Canary], bits: NDArray[np.float64], *, size: int, level: float
) -> list[CanaryResult]:
    # A candidate that its coin kept out was drawn as a reference is: it is one.
    out = np.array([canary.role == "held_out" for canary in drawn], dtype=bool)
    own = bits[: len(drawn)][~out]
    null = np.concatenate([bits[: len(drawn)][out], bits[len(drawn) :]])
    exposures = sampled_exposure(own, null, space_size=size, level=level)
    results = []
    for i, canary in enumerate(canary for canary in drawn if canary.role != "held_out"):
        estimate = exposures.canary(i)
        results.append(
            CanaryResult(
                id=canary.id,
                format=canary.format,
                role="canary" if canary.inserted else "control",
                repetitions=canary.repetitions,
                log_perplexity_bits=float(own[i]),
                exposure=estimate,
                estimates={"sampled": estimate},
                extraction=(),
            )
        )
    return results


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
        found = []
        for (name, repetitions), values in of_class.items():
            exposure = sampled_exposure(values, null[name])
            found.append(
                ClassExposure(
                    format=name,
                    repetitions=repetitions,
                    median=float(np.median(exposure.value)),
                    largest=float(exposure.value.max()),
                    capped=int(exposure.capped.sum()),
                    canaries=len(values),
                    references=exposure.references,
                )
            )
        return found


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
    texts: list[str], tokenizer: Any, window: int | None, name: str, wrapping: Wrapping | Context
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
        """A line of exposure.jsonl, with its `losses_at` by the names that metrics.jsonl has."""
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
