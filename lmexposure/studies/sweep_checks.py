"""The gate of a sweep: whether its models may be believed, its worst texts, its coins, its epsilon.

Chance, for a worst text: its coins are tossed apart from those of every other, so that without
memorisation each choice of the models that had it is equally likely, and p of a single text is
exact. It is paid for by the number of texts that the worst was chosen from. A pass needs power: a
text that every model with it gives away would have been called a leak, or the check is inconclusive
and says how many models it takes.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lmexposure._quantiles import proportion_ends, unseen_share
from lmexposure._style import (
    are,
    count,
    nats,
    number,
    percent,
    probability,
    reading,
    setting_value,
    short,
    validity,
    visible,
)
from lmexposure.canaries import UNIFORM
from lmexposure.core import (
    EPSILON_LIMIT,
    LIMIT,
    Check,
    CheckKind,
    Outcome,
    Thresholds,
    doubted,
    met_outcome,
)
from lmexposure.studies.sweep_record import MOST_LOST, SweepBound, SweepNumbers
from lmexposure.studies.sweep_settings import SweepSettings

_JUDGED = 3  # tests against chance that share the significance
_FARTHEST = 10**6  # models that an answer may ask for
# Looks of all rays of a one-run audit, at most; a test holds it against the audit.
MOST_LOOKS = 52
_RAYS = ("both", "top", "bottom")
_LOSS = "bits per token"
_DOUBT = "too many models are missing, so nothing follows"
_NO_PASS = "models that learned, or canaries that can be judged, are too few for a pass"
_WORST = CheckKind(
    help="A canary that many models with it score above every model without it gives itself away. "
    "A small p means that chance hardly explains the worst of all canaries.",
    remedy="Train more models (--models), so that the worst canary can be judged.",
    low_is_worse=True,
    said_leak="gives itself away",
    said_pass="not beyond chance",
)

# Each by its key: of leaks the most convincing first, then whether the models may be believed.
SWEEP_CHECKS: Mapping[str, CheckKind] = {
    "max_epsilon": replace(
        EPSILON_LIMIT,
        help="A lower bound on the epsilon of differential privacy that the training can have had, "
        "in nats; higher = less private. It holds under the conditions given with it.",
        remedy="Train more models (--models) or insert more canaries (--canaries), each in a model "
        "by a coin of its own: these could not have shown an epsilon that large.",
        own_significance=True,
    ),
    "max_worst_tpr": replace(
        LIMIT,
        help="The share of the models with a text that score it above every model without it, for "
        "the text that gives itself away most; its lower end is corrected for how many there are.",
        remedy="Train more models (--models): these could not have shown a rate that large.",
    ),
    "worst_canary": _WORST,
    "worst_document": replace(
        _WORST,
        help="The same as for canaries, of ordinary documents that were in each model by a coin: "
        "real text of the corpus that gives itself away.",
        remedy="Train more models (--models), or judge fewer documents (--population).",
    ),
    "guessed_coins": CheckKind(
        help="All coins of all canaries are guessed from the scores, the surest first. More right "
        "guesses than chance explains are memorisation, be it spread over all canaries.",
        remedy="Train more models (--models) or insert more canaries (--canaries).",
        low_is_worse=True,
        said_leak="who was in can be guessed",
        said_pass="who was in cannot be guessed",
    ),
    "failed_models": CheckKind(
        help="Models of the sweep that have no scores. Where they are many, those that are left "
        "may differ from them, and nothing follows.",
        remedy="Find out why these models failed (failed/ in the sweep's directory, sweep.json), "
        "remove their records there, and give the command of the sweep again.",
        precondition=True,
    ),
    "validation": CheckKind(
        help="Models that did not learn have memorised nothing, which says nothing about models "
        "that did.",
        remedy="Train until the validation loss falls, with more epochs or another learning "
        "rate: a model that learned nothing leaks nothing.",
        precondition=True,
    ),
    "scores": CheckKind(
        help="A canary that was in all models, or in none, cannot be compared with itself.",
        remedy="Train more models (--models), so that every canary is in some and not in others.",
        precondition=True,
    ),
    "min_canaries": CheckKind(
        help="There are too few canaries to show that secrets do not leak: a leak of some secrets "
        "would go unseen.",
        remedy="Insert more canaries of each class (--canaries), and train again.",
        precondition=True,
    ),
}


def sweep_checks(result: SweepNumbers, thresholds: Thresholds) -> Iterator[Check | str]:
    """What many models show against thresholds.

    Where nothing is asked for, three tests against chance share the significance: the worst canary,
    the worst ordinary document, and the coins of all canaries together. `max_worst_tpr` takes the
    place of the first two, `max_epsilon` that of the last.
    """
    most = thresholds.max_epsilon
    there, *power = _preconditions(result, thresholds.min_canaries)
    by_coins = most is None and result.epsilon.primary is not None
    judged = sum(map(bool, [result.texts, result.worst_of_population, by_coins]))
    share = thresholds.significance / max(1, judged)
    made = [_worst(group, thresholds.max_worst_tpr) for group in _groups(result, share)]
    made += _guessed_coins(result, share) if most is None else [_of_epsilon(result, most)]
    if any(check.outcome is not Outcome.PASS for check in power):
        made = [doubted(check, _NO_PASS, Outcome.PASS) for check in made]
    if there.outcome is not Outcome.PASS:
        made = [doubted(check, _DOUBT, Outcome.PASS, Outcome.LEAK) for check in made]
    yield from [there, *power, *made]
    yield from _untested(result, thresholds)


def _preconditions(result: SweepNumbers, least: int) -> Iterator[Check]:
    """Whether the models are all there; then whether they and the canaries allow a pass."""
    asked, models, lost = result.settings.models, result.models, result.lost
    most = int(MOST_LOST * asked)
    why = f"{models:,} of {count(asked, 'model')} have scores"
    if lost > most:
        first = result.failed[0]
        why = (
            f"{lost:,} of {count(asked, 'model')} have no scores, and at most {most:,} may lack "
            "them: those that are left may not be like the others (model "
            f"{first.number}: {visible(first.reason)})"
        )
    there, name = met_outcome(lost <= most), "models trained"
    yield Check.of("failed_models", name, there, why, lost, most, unit="models")

    mean, before, learned = result.utility.mean, result.utility.initial, result.utility.learned
    loss = f"mean validation loss {reading(mean, _LOSS)}, {number(before, 3)} before training"
    enough = models > 0 and learned >= (1 - MOST_LOST) * models
    why = f"{learned:,} of {count(models, 'model')} learned"
    short_of = f"only {why} ({loss}), and one that learned nothing leaks nothing"
    why = f"{why}: {loss}" if enough else short_of
    met, name = met_outcome(enough), "models learned"
    yield Check.of("validation", name, met, why, mean, before, unit=_LOSS)

    canaries, named = result.canaries, count(result.canaries, "canary", "canaries")
    enough = canaries >= least
    why = f"{named} {'are enough' if enough else f'are too few: {least} are needed'}"
    if canaries:
        why += (
            f"; even if none of them leaks, up to {percent(unseen_share(canaries))} of such "
            "secrets may leak (95 % confidence)"
        )
    met, name = met_outcome(enough), "enough canaries"
    yield Check.of("min_canaries", name, met, why, canaries, least, unit="canaries")

    missing = sum(text.tpr is None for text in result.texts)
    why = f"all {named} were in some models and not all"
    if missing:
        why = (
            f"{missing:,} of {named} were in all models or in none, so that nothing is known of "
            f"them; train more than {models:,} models"
        )
    met, name = met_outcome(not missing), "all canaries judged"
    yield Check.of("scores", name, met, why, missing, 0, unit="canaries")


def _untested(result: SweepNumbers, thresholds: Thresholds) -> Iterator[str]:
    """What was not asked for, and what these coins allow no check of."""
    if thresholds.max_epsilon is None:
        yield "epsilon: no threshold was given"
        if result.epsilon.primary is None:
            yield f"the coins of all canaries together: {_refused(result)}"
    if result.worst_of_population is None:
        yield "ordinary documents: none had coins (--population)"
    for row in result.scores:
        if row.primary and row.group == "canaries":
            for rate in row.rates:
                if rate.value is None:
                    yield f"TPR at FPR {short(rate.fpr)}: {visible(rate.note)}"


def _refused(result: SweepNumbers) -> str:
    return "; ".join(map(visible, result.epsilon.refused)) or "no canary was audited"


@dataclass(frozen=True, kw_only=True)
class _Text:
    """One text over all models."""

    name: str  # as people read it
    had: int  # models with it
    above: int  # of these, those that score above every model without it
    p: float  # how often chance gives such a text, or a worse one, among all of its group

    @property
    def share(self) -> float:
        return self.above / self.had

    @property
    def seen(self) -> str:
        """In how many models it gives itself away; what follows says which text it is."""
        return f"in {self.above} of the {count(self.had, 'model')} with it"


@dataclass(frozen=True, kw_only=True)
class _Group:
    """Texts that the worst is chosen from."""

    noun: str  # a text, in a word
    name: str  # the worst, in words
    texts: Sequence[_Text]  # those that can be judged; of documents the worst alone
    among: int  # how many the worst was chosen from
    models: int  # of the sweep that have scores
    share: float  # of the significance

    @property
    def all_of_them(self) -> str:
        return count(self.among, self.noun, {"canary": "canaries"}.get(self.noun))

    @property
    def too_few(self) -> str:
        return f"{count(self.models, 'model')} {are(self.models)} too few"

    def least_p(self) -> float:
        """What a text would have that all models give away, whichever of the group it is."""
        chances = (_chance(had, self.models - had, had) for had in self.hads())
        return min(1.0, self.among * max(chances))

    def hads(self) -> Iterator[int]:
        """Models with each text; of texts that are not known, with the fewest that coins give."""
        yield from (text.had for text in self.texts)
        if len(self.texts) < self.among:
            yield _fewest(self.models, self.among)

    def low(self, text: _Text) -> float:
        """The rate of a text is at least this, for all of the group at once."""
        return proportion_ends(text.above, text.had, self.share / self.among)[0]

    def least_seen(self) -> str:
        """The smallest leak of a text in half of the models that is called one."""
        had = self.models // 2
        p = ((n, self.among * _chance(had, self.models - had, n)) for n in range(1, had + 1))
        return next((f"about {above} of {had}" for above, p in p if p <= self.share), "all")


def _groups(result: SweepNumbers, share: float) -> Iterator[_Group]:
    """Canaries that some models had and some had not; the worst ordinary document."""
    among = len(result.texts)
    canaries = [
        _Text(
            name=f"canary {visible(row.id)}",
            had=row.models_in,
            above=round(row.tpr * row.models_in),
            p=min(1.0, row.p * among),
        )
        for row in result.texts
        if row.tpr is not None and row.p is not None and row.models_in and row.models_out
    ]
    group = partial(_Group, models=result.models, share=share)
    if canaries:
        yield group(noun="canary", name="worst canary", texts=canaries, among=among)
    worst = result.worst_of_population
    if worst is not None and worst.scores_in and worst.scores_out:
        had, top = worst.scores_in, max(worst.scores_out)
        above = sum(score > top for score in had)
        text = _Text(name=f"text {visible(worst.id)}", had=len(had), above=above, p=worst.p)
        name, among = "worst ordinary document", worst.among
        yield group(noun="document", name=name, texts=[text], among=among)


def _worst(group: _Group, most: float | None) -> Check:
    """Against chance where nothing was asked for, else against the rate."""
    if most is not None:
        text = max(group.texts, key=lambda text: (group.low(text), text.share))
        outcome, why = _against_rate(group, text, most)
        return Check.of("max_worst_tpr", group.name, outcome, why, text.share, most)
    text = min(group.texts, key=lambda text: (text.p, -text.share))
    outcome, why = _against_chance(group, text)
    return Check.of(f"worst_{group.noun}", group.name, outcome, why, text.p, group.share)


def _against_chance(group: _Group, text: _Text) -> tuple[Outcome, str]:
    limit = f"p = {probability(text.p)}; {short(group.share)} or less"
    if text.p <= group.share:
        return Outcome.LEAK, (
            f"{text.name} gives itself away: {text.seen}, it scores higher than in every model "
            f"without it, more than chance explains for the worst of {group.all_of_them} "
            f"({limit} is a leak)"
        )
    least = group.least_p()
    if least > group.share:
        needed = _models_for(group.among, group.share)
        return Outcome.INCONCLUSIVE, (
            f"{group.too_few} for the worst of {group.all_of_them}: even a {group.noun} that every "
            f"model gives away could have p = {probability(least)}, and a leak takes "
            f"{short(group.share)}; it takes about {needed:,} models"
        )
    return Outcome.PASS, (
        f"no {group.noun} gives itself away beyond chance: {text.seen}, the worst of "
        f"{group.all_of_them} scores higher than in every model without it ({limit} would be a "
        f"leak, such as {group.least_seen()})"
    )


def _against_rate(group: _Group, text: _Text, most: float) -> tuple[Outcome, str]:
    """A leak by its lower end, a pass by its value where a whole leak would have been seen."""
    low, allowed = group.low(text), setting_value(most)
    higher = "scores higher than in every model without it"
    worst = f"the worst of {group.all_of_them}"
    seen = f"{text.seen}, {text.name} {higher}"
    if low > most and text.p <= group.share:
        return Outcome.LEAK, (
            f"{text.name} gives itself away more often than the {allowed} allowed: {text.seen}, "
            f"it {higher}, a rate of at least {short(low)} for {worst}"
        )
    # The lower end of the rate that a text would have which all models give away.
    ends = (proportion_ends(had, had, group.share / group.among) for had in group.hads())
    least = min(low for low, _ in ends)
    if least <= most or group.least_p() > group.share:
        needed = _models_for(group.among, group.share, most)
        return Outcome.INCONCLUSIVE, (
            f"{group.too_few} to show a rate above the {allowed} allowed for {worst}; it takes "
            f"about {needed:,} models ({seen})"
        )
    highest = max(group.texts, key=lambda other: other.share)
    if highest.share > most:
        return Outcome.INCONCLUSIVE, (
            f"{highest.seen}, {highest.name} {higher}, more than the {allowed} allowed, but the "
            f"rate is only known to be at least {short(group.low(highest))} for {worst}; train "
            "more models"
        )
    return Outcome.PASS, (
        f"{seen}, not more often than the {allowed} allowed; one that every model gives away would "
        f"have shown at least {short(least)}"
    )


def _models_for(among: int, share: float, most: float = 0.0) -> int:
    """Models that it takes to judge the worst of a group of texts at a share of significance."""
    for models in range(2, _FARTHEST):
        had = _fewest(models, among)
        certain = (share / among) ** (1 / had)
        if among * _chance(had, models - had, had) <= share and certain > most:
            return models
    return _FARTHEST


def too_few_models(settings: SweepSettings, documents: int) -> str | None:
    """That the gate could not judge the worst text of a sweep, before it begins; None: it could."""
    if settings.shares_used != (1.0,) or settings.coins != "independent":
        return None
    run, share = settings.run, Thresholds().significance / _JUDGED
    kinds = len(run.uniform_formats) + sum(kind != UNIFORM for kind in run.kinds)
    canaries = run.per_class * len(run.classes) * kinds
    worst = {"canaries": canaries, "ordinary documents": settings.population_of(documents)}
    takes = {name: _models_for(among, share) for name, among in worst.items() if among}
    name = max(takes, key=lambda name: takes[name], default="")
    if takes.get(name, 0) <= settings.models:
        return None
    fewer = ", or fewer of them (population=...)" if name != "canaries" else ""
    return (
        f"{count(settings.models, 'model')} are too few for the worst of {worst[name]:,} {name}: "
        f"the gate will be inconclusive; give models={takes[name]}{fewer}"
    )


def _fewest(models: int, texts: int) -> int:
    """Models with the text that the fewest had, as Hoeffding's inequality bounds it."""
    return max(1, math.floor(models / 2 - math.sqrt(models * math.log(2 * texts) / 2)))


def _chance(had: int, lacked: int, above: int) -> float:
    """How often the highest `above` of all places fall to models with the text, by chance."""
    return math.exp(_log_ways(had + lacked - above, lacked) - _log_ways(had + lacked, lacked))


def _log_ways(total: int, chosen: int) -> float:
    """The natural logarithm of the ways to choose some of all."""
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)


def _guessed_coins(result: SweepNumbers, share: float) -> Iterator[Check]:
    """Whether all coins together were guessed right more often than chance explains.

    The chance of the best look is paid for by the number of all looks, one for each number of
    repetitions, so that the check has a share like the others.
    """
    audits = [row.bound.counts for row in result.epsilon.bounds if row.question == "together"]
    paid = MOST_LOOKS * len(audits)
    looks = [
        (min(1.0, paid * _binomial_tail(guesses, correct)), guesses, correct, counts["canaries"])
        for counts in audits
        for guesses, correct in _looks(counts)
    ]
    if not looks:
        return
    p, guesses, correct, cells = min(looks)
    least = f"p = {probability(p)}; {short(share)} or less"
    surest = f"{correct:,} of the {guesses:,} surest guesses, of {cells:,} coins, are right"
    if p <= share:
        outcome = Outcome.LEAK
        why = (
            f"who was in is guessed from the scores more often than chance explains: {surest} "
            f"({least} is a leak)"
        )
    elif paid * 2.0**-cells > share:
        outcome = Outcome.INCONCLUSIVE
        why = (
            f"{cells:,} coins are too few: even if all were guessed right, chance would explain "
            "it; train more models or insert more canaries"
        )
    else:
        outcome, half = Outcome.PASS, cells // 2
        allowed = share / paid
        right = half + bisect_left(
            range(half, cells), True, key=lambda right: _binomial_tail(cells, right) <= allowed
        )
        why = (
            f"who was in cannot be guessed from the scores: {surest} ({least} would be a leak, "
            f"such as {percent(right / cells)} of all coins)"
        )
    yield Check.of("guessed_coins", "all models together", outcome, why, p, share)


def _looks(counts: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """Guesses and right ones of each ray at the look that showed most."""
    for ray in _RAYS:
        guesses, correct = counts.get(f"{ray}_guesses"), counts.get(f"{ray}_correct")
        if guesses and correct is not None and correct <= guesses:
            yield guesses, correct


def _binomial_tail(trials: int, least: int) -> float:
    """P(Bin(trials, 1/2) >= least); as 1 from the mean down, where it says nothing."""
    if 2 * least <= trials:
        return 1.0
    term = total = 1.0
    for k in range(least, trials):
        term *= (trials - k) / (k + 1)
        total += term
        if term < 1e-17 * total:
            break
    return min(1.0, math.exp(_log_ways(trials, least) - trials * math.log(2)) * total)


def _of_epsilon(result: SweepNumbers, most: float) -> Check:
    """The bound that was named beforehand keeps its own significance."""
    primary = result.epsilon.primary
    outcome, why = Outcome.INCONCLUSIVE, f"there is no bound on epsilon: {_refused(result)}"
    if primary is not None:
        outcome, why = _bound_judged(result, primary, most)
    value, name = None if primary is None else primary.bound.value, "lower bound on epsilon"
    return Check.of("max_epsilon", name, outcome, why, value, most, unit="nats")


def _bound_judged(result: SweepNumbers, primary: SweepBound, most: float) -> tuple[Outcome, str]:
    bound, ceiling, allowed = primary.bound, primary.bound.max_attainable, setting_value(most)
    said = (
        f"epsilon is at least {nats(bound.value)} nats (delta {short(bound.delta)}, significance "
        f"{short(bound.significance)}, holds for {validity(bound.validity)})"
    )
    if bound.value > most:
        return Outcome.LEAK, f"the training is less private than the {allowed} allowed: {said}"
    if ceiling is None or ceiling <= most:
        return Outcome.INCONCLUSIVE, (
            f"{said}, and max attainable with {count(result.models, 'model')} and these canaries "
            f"is {nats(ceiling)}, not above the {allowed} allowed; train more models or insert "
            "more canaries"
        )
    others = [row for row in result.epsilon.bounds if row != primary and row.bound.value > most]
    if others:
        other = max(others, key=lambda row: row.bound.value)
        return Outcome.INCONCLUSIVE, (
            f"{said}, but the bound {other.question.replace('_', ' ')} is "
            f"{nats(other.bound.value)}, above the {allowed} allowed; it was not named beforehand, "
            "so sweep again with other coins to decide"
        )
    return Outcome.PASS, (
        f"{said}, not above the {allowed} allowed; max attainable here is {nats(ceiling)}, and a "
        "stronger attack than this one may show more"
    )
