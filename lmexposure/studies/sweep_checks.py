"""The gate of a sweep: whether its models may be believed, its worst texts, its coins, its epsilon.

Chance, for a worst text: its coins are tossed apart from those of every other, so that without
memorisation each choice of the models that had it is equally likely, and p of a single text is
exact. It is paid for by the number of texts that the worst was chosen from. A pass needs power: a
text that every model with it gives away would have been called a leak, or the check is inconclusive
and says how many models it takes.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lmexposure._quantiles import proportion_ends, unseen_share
from lmexposure._style import (
    are,
    count,
    nats,
    number,
    percent,
    probability,
    reading,
    sentence,
    setting_value,
    short,
    validity,
    visible,
)
from lmexposure.core import Check, CheckKind, Outcome, Thresholds
from lmexposure.studies.sweep_record import MOST_LOST, SweepBound, SweepNumbers, WorstText

_FARTHEST = 10**6  # models that an answer may ask for

WORST_TPR = CheckKind(
    help="The share of the models with a text that score it above every model without it, for the "
    "text that gives itself away most; its lower end is paid for by the number of texts.",
    remedy="Train more models (--models): these could not have shown a rate that large.",
    said_leak="above the limit",
    said_pass="not above the limit",
)
WORST_CANARY = CheckKind(
    help="A canary that many models with it score above every model without it gives itself away. "
    "A small p means that chance hardly explains the worst of all canaries.",
    remedy="Train more models (--models), so that the worst canary can be judged.",
    low_is_worse=True,
    said_leak="gives itself away",
    said_pass="not beyond chance",
)
WORST_DOCUMENT = CheckKind(
    help="The same as for canaries, of ordinary documents that were in each model by a coin: real "
    "text of the corpus that gives itself away.",
    remedy="Train more models (--models), or judge fewer documents (--population).",
    low_is_worse=True,
    said_leak="gives itself away",
    said_pass="not beyond chance",
)


@dataclass(frozen=True, kw_only=True)
class _Text:
    """One text over all models."""

    name: str  # as people read it
    # had, lacked: models with it and without it
    had: int
    lacked: int
    above: int  # models with it that score above every model without it
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

    noun: tuple[str, str]  # a text and several, in words
    texts: tuple[_Text, ...]  # those that can be judged; of documents the worst alone
    among: int  # how many the worst was chosen from
    models: int  # of the sweep that have scores
    share: float  # of the significance

    @property
    def worst(self) -> _Text:
        return min(self.texts, key=lambda text: (text.p, -text.share))

    @property
    def all_of_them(self) -> str:
        return count(self.among, *self.noun)

    def least_p(self) -> float:
        """What a text would have that all models give away, whichever of the group it is."""
        chances = (_chance(had, self.models - had, had) for had in self._hads())
        return min(1.0, self.among * max(chances))

    def least_shown(self) -> float:
        """The lower end of the rate that such a text would have."""
        return min(proportion_ends(had, had, self.share / self.among)[0] for had in self._hads())

    def _hads(self) -> Iterator[int]:
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
        lacked = self.models - had
        for above in range(1, had + 1):
            if self.among * _chance(had, lacked, above) <= self.share:
                return f"about {above} of {had}"
        return "all"

    def models_for(self, most: float | None = None) -> int:
        """Models that it takes to judge all of so large a group, or to show a rate above `most`."""
        for models in range(2, _FARTHEST):
            had = _fewest(models, self.among)
            certain = (self.share / self.among) ** (1 / had)
            if self.among * _chance(had, models - had, had) <= self.share and (
                most is None or certain > most
            ):
                return models
        return _FARTHEST


def check_worst_canary(result: SweepNumbers, thresholds: Thresholds, share: float) -> Check | None:
    """The worst canary against chance, or against the rate that was asked for."""
    texts = tuple(_canaries(result))
    if not texts:
        return None
    group = _Group(
        noun=("canary", "canaries"),
        texts=texts,
        among=len(result.texts),
        models=result.models,
        share=share,
    )
    return _worst(group, thresholds.max_worst_tpr, "canary", "worst canary")


def check_worst_document(
    result: SweepNumbers, thresholds: Thresholds, share: float
) -> Check | None:
    """The same of ordinary documents."""
    worst = result.worst_of_population
    text = None if worst is None else _document(worst)
    if worst is None or text is None:
        return None
    group = _Group(
        noun=("document", "documents"),
        texts=(text,),
        among=worst.among,
        models=result.models,
        share=share,
    )
    return _worst(group, thresholds.max_worst_tpr, "document", "worst ordinary document")


def _canaries(result: SweepNumbers) -> Iterator[_Text]:
    """Those that some models had and some had not."""
    for row in result.texts:
        if row.tpr is not None and row.p is not None and row.models_in and row.models_out:
            yield _Text(
                name=f"canary {visible(row.id)}",
                had=row.models_in,
                lacked=row.models_out,
                above=round(row.tpr * row.models_in),
                p=min(1.0, row.p * len(result.texts)),
            )


def _document(worst: WorstText) -> _Text | None:
    had, lacked = worst.scores_in, worst.scores_out
    if not had or not lacked:
        return None
    above = sum(score > max(lacked) for score in had)
    return _Text(
        name=f"text {visible(worst.id)}", had=len(had), lacked=len(lacked), above=above, p=worst.p
    )


def _worst(group: _Group, most: float | None, word: str, name: str) -> Check:
    """Against chance where nothing was asked for, else against the rate."""
    if most is None:
        text = group.worst
        outcome, reason = _against_chance(group, text, word)
        value, threshold, key = text.p, group.share, f"worst_{word}"
    else:
        text = max(group.texts, key=lambda text: (group.low(text), text.share))
        outcome, reason = _against_rate(group, text, most)
        value, threshold, key = text.share, most, "max_worst_tpr"
    return Check(
        name=name,
        key=key,
        outcome=outcome,
        value=value,
        threshold=threshold,
        reason=sentence(reason),
        asked=most is not None,
    )


def _against_chance(group: _Group, text: _Text, word: str) -> tuple[Outcome, str]:
    limit = f"p = {probability(text.p)}; {short(group.share)} or less"
    if text.p <= group.share:
        return Outcome.LEAK, (
            f"{text.name} gives itself away: {text.seen}, it scores higher than in every model "
            f"without it, more than chance explains for the worst of {group.all_of_them} "
            f"({limit} is a leak)"
        )
    least = group.least_p()
    if least > group.share:
        return Outcome.INCONCLUSIVE, (
            f"{count(group.models, 'model')} {are(group.models)} too few for the worst of "
            f"{group.all_of_them}: even a {word} that every model gives away could have p = "
            f"{probability(least)}, and a leak takes {short(group.share)}; it takes about "
            f"{group.models_for():,} models"
        )
    return Outcome.PASS, (
        f"no {word} gives itself away beyond chance: {text.seen}, the worst of "
        f"{group.all_of_them} scores higher than in every model without it ({limit} would be a "
        f"leak, such as {group.least_seen()})"
    )


def _against_rate(group: _Group, text: _Text, most: float) -> tuple[Outcome, str]:
    """A leak by its lower end, a pass by its value where a whole leak would have been seen."""
    low, allowed = group.low(text), setting_value(most)
    seen = f"{text.seen}, {text.name} scores higher than in every model without it"
    end = f"a rate of at least {short(low)} for the worst of {group.all_of_them}"
    if low > most and text.p <= group.share:
        return Outcome.LEAK, (
            f"{text.name} gives itself away more often than the {allowed} allowed: {text.seen}, "
            f"it scores higher than in every model without it, {end}"
        )
    least = group.least_shown()
    if least <= most or group.least_p() > group.share:
        return Outcome.INCONCLUSIVE, (
            f"{count(group.models, 'model')} {are(group.models)} too few to show a rate above the "
            f"{allowed} allowed for the worst of {group.all_of_them}; it takes about "
            f"{group.models_for(most):,} models ({seen})"
        )
    highest = max(group.texts, key=lambda other: other.share)
    if highest.share > most:
        return Outcome.INCONCLUSIVE, (
            f"{highest.seen}, {highest.name} scores higher than in every model without it, more "
            f"than the {allowed} allowed, but the rate is only known to be at least "
            f"{short(group.low(highest))} for the worst of {group.all_of_them}; train more models"
        )
    return Outcome.PASS, (
        f"{seen}, not more often than the {allowed} allowed; one that every model gives away would "
        f"have shown at least {short(least)}"
    )


def _fewest(models: int, texts: int) -> int:
    """Models with the text that the fewest had, as Hoeffding's inequality bounds it."""
    return max(1, math.floor(models / 2 - math.sqrt(models * math.log(2 * texts) / 2)))


def _chance(had: int, lacked: int, above: int) -> float:
    """How often the highest `above` of all places fall to models with the text, by chance."""
    return math.exp(log_ways(had + lacked - above, lacked) - log_ways(had + lacked, lacked))


def log_ways(total: int, chosen: int) -> float:
    """The natural logarithm of the ways to choose some of all."""
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)


# Looks of all rays of a one-run audit, at most; a test holds it against the audit.
MOST_LOOKS = 52
_RAYS = ("both", "top", "bottom")

EPSILON = CheckKind(
    help="A lower bound on the epsilon of differential privacy that the training can have had, in "
    "nats; higher = less private. It holds under the conditions given with it.",
    remedy="Train more models (--models) or insert more canaries (--canaries), each in a model by "
    "a coin of its own: these could not have shown an epsilon that large.",
    own_significance=True,
    said_leak="above the limit",
    said_pass="not above the limit",
    after_leak="Do not release this model under this limit on epsilon: it is less private.",
)
GUESSED_COINS = CheckKind(
    help="All coins of all canaries are guessed from the scores, the surest first. More right "
    "guesses than chance explains are memorisation, be it spread over all canaries.",
    remedy="Train more models (--models) or insert more canaries (--canaries).",
    low_is_worse=True,
    said_leak="who was in can be guessed",
    said_pass="who was in cannot be guessed",
)


def check_guessed_coins(result: SweepNumbers, share: float) -> Check | None:
    """Whether all coins together were guessed right more often than chance explains.

    The chance of the best look is paid for by the number of all looks, one for each number of
    repetitions, so that the check has a share like the others.
    """
    audits = [row.bound.counts for row in result.epsilon.bounds if row.question == "together"]
    looks = [(look, counts["canaries"]) for counts in audits for look in _looks(counts)]
    if not looks:
        return None
    paid = MOST_LOOKS * len(audits)
    p, guesses, correct, cells = min(
        (min(1.0, paid * _binomial_tail(*look)), *look, cells) for look, cells in looks
    )
    least = f"p = {probability(p)}; {short(share)} or less"
    surest = f"{correct:,} of the {guesses:,} surest guesses, of {cells:,} coins, are right"
    if p <= share:
        outcome = Outcome.LEAK
        reason = (
            f"who was in is guessed from the scores more often than chance explains: {surest} "
            f"({least} is a leak)"
        )
    elif paid * 2.0**-cells > share:
        outcome = Outcome.INCONCLUSIVE
        reason = (
            f"{cells:,} coins are too few: even if all were guessed right, chance would explain "
            "it; train more models or insert more canaries"
        )
    else:
        outcome = Outcome.PASS
        reason = (
            f"who was in cannot be guessed from the scores: {surest} ({least} would be a leak, "
            f"such as {percent(_least_right(cells, share / paid))} of all coins)"
        )
    return Check(
        name="all models together",
        key="guessed_coins",
        outcome=outcome,
        value=p,
        threshold=share,
        reason=sentence(reason),
    )


def check_sweep_epsilon(result: SweepNumbers, thresholds: Thresholds) -> Check | None:
    """Compare the primary lower bound on epsilon with the threshold that was asked for.

    The bound was named beforehand and keeps its own significance. The bounds of other questions
    have as much again; one of them above the threshold is no leak, and lets nothing pass.
    """
    most = thresholds.max_epsilon
    if most is None:
        return None
    primary = result.epsilon.primary
    outcome, reason = _bound_judged(result, primary, most)
    return Check(
        name="lower bound on epsilon",
        key="max_epsilon",
        outcome=outcome,
        value=None if primary is None else primary.bound.value,
        threshold=float(most),
        unit="nats",
        reason=sentence(reason),
        asked=True,
    )


def _bound_judged(
    result: SweepNumbers, primary: SweepBound | None, most: float
) -> tuple[Outcome, str]:
    allowed = setting_value(most)
    if primary is None:
        why = "; ".join(visible(line) for line in result.epsilon.refused) or "no canary was audited"
        return Outcome.INCONCLUSIVE, f"there is no bound on epsilon: {why}"
    bound, ceiling = primary.bound, primary.bound.max_attainable
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
    other = max(
        (row for row in result.epsilon.bounds if row != primary),
        key=lambda row: row.bound.value,
        default=None,
    )
    if other is not None and other.bound.value > most:
        return Outcome.INCONCLUSIVE, (
            f"{said}, but the bound {other.question.replace('_', ' ')} is "
            f"{nats(other.bound.value)}, above the {allowed} allowed; it was not named beforehand, "
            "so sweep again with other coins to decide"
        )
    return Outcome.PASS, (
        f"{said}, not above the {allowed} allowed; max attainable here is {nats(ceiling)}, and a "
        "stronger attack than this one may show more"
    )


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
    return min(1.0, math.exp(log_ways(trials, least) - trials * math.log(2)) * total)


def _least_right(cells: int, share: float) -> float:
    """The smallest share of right guesses, of all, that is a leak."""
    low, high = cells // 2, cells
    while low < high:
        middle = (low + high) // 2
        if _binomial_tail(cells, middle) <= share:
            high = middle
        else:
            low = middle + 1
    return low / cells


_LOSS = "bits per token"
_DOUBT = " But too many models are missing, so nothing follows."
_NO_PASS = " But models that learned, or canaries that can be judged, are too few for a pass."


# Each by its key: of leaks the most convincing first, then whether the models may be believed.
SWEEP_CHECKS: Mapping[str, CheckKind] = {
    "max_epsilon": EPSILON,
    "max_worst_tpr": WORST_TPR,
    "worst_canary": WORST_CANARY,
    "worst_document": WORST_DOCUMENT,
    "guessed_coins": GUESSED_COINS,
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
    there = _all_there(result)
    power = [_learned(result), _enough(result, thresholds), _judged(result)]
    made = list(_checks_by_chance(result, thresholds))
    if any(check.outcome is not Outcome.PASS for check in power):
        made = [_no_pass(check) for check in made]
    if there.outcome is not Outcome.PASS:
        made = [_doubted(check) for check in made]
    yield from [there, *power, *made]
    yield from _untested(result, thresholds)


def _checks_by_chance(result: SweepNumbers, thresholds: Thresholds) -> Sequence[Check]:
    """The checks that share the significance, or keep to what was asked for."""
    wanted = [result.texts, result.worst_of_population]
    judged = sum(bool(part) for part in wanted)
    judged += thresholds.max_epsilon is None and result.epsilon.primary is not None
    share = thresholds.significance / max(1, judged)
    made = [
        check_worst_canary(result, thresholds, share),
        check_worst_document(result, thresholds, share),
        check_guessed_coins(result, share) if thresholds.max_epsilon is None else None,
        check_sweep_epsilon(result, thresholds),
    ]
    return [check for check in made if check is not None]


def _doubted(check: Check) -> Check:
    if check.outcome not in (Outcome.LEAK, Outcome.PASS):
        return check
    return replace(check, outcome=Outcome.INCONCLUSIVE, reason=check.reason + _DOUBT)


def _no_pass(check: Check) -> Check:
    if check.outcome is not Outcome.PASS:
        return check
    return replace(check, outcome=Outcome.INCONCLUSIVE, reason=check.reason + _NO_PASS)


def _all_there(result: SweepNumbers) -> Check:
    models, lost = result.settings.models, result.lost
    most = int(MOST_LOST * models)
    if lost <= most:
        reason = f"{result.models:,} of {count(models, 'model')} have scores"
    else:
        first = result.failed[0]
        reason = (
            f"{lost:,} of {count(models, 'model')} have no scores, and at most {most:,} may lack "
            "them: those that are left may not be like the others (model "
            f"{first.number}: {visible(first.reason)})"
        )
    return Check(
        name="models trained",
        key="failed_models",
        outcome=Outcome.PASS if lost <= most else Outcome.INCONCLUSIVE,
        value=float(lost),
        threshold=float(most),
        unit="models",
        reason=sentence(reason),
    )


def _learned(result: SweepNumbers) -> Check:
    utility, models = result.utility, result.models
    loss = (
        f"mean validation loss {reading(utility.mean, _LOSS)}, {number(utility.initial, 3)} "
        "before training"
    )
    enough = models > 0 and utility.learned >= (1 - MOST_LOST) * models
    learned = f"{utility.learned:,} of {count(models, 'model')} learned"
    return Check(
        name="models learned",
        key="validation",
        outcome=Outcome.PASS if enough else Outcome.INCONCLUSIVE,
        value=utility.mean,
        threshold=utility.initial,
        unit=_LOSS,
        reason=sentence(
            f"{learned}: {loss}"
            if enough
            else f"only {learned} ({loss}), and one that learned nothing leaks nothing"
        ),
    )


def _enough(result: SweepNumbers, thresholds: Thresholds) -> Check:
    canaries, least = result.canaries, thresholds.min_canaries
    named = count(canaries, "canary", "canaries")
    may = (
        ""
        if canaries == 0
        else (
            f"; even if none of them leaks, up to {percent(unseen_share(canaries))} of such "
            "secrets may leak (95 % confidence)"
        )
    )
    enough = canaries >= least
    return Check(
        name="enough canaries",
        key="min_canaries",
        outcome=Outcome.PASS if enough else Outcome.INCONCLUSIVE,
        value=float(canaries),
        threshold=float(least),
        unit="canaries",
        reason=sentence(
            f"{named} {'are enough' if enough else f'are too few: {least} are needed'}{may}"
        ),
    )


def _judged(result: SweepNumbers) -> Check:
    missing = sum(text.tpr is None for text in result.texts)
    reason = f"all {count(result.canaries, 'canary', 'canaries')} were in some models and not all"
    if missing:
        reason = (
            f"{missing:,} of {count(result.canaries, 'canary', 'canaries')} were in all models or "
            f"in none, so that nothing is known of them; train more than {result.models:,} models"
        )
    return Check(
        name="all canaries judged",
        key="scores",
        outcome=Outcome.INCONCLUSIVE if missing else Outcome.PASS,
        value=float(missing),
        threshold=0.0,
        unit="canaries",
        reason=sentence(reason),
    )


def _untested(result: SweepNumbers, thresholds: Thresholds) -> Iterator[str]:
    """What was not asked for, and what these coins allow no check of."""
    if thresholds.max_epsilon is None:
        yield "epsilon: no threshold was given"
        if result.epsilon.primary is None:
            why = "; ".join(map(visible, result.epsilon.refused)) or "no canary was audited"
            yield f"the coins of all canaries together: {why}"
    if result.worst_of_population is None:
        yield "ordinary documents: none had coins (--population)"
    for row in result.scores:
        if row.primary and row.group == "canaries":
            for rate in row.rates:
                if rate.value is None:
                    yield f"TPR at FPR {short(rate.fpr)}: {visible(rate.note)}"
