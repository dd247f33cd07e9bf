"""What a person may choose of an audit of identifiers that a corpus holds anyway."""

from dataclasses import dataclass, field
from typing import ClassVar

from lmexposure._settings import SEED, Settings, choice, part, setting, whole
from lmexposure._validate import text
from lmexposure.canaries import ADAPTERS, layouts_listed
from lmexposure.studies.settings import RunSettings

IDENTIFIERS = "Identifiers"  # the panel of a command's help
_LOADING = ("device", "dtype", "offline", "revision")
_FEWEST_DRAWS = 99  # of fewer, not even the lowest rank is among the lowest 1 %


@dataclass(frozen=True, kw_only=True)
class IdentifierSettings(Settings):
    """How identifiers of a corpus are looked for and compared."""

    PANEL: ClassVar[str] = IDENTIFIERS

    draws: int = setting(
        999, "fresh draws in the place of each identifier", rule=whole(_FEWEST_DRAWS)
    )
    most: int = setting(1000, "identifiers to compare, chosen at random among all", rule=whole(1))
    left: int = setting(
        200, "characters in front of each that a model reads, at most", rule=whole(0)
    )
    seed: int = setting(0, "seed of the choice and of the draws", rule=SEED)
    layout: str | None = setting(
        None,
        f"what a document is: {layouts_listed(hints=True)}",
        rule=choice(*ADAPTERS),
        usual="by the file's suffix, else lines",
    )
    text_field: str = setting("text", "the field of a record that holds the text", rule=text)
    run: RunSettings = field(
        default=RunSettings(), metadata=part(RunSettings, names=_LOADING, recorded=False)
    )
    """How both models are loaded."""
