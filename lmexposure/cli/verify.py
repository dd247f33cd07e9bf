"""`lmexposure verify`: which canaries a corpus really holds, whatever was done to it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmexposure.canaries import layouts_listed
from lmexposure.cli import options
from lmexposure.cli.console import print_table, say

if TYPE_CHECKING:
    from lmexposure.canaries import CorpusCount
    from lmexposure.studies import RowsRecord

_NOT_AS_INSERTED = 2
_NAMED = 10
# Columns of copies, then of canaries by how many of their copies are there.
_COLUMNS = {
    "repetitions": "repetitions",
    "copies expected": "expected",
    "missing": "missing",
    "surplus": "surplus",
    "copies found": "found",
    "canaries": "canaries",
    "all copies": "complete",
    "fewer": "fewer",
    "none": "lost",
    "more": "more",
}
# Of occurrences, in the rows of a training.
_OCCURRENCES = {
    "repetitions": "repetitions",
    "canaries": "canaries",
    "planned": "planned",
    "whole": "whole",
    "cut": "cut",
    "missing": "missing",
    "without loss": "without_loss",
    "in another row": "otherwise",
}
_SHOWN = 160  # characters of what is next to a canary


def verify(
    corpus: Annotated[
        list[str],
        typer.Argument(
            help="Text, JSONL or Parquet; .gz and .zst too; several files, or a pattern in quotes, "
            "'DIRECTORY/*' for a directory's files; - reads standard input; or the directory of a "
            "saved tokenised data set, Axolotl's dataset_prepared_path and LLaMA-Factory's "
            "tokenized_path among them, with --tokenizer."
        ),
    ],
    manifest: options.Manifest,
    layout: Annotated[
        str | None,
        typer.Option(
            help=f"{layouts_listed()}.  [default: by the file's suffix, else the manifest's]"
        ),
    ] = None,
    text_field: Annotated[
        str | None,
        typer.Option(
            help="The JSONL field that holds the text.  [default: the manifest's, else text]"
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="The tokenizer of a tokenised data set: a directory or hub name. Of files of "
            "chats that of the training to come: what it makes of their rows is looked at."
        ),
    ] = None,
    chat_template: Annotated[
        str | None, typer.Option(help="Of files of chats, a file with the training's template.")
    ] = None,
    rows: Annotated[
        bool,
        typer.Option(
            "--rows",
            help="Of a tokenised data set: find out in which rows the training has the canaries "
            "(what is in front and behind, truncation, packing, loss), and write rows.json beside "
            "the manifest, where measure finds it.",
        ),
    ] = False,
) -> None:
    """Count canaries in a corpus. Exit code 0: all there; 2: missing or too many; 3: failure."""
    options.refuse_swapped(corpus, manifest, "corpus")
    if rows:
        _look_at_rows(corpus, manifest, tokenizer, of_text=layout or text_field)
    from lmexposure.integrations import verify as verify_corpus

    source = options.opened(corpus)
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
    rows = [
        (row.format, *(f"{getattr(row, name):,}" for name in _COLUMNS.values()))
        for row in count.classes
    ]
    print_table(("format", *_COLUMNS), rows, right=range(1, len(_COLUMNS) + 1))
    say("copies found = expected - missing + surplus; canaries = all copies + fewer + none + more")
    changed = [f"{name} ({n} of {wanted})" for name, (wanted, n) in count.changed.items()]
    _named("not as inserted, found of expected", changed)
    uninvited = [f"{name} ({n})" for name, n in count.uninvited.items()]
    _named("never inserted, but found", uninvited)
    for name, places in count.strange_places.items():
        say(f"fills of {name} that are not of the manifest: {places}")
    cut = [f"{name} ({n})" for name, n in count.cut.items()]
    _named("cut at the border of two pieces, and not counted", cut)
    say("all is there as it was inserted" if count.as_inserted else "NOT as it was inserted")


def _look_ahead(
    files: list[str], manifest: Path, tokenizer: str, layout: str | None, template: str | None
) -> None:
    """What a training will make of the records of chats, before it begins."""
    from lmexposure.audit import rows_ahead, told_wrapping
    from lmexposure.canaries import Manifest, corpus_files, read_records
    from lmexposure.errors import SettingsError
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
    formats = known.hidden_formats.values()
    wrapping = told_wrapping(known, RunSettings(chat_template=template)) or known.wrapping
    say(f"rows      {rows_ahead(loaded, wrapping, formats, records)}")


def _look_at_rows(
    corpus: list[str], manifest: Path, tokenizer: str | None, *, of_text: str | None
) -> None:
    """The rows of a training: printed, and written down for `measure`."""
    from lmexposure.audit import template_difference
    from lmexposure.canaries import Manifest
    from lmexposure.errors import SettingsError
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
    table = [
        (each.format, *(f"{getattr(each, name):,}" for name in _OCCURRENCES.values()))
        for each in record.classes
    ]
    print_table(("format", *_OCCURRENCES), table, right=range(1, len(_OCCURRENCES) + 1))
    packed = "several texts in a row" if record.packed else "a text in a row"
    say(f"{record.rows:,} rows, {packed}; loss on: {record.loss}")
    if record.start is not None:
        front = decode(list(record.start)) + record.before
        say(f"in front of each canary: {_shown(front, last=True)}")
        say(f"behind it: {_shown(record.behind)}")
        say(f"{record.agreeing:,} of {record.found:,} occurrences are in that row")
    for warning in record.warnings:
        say(warning)
    say("delivered as planned" if record.as_planned else "NOT delivered as planned")


def _shown(text: str, *, last: bool = False) -> str:
    """The part of a text that touches the canary, with dots where more of it is left out."""
    if len(text) <= _SHOWN:
        return ascii(text) if text else "nothing"
    return f"... {text[-_SHOWN:]!a}" if last else f"{text[:_SHOWN]!a} ..."


def _named(what: str, names: list[str]) -> None:
    if names:
        more = f", and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        say(f"{what}: {', '.join(names[:_NAMED])}{more}")
