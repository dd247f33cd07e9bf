"""What a comparison of natural identifiers says: rates of each format, a claim and its reason."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure._files import canonical_json, sha256_bytes
from lmexposure._style import count, percent, probability
from lmexposure.audit.identifier_ranking import Comparison, HeldOut, comparison
from lmexposure.audit.workload import Progress, silent
from lmexposure.canaries import Format, Identifiers
from lmexposure.core import REPORTS, claimed
from lmexposure.scoring import AnyModel, same_random_numbers
from lmexposure.statistics import (
    RanksAmongDraws,
    beside_held_out,
    identifiers_needed,
    ranks_among_draws,
    rate_difference,
    sign_test,
)
from lmexposure.studies import (
    IdentifierClaim,
    IdentifierClass,
    IdentifierDifference,
    IdentifierModel,
    IdentifierRank,
    IdentifierRates,
    IdentifierSettings,
    IdentifierSplit,
    NaturalIdentifiers,
)

_HIDDEN = frozenset({"seed", "corpus", "held_out", "model", "base"})
_LEVEL = 0.95
_SIGNIFICANCE = 0.05
_GIVE_SPLIT = (
    "Only documents that were held out of the training at random can tell: give them (held_out=...)"
)


def natural_identifiers(  # noqa: PLR0913 - two models, what they are compared on, and where
    model: AnyModel,
    corpus: str | Path | Sequence[str | Path],
    *,
    formats: Sequence[str | Path | Format],
    tokenizer: Any = None,
    base: "AnyModel | None" = None,
    held_out: str | Path | Sequence[str | Path] | None = None,
    out: str | Path | None = None,
    settings: IdentifierSettings | None = None,
    progress: Progress = silent,
) -> NaturalIdentifiers:
    """Compare identifiers that a corpus holds with fresh draws of their format, in their place.

    Source: Natural identifiers, ICLR 2026.
    """
    settings = settings or IdentifierSettings()
    place = nullcontext() if out is None else claimed(NaturalIdentifiers, out, writes=REPORTS)
    with place as held, same_random_numbers():
        asked = comparison(
            model, corpus, formats, tokenizer, base=base, held_out=held_out, settings=settings
        )
        if held is None:
            named = sha256_bytes(canonical_json(asked.named))
            return study_of_ranks(asked, *asked.ranked(progress), named)
        with held.work(asked.named, hidden=_HIDDEN) as work:
            made = work.finished()
            if made is None:
                made = study_of_ranks(asked, *asked.ranked(progress, work.part), work.sha256)
                made.save(work.out)
            work.drop()
    return made


def study_of_ranks(
    asked: Comparison, ranks: NDArray[np.int64], held_out: HeldOut | None, inputs_sha256: str
) -> NaturalIdentifiers:
    """The record of a comparison."""
    found, settings = asked.found, asked.settings
    sides = [IdentifierModel(path=lm.name, weights_sha256=lm.identity) for lm in asked.sides]
    tested = set(map(id, found.one_per_document()))
    chosen = np.array([id(identifier) in tested for identifier in found.kept])
    names = np.array([identifier.format for identifier in found.kept])
    classes = [
        _class(name, found, ranks, names == name, chosen, settings.draws) for name in found.formats
    ]
    every = _class(None, found, ranks, names == names, chosen, settings.draws)
    uniform = found.are_uniform_by_standard
    split = None if held_out is None else _split(held_out, chosen, settings)
    claim, reason = _claim(every, split, uniform=uniform)
    return NaturalIdentifiers.now(
        inputs_sha256=inputs_sha256,
        model=sides[0],
        base=sides[1] if len(sides) > 1 else None,
        files=found.names,
        documents=found.documents,
        settings=settings,
        level=_LEVEL,
        needed=identifiers_needed(),
        split=split,
        uniform_source=uniform,
        foretold=found.foretold,
        claim=claim,
        reason=reason,
        classes=(*classes, every),
        identifiers=_rows(found, ranks, chosen),
        warnings=_warnings(found, None if held_out is None else held_out.found, sides, classes),
    )


def _split(
    held_out: HeldOut, chosen: NDArray[np.bool_], settings: IdentifierSettings
) -> IdentifierSplit:
    found = held_out.found
    tested = set(map(id, found.one_per_document()))
    own = [id(each) in tested for each in found.kept]
    ranks = held_out.ranks[own]
    beside = beside_held_out(held_out.read[chosen], held_out.bits[own], seed=settings.seed)
    return IdentifierSplit(
        files=found.names,
        documents=found.documents,
        tested=len(ranks),
        both=held_out.both,
        model=_rates(ranks_among_draws(ranks, settings.draws, level=_LEVEL)),
        area=beside.area,
        p_value=beside.p_value,
    )


def _rows(
    found: Identifiers, ranks: NDArray[np.int64], chosen: NDArray[np.bool_]
) -> tuple[IdentifierRank, ...]:
    rows = [
        IdentifierRank(
            format=identifier.format,
            file=identifier.file,
            document=identifier.document,
            times=found.counts[identifier.format][identifier.index],
            tested=bool(of_test),
            rank=int(own[0]),
            base_rank=int(own[1]) if len(own) > 1 else None,
        )
        for identifier, own, of_test in zip(found.kept, ranks, chosen, strict=True)
    ]
    return tuple(sorted(rows, key=lambda row: (row.file, row.document, row.format, row.rank)))


def _class(
    name: str | None,
    found: Identifiers,
    ranks: NDArray[np.int64],
    here: NDArray[np.bool_],
    chosen: NDArray[np.bool_],
    draws: int,
) -> IdentifierClass:
    counts = [found.counts[name]] if name is not None else list(found.counts.values())
    tested = ranks[here & chosen]  # (identifiers, models)
    sides = [ranks_among_draws(column, draws, level=_LEVEL) for column in tested.T if column.size]
    return IdentifierClass(
        format=name,
        space_size=None if name is None else found.formats[name].size,
        found=sum(each.total() for each in counts),
        distinct=sum(map(len, counts)),
        repeated=sum(times > 1 for each in counts for times in each.values()),
        compared=int(here.sum()),
        compared_hits=int((ranks[here, 0] * 100 <= draws + 1).sum()),
        tested=len(tested),
        model=_rates(sides[0]) if sides else None,
        base=_rates(sides[1]) if len(sides) > 1 else None,
        difference=_difference(sides, tested) if len(sides) > 1 else None,
    )


def _rates(found: RanksAmongDraws) -> IdentifierRates:
    return IdentifierRates(
        hits=found.hits,
        tpr=found.tpr,
        low=found.low,
        high=found.high,
        median_exposure=found.median_exposure,
        p_value=found.p_value,
        null=found.is_null,
    )


def _difference(sides: Sequence[RanksAmongDraws], ranks: NDArray[np.int64]) -> IdentifierDifference:
    between = rate_difference(*((side.tpr, side.low, side.high) for side in sides))
    lower, higher = (int((sign * (ranks[:, 0] - ranks[:, 1]) < 0).sum()) for sign in (1, -1))
    return IdentifierDifference(
        value=between.value, low=between.low, high=between.high, p_value=sign_test(higher, lower)
    )


def _claim(
    every: IdentifierClass, split: IdentifierSplit | None, *, uniform: bool
) -> tuple[IdentifierClaim, str]:
    """What may be said, and why."""
    model, base = every.model, every.base
    assert model is not None, "enough identifiers were found"
    if split is not None:
        return _claim_of_split(model, split)
    if model.p_value > _SIGNIFICANCE:
        return "nothing found", (
            f"under the model the identifiers rank as chance has it {_seen(model)}"
        )
    low = f"the identifiers rank lower than chance {_seen(model)}"
    if base is not None and base.p_value <= _SIGNIFICANCE:
        return "distribution or membership", (
            f"{low}, and under the base, which never saw them, too {_seen(base)}: they are not "
            f"like fresh draws. {_GIVE_SPLIT}"
        )
    if uniform:
        return "membership", (
            f"{low}. All are UUIDs of version 4, whose 122 other bits are random by RFC 9562: this "
            "takes it that they were made so, and that fresh ones would be as likely. None shares "
            "a run of letters and digits with the text in front"
        )
    beside = "" if base is None else f", and not under the base {_seen(base)}"
    return "distribution or membership", (
        f"{low}{beside}; the model may have learned what identifiers of this source have in "
        f"common, such as a prefix. {_GIVE_SPLIT}"
    )


def _claim_of_split(model: IdentifierRates, split: IdentifierSplit) -> tuple[IdentifierClaim, str]:
    pairs = f"{percent(split.area)} of pairs, p = {probability(split.p_value)}"
    if split.p_value <= _SIGNIFICANCE:
        return "membership", (
            "the identifiers lie lower beside their draws than those of held-out documents "
            f"({pairs}, tested at 5 %). This takes it that the documents were held out at random"
        )
    also = ""
    if model.p_value <= _SIGNIFICANCE:
        also = f"; they rank lower than fresh draws {_seen(model)}, as such identifiers may"
    return (
        "nothing found",
        f"the identifiers are as likely as those of held-out documents ({pairs}){also}",
    )


def _seen(rates: IdentifierRates) -> str:
    return (
        f"(p = {probability(rates.p_value)}; {percent(rates.tpr)} are among the lowest "
        f"1 %, at most {percent(rates.high)})"
    )


def _warnings(
    found: Identifiers,
    apart: Identifiers | None,
    sides: Sequence[IdentifierModel],
    classes: Sequence[IdentifierClass],
) -> tuple[str, ...]:
    warnings = [
        f"no identifier of format {row.format} is in the corpus" for row in classes if not row.found
    ]
    if len(found.kept) + found.foretold < found.distinct:
        warnings.append(
            f"{len(found.kept):,} of {found.distinct:,} identifiers were compared, chosen at random"
        )
    for where, foretold in (("", found.foretold), (" held out", apart.foretold if apart else 0)):
        if foretold:
            warnings.append(
                f"{count(foretold, 'identifier')}{where} left out: the text in front holds a part "
                "of each, which a model without memory may copy"
            )
    for row in classes:
        if row.base is not None and row.base.p_value <= _SIGNIFICANCE and len(classes) > 1:
            warnings.append(
                f"under the base, identifiers of format {row.format} rank lower than chance: they "
                "are no random draws; leave the format out"
            )
    if len(sides) > 1 and sides[0].weights_sha256 == sides[1].weights_sha256:
        warnings.append(
            "the base has the very weights of the model, so that nothing is between them"
        )
    return tuple(warnings)
