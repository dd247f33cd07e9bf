"""What single texts of a sweep change, in words: a table a group, and one of influence."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING

from lmexposure._style import (
    count,
    interval,
    nats,
    number,
    percent,
    probability,
    short,
    signed,
    visible,
    whole,
)
from lmexposure.core import Column, Place, Section, Table
from lmexposure.studies.sweep_counterfactual import (
    CounterfactualGroup,
    CounterfactualText,
    InfluentialPair,
    MeansApart,
    SweepCounterfactual,
    SweepInfluence,
)

if TYPE_CHECKING:
    from lmexposure.core.charts import Chart

GROUPS = ("population", "canaries")  # in reading order
_TITLES = {
    "population": "Ordinary documents, the most memorised first",
    "canaries": "Canaries, the most memorised first",
}
_NOUNS = {"population": "documents", "canaries": "canaries"}
_WHAT = (
    "How much better do the models know a text that had it in their training than those that had "
    "not? That difference is counterfactual memorisation: what is likely anyway is likely in both, "
    "and does not count [5] [6]. Influence is the same difference of another text's score."
)


def _three(value: float) -> str:
    return number(value, 3)


def _signed(value: float) -> str:
    return signed(value, 3)


def _ends(name: str) -> Column:
    """The interval of what a field holds."""

    def shown(row: CounterfactualText | InfluentialPair) -> str | None:
        means: MeansApart | None = getattr(row, name)
        return None if means is None else interval(means.low, means.high, 3)

    return Column(head="interval", value=shown)


_SIDES = (
    Column(head="models in", value="models_in", shown=whole),
    Column(head="models out", value="models_out", shown=whole),
)
_OF_TEXTS = (
    Column(head="text", value="id", shown=visible, words=True),
    *_SIDES,
    Column(head="score in", value="memorised.mean_in", shown=_three),
    Column(head="score out", value="memorised.mean_out", shown=_three),
    Column(head="memorised", value="memorised.difference", shown=_signed, worse="high"),
    _ends("memorised"),
    Column(head="log ratio", value="log_ratio", shown=signed, unit="bits", worse="high"),
    Column(head="p (any text)", value="p", shown=probability, worse="low"),
)
_EPSILON = Column(head="epsilon ≥", value="epsilon", shown=nats, unit="nats", worse="high")
_GREEDY = (
    Column(head="greedy in", value="reproduced.mean_in", shown=_three, worse="high"),
    Column(head="greedy out", value="reproduced.mean_out", shown=_three),
    replace(_ends("reproduced"), head="interval of the difference"),
)
_OF_PAIRS = (
    Column(head="document", value="id", shown=visible, words=True),
    Column(head="on", value="held_out", shown=visible, words=True),
    *_SIDES,
    Column(head="score in", value="change.mean_in", shown=_three),
    Column(head="score out", value="change.mean_out", shown=_three),
    Column(head="change", value="change.difference", shown=_signed),
    _ends("change"),
    Column(head="p (any pair)", value="p", shown=probability),
)


def changes_section(
    found: SweepCounterfactual,
    most: int,
    place: Place,
    chart: "Callable[[], Chart | None] | None",
) -> Section:
    """A table of each group, the most memorised first, and one of influence.

    Args:
        found: what single texts change.
        most: texts of a group.
        place: where it is shown.
        chart: of all of them; None: it is not drawn there.
    """
    groups = [group for name in GROUPS if (group := found.group(name)) is not None]
    parts = [_group(found, group, most) for group in groups]
    if found.influence is not None:
        parts.append(_influence(found, most))
    less = sum(max(0, len(group.texts) - most) for group in found.groups)
    more = [f"{less:,} less memorised texts are in the CSV file"] if less else []
    return Section(
        id="changes",
        title="What single texts change",
        text=_WHAT,
        said=_lines(found),
        parts=parts,
        notes=(*more, *found.notes),
        chart=chart,
        on=frozenset({place}),
    )


def standard_error(group: CounterfactualGroup, models: int) -> float | None:
    """About that of one text's memorisation, bits a token: sd * sqrt(4 / S); None: not known."""
    return None if group.spread is None else group.spread * sqrt(4 / models)


def certain(found: SweepCounterfactual, group: CounterfactualGroup) -> list[CounterfactualText]:
    """The texts that chance does not explain, all texts of the group taken together."""
    return [text for text in group.texts if text.p is not None and text.p <= found.significance]


def _group(found: SweepCounterfactual, group: CounterfactualGroup, most: int) -> Section:
    greedy = any(text.reproduced for text in group.texts)
    halves = {text.id: half for text, half in zip(group.texts, group.by_halves, strict=True)}
    by_halves = Column(head="by halves", value=lambda text: halves[text.id], shown=_signed)
    columns = [*_OF_TEXTS, by_halves, _EPSILON, *(_GREEDY if greedy else ())]
    return Section(
        id=f"changes-{group.group}",
        title=_TITLES[group.group],
        table=Table(group.texts[:most], columns),
        notes=tuple(_notes(found, group, greedy=greedy)),
        folded=True,
    )


def _notes(
    found: SweepCounterfactual, group: CounterfactualGroup, *, greedy: bool
) -> Iterator[str]:
    noun, texts = _NOUNS[group.group], len(group.texts)
    of_secret = group.group == "canaries"
    yield (
        f"score: minus the bits of {'the secret' if of_secret else 'the document'} a token, mean "
        "over the models with the text and over those without; higher = likelier"
    )
    yield (
        "memorised: score in − score out, higher = more memorised; intervals at "
        f"{percent(found.level)} by Welch, each text by itself"
    )
    yield (
        f"log ratio: by how many bits the whole {'secret' if of_secret else 'document'} became "
        "likelier, the log2 of the ratio of the geometric means of its probability"
    )
    yield (
        f"p (any text): how often chance gives any of the {texts:,} {noun} so large a difference "
        f"for its spread; {found.permutations:,} permutations of whole models"
    )
    yield (
        "by halves: what the text in this place of the order shows in models that did not choose "
        "it, where half of them do; the difference before it was chosen for being large. Mean of "
        f"{count(found.splits, 'split')}"
    )
    if any(text.epsilon is not None for text in group.texts):
        yield (
            f"epsilon ≥: from this text alone, of all {texts:,} {noun} at once at significance "
            f"{short(found.significance)}"
        )
    if greedy:
        yield (
            "greedy: the share of models whose likeliest next tokens are the whole secret, in the "
            "canary's own context; the interval is Newcombe's"
        )
    error = standard_error(group, found.models)
    if error is not None:
        yield (
            f"standard error: about sd · √(4/S) = {number(error, 3)} bits a token, with sd = "
            f"{number(group.spread, 3)} between models alike (the median text) and S = "
            f"{found.models:,} models; it assumes that half of the models had a text, that both "
            "sides spread alike, and that the models were trained independently"
        )


def _influence(found: SweepCounterfactual, most: int) -> Section:
    influence = found.influence
    assert influence is not None
    return Section(
        id="influence",
        title="Influence of documents on documents that no model learned",
        table=Table(influence.pairs[:most], _OF_PAIRS),
        notes=tuple(_influence_notes(found, influence)),
        folded=True,
    )


def _influence_notes(found: SweepCounterfactual, influence: SweepInfluence) -> Iterator[str]:
    pairs = influence.documents * influence.held_out
    yield (
        "change: what the first document in the training changes in the score of the second, which "
        "none learned, in bits a token; above 0 = it became likelier"
    )
    yield (
        f"p (any pair): how often chance gives any of {pairs:,} pairs so large a change for its "
        f"spread, up or down; {count(influence.found, 'pair')} at most {short(found.significance)}"
    )


def _lines(found: SweepCounterfactual) -> Sequence[str]:
    """What was found, a sentence a group."""
    level = short(found.significance)
    return [
        f"{len(certain(found, group)):,} of {len(group.texts):,} {_NOUNS[group.group]} left a "
        f"trace that chance does not explain (p at most {level}, all of them together)."
        for name in GROUPS
        if (group := found.group(name)) is not None
    ]
