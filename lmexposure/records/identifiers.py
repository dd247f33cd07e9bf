"""How identifiers that a corpus holds anyway are compared."""

from dataclasses import dataclass

from lmexposure._validate import integer

_DRAWS, _MOST, _LEFT = 999, 1000, 200
_FEWEST_DRAWS = 99  # of fewer, not even the lowest rank is among the lowest 1 %


@dataclass(frozen=True, kw_only=True)
class IdentifierSettings:
    """How identifiers of a corpus are looked for and compared."""

    draws: int = _DRAWS  # fresh draws that each is compared with, at least 99
    most: int = _MOST  # identifiers that are compared, chosen among all that are found
    left: int = _LEFT  # characters of the text in front of each that the model reads, at most
    seed: int = 0  # of choice and draws
    layout: str | None = None  # what a document is; None: by the file's suffix
    text_field: str = "text"  # where documents have fields, the one that holds the text

    def __post_init__(self) -> None:
        integer("draws", self.draws, low=_FEWEST_DRAWS)
        integer("most", self.most, low=1)
        integer("left", self.left, low=0)
        integer("seed", self.seed, low=0)
