"""result.json: everything that one measurement found, and what must be true in it.

`ResultNumbers` is the file; `parts.py` has formats, canaries, the summary and chosen texts. A
number that is out of its range, or is missing without a reason, would not look wrong in a report;
it would look like a finding. So each rule is a validator next to the fields that it is about, here
those between the parts. Numbers that follow from others are not computed again: the file's hash
says that they are what was written.

A number that is not finite is None, and a warning or a note next to it says why.
"""

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from lmexposure._files import disk_errors, sha256_file
from lmexposure._quantiles import ExposureEstimate
from lmexposure._record import (
    Count,
    NotNegative,
    Number,
    Positive,
    Record,
    Rows,
    Sha256,
)
from lmexposure._style import visible
from lmexposure._validate import integer
from lmexposure._written import remove, study
from lmexposure.core import Study
from lmexposure.errors import ResultError, SettingsError
from lmexposure.statistics import Privacy, QuantileInterval
from lmexposure.studies.dp import DpClaim
from lmexposure.studies.exposure.parts import (
    BaseModelRecord,
    CanaryResult,
    ClassKey,
    ClassSummary,
    FormatResult,
    KindMembership,
)
from lmexposure.studies.settings import MeasureSettings

if TYPE_CHECKING:
    from lmexposure.studies.exposure.scores import Scores

MEASURE_AGAIN = "measure again with another directory, or move the file away first"
HOME = "_home"  # where `Study` keeps the directory of its file


# By how much a validation loss must fall, bits per token: more than a rounding's worth.
LEAST_GAIN = 0.01


class Validation(Record):
    """How well the model learned, where its training says so: utility next to exposure."""

    # loss of the kept checkpoint, bits per token, lower = more useful
    validation_bits: NotNegative | None
    initial_validation_bits: NotNegative | None  # the same before training
    best_epoch: NotNegative  # when the kept checkpoint was made
    epochs: NotNegative  # of the whole training
    stopped: str  # what ended the training, such as "epochs" or "patience"
    improved: bool  # whether training lowered the loss; a model that did not learn cannot leak
    # of the same text, by how often each token is in the training text: what a model reaches that
    # learned nothing of their order; None: not known
    unigram_bits: NotNegative | None = None
    # copies of canaries that the training read, each whole, in an epoch; None where it is not known
    delivered: Count | None = None
    claim: DpClaim | None = None  # what the training promised of each document; None: nothing
    # the trainer is not this package's, which only counted its rows before it began
    foreign: bool = False

    @property
    def has_loss(self) -> bool:
        """Whether a loss was looked at; one that is not finite is missing, and was."""
        return not self.foreign or self.validation_bits is not None

    @model_validator(mode="after")
    def _improvement_has_numbers(self) -> Self:
        if self.improved and None in (self.validation_bits, self.initial_validation_bits):
            raise ValueError("validation is said to have improved, and a loss is missing")
        return self


class Model(Record):
    """The model that was measured."""

    # its directory, from the result's where it lies below it, or its name on a hub; of a model in
    # memory its `name_or_path`, else its class, with the adapters in use
    path: str
    type: str  # of its config, such as "gpt2"
    parameters: Count  # how many
    dtype: str  # that it was measured in, such as "float32"
    context_window: Count | None  # tokens; None where it has no end
    # of the weights that were measured: of an adapter in float32 merged with its base, whether it
    # was saved or in memory
    weights_sha256: Sha256
    validation: Validation | None  # None where nothing is known of its training


class WitnessResult(Record):
    """Whether the model knows the witnesses of the manifest, which are in no other number."""

    witnesses: Positive  # how many were inserted
    copies: Positive  # how often each was
    # fresh draws of the same form that they were compared with; 0: none was needed
    references: Count
    # evidence in their probabilities alone, a log2 of an e-value; higher = better known. A model
    # that never read them reaches t bits with probability 2^-t at most. None where tokens allow no
    # certificate, or they were not scored.
    certificate_bits: Number | None
    # of the comparison with fresh draws; None where there was none
    p_value: Annotated[float, Field(gt=0, le=1)] | None
    beside_base: bool  # what is compared is how much likelier a text became than under the base
    note: str = ""  # why they were not scored; "" where they were
    # the tokenizer was made from text that holds them, so that a model which read nothing may seem
    # to know them, and the canaries
    in_tokenizer: bool = False

    @property
    def chance(self) -> float | None:
        """How often, at most, a model that never read them looks as this one; None: not known.

        The smaller of two p-values, twice: a certificate of t bits is one of 2^-t.
        """
        bits, p = self.certificate_bits, self.p_value
        found = [*([] if bits is None else [2.0 ** -max(bits, 0.0)]), *([] if p is None else [p])]
        return min(1.0, 2 * min(found)) if found else None


MOST_SHOWN = 200  # characters in front of a text


class ContextRecord(Record):
    """The row that each canary and reference was scored in."""

    # how that is known: "training", this package trained the model; "manifest", the insertion wrote
    # it down; "rows", the rows of the training were looked at (`verify --rows`, the callback);
    # "setting", a person said so; "assumed", nothing is known
    source: Literal["training", "manifest", "rows", "setting", "assumed"]
    form: str  # of the records, as in the manifest; "text": each canary is a text of its own
    # that the canaries are: "plain", "user" or "assistant"
    turn: Literal["plain", "user", "assistant"]
    # which tokens of a row carried loss: "all", "assistant" or "completion"
    loss: Literal["all", "assistant", "completion"]
    # the text of the tokens in front, special tokens included; of a long one the last 200
    # characters
    left: str
    left_tokens: Count  # how many these are
    right_tokens: Count  # how many follow a canary in its row; they are not scored
    # of a canary, how many of its first tokens were not scored, because they carried no loss or
    # nothing predicts them
    unscored_tokens: Count
    template_sha256: Sha256 | None  # of the chat template; None where there is none
    chat_date: str | None = None  # the day that the template writes; None: it writes none
    # which of the settings about rows a person gave: "loss", "rendering", "chat_template",
    # "chat_date"
    said: Rows[str] = ()
    # how records became rows: "chat", by the template, or "text"
    rendering: Literal["chat", "text"] = "text"
    # how many planned copies of canaries the rows of the training did not hold whole and with loss;
    # None: these were not looked at
    lacking: Count | None = None


class CheckpointClass(Record):
    """The exposures of one class under one checkpoint of a training."""

    checkpoint: str  # the name of its directory
    step: Count | None  # of the training; None where the name does not say it
    format: str  # of the class
    repetitions: Count  # of the class; 0: the controls
    n: Count  # how many canaries
    # median, low, high: of their exposures, in bits, with its interval; None: no such end
    median: float
    low: Number | None
    high: Number | None
    exact: Count  # how many of the ranks were counted exactly


@dataclass(frozen=True, kw_only=True)
class FoundShare:
    """Of how many secrets of a class an attacker finds some; higher = more memorised."""

    # found, of: secrets
    found: int
    of: int
    guesses: int  # that the attacker makes for each, the likeliest first, with nothing given
    value: float  # found / of
    # low, high: the interval of Clopper and Pearson, for canaries drawn like these
    low: float
    high: float
    level: float  # its coverage
    # whether as many of the likeliest fills were tried, in proven order, for each secret not found;
    # else `value` is a lower bound, and `high` allows for those that more guesses would find
    complete: bool


class ResultNumbers(Study):
    """Everything that one measurement found: result.json.

    Its date is in run.json, so that the same measurement gives the same bytes.
    """

    KIND: ClassVar[str] = "result"
    AGAIN: ClassVar[str] = MEASURE_AGAIN

    manifest_sha256: Sha256
    """Of the manifest's contents."""
    scores_sha256: Sha256 | None
    """Of the scores.parquet next to it; None where there is none."""
    model: Model
    """What was measured."""
    settings: MeasureSettings
    """What was asked of the measurement; its `threads` are those that it was computed with."""
    formats: Rows[FormatResult]
    """In the manifest's order."""
    canaries: Rows[CanaryResult]
    """Canaries and controls, in the manifest's order."""
    summary: Rows[ClassSummary]
    """Classes of canaries and the controls, format by format."""
    privacy: Privacy | None
    """Bounds on epsilon; None where nothing was bounded."""
    warnings: Rows[str]
    """What a reader must know before believing a number."""
    context: ContextRecord | None = None
    """In which rows the canaries were scored; None: not known."""
    base: BaseModelRecord | None = None
    """The model before the training, where it was measured too; else None."""
    trajectory: Rows[CheckpointClass] = ()
    """Exposures under earlier checkpoints of the training, in their order, and under this one;
    empty where one model was measured.
    """
    kinds: Rows[KindMembership] = ()
    """Canaries whose texts were chosen, judged by their coins alone: they are in no other section;
    empty where there are none.
    """
    witness: WitnessResult | None = None
    """Whether the model knows what was inserted to see that; None where nothing was."""

    @property
    def hashes(self) -> dict[str, str]:
        """Of what it was made from, for whoever judges it."""
        return {
            "inputs_sha256": self.inputs_sha256,
            "manifest_sha256": self.manifest_sha256,
            "weights_sha256": self.model.weights_sha256,
        }

    def same_as(self, other: Self) -> bool:
        """Whether a file holds this very result; what was saved names the scores next to it."""
        return other.model_copy(update={"scores_sha256": self.scores_sha256}) == self

    @classmethod
    def read_alone(cls, path: str | Path) -> Self:
        """As `read`, whatever lies next to it."""
        found = super(Study, cls).read(path)
        path = Path(path)
        found.__dict__[HOME] = path if path.is_dir() else path.parent
        return found

    def save(self, out: str | Path) -> Path:
        """Write result.json and, where the scores are known, scores.parquet next to it.

        Args:
            out: a directory, made where there is none.

        Returns:
            the path of result.json, which `read` takes.

        Raises:
            SettingsError: no path.
            ResultError: another result is there, or other scores or a run without a result are;
                not so the scores that a save of this very result left when it was killed.
            FileError: the disk refused.
        """
        from lmexposure.studies.exposure.scores import write_score_table  # brings numpy

        if not isinstance(out, str | Path) or not str(out):
            raise SettingsError(f"out={out!r} is no path; give a directory's")
        directory = Path(out)
        path, table, scores = directory / self.NAME, directory / "scores.parquet", self.scores
        if path.exists():
            if not self.same_as(type(self).read_alone(path)):
                raise ResultError(f"{path} is another result; choose another directory")
            if table.exists() or scores is None:
                return path
        else:
            _refuse_another_run(directory, scores)
        with disk_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
        with study(directory):
            if scores is None:
                self.write(path)
                return path
            write_score_table(table, scores)
            try:
                self.model_copy(update={"scores_sha256": sha256_file(table)}).write(path)
            except BaseException:
                if not path.exists():  # scores alone would be taken for another's at the next try
                    remove(table)
                raise
        return path

    def exposure(
        self, format: str | None = None, *, repetitions: int | None = None
    ) -> ClassSummary:
        """The exposures of one class: its mean, its median and quartiles with their intervals.

        Args:
            format: its name; None: the only one there is.
            repetitions: 0 for the controls; None: the only class of inserted canaries.

        Raises:
            ResultError: no such class, or several; it lists those that there are.
        """
        rows = [row for row in self.summary if format in (None, row.format)]
        if repetitions is None:
            rows = [row for row in rows if row.role == "canary"]
        else:
            repetitions = integer("repetitions", repetitions, low=0)
            rows = [row for row in rows if row.repetitions == repetitions]
        if len(rows) == 1:
            return rows[0]
        asked = "" if format is None else f"format {visible(format)!r}"
        asked += "" if repetitions is None else f"{', ' * bool(asked)}repetitions={repetitions}"
        problem = "several classes fit" if rows else "no class fits"
        raise ResultError(
            f"{problem} {asked or 'without a format and repetitions'}; there are "
            f"{'; '.join(self._listed())}: name one, as in ({self.summary[-1].format!r}, "
            f"repetitions={self.summary[-1].repetitions})"
        )

    def quantile(
        self, quantile: float, format: str | None = None, *, repetitions: int | None = None
    ) -> QuantileInterval:
        """Any quantile of one class's exposures, in bits, with an interval as that of its median.

        Args:
            quantile: strictly between 0 and 1; 0.9: a tenth of the canaries are more memorised.
            format: as for `exposure`.
            repetitions: as for `exposure`.

        Raises:
            SettingsError: no quantile.
            ResultError: as for `exposure`; or an exposure is missing.
        """
        from lmexposure.statistics import estimated_quantile

        key = self.exposure(format, repetitions=repetitions).key
        form = self.format_named[key[0]]
        estimates = [_estimate(canary, form) for canary in self.classes[key]]
        return estimated_quantile(estimates, quantile, level=self.settings.level)

    def extraction(
        self, format: str | None = None, *, repetitions: int | None = None, guesses: int = 1000
    ) -> FoundShare:
        """How many secrets of one class an attacker finds who knows the format alone.

        Args:
            format: as for `exposure`.
            repetitions: as for `exposure`.
            guesses: that the attacker makes for each secret, the likeliest first.

        Raises:
            SettingsError: fewer than one guess.
            ResultError: as for `exposure`; or the secrets were not searched for.
        """
        from lmexposure.statistics import binomial_interval

        key = self.exposure(format, repetitions=repetitions).key
        guesses = integer("guesses", guesses, low=1)
        searches = [canary.blind_searches for canary in self.classes[key]]
        if not any(searches):
            raise ResultError(
                "the secrets of this class were not searched for; measure with extraction=True and "
                "revealed=0 or more"
            )
        wanted = min(guesses, self.format_named[key[0]].space_size)
        found = [
            any(s.found_at is not None and s.found_at <= guesses for s in own) for own in searches
        ]
        # What is proven was tried in order; a beam may pass some of the likeliest fills over.
        short = [max((s.proven or 0 for s in own), default=0) < wanted for own in searches]
        n, left = len(found), sum(not got and few for got, few in zip(found, short, strict=True))
        level = self.settings.level
        ends = binomial_interval([sum(found), sum(found) + left], n, level=level)
        return FoundShare(
            found=sum(found),
            of=n,
            guesses=guesses,
            value=sum(found) / n,
            low=float(ends.low[0]),
            high=float(ends.high[1]),
            level=level,
            complete=not left,
        )

    def _listed(self) -> Iterator[str]:
        """Each format with its classes: "pin (repetitions 0, 1, 16)"."""
        for form in self.formats:
            classes = [str(row.repetitions) for row in self.summary if row.format == form.name]
            yield f"{visible(form.name)} (repetitions {', '.join(classes)})"

    @property
    def epsilon(self) -> Privacy | None:
        """Lower bounds on epsilon with their conditions, and what becomes of a claim."""
        return self.privacy

    @property
    def has_scores(self) -> bool:
        """Whether the scores are in memory or next to the file; they are not read."""
        if self.__dict__.get("scores") is not None:
            return True
        return self.home is not None and (self.home / "scores.parquet").exists()

    @cached_property
    def scores(self) -> "Scores | None":
        """The scores of every text: in memory, or read from the scores.parquet next to the file.

        None where there are none. They are no part of the record, and of no copy of it.

        Raises:
            ResultError: a scores.parquet that is damaged, or of another result.
        """
        if self.home is None:
            return None
        path = self.home / "scores.parquet"
        if not path.exists():
            return None
        from lmexposure.studies.exposure.scores import read_scores  # brings numpy

        return read_scores(path, self)

    def with_scores(self, scores: "Scores") -> Self:
        """The same result, with the scores that it was made from in memory."""
        kept = self.model_copy()
        kept.__dict__["scores"] = scores
        return kept

    @cached_property
    def format_named(self) -> Mapping[str, FormatResult]:
        """The formats by name."""
        return {form.name: form for form in self.formats}

    @cached_property
    def classes(self) -> Mapping[ClassKey, list[CanaryResult]]:
        """The canaries of each class, in the result's order."""
        found: dict[ClassKey, list[CanaryResult]] = {}
        for canary in self.canaries:
            key: ClassKey = (canary.format, canary.role, canary.repetitions)
            found.setdefault(key, []).append(canary)
        return found

    def __copy__(self) -> Self:
        """Without the views: `model_copy` may replace what they show."""
        return super().__copy__()._without_views()

    def __deepcopy__(self, memo: dict[int, object] | None = None) -> Self:
        """Without the views, as `__copy__`."""
        return super().__deepcopy__(memo)._without_views()

    def _without_views(self) -> Self:
        for view in ("classes", "format_named", "scores", "files", HOME):
            self.__dict__.pop(view, None)
        return self

    @model_validator(mode="after")
    def _each_is_there_once(self) -> Self:
        _once("format", [form.name for form in self.formats])
        _once("canary", [canary.id for canary in self.canaries])
        _once("summary of", [row.key for row in self.summary])
        _once("kinds: class", [row.group for row in self.kinds])
        return self

    @model_validator(mode="after")
    def _canaries_are_of_their_formats(self) -> Self:
        for canary in self.canaries:
            if canary.format not in self.format_named:
                raise ValueError(
                    f"canary {canary.id!r} is of format {canary.format!r}, which the result does "
                    "not have"
                )
        return self

    @model_validator(mode="after")
    def _spaces_hold_what_was_inserted(self) -> Self:
        inserted = Counter(canary.format for canary in self.canaries if canary.role == "canary")
        for form in self.formats:
            taken = inserted[form.name] + form.set_aside
            if taken > form.space_size:
                raise ValueError(
                    f"format {form.name!r}: {taken:,} secrets were inserted or set aside, of "
                    f"{form.space_size:,} that there are"
                )
        return self

    @model_validator(mode="after")
    def _summary_is_of_the_canaries(self) -> Self:
        rows = {row.key: row for row in self.summary}
        for name, role, repetitions in sorted(self.classes.keys() ^ rows.keys()):
            listed = (name, role, repetitions) in rows
            raise ValueError(
                f"the summary has {'a' if listed else 'no'} row of format {name!r}, role {role!r}, "
                f"repetitions {repetitions}, and the result holds {'no ' * listed}such canaries"
            )
        return self

    @model_validator(mode="after")
    def _base_is_of_the_canaries(self) -> Self:
        calibrated = [c.id for c in self.canaries if c.calibrated is not None]
        if self.base is None:
            if calibrated:
                raise ValueError(
                    f"canary {calibrated[0]!r} has a calibrated exposure, and the result no base"
                )
            return self
        of_all = [canary.id for canary in self.canaries]
        for where, ids in (
            ("the base", [canary.id for canary in self.base.canaries]),
            ("the calibrated exposures", calibrated),
        ):
            if ids != of_all:
                raise ValueError(f"{where} are of {len(ids)} canaries, and not those of the result")
        if [row.key for row in self.base.classes] != [row.key for row in self.summary]:
            raise ValueError("the classes beside the base are not those of the summary")
        return self

    @model_validator(mode="after")
    def _missing_is_explained(self) -> Self:
        missing = [c.id for c in self.canaries if c.log_perplexity_bits is None]
        if missing and not self.warnings:
            raise ValueError(
                f"canary {missing[0]!r} has no log-perplexity, and no warning says why"
            )
        return self


def _once(kind: str, names: Iterable[object]) -> None:
    name, times = next(iter(Counter(names).most_common(1)), ("", 0))
    if times > 1:
        raise ValueError(f"{kind} {name!r} is there {times} times")


def _estimate(canary: CanaryResult, form: FormatResult) -> ExposureEstimate:
    """The exposure shown, with what its error comes from."""
    found = canary.exposure.with_error(
        canary.log_perplexity_bits, references=form.references, space_bits=form.bits
    )
    if found is None:
        raise ResultError(
            f"canary {visible(canary.id)} has no exposure, so its class has no quantiles; the "
            "result's warnings say why"
        )
    return found


def _refuse_another_run(directory: Path, scores: "Scores | None") -> None:
    """Refuse scores without a result here, which are of another, and a run that was begun here."""
    for path in (directory / "scores.parquet", directory / "run.json"):
        if path.exists() and not (path.suffix == ".parquet" and _holds(path, scores)):
            raise ResultError(
                f"{path} is there already, and not of this result; choose another directory"
            )


def _holds(table: Path, scores: "Scores | None") -> bool:
    """Whether the file is what would be written of these scores."""
    from lmexposure.studies.exposure.scores import write_score_table

    if scores is None:
        return False
    with tempfile.TemporaryDirectory() as aside:
        again = Path(aside) / table.name
        write_score_table(again, scores)
        return table.is_file() and sha256_file(table) == sha256_file(again)
