"""The commands for a corpus and what is hidden in it: insert, verify, remove, formats."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from glob import escape
from pathlib import Path
from shlex import quote
from typing import IO, TYPE_CHECKING, TypeAlias

import typer

from lmexposure._style import listed, percent, times
from lmexposure.canaries import ADAPTERS
from lmexposure.cli.console import print_pairs, print_table, say, warn
from lmexposure.cli.options import STDIN, of_a_run, opened, refuse_swapped
from lmexposure.errors import SettingsError

if TYPE_CHECKING:
    from lmexposure.canaries import ClassCount, CorpusCount, Files, Manifest, Wrapping
    from lmexposure.studies import RowsClass, RowsRecord, RunSettings

Tell: TypeAlias = Callable[[str], None]  # says a line

_NOT_AS_INSERTED = 2  # exit code
_LOSS = {
    "all": "all tokens",
    "assistant": "the assistant's turns",
    "completion": "what follows the prompt",
}
_NAMED = 10
# Attributes of a class: copies, then canaries by how many of their copies are there.
_OF_COPIES = "repetitions expected missing surplus found canaries complete fewer lost more"
_OF_ROWS = "repetitions canaries planned whole cut missing without_loss otherwise"
_HEADS = {
    "expected": "copies expected",
    "found": "copies found",
    "complete": "all copies",
    "lost": "none",
    "without_loss": "without loss",
    "otherwise": "in another row",
}
_SHOWN = 160  # characters of what is next to a canary


def insert(
    corpus: list[str],
    out: Path,
    documents: int | None,
    verify: bool,
    tokenizer: str | None,
    dry_run: bool,
    settings: "RunSettings",
) -> None:
    """Insert canaries into a corpus; write OUT/corpus/NAME and OUT/manifest.json.

    OUT/corpus/.sidecars has a file NAME.canaries.json for each, which says which canaries are in
    it, and where. The same command, given again, completes what a killed one left.
    """
    from lmexposure.audit import insert_corpus, plan_of
    from lmexposure.canaries import is_stream

    if dry_run:
        _dry_run(corpus, settings)
        return
    source = opened(corpus)
    tell = partial(say, aside=is_stream(source))
    if settings.uniform_formats:
        plan_of(settings)  # refuses what no format can hold
    _warn_of_kinds(settings)
    settings = fitted_to(settings, source, out, tell=tell)
    say_max_attainable(settings, tell=tell)
    place, manifest = insert_corpus(
        source,
        target=None if sys.stdout is None else sys.stdout.buffer,
        out=out,
        settings=settings,
        documents=documents,
        verify=verify,
        tokenizer=tokenizer,
        tell=lambda seen: tell(f"rows      {seen}"),
    )
    inserted = None if is_stream(source) else place
    _say_inserted(manifest, inserted, settings, tell)
    if not verify:
        warn(
            "not verified: the corpus was not searched for secrets that it already held, and what "
            "was written was not read back; the same command cannot resume it"
        )
    tell(f"manifest  {out / 'manifest.json'}  (holds the secrets; keep it apart from the corpus)")
    has_witness = replace(settings, witness=bool(manifest.witnesses))
    warn_of_share(has_witness, *_shares(manifest, inserted))
    _say_next(inserted, out, manifest.wrapping, tell, looked_at=tokenizer is not None)


def fitted_to(
    settings: "RunSettings", corpus: list[str] | IO[bytes], out: Path | None, *, tell: Tell = say
) -> "RunSettings":
    """The settings with the repetitions for this corpus, said where they are fewer than usual."""
    from lmexposure.audit import fitted, refuse_share, share_ahead
    from lmexposure.canaries import is_stream

    found = fitted(settings, corpus, out)
    given = settings.canaries is not None and not settings.audit
    if given and out is not None and not is_stream(corpus):
        refuse_share(found, share_ahead(corpus, found, out))
    if found.classes != settings.classes:
        often = " and ".join(map(times, found.classes))
        tell(f"repeated  {often}, as the corpus is small (--repetitions says otherwise)")
    return found


def _say_inserted(
    manifest: "Manifest", inserted: Path | None, settings: "RunSettings", tell: Tell
) -> None:
    from lmexposure.canaries import ALWAYS

    files = inserted and _to_train_on(inserted)
    say_records(manifest.wrapping, settings, files, tell=tell)
    count = sum(entry.inserted for entry in manifest.entries)
    tell(f"corpus    {inserted or 'standard output'}  ({count:,} documents inserted)")
    if manifest.plan.inclusion_probability is not None:
        always = {form.name for form in manifest.plan.formats if form.kind == ALWAYS}
        tossed = sum(canary.format not in always for canary in manifest.canaries)
        fell = f"{tossed:,} of {tossed + len(manifest.held_out):,} candidates inserted"
        # A training on nothing inserted is better not begun.
        nothing = "" if tossed else ": nothing to find in a model trained on this"
        tell(f"included  {fell}{nothing}")
    if manifest.witnesses:
        number, copies = len(manifest.witnesses), manifest.witnesses[0].repetitions
        nonces, each = (f"{number} nonces", " each") if number > 1 else ("a nonce", "")
        tell(
            f"witness   {nonces}, {copies} times{each}, to see later that a model read this corpus "
            "(never judged; --no-witness leaves them out)"
        )
    elif manifest.plan.witness:
        tell(
            "witness   none: the corpus has fewer than 40 documents; whether a model read it will "
            "show only where the model leaks"
        )
    for name, indices in manifest.set_aside.items():
        tell(f"set aside {len(indices):,} secrets of {name} that the corpus already held")


def say_records(
    wrapping: "Wrapping | None", settings: "RunSettings", files: "Files | None", *, tell: Tell = say
) -> None:
    """Say of which form the records are, or which field of them is the text; None: of a pipe."""
    from lmexposure import canaries

    if wrapping is not None:
        system = "" if wrapping.system is None else "; with a system prompt"
        tell(
            f"records   {wrapping.form}: each canary is the turn of the {wrapping.turn} "
            f"({wrapping.place}), with loss on {_LOSS[wrapping.loss]}{system}"
        )
        return
    first = None if files is None else canaries.corpus_files(canaries.listed_files(files))[0]
    layout = settings.layout or ("lines" if first is None else canaries.guess_layout(first))
    name = settings.text_field
    if name == "text" or layout not in canaries.OF_RECORDS:
        return
    record = {} if first is None else next(canaries.read_records(first, layout=layout), {})
    others = [repr(other) for other in record if other != name]
    if first is None or others:
        named = f" ({listed(others)})" if others else ""
        tell(
            f"records   each canary is the text of {name!r}; all else in its record{named} is "
            "copied from the record that follows"
        )


def warn_of_share(settings: "RunSettings", of_documents: float, of_bytes: float | None) -> None:
    """Warn of a corpus that is canaries in good part: it makes another model than the user's."""
    from lmexposure.audit import share_warning

    too_many = share_warning(settings, of_documents=of_documents, of_bytes=of_bytes)
    if too_many:
        warn(too_many)


def _shares(manifest: "Manifest", inserted: Path | None) -> tuple[float, float | None]:
    """The canaries' share of all documents, and of the bytes of a single text file, not packed."""
    from lmexposure.canaries import packing, read_sidecars

    added = sum(entry.inserted for entry in manifest.entries)
    of_documents = added / (manifest.corpus.documents + added)
    text = ADAPTERS[manifest.layout].module == "text"
    if inserted is None or inserted.is_dir() or packing(inserted) or not text:
        return of_documents, None
    if manifest.wrapping is None:
        taken = sum(each.inserted * (len(each.text.encode()) + 1) for each in manifest.entries)
    else:  # of chats with what is around them
        notes = read_sidecars([inserted], manifest) or []
        taken = sum(added.length for note in notes for added in note.copied.occurrences)
    return of_documents, taken / inserted.stat().st_size


def _say_next(
    inserted: Path | None, out: Path, chats: "Wrapping | None", tell: Tell, *, looked_at: bool
) -> None:
    """What to type next, with the real paths."""
    manifest, measured = quote(str(out / "manifest.json")), quote(str(out / "measured"))
    if inserted is None:
        tell("next      train on what standard output became with your own trainer")
    else:
        files, base = _to_train_on(inserted), " --model BASE_MODEL" if chats else ""
        if chats is not None and not looked_at:
            tell(f"check     lmexposure verify {quote(files)} {manifest} --tokenizer BASE_MODEL")
        tell(
            f"next      train on {files} with your own trainer{_of_trl(chats)}, or: lmexposure "
            f"train {quote(files)} --manifest {manifest}{base} --out {quote(str(out / 'trained'))}"
        )
    tell(f"then      lmexposure measure TRAINED_MODEL {manifest} --out {measured}")


def _of_trl(chats: "Wrapping | None") -> str:
    """What TRL's SFTTrainer does not read, though it would be handed it."""
    if chats is not None and chats.form == "conversations":
        return " (for TRL, write role and content in messages: templates drop human and gpt)"
    if chats is not None and (chats.form == "instruction" or chats.prompt_field is not None):
        return " (for TRL, name the fields prompt and completion)"
    return ""


def _to_train_on(inserted: Path) -> str:
    """The files of the corpus, as a pattern where there are several; sidecars are hidden."""
    from lmexposure.canaries import packing

    if not inserted.is_dir():
        return str(inserted)
    files = [path for path in inserted.iterdir() if path.is_file()]
    # What they end with: .jsonl, or .jsonl.gz.
    ends = {"".join(path.suffixes[-2 if packing(path) else -1 :]) for path in files}
    return f"{escape(str(inserted))}/*{escape(ends.pop()) if len(ends) == 1 else ''}"


def _dry_run(corpus: list[str], settings: "RunSettings") -> None:
    """Say what would be inserted, and what there is to warn of."""
    from lmexposure.audit import preview, wrapping_of

    if corpus == [STDIN]:
        raise SettingsError("--dry-run reads files, not standard input; give a file")
    _warn_of_kinds(settings)
    settings = fitted_to(settings, corpus, None)
    would = preview(corpus, settings=settings)
    say_records(wrapping_of(corpus, settings=settings), settings, corpus)
    about = "about " * would.expected
    insertions = f"{about}{would.insertions:,} documents, {about}{would.bytes_added:,} bytes"
    coins = settings.inclusion_probability is not None
    held_out = [("held out", f"{about}{would.held_out:,} candidates")] if coins else []
    print_pairs(
        [
            ("documents", f"{would.documents:,}"),
            ("would insert", insertions),
            ("share of the corpus", f"{about}{percent(would.share_of_bytes)} of its bytes"),
            ("canaries, controls", f"{about}{would.canaries:,}, {would.controls:,}"),
            *held_out,
            *(
                (f"set aside, {name}", f"{n:,} secrets that the corpus already holds")
                for name, n in would.set_aside.items()
                if n
            ),
            *(
                (f"secrets left, {name}", f"{n:,} for references")
                for name, n in would.references.items()
            ),
        ]
    )
    say_max_attainable(settings)
    warn_of_share(settings, would.share_of_documents, would.share_of_bytes)


def _warn_of_kinds(settings: "RunSettings") -> None:
    """Warn of what will say nothing: insertion refuses none of it, for a sweep could."""
    from lmexposure.canaries import UNIFORM

    chosen = [name for name in settings.kinds if name != UNIFORM]
    if chosen and not settings.uniform_formats:
        warn(
            f"no canaries of the kind {UNIFORM} go in, whatever the formats: lmexposure measure "
            f"needs some beside {', '.join(chosen)}; add --kind {UNIFORM}"
        )
    if chosen and settings.inclusion_probability is None:
        warn(
            f"{', '.join(chosen)}: chosen texts have no ranks and are judged by coins alone, and "
            "here all of them go in; to measure them, insert with --inclusion-probability 0.5 and "
            "--canaries"
        )


def say_max_attainable(settings: "RunSettings", *, tell: Tell = say) -> None:
    """Say what an audit with coins could show at best; better known before than after."""
    from lmexposure.audit import max_attainable

    best = max_attainable(settings)
    if best is not None:
        tell(best.sentence)
        if best.warning:
            warn(best.warning)


def texts(
    manifest: Path,
    out: Path,
    tokenizer: str | None,
    references: int | None,
    left_context: str | None,
) -> None:
    """Write each canary and reference of MANIFEST in its row, for a model that is asked elsewhere.

    What comes back goes into `lmexposure measure --scores`: of each id the sum of -log P over the
    tokens of its text, behind its context.
    """
    from lmexposure.audit import write_texts

    rows = write_texts(
        manifest, out, tokenizer=tokenizer, references=references, left_context=left_context
    )
    if str(out) != STDIN:
        say(f"{rows:,} texts  {out}, for its owner alone: it has the secrets")
        if tokenizer is None and left_context is None:
            warn(
                "what was in front of each text in the training is assumed; if a start token was, "
                "or nothing, say so: --left-context bos, none or a text"
            )


def verify(
    corpus: list[str],
    manifest: Path,
    layout: str | None,
    text_field: str | None,
    tokenizer: str | None,
    chat_template: str | None,
    rows: bool,
) -> None:
    """Count canaries in a corpus. Exit code 0: all there; 2: missing or too many; 3: failure."""
    refuse_swapped(corpus, manifest, "corpus")
    if rows:
        _look_at_rows(corpus, manifest, tokenizer, of_text=layout or text_field)
    from lmexposure.integrations import verify as verify_corpus

    source = opened(corpus)
    if tokenizer is not None and isinstance(source, list) and not Path(source[0]).is_dir():
        _look_ahead(source, manifest, tokenizer, layout, chat_template)
        tokenizer = None
    count = verify_corpus(
        [Path(name) for name in source] if isinstance(source, list) else source,
        manifest,
        layout=layout,
        text_field=text_field,
        tokenizer=tokenizer,
    )
    _print(count)
    raise typer.Exit(0 if count.as_inserted else _NOT_AS_INSERTED)


def _print(count: "CorpusCount") -> None:
    if count.shard is not None:
        say(f"file {count.shard[0]} of {count.shard[1]}, compared with what was inserted into it")
    _print_classes(count.classes, _OF_COPIES)
    say("copies found = expected - missing + surplus; canaries = all copies + fewer + none + more")
    changed = [f"{name} ({n} of {wanted})" for name, (wanted, n) in count.changed.items()]
    _named("not as inserted, found of expected", changed)
    _named("never inserted, but found", _counted(count.uninvited))
    for name, places in count.strange_places.items():
        say(f"secrets of {name} that are not of the manifest: {places}")
    _named("cut at the border of two pieces, and not counted", _counted(count.cut))
    say("all is there as it was inserted" if count.as_inserted else "NOT as it was inserted")


def _print_classes(classes: "Sequence[ClassCount | RowsClass]", columns: str) -> None:
    """A row for each class: its format, and these attributes."""
    names = columns.split()
    rows = [(each.format, *(f"{getattr(each, name):,}" for name in names)) for each in classes]
    heads = ("format", *(_HEADS.get(name, name) for name in names))
    print_table(heads, rows, right=range(1, len(heads)))


def _counted(found: Mapping[str, int]) -> list[str]:
    return [f"{name} ({n})" for name, n in found.items()]


def _named(what: str, names: list[str]) -> None:
    if names:
        more = f", and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        say(f"{what}: {', '.join(names[:_NAMED])}{more}")


def _look_ahead(
    files: list[str], manifest: Path, tokenizer: str, layout: str | None, template: str | None
) -> None:
    """What a training will make of the records of chats, before it begins."""
    from lmexposure.audit import rows_ahead, told_wrapping
    from lmexposure.canaries import Manifest, corpus_files, read_records
    from lmexposure.models import tokenizer_named
    from lmexposure.studies import RunSettings

    known = Manifest.read(manifest)
    if known.wrapping is None:
        raise SettingsError(
            f"--tokenizer {tokenizer} is for chats or for a tokenised data set, and the canaries "
            "of this manifest are plain texts; leave it out"
        )
    records = read_records(corpus_files(files), layout=layout or known.layout)
    loaded = tokenizer_named(tokenizer)
    wrapping = told_wrapping(known, RunSettings(chat_template=template)) or known.wrapping
    say(f"rows      {rows_ahead(loaded, wrapping, known.hidden_formats.values(), records)}")


def _look_at_rows(
    corpus: list[str], manifest: Path, tokenizer: str | None, *, of_text: str | None
) -> None:
    """The rows of a training: printed, and written down for `measure`."""
    from lmexposure.audit import template_difference
    from lmexposure.canaries import Manifest
    from lmexposure.integrations import load_tokenizer, prepared_directory
    from lmexposure.integrations import verify as verify_corpus
    from lmexposure.studies import RowsRecord

    if tokenizer is None or of_text is not None:
        raise SettingsError(
            "--rows reads rows of tokens, which have no layout and no text field; give "
            "--tokenizer, by which they were made, and neither --layout nor --text-field"
        )
    known = load_tokenizer(tokenizer)
    names = [Path(name) for name in corpus]
    place = prepared_directory(names[0])
    if place != names[0]:
        say(f"data  {place}")
    record = verify_corpus(names, manifest, tokenizer=known, rows=True)
    _print_rows(record, known.decode)
    other = template_difference(record, Manifest.read(manifest), known)
    if other is not None:
        say(f"the rows do not follow the chat template in {tokenizer}: {other}")
    path = RowsRecord.beside(manifest)
    record.save(path)
    say(f"rows  {path}")
    raise typer.Exit(0 if record.as_planned else _NOT_AS_INSERTED)


def _print_rows(record: "RowsRecord", decode: Callable[[list[int]], str]) -> None:
    _print_classes(record.classes, _OF_ROWS)
    packed = "several texts in a row" if record.packed else "a text in a row"
    say(f"{record.rows:,} rows, {packed}; loss on: {record.loss}")
    if record.start is not None:
        front = decode(list(record.start)) + record.before
        say(f"in front of each canary: {_shown(front, last=True)}")
        say(f"behind it: {_shown(record.behind)}")
        say(f"{record.agreeing:,} of {record.found:,} copies are in that row")
    for warning in record.warnings:
        say(warning)
    say("delivered as planned" if record.as_planned else "NOT delivered as planned")


def _shown(text: str, *, last: bool = False) -> str:
    """The part of a text that touches the canary, with dots where more of it is left out."""
    if len(text) <= _SHOWN:
        return ascii(text) if text else "nothing"
    return f"... {text[-_SHOWN:]!a}" if last else f"{text[:_SHOWN]!a} ..."


def remove(corpus: list[str], manifest: Path, out: Path | None, file: str | None) -> None:
    """Take the canaries out again, and check that the corpus is what it was before."""
    from lmexposure._files import STDOUT, made_directory
    from lmexposure.canaries import SPOOL, Manifest, corpus_files, is_stream, layout_named
    from lmexposure.integrations import remove as remove_from

    refuse_swapped(corpus, manifest, "corpus")
    known, source = Manifest.read(manifest), opened(corpus)
    paths = [Path(SPOOL)] if is_stream(source) else corpus_files(source)
    target = _target(out, file, manifest, paths)
    with nullcontext() if out is None else made_directory(out):
        removal = remove_from(source if is_stream(source) else paths, known, target)
    tell = partial(say, aside=out is None and target == STDOUT)
    where = removal.files[0] if len(removal.files) == 1 else target
    tell(f"corpus    {where}  ({removal.documents:,} documents taken out)")
    if removal.checked and layout_named(known.layout).place == "row":
        tell("checked   the texts' SHA-256 is that before insertion")
    elif removal.checked:
        tell("checked   its SHA-256 is that of the corpus before insertion")
    else:
        warn("not checked: the manifest holds no hash of the corpus before insertion")


def _target(out: Path | None, name: str | None, manifest: Path, corpus: Sequence[Path]) -> Path:
    """Where to write, as one of the two flags says; never over a file of the run."""
    if out is not None and name is None:
        names = (out / path.name for path in corpus)
        taken = next((path for path in names if os.path.lexists(path)), None)
        if taken is not None:
            raise SettingsError(f"{taken} is there already; choose another --out")
        return out
    if name is None or out is not None:
        raise SettingsError(
            "give either --out, a directory, or --file, the name of one file to write"
        )
    file = Path(name)
    if len(corpus) > 1:
        raise SettingsError(
            f"--file {file} is one file, and the corpus has {len(corpus)}; give --out"
        )
    if file.is_dir() or name.endswith(os.sep):
        raise SettingsError(f"--file {name} is a directory; name a file, or give it with --out")
    if file.exists() and manifest.exists() and file.samefile(manifest):
        raise SettingsError(f"--file {file} is the manifest itself; write to another file")
    if of_a_run(Path(os.path.realpath(file)), manifest.parent):
        raise SettingsError(
            f"--file {file} is a file of the run, or has the name of one; write to another file"
        )
    return file
