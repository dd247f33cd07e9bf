"""How the texts of a kind are chosen: what a kind says of itself, and what it chooses from.

All texts are chosen before a coin is tossed, for all candidates alike, from the corpus as it is
before insertion. One seed decides them; the same corpus, files and seed give the same texts. A text
is one line, is in no document of the corpus, and no other text is within it.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from lmexposure.canaries.format import Format
from lmexposure.canaries.plan import derive_seed

_HEAD = 4_000_000  # characters of the corpus whose words are counted


@dataclass(frozen=True, kw_only=True)
class Material:
    """What texts are chosen from."""

    # gives the texts of the corpus, from the first, each time that it is called
    documents: Callable[[], Iterable[str]]
    count: int  # texts wanted of each kind
    seed: int = field(repr=False)  # decides which are taken
    # of near-duplicates: "coin", the copy has a coin of its own; "always", it is in
    partner: str = "coin"
    texts: Path | None = None  # a file of texts; None: there is none

    @cached_property
    def head(self) -> Sequence[str]:
        """The first documents, at least one and about 4 million characters: words are of these."""
        kept, characters = [], 0
        for document in self.documents():
            if characters > _HEAD:
                break
            kept.append(document)
            characters += len(document)
        return kept

    def seed_of(self, *names: str) -> int:
        """A seed of its own for each purpose."""
        return derive_seed(self.seed, "crafting", *names)

    def random(self, *names: str) -> random.Random:
        """A stream of its own for each purpose."""
        return random.Random(self.seed_of(*names))


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One way to choose the texts of canaries, and what may be claimed of them."""

    name: str  # as `--kind` has it; of all but uniform fills also the name of the format
    meaning: str  # one line for people
    secret: str  # which part of a text is scored: what follows its known beginning
    # the format of these texts, and where they have partners the partners' format behind it; a text
    # has the same place in both
    choose: Callable[[Material], Sequence[Format]]
    # whether a format that was chosen earlier is what would be chosen now, as far as files go
    unchanged: Callable[[Format, Material], bool] = lambda form, material: True
    needs: str = ""  # the setting that it cannot do without, and which asks for it; "": none
    reads: tuple[str, ...] = ()  # other settings that no other kind reads
    grows: bool = False  # whether each text brings an entry of the vocabulary of its own
    paired: bool = False  # whether each text has a partner, a copy that is not audited
    # to the rules that candidates are disjoint and drawn alike, and that the corpus holds no text
    # like one that is out; "" where there is none. Reports tell it.
    exception: str = ""
