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
from lmexposure.records.run_record import RunOptions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_HIDDEN = ConfigDict(hide_input_in_errors=True)


class SweepOptions(Record):
    """What was asked for; see `SweepSettings`.

    Attributes:
        models: how many are trained.
        population: ordinary documents with coins, as asked; None: the usual number.
        vary: "canaries" or "all".
        coins: "independent" or "exactly_half".
        score, attack: that decide.
        contexts: left contexts of a canary's greedy tokens.
        shares: of the canaries, as asked; None: the usual ones.
        base: the model to calibrate by; None: the pretrained one, or none.
        keep_weights: whether models are kept.
        significance: of bounds on epsilon.
        level: of intervals.
        run: what was inserted and trained.
    """

    models: Positive
    population: Count | None
    vary: Literal["canaries", "all"]
    coins: Literal["independent", "exactly_half"]
    score: str
    attack: str
    contexts: Positive
    shares: Rows[Share] | None
    base: str | None
    keep_weights: bool
    significance: Rate
    level: Rate
    run: RunOptions


class AuditedText(Record):
    """A text that has coins and scores, or scores alone.

    Attributes:
        id: "pin/x1/0003" of a canary; "document/0042" of an ordinary document, by its number.
        group: "canaries"; "partners", copies of near-duplicates that are not audited; "population";
            or "validation": no model saw it.
        kind: texts that are alike: "pin/x1" of canaries, else the group.
        format: of a canary; None otherwise.
        repetitions: how often it is in a model that has it; 0 of a text for validation.
        document: the number of an ordinary document in the corpus before insertion, from 0; None of
            a canary.
    """

    id: str
    group: Literal["canaries", "partners", "population", "validation"]
    kind: str
    format: str | None
    repetitions: Count
    document: Count | None


class SweepPlan(FileRecord):
    """plan.json: texts, coins and settings of a sweep.

    Attributes:
        manifest_sha256: of the manifest next to it, whose canaries are the candidates.
        settings: what was asked for.
        seed: from which the seeds of all trainings follow; it gives away no secret and no coin.
        tokenizer_sha256: of the one tokenizer of all models, as `models.tokenizer_sha256` gives it.
        texts: those with coins and scores, canaries first, then the population; then, with scores
            alone, those for validation.
        varied: numbers of further documents that have coins and no scores (`vary` "all").
        validation: numbers of the documents that every model is validated on, and none learns.
        contexts: numbers of those among them that are the further left contexts of a canary.
        shares: for each model, the share of the canaries that can be in it: those that can be in
            models of a share are the first of their class. Of share 1 are the first models, as many
            as `settings.models`, and these alone decide.
        coins: for each model a string of "1" (in) and "0" (out): canaries, partners, population,
            `varied`.
    """

    model_config = _HIDDEN

    NAME: ClassVar[str] = "plan.json"
    FAMILY: ClassVar[str] = "lmexposure.sweep"
    VERSION: ClassVar[int] = 1
    ERROR = ResultError
    AGAIN: ClassVar[str] = "prepare the sweep again, in another directory"
    SECRET: ClassVar[bool] = True

    manifest_sha256: Sha256
    settings: SweepOptions
    seed: BigInteger
    tokenizer_sha256: Sha256
    texts: Rows[AuditedText]
    varied: Rows[Count]
    validation: Rows[Count]
    contexts: Rows[Count]
    shares: Rows[Share]
    coins: Rows[str] = Field(repr=False)

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
                f"cannot read {path}: {failure.strerror}; prepare the sweep first: lmexposure "
                "sweep CORPUS --prepare --out DIR"
            ) from failure
        return cls.parse(content, path)

    def save(self, path: str | Path) -> None:
        """Write the file, readable by its owner alone.

        Raises:
            FileError: the disk refused.
        """
        self.write(Path(path), mode=PRIVATE)
