"""Canaries that no rank judges: texts that were chosen, by their coins, and the witnesses.

All texts of a kind are chosen before its coins are tossed. So whoever cannot tell from the model
which candidates went in does no better than chance on them, whatever the texts are. Ranks among
fills that were never inserted say nothing here: no text was drawn from those.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from lmexposure._forecast import Phase
from lmexposure.audit.format_scores import base_reads, bits_under_base, class_seed
from lmexposure.audit.workload import Task, Watcher
from lmexposure.canaries import DEFAULT_REFERENCES, UNIFORM, WITNESS, Canary, Format, Manifest
from lmexposure.core import Encoded
from lmexposure.errors import InputError, ModelError, SettingsError
from lmexposure.models import AnyContext, secret_tokens
from lmexposure.scoring import BaseModel, TorchModel, details_of_encoded
from lmexposure.statistics import (
    TprAtFpr,
    area_under_curve,
    draws_needed,
    epsilon_from_exposure,
    guessing_test,
    one_run_audit,
    tpr_at_fpr,
    witness_certificate,
    witness_looks,
    witness_p_value,
    witness_settled,
)
from lmexposure.studies import KindCandidate, KindMembership, RunSettings, WitnessResult

_RATES = (0.1, 0.01)
_FAIR = 0.5
# The primary bound has the other half, so that all bounds that the gate reads have it together.
_OF_SIGNIFICANCE = 0.5
# A certificate of as many bits settles it: a model that never read the witnesses has one once in
# 65,000 times.
_SETTLED = 16.0
# How often the share of fills with as few tokens as a witness may be overstated.
_OVERSTATED = 1e-6
_OWN_TOKENS = (
    "the tokenizer was made from text that holds them: it spells them in fewer tokens than any "
    "other text of their kind, which makes them likely in a model that read nothing"
)

IN_TOKENIZER = (
    "the tokenizer was made from this corpus, witnesses and all: canaries may look known that its "
    "tokens know and the model does not; measure a model whose tokenizer did not read the corpus"
)
_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]


def refuse_kinds_of_run(settings: RunSettings) -> None:
    """Refuse kinds that one training cannot judge."""
    others = [name for name in settings.kinds if name != UNIFORM]
    if len(others) == len(settings.kinds):
        raise SettingsError(
            f"kinds={list(settings.kinds)!r} lacks {UNIFORM!r}, whose canaries alone have ranks "
            "and exposures; add it, or use a sweep"
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


def kinds_section(task: Task) -> tuple[KindMembership, ...]:
    """What the coins of each kind and number of repetitions say, at one joint significance."""
    manifest, settings = task.manifest, task.settings
    formats = () if manifest.plan.inclusion_probability is None else manifest.chosen
    classes = max(1, len(formats) * len(manifest.plan.repetitions))
    share = _OF_SIGNIFICANCE * settings.significance / classes
    found = []
    for form in formats:
        drawn = [c for c in manifest.entries if c.format == form.name and c.role != "control"]
        what = f"scoring {form.name}"
        task.progress(what, 0, len(drawn))
        context = task.contexts[form.name]
        if task.asks:
            bits = secret_bits(
                task.lm, form, drawn, context=context, batch_size=settings.scoring_batch
            )
        else:  # whole texts, of which the coins know no more
            bits = task.lm.bits([canary.text for canary in drawn], context)
        task.progress(what, len(drawn), len(drawn))
        for count in sorted({canary.repetitions for canary in drawn}):
            own = [i for i, canary in enumerate(drawn) if canary.repetitions == count]
            found.append(_judged(task, form, [drawn[i] for i in own], bits[own], share))
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


def _judged(
    task: Task, form: Format, candidates: Sequence[Canary], bits: _Floats, share: float
) -> KindMembership:
    """One number of repetitions: area, rates, p and a bound at its share of the significance."""
    settings, probability = task.settings, task.manifest.plan.inclusion_probability
    assert probability is not None, "else no chosen text is judged"
    count, level, name = candidates[0].repetitions, settings.level, form.name
    included = np.array([c.role == "canary" for c in candidates], dtype=bool)
    inside, outside = bits[included], bits[~included]
    area, test, bound, note = None, None, None, None
    rates: tuple[TprAtFpr, ...] = ()
    if not 0 < inside.size < bits.size:
        note = (
            f"the coins left all {bits.size} candidates {'in' if inside.size else 'out'}, so there "
            "is nothing to compare them with; plan more candidates"
        )
    else:
        seed = class_seed(settings.bootstrap_seed, task.origin, name, count)
        test = guessing_test(inside, outside, seed=seed, permutations=settings.permutations)
        area = area_under_curve(-inside, -outside, level=level)
        rates = tuple(tpr_at_fpr(-inside, -outside, fpr=rate, level=level) for rate in _RATES)
        options: dict[str, Any] = {
            "significance": share,
            "delta": settings.deltas(task.manifest.corpus.documents)[0],
            "repetitions": count,
        }
        try:
            if probability == _FAIR:
                bound = one_run_audit(-bits, included, seed=settings.bootstrap_seed, **options)
            else:
                options["inclusion_probability"] = probability
                bound = epsilon_from_exposure(inside, outside, **options).bound
        except SettingsError:
            raise
        except InputError as failure:  # coins that hardly ever fall so, for one
            note = f"no bound: {failure}"
    return KindMembership(
        group=f"{name}/x{count}",
        kind=form.kind,
        format=name,
        repetitions=count,
        canaries=inside.size,
        held_out=outside.size,
        inclusion_probability=probability,
        area_under_curve=area,
        tpr_at_fpr=rates,
        test=test,
        bound=bound,
        significance=share,
        note=note,
        candidates=tuple(
            KindCandidate(id=canary.id, included=canary.role == "canary", secret_bits=own)
            for canary, own in zip(candidates, bits.tolist(), strict=True)
        ),
    )


def scored_draws(manifest: Manifest, references: int | None) -> int:
    """How many fresh witnesses another program scores: as few as may settle it."""
    return min(draws_needed(len(manifest.witnesses)), references or DEFAULT_REFERENCES)


def measure_witness(task: Task, *, base: Callable[[], BaseModel | None]) -> WitnessResult | None:
    """How well a model knows the witnesses, in the rows of canaries; None where none went in."""
    lm, manifest, settings = task.lm, task.manifest, task.settings
    witnesses = manifest.witnesses
    if not witnesses:
        return None
    context = task.contexts[WITNESS.name]
    result = WitnessResult(
        witnesses=len(witnesses),
        copies=witnesses[0].repetitions,
        references=0,
        certificate_bits=None,
        p_value=None,
        beside_base=False,
    )
    k, needed = len(witnesses), draws_needed(len(witnesses))
    # More than are scored: those of as many tokens are looked for among them.
    wanted = 2 * needed + 1_000 if task.asks else scored_draws(manifest, settings.references)
    draws = manifest.references(WITNESS.name, wanted)
    texts = [entry.text for entry in witnesses] + [WITNESS.text(index) for index in draws]
    try:
        encoded = lm.encode(texts, context)
        earliest = min(text.scored_from for text in encoded)  # all are scored from there on
        encoded = [replace(text, scored_from=earliest) for text in encoded]
        tokens = np.array([len(text.ids) for text in encoded])
        own, drawn = tokens[:k], tokens[k:]
        if (own < drawn.min()).any():
            return result.model_copy(update={"note": _OWN_TOKENS, "in_tokenizer": True})
        bits = None
        beginning = task.beginning(texts, encoded, context, WITNESS)
        if beginning.scored and beginning.characters is not None:  # else they prove nothing
            scores = lm.token_bits(encoded[:k], batch_size=settings.scoring_batch)
            left = WITNESS.size - len(manifest.set_aside.get(WITNESS.name, ()))
            bits = _certificate(scores.bits_from(len(beginning.ids)), own, drawn, left)
        if bits is not None and bits >= _SETTLED:
            return result.model_copy(update={"certificate_bits": bits})

        before = base()
        if before is not None and not base_reads(before, encoded):  # tokens were added since
            before = None

        def score(some: list[Encoded]) -> _Floats:
            """Log-perplexities under the model, less those under its base where there is one."""
            size = settings.scoring_batch
            found = lm.token_bits(some, batch_size=size).totals
            return (
                found if before is None else found - bits_under_base(before, some, batch_size=size)
            )

        number, p = _beside_draws(task, encoded, tokens, k, score, twice=before is not None)
    except InputError as failure:
        return result.model_copy(update={"note": str(failure)})
    compared = {"references": number, "p_value": p, "beside_base": before is not None}
    return result.model_copy(update={"certificate_bits": bits, **compared})


def _beside_draws(
    task: Task,
    encoded: Sequence[Encoded],
    tokens: _Ints,
    k: int,
    score: Callable[[list[Encoded]], _Floats],
    *,
    twice: bool,
) -> tuple[int, float]:
    """The first k texts among the others: how many of these were scored, and the p-value."""
    own, drawn, needed = tokens[:k], tokens[k:], draws_needed(k)
    # Of each number of tokens in the order of drawing: the n-th of all come before the n+1-th.
    pools = [np.flatnonzero(drawn == n)[:needed] for n in np.unique(own)]
    alike = [place for rank in zip_longest(*pools) for place in rank if place is not None]
    if isinstance(task.progress, Watcher):  # probabilities alone did not settle it
        read = sum(len(encoded[k + place].ids) for place in alike) * (2 if twice else 1)
        title = f"witness: compared with at most {len(alike):,} other texts"
        phase = Phase(what="witness", kind="scoring", work=float(read))
        task.progress.plan(title, [phase], keeps=False)
    known, others, p = score(list(encoded[:k])), np.empty(0), 1.0
    for each in witness_looks(k):
        task.progress("witness", others.size, len(alike))
        if part := alike[others.size : each * len(pools)]:
            others = np.concatenate([others, score([encoded[k + place] for place in part])])
        p = witness_p_value(
            known,
            others,
            tokens=(own, drawn[alike[: others.size]]),
            seed=class_seed(task.settings.bootstrap_seed, task.origin, WITNESS.name, 0),
        )
        if others.size == len(alike) or witness_settled(p, draws=each, witnesses=k):
            break
    task.progress("witness", len(alike), len(alike))
    return others.size, p


def _certificate(bits: _Floats, own: _Ints, drawn: _Ints, left: int) -> float:
    """Bits of evidence, though the tokenizer may have been made from the witnesses.

    The most that it can say of a witness is then that its fill is among those of no more tokens: of
    these it counts as drawn, and their share is bounded from below by that among the draws.
    """
    few = (drawn[None, :] <= own[:, None]).sum(axis=1)
    shares = beta.ppf(_OVERSTATED, few, drawn.size - few + 1)
    found = witness_certificate(bits, sizes=left * shares)
    return float(-np.logaddexp2(-found, math.log2(_OVERSTATED * own.size)))
