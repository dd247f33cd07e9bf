"""Texts of the kinds that need no model: chosen from the corpus, or from other texts.

Everything here is chosen before a coin is tossed, for all candidates alike, from the corpus as it
is before insertion. One seed decides it; the same corpus and seed give the same texts.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lmexposure.canaries.format import Format


@dataclass(frozen=True, kw_only=True)
class Material:
    """What texts are chosen from.

    Attributes:
        documents: gives the texts of the corpus, from the first, each time that it is called.
        count: texts wanted of each kind.
        seed: decides which are taken.
        other: a file of texts of another language or domain; None: there is none.
        partner: of near-duplicates: "coin", the copy has a coin of its own; "always", it is in.
    """

    documents: Callable[[], Iterable[str]]
    count: int
    seed: int = field(repr=False)
    other: Path | None = None
    partner: str = "coin"


def craft(kind: str, material: Material) -> Sequence[Format]:
    """The format of a kind, and with near-duplicates that of their partners.

    Args:
        kind: one that needs no model.
        material: what to choose from.

    Returns:
        One format of `material.count` texts, or two.

    Raises:
        PlanError: the corpus or the other texts are too small for so many; it says how many fit.
        CorpusError: other texts that cannot be read.
    """
    raise NotImplementedError
