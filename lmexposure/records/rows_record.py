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
    """What became of the canaries of one class in one pass over the rows.

    Attributes:
        format: of the class.
        repetitions: how often each was inserted; 0: controls and candidates that were not inserted,
            which must not be there.
        canaries: how many there are.
        planned: how many occurrences there should be: canaries times repetitions.
        whole: occurrences that are in a row as a whole.
        cut: occurrences that a row's end cuts.
        missing: planned occurrences that are neither.
        without_loss: of `whole`, those of which some of the secret carries no loss.
        otherwise: of `whole`, those with loss that are in another context than the record's.
    """

    format: str
    repetitions: Count
    canaries: Count
    planned: Count
    whole: Count
    cut: Count
    missing: Count
    without_loss: Count
    otherwise: Count


class RowsRecord(FileRecord):
    """rows.json: in which rows the canaries of a manifest were trained.

    Attributes:
        manifest_sha256: of the manifest whose canaries were looked for.
        tokenizer_sha256: of the rows' tokenizer, as `models.tokenizer_sha256` gives it.
        rows: how many rows were read.
        found: occurrences of inserted canaries that are whole and carry loss.
        agreeing: those of them that are in the row that the next four fields describe.
        start: numbers of the tokens in front of all; None: the rows agree with no single context.
        before: text between these tokens and a canary, encoded together with it.
        behind: text that follows a canary, up to the first special token.
        unscored: how many of a canary's first tokens carry no loss.
        loss: which tokens of these rows carry it: "all"; "completion", those from a place on;
            "assistant", others.
        packed: whether other texts are in the same rows.
        classes: occurrences class by class.
        warnings: what is not as planned, a sentence each.
        whole: whether these are all rows of a pass, and not those that there was time for.
    """

    # What is next to a canary may be somebody's text.
    model_config = ConfigDict(hide_input_in_errors=True)

    NAME: ClassVar[str] = "rows.json"
    FAMILY: ClassVar[str] = "lmexposure.rows"
    VERSION: ClassVar[int] = 1
    ERROR = ManifestError
    AGAIN: ClassVar[str] = "run `lmexposure verify --rows` again, or remove the file"
    SECRET: ClassVar[bool] = True

    manifest_sha256: Sha256
    tokenizer_sha256: Sha256
    rows: Count
    found: Count
    agreeing: Count
    start: Rows[Count] | None
    before: str = Field(repr=False)
    behind: str = Field(repr=False)
    unscored: Count
    loss: Literal["all", "assistant", "completion"]
    packed: bool
    classes: Rows[RowsClass]
    warnings: Rows[str]
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
        """Whether each planned occurrence is whole and carries loss, and the context is known.

        Some may be in other rows than most: where texts are packed, one of many begins its row.
        """
        whole = all(each.whole == each.planned for each in self.classes)
        return self.start is not None and whole and not any(c.without_loss for c in self.classes)

    @property
    def lacking(self) -> int | None:
        """How many planned copies the rows lack, or hold cut or without loss.

        Rows that were not read may hold what these lack: of some, only what has no loss counts, and
        None says that nothing else is known.
        """
        without = sum(c.without_loss for c in self.classes)
        if not self.whole:
            return without or None
        return without + sum(c.missing + c.cut for c in self.classes)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a rows.json.

        Raises:
            ManifestError: no such file, or none that `verify --rows` wrote; it says why.
        """
        try:
            content = read_bytes(path)
        except OSError as failure:
            raise ManifestError(
                f"cannot read {path}: {failure.strerror}; give a rows.json of `lmexposure verify "
                "--rows`"
            ) from failure
        return cls.parse(content, Path(path))

    def save(self, path: str | Path) -> None:
        """Write the file, readable by its owner alone.

        Raises:
            FileError: the disk refused.
        """
        self.write(Path(path), mode=PRIVATE)

    @classmethod
    def beside(cls, manifest: str | Path) -> Path:
        """Where the rows of this manifest are written down: in its directory."""
        return Path(manifest).with_name(cls.NAME)
