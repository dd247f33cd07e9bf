"""In which row canaries and references are scored: that of the training, as far as it is known.

A model knows a canary best in the row that it met it in. What is known of that row comes, first of
all, from the training's own rows (`verify --rows`), then from the person who measures, from the
manifest, and from our own training; where nothing is known, the result says so.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Literal

from lmexposure._style import count
from lmexposure.audit.corpus import read_template
from lmexposure.canaries import Manifest, Wrapping
from lmexposure.errors import ManifestError, ModelError, SettingsError
from lmexposure.models import (
    SOURCE_ENDS,
    AnyContext,
    Context,
    LoadedModel,
    check_tokens,
    damaged_model,
    dated,
    encode_in_context,
    encode_rows,
    row_context,
    template_record,
    tokenizer_sha256,
)
from lmexposure.studies import (
    MOST_SHOWN,
    SETTINGS_OF_ROWS,
    ContextRecord,
    RowsRecord,
    RunSettings,
    TrainingFile,
    Validation,
    read_training,
)

Source = Literal["training", "manifest", "rows", "setting", "assumed"]
_CHECKED = 50  # references that a template is tried on, next to all that were drawn
_FAR = timedelta(days=45)  # to another day, of another month


@dataclass(frozen=True, kw_only=True)
class ScoringContext:
    """The row around every canary and reference of a measurement."""

    by_format: Mapping[str, AnyContext]  # the context of each format, by its name
    record: ContextRecord  # what the result says of it
    warnings: tuple[str, ...] = ()  # what a reader must know of it
    # the contexts of another day than was assumed; none where no day was
    other_day: Mapping[str, Context] = field(default_factory=dict)

    def decisive(self) -> dict[str, object] | None:
        """What of it decides the numbers; None where the manifest's separator alone does."""
        rows = {
            name: [context.start, context.before, context.behind, context.unscored]
            for name, context in self.by_format.items()
            if isinstance(context, Context)
        }
        return dict(rows) or None


def scoring_context(
    lm: LoadedModel,
    manifest: Manifest,
    *,
    left_context: str | None = None,
    rows: RowsRecord | None = None,
    own_training: bool = False,
    wrapping: Wrapping | None = None,
) -> ScoringContext:
    """The row that canaries and references are to be scored in."""
    check_tokens(lm.tokenizer, manifest)
    said = _said_of(wrapping, manifest)
    texts, wrapping = _texts(manifest), wrapping or manifest.wrapping
    record = _training_of(Path(lm.name))
    own = own_training or record is not None
    _refuse_both(left_context, rows, wrapping, said)
    warnings: list[str] = []
    if rows is not None:
        warnings += _checked_rows(rows, manifest, lm.tokenizer)
    source: Source
    shared: AnyContext
    if rows is not None and rows.start is not None:
        source = "rows"
        shared = Context(
            start=rows.start, before=rows.before, behind=rows.behind, unscored=rows.unscored
        )
    elif left_context is not None:
        source, shared = "setting", _said(left_context, lm.tokenizer)
    elif wrapping is not None:
        source = "setting" if said else "training" if own else "manifest"
        if wrapping.chat_date is None and record is not None:
            wrapping = replace(wrapping, chat_date=record.chat_date)
        described = _in_wrapping(
            lm.tokenizer, manifest, wrapping, texts, source, warnings, said=said
        )
        return _lacking(described, rows)
    else:
        source, shared = "training" if own else "assumed", manifest.separator
    by_format = dict.fromkeys(texts, shared)
    loss = rows.loss if rows is not None and source == "rows" else None
    return _lacking(
        _described(lm.tokenizer, by_format, texts, wrapping, source, warnings, loss=loss), rows
    )


def _lacking(context: ScoringContext, rows: RowsRecord | None) -> ScoringContext:
    """The context with what the rows of the training lack."""
    if rows is None:
        return context
    return replace(context, record=context.record.model_copy(update={"lacking": rows.lacking}))


def rows_beside(manifest: str | Path) -> RowsRecord | None:
    """What `verify --rows` left next to a manifest; None where there is nothing."""
    path = RowsRecord.beside(manifest)
    return RowsRecord.read(path) if path.exists() else None


def recorded_training(model: str | Path, manifest: Manifest) -> Validation | None:
    """What a training by this package, on this manifest, says of itself."""
    model = Path(model)
    path = model.parent / "training.json"
    if model.name != "model" or not path.is_file() or damaged_model(model) is not None:
        return None
    record = read_training(path)
    own = record is not None and record.manifest_sha256 == manifest.sha256
    if record is None or not own or not record.model_files:
        return None
    return Validation.model_validate(record.result, from_attributes=True)


def _training_of(model: Path) -> TrainingFile | None:
    """The record of the training of this package that a model, or its snapshot, lies in."""
    homes = (model.parent, model.parent.parent) if model.is_dir() else ()
    paths = [home / "training.json" for home in homes]
    records = (read_training(path) for path in paths if path.is_file())
    return next((record for record in records if record is not None), None)


def _texts(manifest: Manifest) -> dict[str, list[str]]:
    """Of each format all fills that were drawn, and some references."""
    found: dict[str, list[str]] = {name: [] for name in manifest.hidden_formats}
    for entry in manifest.entries:
        found[entry.format].append(entry.text)
    for name, form in manifest.hidden_formats.items():
        found[name] += [form.text(index) for index in manifest.references(name, _CHECKED)]
    return found


def told_wrapping(manifest: Manifest, settings: RunSettings) -> Wrapping | None:
    """How a training made rows of the manifest's records, by what was said of it; None: nothing."""
    given = {name: getattr(settings, name) for name in SETTINGS_OF_ROWS}
    given = {name: value for name, value in given.items() if value is not None}
    if not given:
        return None
    if manifest.wrapping is None:
        name, value = next(iter(given.items()))
        raise SettingsError(
            f"{name}={value!r} is of chats, and the canaries of this manifest are plain texts; "
            "leave it out, or say what was left of each (left_context=...)"
        )
    if settings.chat_template is not None:
        given["chat_template"] = read_template(settings.chat_template)
    return replace(manifest.wrapping, **given)


def _said_of(wrapping: Wrapping | None, manifest: Manifest) -> tuple[str, ...]:
    """Which settings of rows a person gave otherwise than the manifest has them."""
    if wrapping is None:
        return ()
    planned = manifest.wrapping or Wrapping(context=None)
    other = [
        name
        for name, value in vars(wrapping).items()
        if name not in SETTINGS_OF_ROWS and value != getattr(planned, name)
    ]
    if other:
        raise SettingsError(
            f"wrapping has {other[0]}={getattr(wrapping, other[0])!r}, and the records of this "
            f"corpus have {getattr(planned, other[0])!r}; give replace(manifest.wrapping, ...) "
            f"with no other than {', '.join(SETTINGS_OF_ROWS)}"
        )
    return tuple(
        name for name in SETTINGS_OF_ROWS if getattr(wrapping, name) != getattr(planned, name)
    )


def _refuse_both(
    left: str | None, rows: RowsRecord | None, wrapping: Wrapping | None, said: tuple[str, ...]
) -> None:
    if said and rows is not None and rows.start is not None:
        raise SettingsError(
            f"{said[0]} was said of the training's rows, but rows.json says what they are; leave "
            "it out, or move rows.json aside"
        )
    if left is None:
        return
    if wrapping is not None:
        raise SettingsError(
            f"left_context={left!r} is for plain texts, and the canaries of this manifest are in "
            f"records of the form {wrapping.form!r}, in whose rows they are scored; leave it out"
        )
    if rows is not None and rows.start is not None:
        raise SettingsError(
            f"left_context={left!r}, but rows.json says what was left of each canary in the rows "
            "of the training; leave left_context out, or move rows.json aside"
        )


def _checked_rows(rows: RowsRecord, manifest: Manifest, tokenizer: Any) -> Iterator[str]:
    """What the rows of this very training say that a reader of exposures must know."""
    if rows.manifest_sha256 != manifest.sha256:
        raise ManifestError(
            f"rows.json is of the manifest {rows.manifest_sha256[:16]}, and this is "
            f"{manifest.sha256[:16]}; verify the rows again, or move it aside"
        )
    if rows.tokenizer_sha256 != tokenizer_sha256(tokenizer):
        raise ManifestError(
            "rows.json is of rows of another tokenizer than the model's; verify the rows again "
            "with the tokenizer of the model, or move it aside"
        )
    for warning in rows.warnings:
        yield f"rows of the training: {warning}"
    if rows.start is None:
        yield (
            "the rows of the training deliver the canaries in no single context, so that canaries "
            "and references are scored as without them"
        )


def _said(left: str, tokenizer: Any) -> AnyContext:
    """The context that a person named."""
    _refuse_unclear(left)
    if left == "none":
        return Context(start=())
    if left not in ("bos", "eos"):
        return left
    token = tokenizer.bos_token_id if left == "bos" else tokenizer.eos_token_id
    if token is None:
        raise ModelError(
            f"left_context={left!r}, but the tokenizer has no {left.upper()} token; give 'none', "
            "or the text that was in front"
        )
    return Context(start=(token,))


def _refuse_unclear(left: str) -> None:
    """What may be meant otherwise, which would be scored without a word."""
    if not left:
        raise SettingsError(
            "left_context='' is empty; where nothing was in front, say so: 'none', else 'bos', "
            "'eos' or the text"
        )
    word = left.strip().lower()
    if word in ("bos", "eos", "none") and left != word:
        raise SettingsError(
            f"left_context={left!r} would be read as a text that was in front; give {word!r}"
        )
    if any("\ud800" <= character <= "\udfff" for character in left):
        raise SettingsError(
            f"left_context={left!r} holds half a character, as bytes that are no UTF-8 become; "
            "give it as UTF-8"
        )


def _in_wrapping(
    tokenizer: Any,
    manifest: Manifest,
    wrapping: Wrapping,
    texts: Mapping[str, list[str]],
    source: Source,
    warnings: list[str],
    *,
    said: tuple[str, ...] = (),
) -> ScoringContext:
    """The row that the measured model's tokenizer makes of the wrapping of a training."""
    now, then = template_record(tokenizer, wrapping), manifest.corpus.wrapping
    assert then is not None, "there is a wrapping"
    if "chat_template" not in said and then.template_sha256 not in (None, now.template_sha256):
        raise ManifestError(
            f"the manifest says that the training uses a chat template with SHA-256 "
            f"{str(then.template_sha256)[:16]}, and that of the model's tokenizer has "
            f"{str(now.template_sha256)[:16]}: canaries would be scored in other rows than they "
            "were trained in; give the template of the training (chat_template=...), or verify "
            "its rows, which says what they are"
        )
    if then.special_tokens not in (None, now.special_tokens):
        warnings.append(
            "the special tokens of the model's tokenizer are not those that the insertion was "
            "given; if the training's rows had others, exposures may be too low"
        )
    if source == "manifest" and then.template_sha256 is None and wrapping.rendering == "chat":
        warnings.append(
            "the insertion was not given the training's tokenizer: canaries are scored in the "
            "chat template of the measured model's, and if the training had another, exposures may "
            "be too low"
        )
    of_day = dated(tokenizer, wrapping)
    if "chat_date" in said and of_day.chat_date is None:
        raise SettingsError(
            f"chat_date={wrapping.chat_date!r}, but the chat template writes no date of its own; "
            "leave it out"
        )
    by_format = {name: _named(tokenizer, of_day, name, texts[name]) for name in texts}
    described = _described(
        tokenizer,
        by_format,
        texts,
        of_day,
        source,
        warnings,
        template_sha256=now.template_sha256,
        said=said,
    )
    if of_day.chat_date in (None, wrapping.chat_date):
        return described
    other = (date.fromisoformat(str(of_day.chat_date)) - _FAR).isoformat()
    far = replace(of_day, chat_date=other)
    on_other = {name: _named(tokenizer, far, name, texts[name]) for name in texts}
    return replace(described, other_day=on_other)


def _named(tokenizer: Any, wrapping: Wrapping, name: str, texts: list[str]) -> Context:
    try:
        return row_context(tokenizer, wrapping, texts)
    except ModelError as failure:
        raise ModelError(f"format {name!r}: {failure}") from failure


def _described(  # noqa: PLR0913 (each is another thing that the record says)
    tokenizer: Any,
    by_format: Mapping[str, AnyContext],
    texts: Mapping[str, list[str]],
    wrapping: Wrapping | None,
    source: Source,
    warnings: list[str],
    *,
    loss: Literal["all", "assistant", "completion"] | None = None,
    template_sha256: str | None = None,
    said: tuple[str, ...] = (),
) -> ScoringContext:
    """The contexts with what a result says of them; the first format's canaries are shown."""
    name = next(iter(by_format))
    left, right, unscored = _around(tokenizer, texts[name][0], by_format[name])
    shown = tokenizer.decode(left, clean_up_tokenization_spaces=False) if left else ""
    record = ContextRecord(
        source=source,
        form="text" if wrapping is None or wrapping.form is None else wrapping.form,
        turn="plain" if wrapping is None else wrapping.turn,
        loss=loss or ("all" if wrapping is None else wrapping.loss),
        left=shown[-MOST_SHOWN:],
        left_tokens=len(left),
        right_tokens=right,
        unscored_tokens=unscored,
        template_sha256=template_sha256,
        chat_date=None if wrapping is None else wrapping.chat_date,
        said=said,
        rendering="text" if wrapping is None or wrapping.rendering is None else wrapping.rendering,
    )
    also = _warnings(record, by_format)
    return ScoringContext(by_format=by_format, record=record, warnings=(*warnings, *also))


def _around(tokenizer: Any, text: str, context: AnyContext) -> tuple[list[int], int, int]:
    """Tokens in front of a text, how many are behind it, and how many of its own go unscored."""
    try:
        (encoded,) = encode_in_context(tokenizer, [text], context=context)
    except ModelError:
        return [], 0, 0  # scoring all of them says which text, and what is wrong with it
    if isinstance(context, Context):
        (row,) = encode_rows(tokenizer, [text], context)
        left = [token for token in row.ids[: row.first] if token != SOURCE_ENDS]
        return left, len(row.ids) - row.stop, encoded.scored_from - row.first
    if encoded.first_unscored:
        return [], 0, 1
    return encoded.ids[: encoded.scored_from], 0, 0


def _warnings(record: ContextRecord, by_format: Mapping[str, AnyContext]) -> Iterator[str]:
    without_loss = {c.unscored for c in by_format.values() if isinstance(c, Context)} - {0}
    if without_loss:
        yield (
            f"of each canary the first {count(max(without_loss), 'token')} carried no loss in the "
            "training: not scored"
        )
    if record.source == "assumed":
        before = repr(record.left) if record.left_tokens else "nothing"
        yield (
            f"canaries are scored with {before} before them, which is assumed; if your trainer put "
            "other tokens there, leaks are underestimated: let verify look at the rows of the "
            "training (rows=True), or name them (left_context=...: bos, eos, none or a text)"
        )
