"""`lmexposure remove`: the corpus as it was before insertion."""

import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from lmexposure.cli import options
from lmexposure.cli.console import say, warn


def remove(
    corpus: Annotated[
        list[str],
        typer.Argument(
            help="What insertion wrote: a file, several, or a pattern in quotes, 'DIRECTORY/*' for "
            "a directory's files; - reads standard input."
        ),
    ],
    manifest: options.Manifest,
    out: Annotated[
        Path | None, options.out_option("For the corpus, each file under its own name.")
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            metavar="<path>",
            help="For a single file, instead of --out: a name or a link; - is standard output.",
        ),
    ] = None,
) -> None:
    """Take the canaries out again, and check that the corpus is what it was before."""
    from lmexposure._files import STDOUT, made_directory
    from lmexposure.canaries import SPOOL, Manifest, corpus_files, is_stream, layout_named
    from lmexposure.integrations import remove as remove_from

    options.refuse_swapped(corpus, manifest, "corpus")
    known, source = Manifest.read(manifest), options.opened(corpus)
    paths = [Path(SPOOL)] if is_stream(source) else corpus_files(source)
    target = _target(out, file, manifest, paths)
    aside = out is None and target == STDOUT
    with nullcontext() if out is None else made_directory(out):
        removal = remove_from(source if is_stream(source) else paths, known, target)
    where = removal.files[0] if len(removal.files) == 1 else target
    say(f"corpus    {where}  ({removal.documents:,} documents taken out)", aside=aside)
    if removal.checked and layout_named(known.layout).place == "row":
        say("checked   the texts' SHA-256 is that before insertion", aside=aside)
    elif removal.checked:
        say("checked   its SHA-256 is that of the corpus before insertion", aside=aside)
    else:
        warn("not checked: the manifest holds no hash of the corpus before insertion")


def _target(out: Path | None, name: str | None, manifest: Path, corpus: Sequence[Path]) -> Path:
    """Where to write, as one of the two flags says; never over a file of the run."""
    from lmexposure.errors import SettingsError

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
    if options.of_a_run(Path(os.path.realpath(file)), manifest.parent):
        raise SettingsError(
            f"--file {file} is a file of the run, or has the name of one; write to another file"
        )
    return file
