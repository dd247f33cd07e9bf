"""What single texts of a sweep change, in words: a table a group, and one of influence."""

from collections.abc import Iterator, Sequence
from math import sqrt

from lmexposure._style import (
    MISSING,
    count,
    interval,
    nats,
    number,
    percent,
    probability,
    short,
    signed,
    whole,
)
from lmexposure._text import visible
from lmexposure.reporting.data import Section
from lmexposure.studies import (
    CounterfactualGroup,
    CounterfactualText,
    MeansApart,
    SweepCounterfactual,
    SweepInfluence,
)

GROUPS = ("population", "canaries")  # in reading order
_TITLES = {
    "population": "Ordinary documents, the most memorised first",
    "canaries": "Canaries, the most memorised first",
}
_NOUNS = {"population": "documents", "canaries": "canaries"}


def counterfactual_sections(found: SweepCounterfactual, most: int) -> list[Section]:
    """A table of each group, the most memorised first, and one of influence."""
    groups = [group for name in GROUPS if (group := found.group(name)) is not None]
    sections = [_group(found, group, most) for group in groups]
    return sections if found.influence is None else [*sections, _influence(found, most)]


def left_out(found: SweepCounterfactual, most: int) -> int:
    """How many texts the tables do not show."""
    return sum(max(0, len(group.texts) - most) for group in found.groups)


def standard_error(group: CounterfactualGroup, models: int) -> float | None:
    """About that of one text's memorisation, bits a token: sd * sqrt(4 / S); None: not known."""
    return None if group.spread is None else group.spread * sqrt(4 / models)


def certain(found: SweepCounterfactual, group: CounterfactualGroup) -> list[CounterfactualText]:
    """The texts that chance does not explain, all texts of the group taken together."""
    return [text for text in group.texts if text.p is not None and text.p <= found.significance]


def _group(found: SweepCounterfactual, group: CounterfactualGroup, most: int) -> Section:
    greedy = any(text.reproduced for text in group.texts)
    pairs = list(zip(group.texts, group.by_halves, strict=True))[:most]
    return Section(
        title=_TITLES[group.group],
        columns=(
            *("text", "models in", "models out", "score in", "score out"),
            *("memorised", "interval", "log ratio", "p (any text)", "by halves", "epsilon ≥"),
            *(("greedy in", "greedy out", "interval of the difference") if greedy else ()),
        ),
        rows=tuple(
            (
                visible(text.id),
                whole(text.models_in),
                whole(text.models_out),
                *_means(text.memorised),
                signed(text.log_ratio),
                probability(text.p),
                signed(halves, 3),
                nats(text.epsilon),
                *(_greedy(text.reproduced) if greedy else ()),
            )
            for text, halves in pairs
        ),
        notes=tuple(_notes(found, group, greedy=greedy)),
    )


def _means(means: MeansApart | None) -> tuple[str, str, str, str]:
    if means is None:
        return MISSING, MISSING, MISSING, MISSING
    return (
        number(means.mean_in, 3),
        number(means.mean_out, 3),
        signed(means.difference, 3),
        interval(means.low, means.high, 3),
    )


def _greedy(means: MeansApart | None) -> tuple[str, str, str]:
    if means is None:
        return MISSING, MISSING, MISSING
    return (
        number(means.mean_in, 3),
        number(means.mean_out, 3),
        interval(means.low, means.high, 3),
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
        title="Influence of documents on documents that no model learned",
        columns=(
            *("document", "on", "models in", "models out"),
            *("score in", "score out", "change", "interval", "p (any pair)"),
        ),
        rows=tuple(
            (
                visible(pair.id),
                visible(pair.held_out),
                whole(pair.models_in),
                whole(pair.models_out),
                *_means(pair.change),
                probability(pair.p),
            )
            for pair in influence.pairs[:most]
        ),
        words=2,
        notes=tuple(_influence_notes(found, influence)),
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


def counterfactual_lines(found: SweepCounterfactual) -> Sequence[str]:
    """What was found, a sentence a group."""
    level = short(found.significance)
    return [
        f"{len(certain(found, group)):,} of {len(group.texts):,} {_NOUNS[group.group]} left a "
        f"trace that chance does not explain (p at most {level}, all of them together)."
        for name in GROUPS
        if (group := found.group(name)) is not None
    ]
