"""`lmexposure verify`: what of the canaries is really in a corpus, whatever was done to it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmexposure.cli import options
from lmexposure.cli.console import print_table, say

if TYPE_CHECKING:
    from lmexposure.canaries import CorpusCount, Manifest

_AMISS = 2
_NAMED = 10
# Columns of copies, then of canaries, each of which has so many of its copies.
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
            help="Text, JSONL or Parquet; .gz and .zst too; a pattern in quotes or several files; "
            "or the directory of a saved tokenised data set, with --tokenizer."
        ),
    ],
    manifest: Annotated[Path, typer.Argument(help="The manifest.json of the insertion.")],
    layout: Annotated[
        str | None,
        typer.Option(
            help="lines, paragraphs, jsonl or parquet.  [default: by the file's suffix, else the "
            "manifest's]"
        ),
    ] = None,
    text_field: Annotated[str | None, options.option("text_field")] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="Of a tokenised data set: a directory or hub name.")
    ] = None,
) -> None:
    """Count canaries in a corpus. Exit code 0 all there, 2 missing or too many, 3 failure."""
    from lmexposure.canaries import Manifest

    known = Manifest.read(manifest)
    count = _counted(corpus, known, layout, text_field, tokenizer)
    _print(count)
    raise typer.Exit(0 if count.as_inserted else _AMISS)


def _counted(
    corpus: list[str],
    manifest: "Manifest",
    layout: str | None,
    text_field: str | None,
    tokenizer: str | None,
) -> "CorpusCount":
    from lmexposure.canaries import count_files
    from lmexposure.cli.inserting import shape_of
    from lmexposure.errors import SettingsError

    if (tokenizer is not None) != (len(corpus) == 1 and Path(corpus[0]).is_dir()):
        raise SettingsError(
            f"{corpus[0]}: --tokenizer goes with the directory of a saved tokenised data set, and "
            "such a directory with --tokenizer; give files, or both"
        )
    if tokenizer is not None:
        return _tokenised(corpus[0], manifest, tokenizer)
    field = text_field or manifest.corpus.text_field or "text"
    shape = shape_of(corpus, layout, field)
    if manifest.layout == "chat" and text_field is None and shape.name in ("jsonl", "parquet"):
        raise SettingsError(
            "the canaries of this manifest stand in chats, and records are read by one text field; "
            "name the --text-field that holds whole chats as text, or give the tokenised data set "
            "with --tokenizer"
        )
    if layout is None and (shape.name, manifest.layout) == ("lines", "paragraphs"):
        shape = shape_of(corpus, "paragraphs", field)
    return count_files(corpus, manifest, shape=shape)


def _tokenised(directory: str, manifest: "Manifest", name: str) -> "CorpusCount":
    from transformers import AutoTokenizer

    import lmexposure.models  # noqa: F401  (registers our own tokenizers)
    from lmexposure.canaries.corpora.tokenised import count_tokenised, saved_tokens
    from lmexposure.errors import ModelError

    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except Exception as failure:  # whatever damaged files ran into
        raise ModelError(
            f"cannot load a tokenizer from {name!r}: {_reason(failure)}; give the "
            "directory or hub name that the data set was tokenised with"
        ) from failure
    return count_tokenised(
        saved_tokens(directory),
        manifest,
        decode=lambda ids: tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        ),
    )


def _reason(failure: Exception) -> str:
    return str(failure).strip().split("\n")[0] or type(failure).__name__


def _print(count: "CorpusCount") -> None:
    if count.shard is not None:
        say(f"file {count.shard[0]} of {count.shard[1]}, held against what was put into this one")
    rows = [
        (one.format, *(f"{getattr(one, name):,}" for name in _COLUMNS.values()))
        for one in count.classes
    ]
    print_table(("format", *_COLUMNS), rows, right=range(1, len(_COLUMNS) + 1))
    say("copies found = expected - missing + surplus; canaries = all copies + fewer + none + more")
    changed = [f"{name} ({n} of {wanted})" for name, (wanted, n) in count.changed.items()]
    _named("not as inserted, found of expected", changed)
    uninvited = [f"{name} ({n})" for name, n in count.uninvited.items()]
    _named("never inserted, and yet there", uninvited)
    for name, places in count.strange_places.items():
        say(f"fills of {name} that are not of the manifest: {places}")
    cut = [f"{name} ({n})" for name, n in count.cut.items()]
    _named("cut by the border of two pieces, and not counted", cut)
    say("all is there as it was inserted" if count.as_inserted else "NOT as it was inserted")


def _named(what: str, names: list[str]) -> None:
    if names:
        more = f", and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        say(f"{what}: {', '.join(names[:_NAMED])}{more}")
