"""dp_report.json: what a private training let out about each document; private itself."""

import math
from pathlib import Path
from typing import ClassVar, Self

from pydantic import model_validator

from lmexposure._files import PRIVATE, read_bytes
from lmexposure._record import Delta, FileRecord, Nats, Positive, Record, Rows
from lmexposure.errors import ResultError

_QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


class ExPost(Record):
    """How the epsilons of single documents lie, ex post: of the gradients that there were."""

    # of the training at which gradients were measured; in between, they are taken to be as large
    moments: Positive
    # least, q05, q25, median, q75, q95, largest: quantiles over the units, in nats, lower = more
    # private; each an epsilon that some unit has
    least: Nats
    q05: Nats
    q25: Nats
    median: Nats
    q75: Nats
    q95: Nats
    largest: Nats

    @property
    def quantiles(self) -> tuple[float, ...]:
        """All of them, from the least to the largest."""
        least, low, largest = self.least, (self.q05, self.q25), self.largest
        return (least, *low, self.median, self.q75, self.q95, largest)


class DocumentPrivacy(FileRecord):
    """dp_report.json: each unit's epsilon ex post.

    A unit's epsilon depends on what the unit holds, and says something about it: the file is for
    the owner of the corpus alone. And it is not adaptively composable: who stops, or drops
    documents, because of these numbers has no promise left.
    """

    NAME: ClassVar[str] = "dp_report.json"
    FAMILY: ClassVar[str] = "lmexposure.dp_report"
    VERSION: ClassVar[int] = 1
    AGAIN: ClassVar[str] = "train again with --method dp-sgd --document-norms"
    SECRET: ClassVar[bool] = True

    unit: str  # "document", or the field whose values tell users apart
    claimed: Nats  # the epsilon that the training promised to all, in nats
    delta: Delta  # of all epsilons
    moments: Positive  # of the training at which gradients were measured
    # of the units: "document N" by its number in the corpus, from 1, or the field's value
    names: Rows[str]
    epsilons: Rows[Nats]  # of the units, in nats, lower = more private

    @model_validator(mode="after")
    def _one_each(self) -> Self:
        if not 0 < len(self.names) == len(self.epsilons):
            raise ValueError(
                f"{len(self.names)} names and {len(self.epsilons)} epsilons; each unit has one"
            )
        return self

    @property
    def ex_post(self) -> ExPost:
        """How the epsilons lie."""
        # Of those that there are, the next above: no epsilon is shown smaller than it is. The gate
        # reads this, and is light: no numpy.
        ascending = sorted(self.epsilons)
        each = [ascending[math.ceil(share * (len(ascending) - 1))] for share in _QUANTILES]
        named = dict(zip(list(ExPost.model_fields)[1:], each, strict=True))
        return ExPost(moments=self.moments, **named)

    @classmethod
    def read(cls, training: str | Path) -> Self:
        """Read the file of a training, or of a run."""
        path = Path(training)
        path = path if path.name == cls.NAME else path / cls.NAME
        try:
            content = read_bytes(path)
        except OSError as failure:
            raise ResultError(f"cannot read {path}: {failure.strerror}; {cls.AGAIN}") from failure
        return cls.parse(content, path)

    def save(self, training: Path) -> None:
        """Write the file into the directory of a training, readable by its owner alone."""
        self.write(training / self.NAME, mode=PRIVATE)
