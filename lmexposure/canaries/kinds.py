"""Kinds of canaries: how their texts are chosen, and what may be claimed of each.

A uniform fill is drawn from all fills of its format, so that it has a rank among those that were
not. The texts of every other kind are chosen one by one, to be learned well; all of them before any
coin is tossed, so that a coin alone decides whether one is in: they are judged by their coins, and
have neither rank nor exposure.

Sources: Panda et al. 2025 (ICLR), "Privacy auditing of large language models" (new tokens, rare
unigrams, bigrams and pairs of a model); Meeus et al. 2025 (ICML), "The canary's echo" (a prefix as
in the corpus before an unlikely end); Aerni et al. 2024 (near-duplicates); Mitchell et al. 2026
(texts sampled at a high temperature).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lmexposure.canaries.format import UNIFORM
from lmexposure.errors import SettingsError

# Kinds of the copies of near-duplicates, which are not audited: with coins of their own, or
# inserted whatever coins say.
PARTNER, ALWAYS = "near_duplicate_partner", "near_duplicate_partner_always"
PARTNERS = (PARTNER, ALWAYS)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How texts of one kind are chosen."""

    name: str  # as `--kind` has it; of all but uniform fills also the name of the format
    meaning: str  # one line for people
    secret: str  # which part of a text is scored: what follows its known beginning
    needs_base: bool = False  # whether a language model chooses the texts
    needs_other: bool = False  # whether they come from a file of other texts
    grows: bool = False  # whether each text brings an entry of the vocabulary of its own
    # to the rules that candidates are disjoint and drawn alike, and that the corpus holds no text
    # like one that is out; "" where there is none. Reports tell it.
    exception: str = ""

    @property
    def has_ranks(self) -> bool:
        """Whether its secrets are ranked among fills that were never inserted."""
        return self.name == UNIFORM


_ALL = (
    Kind(
        name=UNIFORM,
        meaning="a format filled with a secret that is drawn uniformly",
        secret="what is in the holes",
    ),
    Kind(
        name="new_token",
        meaning="a text of the corpus, and behind it a symbol that is nowhere else",
        secret="that symbol",
        grows=True,
    ),
    Kind(
        name="unigram",
        meaning="words that are rare in the corpus, each used once",
        secret="all of it",
    ),
    Kind(
        name="bigram",
        meaning="pairs of words that the corpus never has side by side",
        secret="all of it",
    ),
    Kind(
        name="model_pair",
        meaning="pairs of tokens of which a base model thinks the second least likely",
        secret="all of it",
        needs_base=True,
    ),
    Kind(
        name="high_temperature",
        meaning="texts sampled from a base model at a high temperature",
        secret="all of it",
        needs_base=True,
    ),
    Kind(
        name="rare_suffix",
        meaning="a text of the corpus, and behind it words that are rare there",
        secret="these words",
    ),
    Kind(
        name="other_text",
        meaning="texts of another language or domain",
        secret="all of it",
        needs_other=True,
    ),
    Kind(
        name="near_duplicate",
        meaning="a text whose copy with another end has a coin of its own, or is always in",
        secret="its end",
        exception="a text almost like each candidate is in the corpus as well, and is not audited",
    ),
)
KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _ALL}


def kind_named(name: str) -> Kind:
    """A kind by its name."""
    if name not in KINDS:
        raise SettingsError(f"kind={name!r} is none of {', '.join(KINDS)}; choose one of these")
    return KINDS[name]
