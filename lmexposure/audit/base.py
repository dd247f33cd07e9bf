"""The model before the training on the same texts: its scores, and what they mean beside it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lmexposure._files import sha256_bytes
from lmexposure._record import Record, Rows
from lmexposure.audit.directory import keep_part, read_part
from lmexposure.audit.format_scores import FormatScores
from lmexposure.core import Encoded, Part
from lmexposure.errors import ModelError, NumericalError
from lmexposure.scoring import BaseModel
from lmexposure.statistics import (
    CalibratedExposure,
    Estimate,
    ExposureEstimate,
    QuantileInterval,
    calibrated_exposure,
    estimated_quantile,
    guessing_test,
)
from lmexposure.studies import BaseCanary, BaseClass, BaseModelRecord, MeasureSettings

_NEVER_FIRST = "it is given beside the exposure that is shown, and decides no verdict"


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
    made = {control: _made(scores, settings, control=control) for control in (False, True)}
    base_bits = scores.base_bits[: len(scores.canaries)]
    estimates: list[Estimate] = []
    canaries = []
    place = {False: 0, True: 0}
    for canary, control, bits in zip(
        scores.canaries, scores.controls.tolist(), base_bits.tolist(), strict=True
    ):
        found, i = made[control], place[control]
        assert found is not None
        place[control] += 1
        ranked = found.calibrated.canary(i)
        rests_on = (*ranked.assumptions, _NEVER_FIRST)
        estimates.append(replace(ranked, method="calibrated", assumptions=rests_on))
        under_base = found.base.canary(i)
        canaries.append(BaseCanary(id=canary.id, log_perplexity_bits=bits, exposure=under_base))
    return BesideBase(
        estimates=estimates, canaries=canaries, classes=_classes(scores, made, settings, origin)
    )


def _made(
    scores: FormatScores, settings: MeasureSettings, *, control: bool
) -> CalibratedExposure | None:
    """Of canaries or of controls; what each of them is ranked among is as for plain exposures."""
    chosen = scores.controls == control
    if not chosen.any():
        return None
    own, others = _columns(scores)
    exhaustive = scores.exhaustive and not control
    if exhaustive:
        others = np.concatenate([others, own[:, scores.controls]], axis=1)
    return calibrated_exposure(
        *own[:, chosen],
        *others,
        space_size=scores.format.size,
        exhaustive=exhaustive,
        level=settings.level,
    )


def _columns(scores: FormatScores) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bits under the model and under the base, of canaries (2, K) and of references (2, M)."""
    assert scores.base_bits is not None
    both = np.stack([scores.bits, scores.base_bits])
    return both[:, : len(scores.canaries)], both[:, len(scores.canaries) :]


def _classes(
    scores: FormatScores,
    made: dict[bool, CalibratedExposure | None],
    settings: MeasureSettings,
    origin: str,
) -> list[BaseClass]:
    repetitions = np.array([canary.repetitions for canary in scores.canaries])
    rows = []
    for count in np.unique(repetitions).tolist():
        found = made[count == 0]
        assert found is not None
        among = repetitions[scores.controls == (count == 0)]
        rows.append(_class(scores, found, np.flatnonzero(among == count), count, settings, origin))
    return rows


def _class(
    scores: FormatScores,
    found: CalibratedExposure,
    chosen: NDArray[np.int64],
    repetitions: int,
    settings: MeasureSettings,
    origin: str,
) -> BaseClass:
    """One class; `chosen` are its places among the canaries, or among the controls."""
    test = guessing_test(
        -found.gained_bits[chosen],
        -_gained(scores),
        seed=_seed_of(settings.bootstrap_seed, origin, scores.format.name, repetitions),
        permutations=settings.permutations,
        alternative="memorised" if repetitions else "different",
    )
    calibrated = found.calibrated.value[chosen]
    return BaseClass(
        format=scores.format.name,
        role="canary" if repetitions else "control",
        repetitions=repetitions,
        n=int(chosen.size),
        exposure=_median(found.base.estimates(), chosen, settings.level),
        added=float(np.median(found.added[chosen])),
        added_capped=bool(2 * found.added_capped[chosen].sum() >= chosen.size),
        calibrated=_median(found.calibrated.estimates(), chosen, settings.level),
        calibrated_mean=float(calibrated.mean()),
        capped=int(found.calibrated.capped[chosen].sum()),
        gained_bits=float(np.median(found.gained_bits[chosen])),
        reference_gained_bits=float(np.median(_gained(scores))),
        guessing_test=test,
    )


def _gained(scores: FormatScores) -> NDArray[np.float64]:
    """By how many bits the training made each reference likelier, shape (M,)."""
    bits, base = _columns(scores)[1]
    gained: NDArray[np.float64] = base - bits
    return gained


def _median(
    estimates: Sequence[ExposureEstimate], chosen: NDArray[np.int64], level: float
) -> QuantileInterval:
    own = [estimates[i] for i in chosen.tolist()]
    return estimated_quantile(own, 0.5, level=level)


def _seed_of(seed: int, origin: str, name: str, repetitions: int) -> int:
    """A class's own seed, and another than that of its plain test; a JSON number holds it."""
    key = json.dumps([seed, origin, name, repetitions, "base"])
    return int(sha256_bytes(key.encode())[:12], 16)


class _BaseBits(Record):
    """Log-perplexities under the base, kept between interruptions."""

    bits: Rows[float]


@dataclass(frozen=True, kw_only=True)
class Base:
    """A base model, ready to score."""

    lm: BaseModel

    def bits(
        self,
        encoded: Sequence[Encoded],
        *,
        batch_size: int | None,
        kept: Part | None,
        progress: Callable[[int, int], None],
    ) -> NDArray[np.float64]:
        """Log-perplexity of each text under the base, in bits, shape (n,)."""
        saved = read_part(kept, _BaseBits)
        if saved is not None and len(saved.bits) == len(encoded):
            return np.array(saved.bits, dtype=np.float64)
        self._check_rows(encoded)
        try:
            scores = self.lm.token_bits(encoded, batch_size=batch_size, progress=progress)
        except NumericalError as failure:
            raise NumericalError(f"base model {self.lm.name!r}: {failure}") from failure
        keep_part(kept, _BaseBits(bits=tuple(scores.totals.tolist())))
        return scores.totals

    def reads(self, encoded: Sequence[Encoded]) -> bool:
        """Whether the base has every token of the texts, and a window for them."""
        try:
            self._check_rows(encoded)
        except ModelError:
            return False
        return True

    def record(
        self, formats: Sequence[BesideBase | None], out: str | Path | None
    ) -> BaseModelRecord:
        """What the result says of the base; a path within `out` is given from there on."""
        path, parts = Path(self.lm.name), [part for part in formats if part is not None]
        if out is not None and path.is_relative_to(out):
            path = path.relative_to(out)
        return BaseModelRecord(
            path=path.as_posix(),
            weights_sha256=self.lm.identity,
            switched_off=self.lm.switched_off,
            canaries=tuple(canary for part in parts for canary in part.canaries),
            classes=tuple(row for part in parts for row in part.classes),
        )

    def _check_rows(self, encoded: Sequence[Encoded]) -> None:
        name, window = self.lm.name, self.lm.window
        longest = max(len(text.ids) for text in encoded)
        if window is not None and longest > window:
            raise ModelError(
                f"base model {name!r} reads {window} tokens, and a text has {longest} "
                "with its context; give a base with the model's context window"
            )
        known = min(self.lm.vocabulary, len(self.lm.tokenizer))
        new = sum(any(token >= known for token in text.ids) for text in encoded)
        if new:
            raise ModelError(
                f"{new} of {len(encoded)} texts hold tokens that base model {name!r} "
                f"does not have (it knows {known}): they were added for the fine-tuning, so that "
                "the base cannot read the same rows; measure without a base"
            )
