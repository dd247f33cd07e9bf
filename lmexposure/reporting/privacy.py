"""Bounds on epsilon, membership and claim in words: sections for all renderings."""

from collections.abc import Iterator

from lmexposure._style import (
    LABELS,
    MISSING,
    bound_name,
    claim_word,
    interval,
    nats,
    number,
    setting_value,
    short,
    validity,
    whole,
)
from lmexposure.reporting.data import Section
from lmexposure.studies import (
    AreaUnderCurve,
    Bound,
    ClaimCheck,
    ClassBounds,
    Membership,
    PrimaryBound,
    Privacy,
    PrivacyClass,
    TruePositiveRate,
)

_BOUND = ("bound", "validity", "delta", "epsilon_bound", "max_attainable", "significance")
_OVERVIEW = (
    "validity",
    "inserted",
    "held_out",
    "references",
    "epsilon_bound",
    "max_attainable",
    "auc",
)
_FPR = 0.01  # where a table has room for a single rate
MAX_ATTAINABLE = "what a perfect attack on these canaries would have shown"
_MEMBERSHIP = (
    f"{LABELS['auc']}: how often a canary that was inserted scores above a text that was not; 0.5 "
    "is guessing",
    "TPR at FPR: the share of canaries found where at most this share of the other texts is "
    "taken for canaries",
)


def privacy_sections(privacy: Privacy) -> Iterator[Section]:
    """Class by class, then the bound to quote and what it rests on."""
    coins = privacy.inclusion_probability
    how = "no inclusion probability is declared"
    if coins is not None:
        how = f"canaries inserted each with probability {setting_value(coins)}"
    yield Section(
        title=f"Lower bounds on epsilon of one document, in nats; {how}; higher = less "
        f"private. All hold together at significance {short(privacy.significance)}, each "
        "for its kind of training"
    )
    yield from map(class_section, privacy.classes)
    legend = bounds_legend(privacy)
    if legend.notes:
        yield legend
    yield primary_section(privacy)


def class_section(part: PrivacyClass) -> Section:
    """The bounds and the membership metrics of one class of repetitions."""
    return Section(
        title=f"{where(part)}: {whole(part.canaries)} {LABELS['inserted']}, "
        f"{whole(part.held_out)} {LABELS['held_out']}, {whole(part.references)} "
        f"{LABELS['references']}",
        columns=() if part.bounds is None else tuple(LABELS[name] for name in _BOUND),
        rows=() if part.bounds is None else tuple(_rows(part.bounds)),
        words=2,
        notes=(
            *(() if part.bounds is None else _remarks(part.bounds)),
            *(() if part.membership is None else _membership(part.membership)),
            *(() if part.note is None else (part.note,)),
        ),
    )


def where(about: PrivacyClass | PrimaryBound) -> str:
    """Which formats and repetitions a bound is about."""
    return ", ".join(filter(None, [*about.formats, f"repetitions {about.repetitions}"]))


def _rows(bounds: ClassBounds) -> Iterator[tuple[str, ...]]:
    """All bounds of one class, the primary one first."""
    for place, bound in enumerate([bounds.primary, *bounds.others]):
        yield (
            bound_name(bound.name) + ("" if place else ", primary"),
            bound.validity,
            short(bound.delta),
            nats(bound.value),
            nats(bound.max_attainable),
            short(bound.significance),
        )


def _remarks(bounds: ClassBounds) -> Iterator[str]:
    """What belongs to a single bound, and which are not supported."""
    for bound in (bounds.primary, *bounds.others):
        for line in bound.notes:
            yield f"{bound_name(bound.name)} at delta {short(bound.delta)}: {line}"
    for refused in bounds.refused:
        yield f"not given: {bound_name(refused.method)}: {refused.reason}"


def _membership(metrics: Membership) -> Iterator[str]:
    """Area under the curve and true positives at few false ones, each with its interval."""
    yield f"membership: {LABELS['auc']} {_with_ends(metrics.area_under_curve)}"
    if metrics.tpr_at_fpr:
        yield f"membership: {'; '.join(map(_rate, metrics.tpr_at_fpr))}"


def _rate(rate: TruePositiveRate) -> str:
    if rate.value is None:
        return f"at FPR {short(rate.fpr)}: {rate.note}"
    return f"TPR {_with_ends(rate)} at FPR {short(rate.fpr)}"


def _with_ends(rate: AreaUnderCurve | TruePositiveRate | None) -> str:
    """A rate with its interval."""
    if rate is None or rate.value is None:
        return MISSING
    return f"{number(rate.value, 3)} ({interval(rate.low, rate.high, 3)})"


def bounds_overview(privacy: Privacy) -> Section:
    """Each class with its primary bound and its membership metrics; reasons as notes."""
    heads = (LABELS[name] for name in _OVERVIEW)
    return Section(
        title="Each class: its primary bound, and how well its canaries are distinguished from "
        "texts that were never inserted",
        columns=("class", *heads, f"TPR at FPR {short(_FPR)}"),
        rows=tuple(map(_overview, privacy.classes)),
        words=2,
        notes=tuple(f"{where(part)}: {part.note}" for part in privacy.classes if part.note),
    )


def _overview(part: PrivacyClass) -> tuple[str, ...]:
    bound = None if part.bounds is None else part.bounds.primary
    metrics = part.membership
    rates = () if metrics is None else metrics.tpr_at_fpr
    return (
        where(part),
        MISSING if bound is None else bound.validity,
        whole(part.canaries),
        whole(part.held_out),
        whole(part.references),
        nats(None if bound is None else bound.value),
        nats(None if bound is None else bound.max_attainable),
        _with_ends(None if metrics is None else metrics.area_under_curve),
        _with_ends(next((rate for rate in rates if rate.fpr == _FPR), None)),
    )


def bounds_legend(privacy: Privacy) -> Section:
    """What the tables hold; only of what is there."""
    tables = [part.bounds for part in privacy.classes if part.bounds is not None]
    bounds: list[Bound] = [bound for table in tables for bound in (table.primary, *table.others)]
    kinds = dict.fromkeys(bound.validity for bound in bounds)
    lines = [f"{kind}: holds for {validity(kind)}" for kind in kinds]
    if bounds:
        lines.insert(
            0,
            "primary: chosen beforehand by how the canaries were drawn; it has half the "
            "significance",
        )
    if any(bound.max_attainable is not None for bound in bounds):
        lines.append(f"{LABELS['max_attainable']}: {MAX_ATTAINABLE}")
    if any(part.membership is not None for part in privacy.classes):
        lines += _MEMBERSHIP
    return Section(title="How to read these bounds", notes=tuple(lines))


def primary_section(privacy: Privacy | None) -> Section:
    """The bound to quote, and its conditions."""
    if privacy is None:
        return Section(title="No bound on epsilon: the result holds none.")
    bound = privacy.primary
    if bound is None:
        return Section(
            title="No bound on epsilon: no class has both inserted and held out canaries.",
            notes=(*_notes(privacy), *claim_lines(privacy.claim)),
        )
    return Section(
        title=f"{LABELS['epsilon_bound']} {nats(bound.value)} nats at delta {short(bound.delta)}, "
        f"a lower bound ({bound_name(bound.name)}; {where(bound)}; {bound.adjacency}); higher = "
        "less private.",
        notes=(
            f"holds for {validity(bound.validity)} ({bound.validity}), at significance "
            f"{short(bound.significance)}, that of the largest primary bound; all bounds here "
            f"together at {short(privacy.significance)}",
            f"{LABELS['max_attainable']}{_everywhere(privacy)} {nats(privacy.max_attainable)}: "
            f"{MAX_ATTAINABLE}",
            *(f"assumes: {line}" for line in bound.assumptions),
            *_notes(privacy),
            *claim_lines(privacy.claim),
        ),
    )


def _everywhere(privacy: Privacy) -> str:
    """Of several classes the one where most is attainable need not be the one quoted."""
    return f" of all {len(privacy.classes)} classes" if len(privacy.classes) > 1 else ""


def _notes(privacy: Privacy) -> Iterator[str]:
    return (f"note: {line}" for line in privacy.notes)


def claim_lines(claim: ClaimCheck | None) -> Iterator[str]:
    """What the bounds say of a claim; nothing without one."""
    if claim is not None:
        claimed, delta = map(setting_value, (claim.claimed_epsilon, claim.claimed_delta))
        claimed_at = f"epsilon {claimed} at delta {delta}"
        yield f"claim of {claimed_at}: {claim_word(claim.verdict)}: {claim.reason}{_power(claim)}"


def _power(claim: ClaimCheck) -> str:
    """What the audit could have shown; nothing where that is not known."""
    if claim.could_show is None or claim.verdict == "contradicted":
        return ""
    chance = f"with probability {short(claim.power)}"
    if claim.refutable_from is None:
        found = "no leak, however large, would have contradicted the claim so often"
    else:
        found = (
            "an ideal attack would have contradicted the claim so often from a true epsilon of "
            f"{nats(claim.refutable_from)} on"
        )
    return f"; this audit could have shown up to {nats(claim.could_show)} {chance}, and {found}"
