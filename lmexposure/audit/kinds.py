"""Canaries that are no uniform fills, in one run: who was in is told by the secret's tokens.

They have no rank: their texts were chosen, and no other text is like them but the candidates of
their kind that a coin kept out. These are what they are held against.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from lmexposure.audit.context import ScoringContext
from lmexposure.canaries import KINDS, Canary, Manifest
from lmexposure.errors import InputError, SettingsError
from lmexposure.models import (
    AnyContext,
    Context,
    Encoded,
    LoadedModel,
    encode_in_context,
    encode_rows,
)
from lmexposure.records import KindMembership, KindRate, MeasureSettings, RunSettings
from lmexposure.scoring import details_of_encoded
from lmexposure.statistics import area_under_curve, one_run_audit, tpr_at_fpr

_FAIR = 0.5
_FPRS = (0.1, 0.01)


def check_kinds_of_run(settings: RunSettings) -> None:
    """Refuse kinds that one run cannot judge.

    Raises:
        SettingsError: no uniform fills, which alone have ranks; or no coins, by which alone the
            others are judged.
    """
    others = [name for name in settings.kinds if not KINDS[name].has_ranks]
    if not others:
        return
    if not settings.uniform_formats:
        raise SettingsError(
            f"kinds={', '.join(settings.kinds)}: a run needs uniform fills as well, which alone "
            "have ranks and exposure; add the kind uniform, or use lmexposure sweep"
        )
    if settings.inclusion_probability is None:
        raise SettingsError(
            f"the kind {others[0]} is judged by coins alone; give inclusion_probability=0.5 and "
            "canaries, a hundred or more, or use lmexposure sweep"
        )


def kind_memberships(
    loaded: LoadedModel, manifest: Manifest, context: ScoringContext, settings: MeasureSettings
) -> tuple[KindMembership, ...]:
    """How well in and out are told apart, for each audited kind and number of repetitions.

    Args:
        loaded: the model, in evaluation mode.
        manifest: of all kinds.
        context: the rows that the texts are scored in, those of these formats too.
        settings: level and significance.

    Raises:
        NumericalError: the model gave NaN or infinite logits.
    """
    groups = list(_groups(manifest))
    return tuple(
        _membership(loaded, manifest, entries, context.by_format[name], settings, len(groups))
        for name, entries in groups
    )


def _groups(manifest: Manifest) -> Iterator[tuple[str, list[Canary]]]:
    """Format and candidates of each class that is audited and has no ranks."""
    audited = [f.name for f in manifest.plan.formats if not f.is_uniform and f.kind in KINDS]
    for name in audited:
        for copies in manifest.plan.repetitions:
            entries = [e for e in manifest.entries if e.format == name and e.repetitions == copies]
            if entries:
                yield name, entries


def _membership(
    loaded: LoadedModel,
    manifest: Manifest,
    entries: Sequence[Canary],
    context: AnyContext,
    settings: MeasureSettings,
    classes: int,
) -> KindMembership:
    scores = -_secret_bits(loaded, manifest, entries, context)
    inside = np.array([entry.role == "canary" for entry in entries])
    first, share = entries[0], settings.significance / classes
    values: dict[str, Any] = {
        "group": f"{first.format}/x{first.repetitions}",
        "kind": manifest.formats[first.format].kind,
        "repetitions": first.repetitions,
        "inside": int(inside.sum()),
        "outside": int((~inside).sum()),
        "significance": share,
    }
    told = _told_apart(scores[inside], scores[~inside], settings.level)
    bound = _bound(scores, inside, manifest, first.repetitions, share, settings.bootstrap_seed)
    notes = [part["note"] for part in (told, bound) if part["note"]]
    return KindMembership(**{**values, **told, **bound, "note": "; ".join(notes) or None})


def _told_apart(
    inside: NDArray[np.float64], outside: NDArray[np.float64], level: float
) -> dict[str, Any]:
    if not (inside.size and outside.size):
        nothing = dict.fromkeys(("area", "area_low", "area_high", "p"))
        why = f"{inside.size} candidates in and {outside.size} out: it takes some of both"
        return {**nothing, "rates": (), "note": why}
    area = area_under_curve(inside, outside, level=level)
    found = [tpr_at_fpr(inside, outside, fpr=fpr, level=level) for fpr in _FPRS]
    names = KindRate.model_fields
    chance = stats.mannwhitneyu(inside, outside, alternative="greater")
    return {
        "area": area.value,
        "area_low": area.low,
        "area_high": area.high,
        "rates": tuple(KindRate(**{n: getattr(rate, n) for n in names}) for rate in found),
        "p": float(chance.pvalue),
        "note": None,
    }


def _bound(
    scores: NDArray[np.float64],
    inside: NDArray[np.bool_],
    manifest: Manifest,
    repetitions: int,
    significance: float,
    seed: int,
) -> dict[str, Any]:
    nothing = {"epsilon": None, "max_attainable": None}
    if manifest.plan.inclusion_probability != _FAIR:
        return {**nothing, "note": "no bound on epsilon: its proof takes fair coins"}
    try:
        found = one_run_audit(
            scores, inside, significance=significance, repetitions=repetitions, seed=seed
        )
    except InputError as failure:
        return {**nothing, "note": f"no bound on epsilon: {failure}"}
    return {"epsilon": found.value, "max_attainable": found.max_attainable, "note": None}


def _secret_bits(
    loaded: LoadedModel, manifest: Manifest, entries: Sequence[Canary], context: AnyContext
) -> NDArray[np.float64]:
    """Bits of the tokens of each secret, shape (N,), lower = more expected."""
    form = manifest.formats[entries[0].format]
    rows = encode_in_context(loaded.tokenizer, [e.text for e in entries], context=context)
    details = details_of_encoded(loaded.model, rows)
    kept = (
        secret_tokens(loaded.tokenizer, entry.text, form.free_mask(entry.index), row, context)
        for entry, row in zip(entries, rows, strict=True)
    )
    return np.array([bits[its].sum() for bits, its in zip(details.bits, kept, strict=True)])


def secret_tokens(
    tokenizer: Any, text: str, mask: Sequence[bool], tokens: Encoded, context: AnyContext
) -> NDArray[np.bool_]:
    """Which scored tokens of a text reach from the first character of its secret to the last.

    Args:
        tokenizer: that made the tokens.
        text: the whole fill.
        mask: which of its characters are secret, as `Format.free_mask` gives it.
        tokens: of the text in its row.
        context: what is around the text in that row.

    Returns:
        shape (T,), of the tokens from `tokens.scored_from` on.
    """
    first = mask.index(True)
    last = len(mask) - tuple(reversed(mask)).index(True)
    row = context if isinstance(context, Context) else Context(before=context or "")
    whole = encode_rows(
        tokenizer,
        [text[first:last]],
        Context(start=(), before=row.before + text[:first], behind=text[last:] + row.behind),
    )[0]
    # What is in front of the row is the same number of tokens, whatever they are.
    text_row = encode_rows(
        tokenizer, [text], Context(start=(), before=row.before, behind=row.behind)
    )[0]
    shift = len(tokens.ids) - text_row.stop
    places = np.arange(tokens.scored_from, len(tokens.ids)) - shift
    found: NDArray[np.bool_] = (places >= whole.first) & (places < whole.stop)
    return found
