"""The worst text of a sweep: whether a canary, or an ordinary document, gives itself away.

Chance: a text's coins are tossed apart from those of every other, so that without memorisation each
choice of the models that had it is equally likely, and p of a single text is exact. It is paid for
by the number of texts that the worst was chosen from. A pass needs power: a text that every model
with it gives away would have been called a leak, or the check is inconclusive and says how many
models it takes.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from lmexposure._quantiles import proportion_ends
from lmexposure._style import are, count, probability, sentence, setting_value, short, visible
from lmexposure.core import Check, CheckKind, Outcome, Thresholds
from lmexposure.studies.sweep_result import SweepNumbers, WorstText

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
