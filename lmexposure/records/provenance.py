"""Where a number comes from: which version measured it, when, and which model and weights.

Every rendering shows it. The date is that of the measuring, from run.json; the clock of whoever
renders is never looked at.
"""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from lmexposure._style import short_hash
from lmexposure._text import visible
from lmexposure.records.result import Result


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What a result was made by, when, and of what.

    Attributes:
        lmexposure: the version that measured; None: an older version, which did not say.
        measured: when the measuring ended, in UTC: "2026-11-22T06:30:00Z"; None: not known.
        model: its path, or its name on a hub.
        weights_sha256: of the weights that were measured, in full.
    """

    lmexposure: str | None
    measured: str | None
    model: str
    weights_sha256: str

    @classmethod
    def of(cls, result: Result, measured: str | None = None) -> "Provenance":
        """What a result says of itself, and the date next to it.

        Args:
            result: what was measured.
            measured: when, as run.json says.
        """
        return cls(
            lmexposure=result.lmexposure,
            measured=measured,
            model=result.model.path,
            weights_sha256=result.model.weights_sha256,
        )

    @property
    def version(self) -> str:
        """The version in words."""
        return "version unknown" if self.lmexposure is None else f"lmexposure {self.lmexposure}"

    @property
    def date(self) -> str:
        """The date in words."""
        return "date unknown" if self.measured is None else f"measured {self.measured}"

    @property
    def line(self) -> str:
        """All of it on one line, the hash in short.

        >>> said = {"lmexposure": "0.1.0", "measured": None}
        >>> Provenance(**said, model="gpt2", weights_sha256="ab" * 32).line
        'lmexposure 0.1.0, date unknown; model gpt2, weights abababababab'
        """
        weights = short_hash(self.weights_sha256)
        return visible(f"{self.version}, {self.date}; model {self.model}, weights {weights}")

    def to_dict(self) -> dict[str, str | None]:
        """Plain values, the hash in full."""
        return asdict(self)


def utc_now() -> str:
    """This moment in UTC, to the second: "2026-11-22T06:30:00Z"."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
