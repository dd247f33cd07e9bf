"""What lies ahead: how much work, in tokens that the model reads, and which rows of chats.

What a chat's template refuses, drops or rewrites, and what does not fit the model, is better known
at the insertion than after the training. Which rows a foreign trainer really makes, its own rows
say (`verify --rows`).
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice, takewhile
from os.path import commonprefix
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from lmexposure._files import is_utf8
from lmexposure._forecast import Forecast, Phase
from lmexposure._record import Record, Rows
from lmexposure._style import count, in_words
from lmexposure.audit.directory import MeasurementDirectory, read_part
from lmexposure.canaries import DEFAULT_REFERENCES, WITNESS, Canary, Format, Manifest, Wrapping
from lmexposure.core import Encoded, Part
from lmexposure.errors import LmexposureError, ModelError
from lmexposure.models import (
    AnyContext,
    Context,
    ModelShape,
    TrainingSettings,
    dated,
    encode_documents,
    encode_in_context,
    encode_rows,
    model_shape,
    product_rate,
    row_context,
    training_rows,
    window_of,
)
from lmexposure.models import Progress as TrainingProgress
from lmexposure.scoring import (
    MODEL_FAILURES,
    BaseModel,
    Beginning,
    TorchModel,
    Vocabulary,
    beam_width,
    find_beginning,
    step_pace,
    token_pace,
)
from lmexposure.studies import Extraction, MeasureSettings, RowsRecord


class Progress(Protocol):
    """Called with what is being done, how much of it is done, of how much, and a short note."""

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        """Take how far the work is."""


@runtime_checkable
class Watcher(Progress, Protocol):
    """Progress that wants to know what is to come, and may ask for an early end."""

    def plan(self, title: str, phases: Sequence[Phase], *, keeps: bool) -> None:
        """Take what is to be done from now on."""

    def expect(self, what: str, seconds: float) -> None:
        """Take how long a phase takes from now on, where those who do it know better."""

    def end_asked(self) -> bool:
        """Whether a person wants the work to end with what it has."""


@runtime_checkable
class Speaker(Protocol):
    """Progress that says a line to a person, whatever else it shows."""

    def say(self, line: str) -> None:
        """Say it now."""


def silent(what: str, done: int, total: int, note: str = "") -> None:
    """Watch nothing."""


def end_asked(progress: Progress) -> bool:
    """Whether a person wants the work to end with what it has; a plain function never asks."""
    return isinstance(progress, Watcher) and progress.end_asked()


@dataclass(kw_only=True)
class Task:
    """What is measured, and how."""

    lm: TorchModel
    manifest: Manifest
    settings: MeasureSettings
    contexts: Mapping[str, AnyContext]  # around the texts of each format, by its name
    # the model before the training, which scores the same texts; None: none
    base: BaseModel | None = None
    # of the result and of finished parts; None writes nothing
    directory: MeasurementDirectory | None = None
    progress: Progress = silent

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """What the tokens spell."""
        return Vocabulary(self.lm.tokenizer)

    @property
    def asks(self) -> bool:
        """Whether there is a model to ask; else there are scores alone."""
        return self.lm.tokenizer is not None

    def beginning(
        self, texts: Sequence[str], encoded: Sequence[Encoded], context: AnyContext, form: Format
    ) -> Beginning:
        """Where the secrets of some texts of a format begin, as far as tokens are known."""
        if not self.asks:
            return Beginning(ids=[], characters=None, scored=False)
        return find_beginning(
            self.lm.tokenizer,
            self.vocabulary,
            texts,
            encoded,
            context=context,
            literal=form.prefix,
        )

    @property
    def origin(self) -> str:
        """What the seeds of classes are made of."""
        return f"{self.manifest.sha256} {self.lm.identity}"

    def kept(self, name: str) -> Part | None:
        """A file for a finished part; None where nothing is written."""
        return None if self.directory is None else self.directory.work.part(name)

    def is_kept(self, name: str) -> bool:
        """Whether a part is finished."""
        kept = self.kept(name)
        return kept is not None and kept.path.exists()

    def row(self, name: str, *, whole: bool = True) -> list[int]:
        """The tokens of one fill of a format up to its end, in its row where that is wanted."""
        text = next(canary.text for canary in self.manifest.entries if canary.format == name)
        return _in_row(self.lm, text, self.contexts.get(name) if whole else None)


class KeptSearches(Record):
    """The searches of an extraction that are done, in their order."""

    done: Rows[Extraction]


WITHOUT_SEARCH = ("sampled", "skew_normal")
_SHARE = 0.5  # of what large products of matrices reach, a model's do
_STEP_AT_MOST = 1.2  # times what a token takes in a pass: 1.0 on a small GPT-2 and SmolLM2-135M
_AROUND_A_STEP = 1.25  # a search also sorts, weighs and copies
# A walk that would be dear is left to the draws, and one that is cheap ends soon: seen on a small
# GPT-2 and on SmolLM2-135M, with canaries that they know and that they do not.
_COUNTED, _GUESSED = 0.05, 0.1  # of the draws' steps
_APART = 0.8  # of the draws' steps: some draws go through one node; of a surer model many more do
_FOLLOWED = 0.05  # of the beams' steps with characters given, behind those where they lose a secret
_LONG = 10.0  # seconds of work whose parts are told
_STATISTICS_SECONDS = 1.5  # of a format: curve, permutations
_REFIT_SECONDS = 0.04  # of a curve to ten thousand references
_PROBED = 1_000  # tokens read to find the fastest way that is right, and to set it up
_COMPARED = 50  # other texts that a witness is compared with, as a rule
_PATHS = 64  # on which a walk's error is measured
_COPY_STEPS = 3  # a step in float64, and one in the model's dtype to compare it with


@dataclass(frozen=True, kw_only=True)
class Paces:
    """Seconds that the model takes for one token, by a trial; None: it failed, or was not made."""

    reading: float | None = None  # of many texts in a pass
    stepping: float | None = None  # behind one of many prefixes, and what a search does around it

    @classmethod
    def of(cls, task: "Task") -> "Paces":
        """From a few passes over a canary."""
        ids = task.row(next(iter(task.manifest.ranked.formats)))
        settings, stepping = task.settings, None
        try:
            reading = token_pace(task.lm, ids)
            if settings.estimate not in WITHOUT_SEARCH or settings.extraction:
                # Of a large model few rows are tried, which read all weights for few tokens.
                step = min(step_pace(task.lm, ids), _STEP_AT_MOST * reading)
                stepping = _AROUND_A_STEP * step
        except (*MODEL_FAILURES, LmexposureError, MemoryError):  # scoring or searching says why
            return cls()
        return cls(reading=reading, stepping=stepping)

    @classmethod
    def of_shape(cls, shape: ModelShape, rate: float) -> "Paces":
        """By formula, at this many floating-point operations a second of large products."""
        reading = shape.seconds(1, rate=_SHARE * rate)
        return cls(reading=reading, stepping=_AROUND_A_STEP * reading)


@dataclass(frozen=True, kw_only=True)
class _Unread:
    """What a forecast needs of a model that is not loaded."""

    tokenizer: Any
    size: int  # parameters


def forecast_measurement(
    model: str | Path,
    manifest: str | Path | Manifest,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    load_in: str | None = None,
    rate: float | None = None,
    settings: MeasureSettings | None = None,
) -> Forecast:
    """How long a measurement would take, and in how much memory, before its model is loaded.

    By formula: 2 operations a parameter for each token read, at half of what large products of
    matrices reach. Of a hub model the config and the tokenizer are read, and no weights.

    Args:
        model: a directory or hub name, of a model or of an adapter, whose base then counts.
        manifest: what was inserted, or the path of manifest.json.
        device: where it would compute, as `load_model` takes it.
        dtype: of its weights, as `load_model` takes it.
        load_in: "8bit", "4bit" or None, as `load_model` takes it.
        rate: floating-point operations a second of the device; None: by a short trial there.
        settings: of the measurement; None: the defaults.

    Returns:
        the forecast: `.sentence` for a person, `.by_part`, `.seconds`.

    Raises:
        ManifestError: the manifest is none, or cannot be read.
        ModelError: there is no such model, or its shape or tokenizer cannot be read.
    """
    manifest = Manifest.of(manifest)
    shape, tokenizer = model_shape(model)
    rate = product_rate(device, dtype) if rate is None else rate
    unread: Any = _Unread(tokenizer=tokenizer, size=shape.parameters)
    settings = settings or MeasureSettings()
    task = Task(lm=unread, manifest=manifest, settings=settings, contexts={})
    ahead = measurement_forecast(task, Paces.of_shape(shape, rate))
    weights = shape.weights(dtype, load_in, device)
    needs = f"; {weights / 1e9:.1f} GB of weights and up to "
    needs += f"{shape.working_set(dtype, device) / 1e9:.1f} GB more"
    return replace(ahead, note=f"{ahead.note}{needs}")


def measurement_title(manifest: Manifest, settings: MeasureSettings) -> str:
    """What a measurement will do, in one line."""
    manifest = manifest.ranked
    formats = list(manifest.formats)
    references = sum(_references(manifest, name, settings) for name in formats)
    canaries = len(manifest.canaries) + len(manifest.controls)
    parts = [
        f"{references:,} references of {len(formats)} format{'s' * (len(formats) > 1)}",
        f"{canaries:,} canaries and controls",
    ]
    if settings.estimate not in WITHOUT_SEARCH:
        parts.append(f"{settings.draws * len(formats):,} draws, search")
    if settings.extraction:
        parts.append("extraction")
    return f"measuring: {', '.join(parts)}"


def measurement_forecast(task: Task, paces: Paces | None = None) -> Forecast:
    """What a measurement will do, how long it takes, and how long a first look would."""
    paces = Paces.of(task) if paces is None else paces
    phases = measurement_phases(task, paces)
    note = ""
    if not task.settings.quick:
        quicker = replace(task, settings=task.settings.quicker, directory=None)
        seconds = math.fsum(phase.expected for phase in measurement_phases(quicker, paces))
        note = f"; with effort='quick' about {in_words(seconds)}"
    title = measurement_title(task.manifest, task.settings)
    return Forecast(what=title, phases=tuple(phases), note=note)


def announce(task: Task) -> None:
    """Tell a watcher what a measurement will do, and a person the parts of it."""
    if not isinstance(task.progress, Watcher):
        return
    ahead = measurement_forecast(task)
    task.progress.plan(ahead.what, ahead.phases, keeps=True)
    if isinstance(task.progress, Speaker) and ahead.seconds >= _LONG:
        task.progress.say(f"{ahead.by_part}{ahead.note}")


def measurement_phases(task: Task, paces: Paces) -> list[Phase]:
    """The parts of a measurement, in order."""
    manifest, settings = task.manifest, task.settings
    lengths = {name: _length(task, manifest.formats[name]) for name in manifest.ranked.formats}
    reading = partial(Phase, kind="scoring", pace=paces.reading)
    phases = []
    for name, length in lengths.items():
        texts = sum(canary.format == name for canary in manifest.entries)
        texts += _references(manifest, name, settings)
        # What all texts begin with is read once.
        own = max(1.0, _depth(manifest.formats[name], length, texts) - 1)  # the last is not read
        work = _PROBED + len(task.row(name)) + texts * own
        scored = {f"{name}.npz": "", f"{name}.base.json": " under the base"}
        for part, under in islice(scored.items(), 1 + (task.base is not None)):
            if not task.is_kept(part):
                what = f"scoring {name}{under}"
                phases.append(reading(what=what, work=work, part="references"))
    for name, length in lengths.items():
        if not task.is_kept(f"{name}.search.json"):
            phases += _search_phases(task, manifest.formats[name], length, paces.stepping)
        if settings.extraction:
            phases.append(_extraction_phase(task, name, length, paces.stepping))
        refits = settings.bootstraps * (settings.estimate == "skew_normal")
        spent = _STATISTICS_SECONDS + _REFIT_SECONDS * refits
        what = f"estimating {name}"
        phases.append(Phase(what=what, kind="statistics", work=spent, pace=1.0, part="estimates"))
    return [*phases, *_of_chosen_texts(task, reading), *_of_witnesses(task, reading)]


def _length(task: Task, form: Format) -> int:
    """The tokens of a fill behind what is public of it."""
    ids = task.row(form.name, whole=False)
    public = len(_in_row(task.lm, form.prefix, None)) if form.prefix else 0
    return max(1, len(ids) - min(public, len(ids) - 1))


def _of_witnesses(task: Task, reading: Callable[..., Phase]) -> Iterator[Phase]:
    """They are compared with others only where their own probabilities settle nothing."""
    if witnesses := len(task.manifest.witnesses):
        texts = (witnesses + _COMPARED) * (1 + (task.base is not None))
        work = float(texts * len(task.row(WITNESS.name)))
        yield reading(what="witness", work=work, part="witness")


def _of_chosen_texts(task: Task, reading: Callable[..., Phase]) -> Iterator[Phase]:
    """They are scored where coins judge them."""
    if task.manifest.plan.inclusion_probability is None:
        return
    for form in task.manifest.chosen:
        texts = sum(canary.format == form.name for canary in task.manifest.entries)
        work = float(texts * len(task.row(form.name)))
        yield reading(what=f"scoring {form.name}", work=work, part="chosen texts")


def _search_phases(task: Task, form: Format, length: int, pace: float | None) -> Iterator[Phase]:
    """Draws, exact ranks, a copy in float64 for these, and the likeliest fills of a format."""
    settings = task.settings
    if settings.estimate in WITHOUT_SEARCH:
        return
    most = float(settings.steps_for(task.lm.size))
    drawn = _APART * settings.draws * _depth(form, length, settings.draws)
    counted = most if settings.estimate == "exact" else min(most, _COUNTED * drawn)
    compared = _PATHS + sum(c.format == form.name for c in task.manifest.canaries)
    walked = counted + _COPY_STEPS * compared * length
    phase = partial(Phase, kind="stepping", pace=pace)
    yield phase(what=f"{form.name}: drawing secrets", work=drawn, part="draws")
    seconds = math.inf if settings.budget_seconds is None else settings.budget_seconds
    phase = partial(phase, part="search", seconds=seconds)
    if settings.estimate != "importance":
        yield phase(what=f"{form.name}: counting ranks", work=walked, most=most + walked)
    if settings.extraction:
        few = min(most, settings.guesses * length / 2, _GUESSED * drawn)
        yield phase(what=f"{form.name}: best-first search", work=few, most=most)


def _extraction_phase(task: Task, name: str, length: int, pace: float | None) -> Phase:
    """Beams for each canary and number of revealed characters; with none revealed, one for all."""
    manifest, settings = task.manifest, task.settings
    form = manifest.formats[name]
    inserted = sum(c.format == name for c in manifest.canaries)
    width = beam_width(inserted) if settings.beam_width is None else settings.beam_width
    deep = _depth(form, length, width)
    # With characters given, a beam ends where no candidate leads to its secret any more.
    lost = (length - deep) + _FOLLOWED * deep
    work = (1 + width) * (deep + lost * settings.revealed * inserted)
    own = [c for c in (*manifest.canaries, *manifest.controls) if c.format == name]
    total = 2 * sum(len(given_characters(form, canary, settings)) for canary in own)
    kept = read_part(task.kept(f"{name}.beams.json"), KeptSearches)
    share = 0.0 if kept is None else len(kept.done) / total
    return Phase(
        what=f"extracting {name}",
        kind="stepping",
        work=work * (1 - share),
        pace=pace,
        before=share if share < 1 else 0.0,
        part="extraction",
    )


def given_characters(form: Format, canary: Canary, settings: MeasureSettings) -> range:
    """How many characters of a canary's secret are given to the searches for it."""
    most = settings.revealed if canary.role == "canary" else 0
    return range(min(most, form.free_characters(canary.index) - 1) + 1)


def _depth(form: Format, length: int, many: int) -> float:
    """Tokens of a fill below the levels that this many fills share."""
    shared = math.log2(max(2, many)) * length / max(1.0, form.bits)
    return max(1.0, length - shared)


def _references(manifest: Manifest, name: str, settings: MeasureSettings) -> int:
    return min(settings.references_for(DEFAULT_REFERENCES), manifest.references_left(name))


def _in_row(lm: TorchModel, text: str, context: AnyContext) -> list[int]:
    if isinstance(context, Context):
        return encode_documents(lm.tokenizer, [text], context=context)[0]
    ids: list[int] = lm.tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def watch_training(
    progress: Progress, settings: TrainingSettings, then: tuple[str, Sequence[Phase]]
) -> Callable[[TrainingProgress], None]:
    """A callback for `models.train` that announces what is to come, then reports how far it is."""
    announced = not isinstance(progress, Watcher)

    def watch(state: TrainingProgress) -> None:
        nonlocal announced
        if not announced and isinstance(progress, Watcher):
            title, phases = then
            tokens = state.tokens / state.step
            first = Phase(
                what="training",
                kind="training",
                work=tokens * (state.total_steps - state.step),
                before=min(state.step, state.total_steps - 1) / state.total_steps,
                seconds=math.inf if settings.max_seconds is None else settings.max_seconds,
            )
            # The last step of an epoch may have fewer.
            sizes = f"so far of {tokens:,.0f} tokens"
            steps = f"training: at most {state.total_steps:,} steps, {sizes}"
            announced = True
            progress.plan(f"{steps}{'; then ' * bool(title)}{title}", [first, *phases], keeps=False)
        known = state.validation_bits
        best = "" if known is None else f", validation {known:.3f}"
        note = f"epoch {state.epoch:.1f}, {state.train_bits:.3f} bits per token{best}"
        progress("training", state.step, state.total_steps, note)

    return watch


_FILLS = 20  # of each format
_RECORDS = 100  # of the corpus
_SHOWN = 60  # characters of a row in a message


@dataclass(frozen=True, kw_only=True)
class RowsAhead:
    """What was seen of the rows to come."""

    tokens: int  # at which a canary ends in its row, at most
    loss: str  # of the wrapping
    unscored: int  # how many first tokens of a canary carry no loss, at most
    records: int  # of the corpus that were rendered
    without_loss: int  # how many of these carry none
    longest: int  # tokens of their longest row
    chat_date: str | None  # the day that the template writes; None: it writes none

    def __str__(self) -> str:
        partly = f" but the first {count(self.unscored, 'token')}" if self.unscored else ""
        text = (
            f"a canary ends at token {self.tokens} of its row at most, with loss on all of "
            f"its tokens{partly} (loss={self.loss})"
        )
        if self.records:
            text += (
                f"; the first {count(self.records, 'record')} have up to {self.longest:,} tokens"
            )
        if self.without_loss:
            text += f", and {self.without_loss:,} of them carry no loss"
        if self.chat_date is not None:
            text += f"; the template writes the date, here {self.chat_date}"
        return text


def rows_ahead(
    tokenizer: Any,
    wrapping: Wrapping,
    formats: Iterable[Format],
    records: Iterable[Mapping[str, Any]],
) -> RowsAhead:
    """Look at the rows that a training will make of some canaries and of the first records."""
    of_day = dated(tokenizer, wrapping)
    ends, unscored = zip(*_canaries(tokenizer, of_day, formats), strict=True)
    first = list(takewhile(_is_text, islice(records, _RECORDS)))
    rows = list(training_rows(tokenizer, first, of_day))
    return RowsAhead(
        tokens=max(ends),
        loss=wrapping.loss,
        unscored=max(unscored),
        records=len(rows),
        without_loss=sum(not row.carried[1:].any() for row in rows),
        longest=max((len(row.ids) for row in rows), default=0),
        chat_date=of_day.chat_date,
    )


def _canaries(
    tokenizer: Any, wrapping: Wrapping, formats: Iterable[Format]
) -> Iterator[tuple[int, int]]:
    """Of each format, where its canaries end in their rows, and what of them carries no loss."""
    window = window_of(tokenizer)
    for form in formats:
        number = min(_FILLS, form.size)
        texts = [form.text(i * form.size // number) for i in range(number)]  # from all over R
        try:
            context = row_context(tokenizer, wrapping, texts)
            encode_in_context(tokenizer, texts, context=context, max_length=window)
        except ModelError as failure:
            raise ModelError(f"format {form.name!r}: {failure}") from failure
        stops = [row.stop for row in encode_rows(tokenizer, texts, context)]
        yield max(stops), context.unscored


def _is_text(record: Mapping[str, Any]) -> bool:
    """Whether a record holds no half of a character, which insertion names better."""
    return is_utf8(json.dumps(record, ensure_ascii=False, default=str))


def template_difference(rows: RowsRecord, manifest: Manifest, tokenizer: Any) -> str | None:
    """Where the rows of a training leave the chat template of a tokenizer first; None: nowhere."""
    wrapping = manifest.wrapping
    if rows.start is None or wrapping is None or wrapping.rendering != "chat":
        return None
    try:
        texts = [entry.text for entry in manifest.entries[:1]]
        context = row_context(tokenizer, replace(dated(tokenizer, wrapping), loss="all"), texts)
    except ModelError as failure:
        return str(failure)
    found = tokenizer.decode(list(rows.start)) + rows.before
    ends = [found[::-1], context.before[::-1]]
    shared = len(commonprefix(ends))  # noqa: RUF071 (characters)
    if shared < min(len(found), len(context.before)):  # packed rows may not show all in front
        return _unlike(
            "in front of", found[: len(found) - shared], context.before[: -shared or None]
        )
    ends = [rows.behind, context.behind]  # of the first no more is known than encoding needs
    shared = len(commonprefix(ends))  # noqa: RUF071 (characters)
    if shared < len(rows.behind) and (shared < len(context.behind) or not rows.packed):
        return _unlike("behind", *(text[shared:][::-1] for text in ends))
    return None


def _unlike(where: str, found: str, rendered: str) -> str:
    """The ends of two texts that differ there; what is behind a canary comes turned around."""
    order = -1 if where == "behind" else 1
    shown = [repr(text[-_SHOWN:][::order]) if text else "nothing" for text in (found, rendered)]
    return f"{where} each canary the rows have {shown[0]}, and the chat template {shown[1]}"
