"""Bounds on epsilon, membership, claim and promise in words."""

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
from lmexposure.core import Column, Section, Table, facts
from lmexposure.statistics import (
    AreaUnderCurve,
    ClaimCheck,
    JointBounds,
    Membership,
    PrimaryBound,
    Privacy,
    PrivacyClass,
    TprAtFpr,
)
from lmexposure.studies.dp import PRIVATE_NOTES, DpClaim, ExPost
from lmexposure.studies.white_box import inside_notes, inside_table

_BOUNDS = (
    Column(
        head=LABELS["bound"],
        value=lambda row: row[0].name,
        written=lambda row: bound_name(row[0].name) + (", primary" if row[1] else ""),
        words=True,
    ),
    Column(head=LABELS["validity"], value=lambda row: row[0].validity, words=True),
    Column(head=LABELS["delta"], value=lambda row: row[0].delta, shown=short),
    Column(
        head=LABELS["epsilon_bound"],
        value=lambda row: row[0].value,
        shown=nats,
        unit="nats",
        worse="high",
    ),
    Column(
        head=LABELS["max_attainable"],
        value=lambda row: row[0].max_attainable,
        shown=nats,
        unit="nats",
    ),
    Column(head=LABELS["significance"], value=lambda row: row[0].significance, shown=short),
)
_FPR = 0.01  # where a table has room for a single rate
MAX_ATTAINABLE = "what a perfect attack on these canaries would have shown"
_PROMISE = (
    "epsilon: whatever is read off the model is at most e^epsilon times as likely, up to delta, as "
    "without {whose}; lower = more private. The audit bounds the same number from below: it can "
    "refute the promise, and never prove it"
)
_GIVEN = (
    "the noise follows from a seed that was given: the promise does not hold against those who "
    "know it"
)
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
        id="bounds",
        title=f"Lower bounds on epsilon of one document, in nats; {how}; higher = less "
        f"private. All hold together at significance {short(privacy.significance)}, each "
        "for its kind of training",
    )
    yield from class_sections(privacy)
    notes = bounds_legend(privacy)
    if notes:
        yield Section(id="how-to-read", title="How to read these bounds", notes=notes)
    title, notes = primary_words(privacy)
    yield Section(id="primary", title=title, notes=notes)


def class_sections(privacy: Privacy) -> Iterator[Section]:
    """The bounds and the membership metrics of each class of repetitions."""
    for place, part in enumerate(privacy.classes, 1):
        found = part.bounds
        yield Section(
            id=f"bounds-{place}",
            title=f"{where(part)}: {whole(part.canaries)} {LABELS['inserted']}, "
            f"{whole(part.held_out)} {LABELS['held_out']}, {whole(part.references)} "
            f"{LABELS['references']}",
            table=None
            if found is None
            else Table(
                [(found.primary, True), *((bound, False) for bound in found.others)], _BOUNDS
            ),
            notes=(
                *(() if found is None else _remarks(found)),
                *(() if part.membership is None else _membership(part.membership)),
                *(() if part.note is None else (part.note,)),
            ),
        )


def _bounds_table(bounds: JointBounds) -> Table:
    """All bounds of one class, the primary one first."""
    return Table([(bounds.primary, True), *((bound, False) for bound in bounds.others)], _BOUNDS)


def conditions(part: PrivacyClass) -> list[str]:
    """What each bound of a class rests on."""
    if part.bounds is None:
        return []
    lines = []
    for bound in (part.bounds.primary, *part.bounds.others):
        choice = [f"threshold: {bound.threshold_choice}"] if bound.threshold_choice else []
        said = [
            f"neighbouring data sets: {bound.adjacency}",
            *(f"assumes: {line}" for line in bound.assumptions),
            *choice,
        ]
        name = f"{bound_name(bound.name)} at delta {short(bound.delta)} ({bound.validity})"
        lines.append(f"{name}: {'; '.join(said)}")
    return lines


def where(about: PrivacyClass | PrimaryBound) -> str:
    """Which formats and repetitions a bound is about."""
    return ", ".join(filter(None, [*about.formats, f"repetitions {about.repetitions}"]))


def _remarks(bounds: JointBounds) -> Iterator[str]:
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


def _rate(rate: TprAtFpr) -> str:
    if rate.value is None:
        return f"at FPR {short(rate.fpr)}: {rate.note}"
    return f"TPR {_with_ends(rate)} at FPR {short(rate.fpr)}"


def _with_ends(rate: AreaUnderCurve | TprAtFpr | None) -> str:
    """A rate with its interval."""
    if rate is None or rate.value is None:
        return MISSING
    return f"{number(rate.value, 3)} ({interval(rate.low, rate.high, 3)})"


def bounds_overview(privacy: Privacy) -> tuple[Table, list[str]]:
    """Each class with its primary bound and its membership metrics; reasons as notes."""
    notes = [f"{where(part)}: {part.note}" for part in privacy.classes if part.note]
    return Table(privacy.classes, _OVERVIEW), notes


OVERVIEW_TITLE = (
    "Each class: its primary bound, and how well its canaries are distinguished from texts that "
    "were never inserted"
)


def _area(part: PrivacyClass) -> AreaUnderCurve | None:
    return None if part.membership is None else part.membership.area_under_curve


def _value(rate: AreaUnderCurve | TprAtFpr | None) -> float | None:
    return None if rate is None else rate.value


def _found_at_few(part: PrivacyClass) -> TprAtFpr | None:
    rates = () if part.membership is None else part.membership.tpr_at_fpr
    return next((rate for rate in rates if rate.fpr == _FPR), None)


def bounds_legend(privacy: Privacy) -> list[str]:
    """What the tables hold; only of what is there."""
    tables = [part.bounds for part in privacy.classes if part.bounds is not None]
    bounds = [bound for table in tables for bound in (table.primary, *table.others)]
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
    return lines


def primary_words(privacy: Privacy | None) -> tuple[str, list[str]]:
    """The bound to quote, and its conditions."""
    if privacy is None:
        return "No bound on epsilon: the result holds none.", []
    bound = privacy.primary
    if bound is None:
        return (
            "No bound on epsilon: no class has both inserted and held out canaries.",
            [*_notes(privacy), *claim_lines(privacy.claim)],
        )
    title = (
        f"{LABELS['epsilon_bound']} {nats(bound.value)} nats at delta {short(bound.delta)}, "
        f"a lower bound ({bound_name(bound.name)}; {where(bound)}; {bound.adjacency}); higher = "
        "less private."
    )
    return title, [
        f"holds for {validity(bound.validity)} ({bound.validity}), at significance "
        f"{short(bound.significance)}, that of the largest primary bound; all bounds here "
        f"together at {short(privacy.significance)}",
        f"{LABELS['max_attainable']}{_everywhere(privacy)} {nats(privacy.max_attainable)}: "
        f"{MAX_ATTAINABLE}",
        *(f"assumes: {line}" for line in bound.assumptions),
        *_notes(privacy),
        *claim_lines(privacy.claim),
    ]


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


_OVERVIEW = (
    Column(head="class", value=where, words=True),
    Column(head=LABELS["validity"], value="bounds.primary.validity", words=True),
    Column(head=LABELS["inserted"], value="canaries", shown=whole),
    Column(head=LABELS["held_out"], value="held_out", shown=whole),
    Column(head=LABELS["references"], value="references", shown=whole),
    Column(
        head=LABELS["epsilon_bound"],
        value="bounds.primary.value",
        shown=nats,
        unit="nats",
        worse="high",
    ),
    Column(
        head=LABELS["max_attainable"],
        value="bounds.primary.max_attainable",
        shown=nats,
        unit="nats",
    ),
    Column(
        head=LABELS["auc"],
        value=lambda part: _value(_area(part)),
        written=lambda part: _with_ends(_area(part)),
        worse="high",
    ),
    Column(
        head=f"TPR at FPR {short(_FPR)}",
        value=lambda part: _value(_found_at_few(part)),
        written=lambda part: _with_ends(_found_at_few(part)),
        worse="high",
    ),
)


def promise_section(claim: DpClaim) -> Section:
    """All that a training with differential privacy promised, and what that does not speak of."""
    of_documents = claim.unit == "document"
    whose = "one document" if of_documents else f"all documents of one value of {claim.unit!r}"
    return Section(
        id="promise",
        title="Promise of the training",
        table=facts(
            ("method", f"{claim.method}, {claim.sampler} sampling"),
            (
                "promised epsilon",
                f"{nats(claim.epsilon)} nats at {LABELS['delta']} "
                f"{short(claim.delta)} ({claim.accountant.upper()} accountant)",
            ),
            ("by Renyi divergences", f"{nats(claim.epsilon_rdp)} nats"),
            ("unit", f"{whose}; {claim.adjacency}"),
            ("units", whole(claim.units)),
            ("documents of the largest unit", whole(claim.largest_group)),
            ("noise multiplier", short(claim.noise_multiplier)),
            ("clip", short(claim.clip)),
            ("sample rate", short(claim.sample_rate)),
            ("steps", whole(claim.steps)),
            *_of_units(claim.ex_post),
        ),
        notes=(
            _PROMISE.format(whose=whose),
            *(f"not covered: {line}" for line in claim.not_covered),
            *([_GIVEN] if claim.noise_is_given else []),
            *([] if claim.ex_post is None else [f"ex post: {line}" for line in PRIVATE_NOTES]),
        ),
    )


def _of_units(found: ExPost | None) -> tuple[tuple[str, str], ...]:
    if found is None:
        return ()
    return (
        ("of single units, ex post: median", f"{nats(found.median)} nats"),
        ("nine of ten lie in", f"{nats(found.q05)} .. {nats(found.q95)} nats"),
        ("largest", f"{nats(found.largest)} nats"),
    )


def inside_section(claim: DpClaim, privacy: Privacy | None) -> Section | None:
    """Bounds from inside, from the loosest to the claim; None where there were no canaries."""
    found = claim.white_box
    if found is None:
        return None
    primary = None if privacy is None else privacy.primary
    outside = None
    if primary is not None and primary.delta == found.delta:
        outside = primary.validity, ", ".join(primary.formats), primary.value
    table, notes = inside_table(found, claim.promise, outside), inside_notes(found)
    return Section(id="inside", title="Seen from inside", table=table, notes=notes)
