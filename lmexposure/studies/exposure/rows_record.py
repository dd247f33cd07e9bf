"""rows.json: how the rows of a training really delivered the canaries.

What a trainer makes of a corpus (templates, truncation, packing, masks) is known best by its rows.
`lmexposure verify --rows` looks at them and leaves this beside the manifest, where `measure` finds
it.
"""

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from lmexposure._files import PRIVATE, read_bytes
from lmexposure._record import Count, FileRecord, Record, Rows, Sha256
from lmexposure.errors import ManifestError


class RowsClass(Record):
    """What became of the canaries of one class in one pass over the rows."""

    format: str  # of the class
    # how often each was inserted; 0: controls and candidates that were not inserted, which must not
    # be there
    repetitions: Count
    canaries: Count  # how many there are
    planned: Count  # how many occurrences there should be: canaries times repetitions
    whole: Count  # occurrences that are in a row as a whole
    cut: Count  # occurrences that a row's end cuts
    missing: Count  # planned occurrences that are neither
    without_loss: Count  # of `whole`, those of which some of the secret carries no loss
    otherwise: Count  # of `whole`, those with loss that are in another context than the record's


class RowsRecord(FileRecord):
    """rows.json: in which rows the canaries of a manifest were trained."""

    # What is next to a canary may be somebody's text.
    model_config = ConfigDict(hide_input_in_errors=True)

    NAME: ClassVar[str] = "rows.json"
    FAMILY: ClassVar[str] = "lmexposure.rows"
    VERSION: ClassVar[int] = 1
    ERROR = ManifestError
    AGAIN: ClassVar[str] = "verify the rows again, or remove the file"
    SECRET: ClassVar[bool] = True

    manifest_sha256: Sha256  # of the manifest whose canaries were looked for
    tokenizer_sha256: Sha256  # of the rows' tokenizer, as `models.tokenizer_sha256` gives it
    rows: Count  # how many rows were read
    found: Count  # occurrences of inserted canaries that are whole and carry loss
    agreeing: Count  # those of them that are in the row that the next four fields describe
    # numbers of the tokens in front of all; None: the rows agree with no single context
    start: Rows[Count] | None
    # text between these tokens and a canary, encoded together with it
    before: str = Field(repr=False)
    behind: str = Field(repr=False)  # text that follows a canary, up to the first special token
    unscored: Count  # how many of a canary's first tokens carry no loss
    # which tokens of these rows carry it: "all"; "completion", those from a place on; "assistant",
    # others
    loss: Literal["all", "assistant", "completion"]
    packed: bool  # whether other texts are in the same rows
    classes: Rows[RowsClass]  # occurrences class by class
    warnings: Rows[str]  # what is not as planned, a sentence each
    # whether these are all rows of a pass, and not those that there was time for
    whole: bool = True

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if (self.start is None) != (self.agreeing == 0):
            raise ValueError(
                f"agreeing={self.agreeing} does not go with a context that is "
                f"{'not known' if self.start is None else 'known'}"
            )
        return self

    @property
    def as_planned(self) -> bool:
        """Whether each planned occurrence is whole and carries loss, and the context is known."""
        whole = all(each.whole == each.planned for each in self.classes)
        return self.start is not None and whole and not any(c.without_loss for c in self.classes)

    @property
    def lacking(self) -> int | None:
        """How many planned copies the rows lack, or hold cut or without loss."""
        without = sum(c.without_loss for c in self.classes)
        if not self.whole:
            return without or None
        return without + sum(c.missing + c.cut for c in self.classes)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a rows.json."""
        try:
            content = read_bytes(path)
        except OSError as failure:
            raise ManifestError(
                f"cannot read {path}: {failure.strerror}; give the rows.json of rows that were "
                "verified"
            ) from failure
        return cls.parse(content, Path(path))

    def save(self, path: str | Path) -> None:
        """Write the file, readable by its owner alone."""
        self.write(Path(path), mode=PRIVATE)

    @classmethod
    def beside(cls, manifest: str | Path) -> Path:
        """Where the rows of this manifest are written down: in its directory."""
        return Path(manifest).with_name(cls.NAME)
