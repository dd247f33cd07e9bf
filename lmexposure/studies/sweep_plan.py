"""plan.json of a sweep: which text is in which model, tossed before the first is trained.

Every model of a sweep reads it, on whatever machine it is trained; who has it has the coins, and
with the manifest next to it the secrets.
"""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from lmexposure._files import PRIVATE, content_hash, read_bytes
from lmexposure._record import (
    BigInteger,
    Count,
    FileRecord,
    Positive,
    Rate,
    Record,
    Rows,
    Sha256,
    Share,
)
from lmexposure.errors import ResultError
from lmexposure.studies.exposure.run_record import RunOptions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_HIDDEN = ConfigDict(hide_input_in_errors=True)


class SweepOptions(Record):
    """What was asked for; see `SweepSettings`."""

    models: Positive  # how many are trained
    population: Count | None  # ordinary documents with coins, as asked; None: the usual number
    vary: Literal["canaries", "all"]  # "canaries" or "all"
    coins: Literal["independent", "exactly_half"]  # "independent" or "exactly_half"
    # score, attack: that decide
    score: str
    attack: str
    contexts: Positive  # left contexts of a canary's greedy tokens
    shares: Rows[Share] | None  # of the canaries, as asked; None: the usual ones
    base: str | None  # the model to calibrate by; None: the pretrained one, or none
    keep_weights: bool  # whether models are kept
    significance: Rate  # of bounds on epsilon
    level: Rate  # of intervals
    run: RunOptions  # what was inserted and trained


class AuditedText(Record):
    """A text that has coins and scores, or scores alone."""

    id: str  # "pin/x1/0003" of a canary; "document/0042" of an ordinary document, by its number
    # "canaries"; "partners", copies of near-duplicates that are not audited; "population"; or
    # "validation": no model saw it
    group: Literal["canaries", "partners", "population", "validation"]
    kind: str  # texts that are alike: "pin/x1" of canaries, else the group
    format: str | None  # of a canary; None otherwise
    repetitions: Count  # how often it is in a model that has it; 0 of a text for validation
    # the number of an ordinary document in the corpus before insertion, from 0; None of a canary
    document: Count | None


class SweepPlan(FileRecord):
    """plan.json: texts, coins and settings of a sweep."""

    model_config = _HIDDEN

    NAME: ClassVar[str] = "plan.json"
    FAMILY: ClassVar[str] = "lmexposure.sweep_plan"
    VERSION: ClassVar[int] = 1
    ERROR = ResultError
    AGAIN: ClassVar[str] = "prepare the sweep again, in another directory"
    SECRET: ClassVar[bool] = True

    manifest_sha256: Sha256
    """Of the manifest next to it, whose canaries are the candidates."""
    settings: SweepOptions
    """What was asked for."""
    seed: BigInteger
    """From which the seeds of all trainings follow; it gives away no secret and no coin."""
    tokenizer_sha256: Sha256
    """Of the one tokenizer of all models, as `models.tokenizer_sha256` gives it."""
    texts: Rows[AuditedText]
    """Those with coins and scores, canaries first, then the population; then, with scores alone,
    those for validation.
    """
    varied: Rows[Count]
    """Numbers of further documents that have coins and no scores (`vary` "all")."""
    validation: Rows[Count]
    """Numbers of the documents that every model is validated on, and none learns."""
    contexts: Rows[Count]
    """Numbers of those among them that are the further left contexts of a canary."""
    shares: Rows[Share]
    """For each model, the share of the canaries that can be in it: those that can be in models of a
    share are the first of their class. Of share 1 are the first models, as many as
    `settings.models`, and these alone decide.
    """
    coins: Rows[str] = Field(repr=False)
    """For each model a string of "1" (in) and "0" (out): canaries, partners, population, `varied`.
    """

    @model_validator(mode="after")
    def _agree(self) -> Self:
        width = len(self.scored) + len(self.varied)
        if len(self.coins) != len(self.shares):
            raise ValueError(f"{len(self.coins)} rows of coins for {len(self.shares)} models")
        if self.shares.count(1) != self.settings.models or sorted(self.shares)[::-1] != list(
            self.shares
        ):
            raise ValueError("the shares are not those of the settings, descending")
        for number, row in enumerate(self.coins):
            if len(row) != width or set(row) - {"0", "1"}:
                raise ValueError(f"the coins of model {number} are not {width} times 0 or 1")
        order = ["canaries", "partners", "population", "validation"]
        places = [order.index(text.group) for text in self.texts]
        if places != sorted(places) or len({text.id for text in self.texts}) < len(self.texts):
            raise ValueError("its texts are not canaries, population and validation, each once")
        return self

    @property
    def scored(self) -> tuple[AuditedText, ...]:
        """The texts that have coins, K of them: canaries, partners, then the population."""
        return tuple(text for text in self.texts if text.group != "validation")

    @property
    def canaries(self) -> tuple[AuditedText, ...]:
        """The first of them."""
        return tuple(text for text in self.texts if text.group == "canaries")

    @property
    def inserted(self) -> tuple[AuditedText, ...]:
        """Canaries and their partners: what was inserted, in the order of the coins."""
        return tuple(text for text in self.texts if text.group in ("canaries", "partners"))

    @property
    def models(self) -> int:
        """How many there are, of all shares."""
        return len(self.shares)

    @cached_property
    def sha256(self) -> str:
        """Of its content: the name of the sweep."""
        return content_hash(self.to_dict())

    def included(self) -> "NDArray[np.bool_]":
        """Which text was in the training of which model, shape (S, K), as `scored`."""
        import numpy as np  # the gate reads sweeps, and computes nothing

        rows = "".join(row[: len(self.scored)] for row in self.coins)
        flat: NDArray[np.bool_] = np.frombuffer(rows.encode(), dtype=np.uint8) == ord("1")
        return flat.reshape(len(self.coins), len(self.scored))

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a plan.json, or that of a sweep's directory.

        Raises:
            ResultError: no such file, or none that `sweep --prepare` wrote; it says why.
        """
        path = Path(path)
        path = path / cls.NAME if path.is_dir() else path
        try:
            content = read_bytes(path)
        except OSError as failure:
            raise ResultError(
                f"cannot read {path}: {failure.strerror}; prepare the sweep first"
            ) from failure
        return cls.parse(content, path)

    def save(self, path: str | Path) -> None:
        """Write the file, readable by its owner alone.

        Raises:
            FileError: the disk refused.
        """
        self.write(Path(path), mode=PRIVATE)
