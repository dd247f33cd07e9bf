"""Canaries whose texts were chosen, in one training: their coins say who is in, and no rank does.

All texts of a kind are chosen before its coins are tossed. So whoever cannot tell from the model
which candidates went in does no better than chance on them, whatever the texts are. Ranks among
fills that were never inserted say nothing here: no text was drawn from those.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lmexposure.audit.estimates import class_seed
from lmexposure.canaries import UNIFORM, Canary, Format, Manifest
from lmexposure.errors import InputError, ModelError, SettingsError
from lmexposure.models import AnyContext, secret_tokens
from lmexposure.scoring import TorchModel, details_of_encoded
from lmexposure.statistics import (
    AreaUnderCurve,
    EpsilonBound,
    GuessingTest,
    TprAtFpr,
    area_under_curve,
    epsilon_from_exposure,
    guessing_test,
    one_run_audit,
    tpr_at_fpr,
)
from lmexposure.studies import KindCandidate, KindMembership, MeasureSettings, RunSettings

_RATES = (0.1, 0.01)
_FAIR = 0.5
# The primary bound has the other half, so that all bounds that the gate reads have it together.
_OF_SIGNIFICANCE = 0.5
_Floats = NDArray[np.float64]
_Bools = NDArray[np.bool_]


def refuse_kinds_of_run(settings: RunSettings) -> None:
    """Refuse kinds that one training cannot judge."""
    others = [name for name in settings.kinds if name != UNIFORM]
    if len(others) == len(settings.kinds):
        raise SettingsError(
            f"kinds={list(settings.kinds)!r} lacks {UNIFORM!r}, whose fills carry the ranks and "
            "exposures of a run; add it, or use a sweep"
        )
    if others and settings.inclusion_probability is None:
        raise SettingsError(
            f"the kind {others[0]} is judged by coins alone: give inclusion_probability=0.5 and "
            "canaries=..., or use a sweep"
        )


def kind_warnings(manifest: Manifest) -> list[str]:
    """What a reader of the result must know of chosen texts that it does not judge."""
    left_out = [form.name for form in manifest.chosen]
    if manifest.plan.inclusion_probability is not None or not left_out:
        return []
    return [
        f"{', '.join(left_out)}: chosen texts are judged by coins alone, and a fixed number of "
        "these went in; nothing is said of them: insert each with probability 1/2, or use a "
        "sweep"
    ]


def kinds_section(
    lm: TorchModel,
    manifest: Manifest,
    contexts: Mapping[str, AnyContext],
    settings: MeasureSettings,
    *,
    origin: str,
    progress: Callable[[str, int, int], None],
) -> tuple[KindMembership, ...]:
    """What the coins of each kind and number of repetitions say, at one joint significance."""
    formats = () if manifest.plan.inclusion_probability is None else manifest.chosen
    classes = max(1, len(formats) * len(manifest.plan.repetitions))
    share = _OF_SIGNIFICANCE * settings.significance / classes
    found = []
    for form in formats:
        drawn = [c for c in manifest.entries if c.format == form.name and c.role != "control"]
        what = f"scoring {form.name}"
        progress(what, 0, len(drawn))
        context = contexts[form.name]
        bits = secret_bits(lm, form, drawn, context=context, batch_size=settings.scoring_batch)
        progress(what, len(drawn), len(drawn))
        for count in sorted({canary.repetitions for canary in drawn}):
            own = [i for i, canary in enumerate(drawn) if canary.repetitions == count]
            group = _Class(form, [drawn[i] for i in own], bits[own])
            found.append(group.judged(manifest, settings, share=share, origin=origin))
    return tuple(found)


def secret_bits(
    lm: TorchModel,
    form: Format,
    canaries: Sequence[Canary],
    *,
    context: AnyContext,
    batch_size: int | None,
) -> _Floats:
    """Log-perplexity of each text's secret alone, bits, shape (n,); lower = more memorised."""
    texts = [canary.text for canary in canaries]
    try:
        encoded = lm.encode(texts, context)
    except ModelError as failure:
        known = f"text 0 is {canaries[0].id}, the others follow it in the manifest"
        raise ModelError(f"format {form.name!r}: {failure} ({known})") from failure
    masks = [
        secret_tokens(lm.tokenizer, c.text, form.free_mask(c.index), tokens, context=context)
        for c, tokens in zip(canaries, encoded, strict=True)
    ]
    details = details_of_encoded(lm, encoded, batch_size=batch_size)
    return np.array([bits[mask].sum() for bits, mask in zip(details.bits, masks, strict=True)])


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """Those in beside those out, of -bits; nothing where one side is empty."""

    area: AreaUnderCurve | None = None
    rates: tuple[TprAtFpr, ...] = ()
    test: GuessingTest | None = None


class _Class:
    """The candidates of one format with one number of repetitions."""

    def __init__(self, form: Format, candidates: Sequence[Canary], bits: _Floats) -> None:
        self._form, self._candidates, self._bits = form, candidates, bits
        self._included: _Bools = np.array([c.role == "canary" for c in candidates], dtype=bool)

    @property
    def _inside(self) -> _Floats:
        return self._bits[self._included]

    @property
    def _outside(self) -> _Floats:
        return self._bits[~self._included]

    def judged(
        self, manifest: Manifest, settings: MeasureSettings, *, share: float, origin: str
    ) -> KindMembership:
        """Area, rates, p and a bound at its share of the significance, or why there is none."""
        probability, count = manifest.plan.inclusion_probability, self._candidates[0].repetitions
        assert probability is not None  # else no chosen text is judged
        both = 0 < self._inside.size < self._bits.size
        seed = class_seed(settings.bootstrap_seed, origin, self._form.name, count)
        compared = self._compared(settings, seed) if both else _Compared()
        bound, note = None, None if both else self._one_sided()
        if both:
            delta = settings.deltas(manifest.corpus.documents)[0]
            try:
                bound = self._bound(probability, share, delta, count, settings.bootstrap_seed)
            except SettingsError:
                raise
            except InputError as failure:  # coins that hardly ever fall so, for one
                note = f"no bound: {failure}"
        return KindMembership(
            group=f"{self._form.name}/x{count}",
            kind=self._form.kind,
            format=self._form.name,
            repetitions=count,
            canaries=self._inside.size,
            held_out=self._outside.size,
            inclusion_probability=probability,
            area_under_curve=compared.area,
            tpr_at_fpr=compared.rates,
            test=compared.test,
            bound=bound,
            significance=share,
            note=note,
            candidates=self._records(),
        )

    def _records(self) -> tuple[KindCandidate, ...]:
        rows = zip(self._candidates, self._included.tolist(), self._bits.tolist(), strict=True)
        return tuple(
            KindCandidate(id=canary.id, included=included, secret_bits=bits)
            for canary, included, bits in rows
        )

    def _one_sided(self) -> str:
        where = "in" if self._inside.size else "out"
        return (
            f"the coins left all {self._bits.size} candidates {where}, so there is nothing to "
            "compare them with; plan more candidates"
        )

    def _compared(self, settings: MeasureSettings, seed: int) -> "_Compared":
        inside, outside, level = -self._inside, -self._outside, settings.level
        test = guessing_test(
            self._inside, self._outside, seed=seed, permutations=settings.permutations
        )
        return _Compared(
            area=area_under_curve(inside, outside, level=level),
            rates=tuple(tpr_at_fpr(inside, outside, fpr=rate, level=level) for rate in _RATES),
            test=test,
        )

    def _bound(
        self, probability: float, significance: float, delta: float, count: int, seed: int
    ) -> EpsilonBound:
        if probability == _FAIR:
            return one_run_audit(
                -self._bits,
                self._included,
                significance=significance,
                delta=delta,
                repetitions=count,
                seed=seed,
            )
        found = epsilon_from_exposure(
            self._inside,
            self._outside,
            inclusion_probability=probability,
            significance=significance,
            delta=delta,
            repetitions=count,
        )
        return found.bound
