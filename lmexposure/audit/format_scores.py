"""The scores of one format: canaries, controls and fills never inserted, under model and base.

At the end: what the scores of the model before the training, the base, mean beside the others.
"""

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from lmexposure._files import sha256_bytes
from lmexposure._integrity import say_rebuilt
from lmexposure._record import Record, Rows
from lmexposure.audit.directory import OTHER_VERSION, keep_part, read_part
from lmexposure.audit.workload import Task
from lmexposure.canaries import DEFAULT_REFERENCES, Canary, Format, Manifest
from lmexposure.core import Encoded, Part
from lmexposure.errors import ManifestError, ModelError, NumericalError
from lmexposure.models import SOURCE_ENDS, AnyContext
from lmexposure.scoring import BaseModel, Beginning, TorchModel
from lmexposure.statistics import (
    CalibratedExposure,
    Estimate,
    QuantileInterval,
    SampledExposure,
    calibrated_exposure,
    estimated_quantile,
    guessing_test,
)
from lmexposure.studies import (
    BaseCanary,
    BaseClass,
    BaseModelRecord,
    MeasureSettings,
    Scores,
    write_score_table,
)

_COLUMNS = ("bits", "tokens", "secret_bits")
_BESIDE = "it is given beside the exposure that is shown, and decides no verdict"


@dataclass(frozen=True, kw_only=True)
class FormatScores:
    """Scores of one format: canaries, controls, candidates held out, drawn references."""

    format: Format  # the format
    context: AnyContext = None  # what is around each text in its row
    canaries: tuple[Canary, ...]  # K canaries and controls, in the manifest's order
    # E candidates that their coins kept out, in the manifest's order; `repetitions` is the class
    # that each would have belonged to
    held_out: tuple[Canary, ...] = ()
    bits: NDArray[np.float64]  # log-perplexity in bits, shape (K + E + M,); lower = more memorised
    tokens: NDArray[np.int64]  # scored tokens of each text, shape (K + E + M,)
    # bits behind the token prefix that all these texts share, shape (K + E + M,)
    secret_bits: NDArray[np.float64]
    beginning: Beginning  # that prefix; the context's tokens belong to it
    first_unscored: bool  # the first token of the texts went unscored: there was nothing before it
    population: int  # fills that are neither canary nor control: the E + M are drawn from these
    exhaustive: bool  # they are all of them
    set_aside: int  # fills that the corpus held before insertion: not drawn, not counted in a rank
    slower: str = ""  # why they were scored in a slower way than usual; empty where they were not
    # log-perplexity under the base model in bits, shape (K + E + M,); None without
    base_bits: NDArray[np.float64] | None = None

    @property
    def canary_bits(self) -> NDArray[np.float64]:
        """Log-perplexities of canaries and controls, shape (K,)."""
        return self.bits[: len(self.canaries)]

    @property
    def reference_bits(self) -> NDArray[np.float64]:
        """Log-perplexities of fills never inserted, shape (E + M,): held out, then drawn."""
        # A coin that knows no secret held a candidate out: it is as good a reference as any.
        return self.bits[len(self.canaries) :]

    @property
    def roles(self) -> list[str]:
        """Of the K + E + M texts: "canary", "control", "held_out", "reference"."""
        references = self.bits.size - len(self.canaries) - len(self.held_out)
        shown: list[str] = [canary.role for canary in self.canaries]
        return [*shown, *["held_out"] * len(self.held_out), *["reference"] * references]

    @property
    def repetitions(self) -> list[int]:
        """Of the K + E + M texts: of a candidate held out its class's, of references 0."""
        drawn = [canary.repetitions for canary in (*self.canaries, *self.held_out)]
        return drawn + [0] * (self.bits.size - len(drawn))

    @property
    def certifiable(self) -> bool:
        """Fills have token paths of their own behind the prefix, and all of it was scored.

        No fill lies within another (a plan ensures it), so where tokens spell the text no path
        begins another: the paths are disjoint events, as the certificate needs.
        """
        return self.beginning.scored and self.beginning.characters is not None

    @property
    def controls(self) -> NDArray[np.bool_]:
        """Which of the canaries were never inserted, shape (K,)."""
        return np.array([canary.role == "control" for canary in self.canaries], dtype=bool)


def score_format(task: Task, name: str) -> FormatScores:
    """Score candidates, controls and references of one format under the same conditions."""
    lm, manifest, settings = task.lm, task.manifest, task.settings
    form, context = manifest.formats[name], task.contexts[name]
    drawn = tuple(c for c in manifest.entries if c.format == name)
    canaries = tuple(c for c in drawn if c.role != "held_out")
    if not canaries:
        raise ManifestError(
            f"format {name!r}: none of its {len(drawn)} candidates was inserted, and it has no "
            "controls: there is nothing to measure; plan controls, or more candidates"
        )
    count = settings.references_for(DEFAULT_REFERENCES)
    indices = manifest.references(name, count, strict=settings.references is not None)
    left = manifest.references_left(name)
    left_out = sum(each.split("/")[0] == name for each in manifest.plan.left_out)
    # In the order of drawing, so that not even a rounding in a batch depends on a coin.
    texts = [c.text for c in drawn] + [form.text(i) for i in indices]
    encoded = _encode(lm, manifest, name, texts, context)
    beginning = task.beginning(texts, encoded, context, form)
    # The texts in their order, but those held out behind canaries and controls, then references.
    kind = [c.role == "held_out" for c in drawn] + [2] * len(indices)
    order = np.argsort(kind, kind="stable")
    kept = task.kept(f"{name}.npz")
    saved = _saved(kept, len(texts))
    if saved is None:
        watch = partial(task.progress, f"scoring {name}")
        scores = lm.token_bits(encoded, batch_size=settings.scoring_batch, progress=watch)
        saved = {
            "bits": scores.totals[order],
            "tokens": scores.tokens[order],
            "secret_bits": scores.bits_from(len(beginning.ids))[order],
            "slower": scores.slower,
        }
        if kept is not None:
            packed = io.BytesIO()
            np.savez(packed, **saved)
            kept.write(packed.getvalue())
    base_bits = None
    if task.base is not None:
        base_bits = bits_under_base(
            task.base,
            encoded,
            batch_size=settings.scoring_batch,
            kept=task.kept(f"{name}.base.json"),
            progress=partial(task.progress, f"scoring {name} under the base"),
        )[order]
    return FormatScores(
        format=form,
        context=context,
        canaries=canaries,
        held_out=tuple(c for c in drawn if c.role == "held_out"),
        beginning=beginning,
        first_unscored=any(e.first_unscored for e in encoded),
        set_aside=len(manifest.set_aside.get(name, ())),
        # Fills that the plan left out were drawn like references, and belong to the population.
        population=len(drawn) - len(canaries) + left + left_out,
        exhaustive=len(indices) == left and not manifest.plan.left_out,
        base_bits=base_bits,
        **saved,
    )


def _encode(
    lm: TorchModel, manifest: Manifest, name: str, texts: list[str], context: AnyContext
) -> list[Encoded]:
    """The texts in context, scored from the same token on."""
    ids = [canary.id for canary in manifest.entries if canary.format == name]
    try:
        encoded = lm.encode(texts, context)
    except ModelError as failure:
        known = f"texts 0 to {len(ids) - 1} are {ids[0]} to {ids[-1]}, then references"
        raise ModelError(f"format {name!r}: {failure} ({known})") from failure
    _refuse_twins(name, encoded)
    earliest = min(text.scored_from for text in encoded)
    return [replace(text, scored_from=earliest) for text in encoded]


def _refuse_twins(name: str, encoded: list[Encoded]) -> None:
    """Different fills must be different tokens, or the model cannot tell them apart."""
    first: dict[tuple[int, ...], int] = {}
    for number, text in enumerate(encoded):
        other = first.setdefault(tuple(text.ids), number)
        if other != number:
            raise ModelError(
                f"format {name!r}: texts {other} and {number} of {len(encoded)} differ, but the "
                "tokenizer gives both the same tokens (it drops or changes characters); use a "
                "format whose characters it keeps"
            )


def _saved(kept: Part | None, texts: int) -> dict[str, Any] | None:
    """What an interrupted measurement left, if it is of as many texts."""
    if kept is None or (packed := kept.read()) is None:
        return None
    try:
        with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
            columns: dict[str, Any] = {name: arrays[name] for name in _COLUMNS}
            columns["slower"] = str(arrays["slower"])
    except (ValueError, LookupError, TypeError, OSError, EOFError, BadZipFile):
        say_rebuilt(kept.path, why=OTHER_VERSION)
        return None
    return columns if all(columns[name].shape == (texts,) for name in _COLUMNS) else None


def scores_of(scores: Sequence[FormatScores]) -> Scores:
    """The scores of all formats as one table; see `Scores`."""
    ids: list[str] = []
    for part in scores:
        drawn = [*part.canaries, *part.held_out]
        ids += [canary.id for canary in drawn]
        ids += [f"{part.format.name}/reference/{n:06d}" for n in range(part.bits.size - len(drawn))]
    base = [part.base_bits for part in scores if part.base_bits is not None]
    return Scores(
        ids=np.array(ids),
        formats=np.repeat(
            [part.format.name for part in scores], [part.bits.size for part in scores]
        ),
        roles=np.array([role for part in scores for role in part.roles]),
        repetitions=np.array([n for part in scores for n in part.repetitions], dtype=np.int64),
        log_perplexity_bits=np.concatenate([part.bits for part in scores]),
        base_log_perplexity_bits=np.concatenate(base) if base else None,
    )


def write_scores(path: Path, scores: Sequence[FormatScores]) -> None:
    """Write scores.parquet, with the bits of the secrets alone and the numbers of tokens."""
    write_score_table(
        path,
        scores_of(scores),
        secret_bits=np.concatenate([part.secret_bits for part in scores]),
        tokens=np.concatenate([part.tokens for part in scores]),
    )


def class_seed(seed: int, *names: str | int) -> int:
    """A class's own seed, below 2^48 so that a JSON number holds it."""
    return int(sha256_bytes(json.dumps([seed, *names]).encode())[:12], 16)


@dataclass(frozen=True, kw_only=True)
class BesideBase:
    """One format beside the base, ready for the result."""

    # the calibrated exposure of each canary and control, in the manifest's order
    estimates: list[Estimate]
    canaries: list[BaseCanary]  # the same under the base
    classes: list[BaseClass]  # by ascending repetitions, 0 (the controls) first


def beside_base(
    scores: FormatScores, settings: MeasureSettings, *, origin: str
) -> BesideBase | None:
    """Exposures under the base, calibrated exposures, and what the training added."""
    if scores.base_bits is None:
        return None
    # Bits under the model and under the base, of canaries (2, K) and of references (2, M).
    own, others = np.split(
        np.stack([scores.bits, scores.base_bits]), [len(scores.canaries)], axis=1
    )
    made: dict[bool, CalibratedExposure] = {}
    for control in np.unique(scores.controls).tolist():
        exhaustive, among = scores.exhaustive and not control, others
        if exhaustive:
            among = np.concatenate([others, own[:, scores.controls]], axis=1)
        made[control] = calibrated_exposure(
            *own[:, scores.controls == control],
            *among,
            space_size=scores.format.size,
            exhaustive=exhaustive,
            level=settings.level,
        )
    gained = others[1] - others[0]  # by how many bits the training made each reference likelier
    estimates: list[Estimate] = []
    canaries = []
    place = {False: 0, True: 0}
    for canary, control, bits in zip(
        scores.canaries, scores.controls.tolist(), own[1].tolist(), strict=True
    ):
        found, i = made[control], place[control]
        place[control] += 1
        ranked = found.calibrated.canary(i)
        rests_on = (*ranked.assumptions, _BESIDE)
        estimates.append(replace(ranked, method="calibrated", assumptions=rests_on))
        under_base = found.base.canary(i)
        canaries.append(BaseCanary(id=canary.id, log_perplexity_bits=bits, exposure=under_base))
    repetitions = np.array([canary.repetitions for canary in scores.canaries])
    classes = []
    for count in np.unique(repetitions).tolist():
        among = repetitions[scores.controls == (count == 0)]
        seed = class_seed(settings.bootstrap_seed, origin, scores.format.name, count, "base")
        chosen = np.flatnonzero(among == count)
        classes.append(
            _class(scores.format.name, made[count == 0], chosen, gained, count, settings, seed)
        )
    return BesideBase(estimates=estimates, canaries=canaries, classes=classes)


def _class(
    name: str,
    found: CalibratedExposure,
    chosen: NDArray[np.int64],
    gained: NDArray[np.float64],
    repetitions: int,
    settings: MeasureSettings,
    seed: int,
) -> BaseClass:
    """One class; `chosen` are its places among the canaries, or among the controls."""

    def median(of: SampledExposure) -> QuantileInterval:
        estimates = of.estimates()
        return estimated_quantile([estimates[i] for i in chosen], 0.5, level=settings.level)

    test = guessing_test(
        -found.gained_bits[chosen],
        -gained,
        seed=seed,
        permutations=settings.permutations,
        alternative="memorised" if repetitions else "different",
    )
    return BaseClass(
        format=name,
        role="canary" if repetitions else "control",
        repetitions=repetitions,
        n=int(chosen.size),
        exposure=median(found.base),
        added=float(np.median(found.added[chosen])),
        added_capped=bool(2 * found.added_capped[chosen].sum() >= chosen.size),
        calibrated=median(found.calibrated),
        calibrated_mean=float(found.calibrated.value[chosen].mean()),
        capped=int(found.calibrated.capped[chosen].sum()),
        gained_bits=float(np.median(found.gained_bits[chosen])),
        reference_gained_bits=float(np.median(gained)),
        guessing_test=test,
    )


class _BaseBits(Record):
    """Log-perplexities under the base, kept between interruptions."""

    bits: Rows[float]


def bits_under_base(
    base: BaseModel,
    encoded: Sequence[Encoded],
    *,
    batch_size: int | None,
    kept: Part | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> NDArray[np.float64]:
    """Log-perplexity of each text under the base, in bits, shape (n,)."""
    saved = read_part(kept, _BaseBits)
    if saved is not None and len(saved.bits) == len(encoded):
        return np.array(saved.bits, dtype=np.float64)
    _check_base_reads(base, encoded)
    try:
        scores = base.token_bits(encoded, batch_size=batch_size, progress=progress)
    except NumericalError as failure:
        raise NumericalError(f"base model {base.name!r}: {failure}") from failure
    keep_part(kept, _BaseBits(bits=tuple(scores.totals.tolist())))
    return scores.totals


def base_reads(base: BaseModel, encoded: Sequence[Encoded]) -> bool:
    """Whether the base has every token of the texts, and a window for them."""
    try:
        _check_base_reads(base, encoded)
    except ModelError:
        return False
    return True


def base_record(
    base: BaseModel, formats: Sequence[BesideBase | None], out: str | Path | None
) -> BaseModelRecord:
    """What the result says of the base."""
    parts = [part for part in formats if part is not None]
    return BaseModelRecord(
        path=path_from(out, base.name),
        weights_sha256=base.identity,
        switched_off=base.switched_off,
        canaries=tuple(canary for part in parts for canary in part.canaries),
        classes=tuple(row for part in parts for row in part.classes),
    )


def path_from(out: str | Path | None, name: str) -> str:
    """Where a model lies; a path within `out` is given from there on."""
    path = Path(name)
    inside = out is not None and path.is_relative_to(out)
    return (path.relative_to(str(out)) if inside else path).as_posix()


def _check_base_reads(base: BaseModel, encoded: Sequence[Encoded]) -> None:
    """Refuse a base that lacks a token of the texts, or a window for them."""
    longest = max(len(text.ids) for text in encoded)
    if base.window is not None and longest > base.window:
        raise ModelError(
            f"base model {base.name!r} reads {base.window} tokens, and a text has {longest} "
            "with its context; give a base with the model's context window"
        )
    known = min(base.vocabulary, len(base.tokenizer))
    new = sum(any(known <= token < SOURCE_ENDS for token in text.ids) for text in encoded)
    if new:
        raise ModelError(
            f"{new} of {len(encoded)} texts hold tokens that base model {base.name!r} "
            f"does not have (it knows {known}): they were added for the fine-tuning, so that "
            "the base cannot read the same rows; measure without a base"
        )
