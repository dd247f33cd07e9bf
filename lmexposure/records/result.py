"""result.json: everything that one measurement found, and what must be true in it.

`Result` is the file. Its parts are in `result_formats.py` (formats, canaries, their estimates and
searches), `result_classes.py` (the summary), `result_base.py` (the same under the model before the
training), `result_kinds.py` (chosen texts) and `result_privacy.py`. A number that is out of its
range, or is missing without a reason, would not look wrong in a report; it would look like a
finding. So each rule is a validator next to the fields that it is about, here those between the
parts. Numbers that follow from others are not computed again: the file's hash says that they are
what was written.

Bits are base-2 logarithms. Of an exposure, higher = more memorised; of a log-perplexity, lower =
more memorised. A number that is not finite is None, and a warning or a note next to it says why.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from lmexposure._files import read_bytes
from lmexposure._record import (
    BigInteger,
    Count,
    Delta,
    FileRecord,
    Nats,
    NotNegative,
    Number,
    Positive,
    Rate,
    Record,
    Rows,
    Sha256,
)
from lmexposure.errors import ResultError, SettingsError
from lmexposure.records.dp_claim import DpClaim
from lmexposure.records.result_base import BaseModelRecord
from lmexposure.records.result_classes import ClassKey, ClassSummary, QuantileInterval
from lmexposure.records.result_formats import CanaryResult, FormatResult
from lmexposure.records.result_kinds import KindMembership
from lmexposure.records.result_privacy import Privacy

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

    from lmexposure.records.result_views import FoundShare
    from lmexposure.records.scores import Scores

MEASURE_AGAIN = "measure again with another directory, or move the file aside before"
_HOME = "_read_from"  # of a result that was read: its file, which is no part of it


# By how much a validation loss must fall, bits per token: more than a rounding's worth.
LEAST_GAIN = 0.01


class Validation(Record):
    """How well the model learned, where its training says so: utility next to exposure.

    Attributes:
        validation_bits: loss of the kept checkpoint, bits per token, lower = more useful.
        initial_validation_bits: the same before training.
        best_epoch: when the kept checkpoint was made.
        epochs: of the whole training.
        stopped: what ended the training, such as "epochs" or "patience".
        improved: whether training lowered the loss; a model that did not learn cannot leak.
        unigram_bits: of the same text, by how often each token is in the training text: what a
            model reaches that learned nothing of their order; None: not known.
        delivered: copies of canaries that the training read, each whole, in an epoch; None where
            it is not known.
        claim: what the training promised of each document; None: nothing.
        foreign: the trainer is not this package's, which only counted its rows before it began.
    """

    validation_bits: NotNegative | None
    initial_validation_bits: NotNegative | None
    best_epoch: NotNegative
    epochs: NotNegative
    stopped: str
    improved: bool
    unigram_bits: NotNegative | None = None
    delivered: Count | None = None
    claim: DpClaim | None = None
    foreign: bool = False

    @model_validator(mode="after")
    def _improvement_has_numbers(self) -> Self:
        if self.improved and None in (self.validation_bits, self.initial_validation_bits):
            raise ValueError("validation is said to have improved, and a loss is missing")
        return self


class Model(Record):
    """The model that was measured.

    Attributes:
        path: its directory, from the result's where it lies below it, or its name on a hub; of a
            model in memory its `name_or_path`, else its class, with the adapters in use.
        type: of its config, such as "gpt2".
        parameters: how many.
        dtype: that it was measured in, such as "float32".
        context_window: tokens; None where it has no end.
        weights_sha256: of the weights that were measured: of an adapter in float32 merged with its
            base, whether it was saved or in memory.
        validation: None where nothing is known of its training.
    """

    path: str
    type: str
    parameters: Count
    dtype: str
    context_window: Count | None
    weights_sha256: Sha256
    validation: Validation | None


class WitnessResult(Record):
    """Whether the model knows the witnesses of the manifest, which are in no other number.

    Attributes:
        witnesses: how many were inserted.
        copies: how often each was.
        references: fresh draws of the same form that they were compared with; 0: none was needed.
        certificate_bits: evidence in their probabilities alone, a log2 of an e-value; higher =
            better known. A model that never read them reaches t bits with probability 2^-t at most.
            None where tokens allow no certificate, or they were not scored.
        p_value: of the comparison with fresh draws; None where there was none.
        beside_base: what is compared is how much likelier a text became than under the base.
        note: why they were not scored; "" where they were.
        in_tokenizer: the tokenizer was made from text that holds them, so that a model which read
            nothing may seem to know them, and the canaries.
    """

    witnesses: Positive
    copies: Positive
    references: Count
    certificate_bits: Number | None
    p_value: Annotated[float, Field(gt=0, le=1)] | None
    beside_base: bool
    note: str = ""
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
    """The row that each canary and reference was scored in.

    Attributes:
        source: how that is known: "training", this package trained the model; "manifest", the
            insertion wrote it down; "rows", the rows of the training were looked at (`verify
            --rows`, the callback); "setting", a person said so; "assumed", nothing is known.
        form: of the records, as in the manifest; "text": each canary is a text of its own.
        turn: that the canaries are: "plain", "user" or "assistant".
        loss: which tokens of a row carried loss: "all", "assistant" or "completion".
        left: the text of the tokens in front, special tokens included; of a long one the last 200
            characters.
        left_tokens: how many these are.
        right_tokens: how many follow a canary in its row; they are not scored.
        unscored_tokens: of a canary, how many of its first tokens were not scored, because they
            carried no loss or nothing predicts them.
        template_sha256: of the chat template; None where there is none.
        chat_date: the day that the template writes; None: it writes none.
        said: which of the settings about rows a person gave: "loss", "rendering", "chat_template",
            "chat_date".
        rendering: how records became rows: "chat", by the template, or "text".
        lacking: how many planned copies of canaries the rows of the training did not hold whole and
            with loss; None: these were not looked at.
    """

    source: Literal["training", "manifest", "rows", "setting", "assumed"]
    form: str
    turn: Literal["plain", "user", "assistant"]
    loss: Literal["all", "assistant", "completion"]
    left: str
    left_tokens: Count
    right_tokens: Count
    unscored_tokens: Count
    template_sha256: Sha256 | None
    chat_date: str | None = None
    said: Rows[str] = ()
    rendering: Literal["chat", "text"] = "text"
    lacking: Count | None = None


class CheckpointClass(Record):
    """The exposures of one class under one checkpoint of a training.

    Attributes:
        checkpoint: the name of its directory.
        step: of the training; None where the name does not say it.
        format: of the class.
        repetitions: of the class; 0: the controls.
        n: how many canaries.
        median, low, high: of their exposures, in bits, with its interval; None: no such end.
        exact: how many of the ranks were counted exactly.
    """

    checkpoint: str
    step: Count | None
    format: str
    repetitions: Count
    n: Count
    median: float
    low: Number | None
    high: Number | None
    exact: Count


class MeasureOptions(Record):
    """What was asked of the measurement: every setting that decides a number.

    Attributes:
        references: fills to compare with, per format; None: 10,000, or as many as there are.
        revealed: extraction was tried with 0 to this many of the secret's characters given.
        beam_width: candidates that a beam kept; None: 100, or twice the canaries of the format.
        extraction: whether secrets were searched for at all.
        method: which estimate of exposure was asked for; "auto" takes the best that there is.
        draws: fills drawn by importance, per format.
        guesses: the likeliest fills that best-first search was to find, per format.
        budget_steps: model steps that the search of a format might take; None: by the model's size.
        budget_seconds: how long each search might take; None: no such end.
        live_states: model states that a search might hold at once.
        level: coverage of every interval.
        bootstraps: refits behind the goodness of the skew-normal curve.
        permutations: shuffles behind each p-value against guessing.
        significance: of all bounds on epsilon together.
        delta: of the pair (epsilon, delta) that is bounded; None: 0, and one that follows from the
            number of documents.
        claimed_epsilon: what was claimed of the training, in nats, with `delta`.
        quick: a first look, with a tenth of the references and of the search.
        seed: of bootstraps and, with the hashes of manifest and weights, of permutations.
        threads: of the CPU, whose number decides the last bits of a score; None: not known.
        left_context: what was said to be left of each text in the training: "bos", "eos", "none" or
            a text; None: nothing was said.
    """

    references: Count | None
    revealed: Count
    beam_width: Count | None
    extraction: bool
    method: str
    draws: Count
    guesses: Count
    budget_steps: BigInteger | None
    budget_seconds: Annotated[float, Field(gt=0)] | None
    live_states: Count | None
    level: Rate
    bootstraps: Count
    permutations: Count
    significance: Rate
    delta: Delta | None
    claimed_epsilon: Nats | None
    quick: bool
    seed: BigInteger
    threads: Count | None
    left_context: str | None = None


class Result(FileRecord):
    """Everything that one measurement found: result.json.

    Attributes:
        lmexposure: the version that measured; None: not known. The date is in run.json, so that
            the same measurement gives the same bytes.
        inputs_sha256: hash of all that decides the numbers: manifest, weights, settings.
        manifest_sha256: of the manifest's contents.
        scores_sha256: of the scores.parquet next to it; None where there is none.
        model: what was measured.
        settings: what was asked of the measurement.
        formats: in the manifest's order.
        canaries: canaries and controls, in the manifest's order.
        summary: classes of canaries and the controls, format by format.
        privacy: bounds on epsilon; None where nothing was bounded.
        warnings: what a reader must know before believing a number.
        context: in which rows the canaries were scored; None: not known.
        base: the model before the training, where it was measured too; else None.
        trajectory: exposures under earlier checkpoints of the training, in their order, and under
            this one; empty where one model was measured.
        kinds: canaries whose texts were chosen, judged by their coins alone: they are in no other
            section; empty where there are none.
        witness: whether the model knows what was inserted to see that; None where nothing was.
    """

    NAME: ClassVar[str] = "result.json"
    FAMILY: ClassVar[str] = "lmexposure.result"
    VERSION: ClassVar[int] = 4
    AGAIN: ClassVar[str] = MEASURE_AGAIN

    lmexposure: str | None
    inputs_sha256: Sha256
    manifest_sha256: Sha256
    scores_sha256: Sha256 | None
    model: Model
    settings: MeasureOptions
    formats: Rows[FormatResult]
    canaries: Rows[CanaryResult]
    summary: Rows[ClassSummary]
    privacy: Privacy | None
    warnings: Rows[str]
    context: ContextRecord | None = None
    base: BaseModelRecord | None = None
    trajectory: Rows[CheckpointClass] = ()
    kinds: Rows[KindMembership] = ()
    witness: WitnessResult | None = None

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a result.json.

        Raises:
            ResultError: missing, not JSON, no result, of another version, edited or damaged since
                it was written, or with a part that is missing or out of its range.
        """
        path = Path(path)
        try:
            content = read_bytes(path)
        except FileNotFoundError as failure:
            raise ResultError(f"no result at {path}; make one: lmexposure measure") from failure
        except IsADirectoryError as failure:
            raise ResultError(f"{path} is a directory; give the result.json in it") from failure
        except OSError as failure:
            raise ResultError(
                f"{path} is not readable ({failure.strerror or failure}); {cls.AGAIN}"
            ) from failure
        found = cls.parse(content, path)
        found.__dict__[_HOME] = path
        return found

    def save(self, directory: str | Path) -> Path:
        """Write result.json and, where the scores are known, scores.parquet next to it.

        Args:
            directory: made where there is none.

        Returns:
            the path of result.json, which `Result.read` and `open_run` take.

        Raises:
            SettingsError: no path.
            ResultError: another result is there, or other scores or a run without a result are;
                not so the scores that a save of this very result left when it was killed.
            FileError: the disk refused.
        """
        from lmexposure.records.result_views import save

        if not isinstance(directory, str | Path) or not str(directory):
            raise SettingsError(f"directory={directory!r} is no path; give a directory's")
        return save(self, Path(directory))

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
        from lmexposure.records.result_views import class_of

        return class_of(self, format, repetitions)

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
        from lmexposure.records.result_views import class_of, quantile_of_class

        return quantile_of_class(self, quantile, class_of(self, format, repetitions).key)

    def extraction(
        self, format: str | None = None, *, repetitions: int | None = None, guesses: int = 1000
    ) -> "FoundShare":
        """How many secrets of one class an attacker finds who knows the format alone.

        Args:
            format: as for `exposure`.
            repetitions: as for `exposure`.
            guesses: that the attacker makes for each secret, the likeliest first.

        Raises:
            SettingsError: fewer than one guess.
            ResultError: as for `exposure`; or the secrets were not searched for.
        """
        from lmexposure.records.result_views import class_of, share_found

        return share_found(self, class_of(self, format, repetitions).key, guesses)

    @property
    def epsilon(self) -> Privacy | None:
        """Lower bounds on epsilon with their conditions, and what becomes of a claim."""
        return self.privacy

    def to_frame(self) -> "pd.DataFrame":
        """A pandas frame with a row for each canary and control; no secrets.

        Columns: id, format, role, repetitions; log_perplexity_bits (lower = more memorised);
        exposure with low and high, in bits (higher = more memorised), whether it is capped, and the
        method; rank and place, as in `Estimate`; found_at: the guess at which the secret falls by
        the best of the searches, missing where it does not within all `guesses_tried`. Where a base
        was measured, too: base_log_perplexity_bits, base_exposure, calibrated_exposure.
        """
        from lmexposure.records.result_views import frame_of

        return frame_of(self)

    @cached_property
    def scores(self) -> "Scores | None":
        """The scores of every text: in memory, or read from the scores.parquet next to the file.

        None where there are none. They are no part of the record, and of no copy of it.

        Raises:
            ResultError: a scores.parquet that is damaged, or of another result.
        """
        home = self.__dict__.get(_HOME)
        if home is None or home.name != self.NAME:  # next to another name, another result's may lie
            return None
        path = home.with_name("scores.parquet")
        if not path.exists():
            return None
        from lmexposure.records.scores import read_scores  # brings numpy

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

    def __repr__(self) -> str:
        from lmexposure.records.result_views import title_of

        return f"<{title_of(self)}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        from lmexposure.records.result_views import html_of

        return html_of(self)

    def __copy__(self) -> Self:
        """Without the views: `model_copy` may replace what they show."""
        return super().__copy__()._without_views()

    def __deepcopy__(self, memo: dict[int, object] | None = None) -> Self:
        """Without the views, as `__copy__`."""
        return super().__deepcopy__(memo)._without_views()

    def _without_views(self) -> Self:
        for view in ("classes", "format_named", "scores", _HOME):
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
                    f"format {form.name!r}: {taken:,} fills were inserted or set aside, of "
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
