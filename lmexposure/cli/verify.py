"""`lmexposure verify`: which canaries a corpus really holds, whatever was done to it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmexposure.canaries import layouts_listed
from lmexposure.cli import options
from lmexposure.cli.console import print_table, say

if TYPE_CHECKING:
    from lmexposure.canaries import CorpusCount

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


def verify(
    corpus: Annotated[
        list[str],
        typer.Argument(
            help="Text, JSONL or Parquet; .gz and .zst too; several files, or a pattern in quotes, "
            "'DIRECTORY/*' for a directory's files; - reads standard input; or the directory of a "
            "saved tokenised data set, with --tokenizer."
        ),
    ],
    manifest: Annotated[Path, typer.Argument(help="The manifest.json of the insertion.")],
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
        typer.Option(help="The tokenizer of a tokenised data set: a directory or hub name."),
    ] = None,
) -> None:
    """Count canaries in a corpus. Exit code 0: all there; 2: missing or too many; 3: failure."""
    from lmexposure.integrations import verify as verify_corpus

    source = options.opened(corpus)
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


def _named(what: str, names: list[str]) -> None:
    if names:
        more = f", and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        say(f"{what}: {', '.join(names[:_NAMED])}{more}")
