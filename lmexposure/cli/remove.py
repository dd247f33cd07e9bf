"""`lmexposure remove`: the corpus as it was before insertion."""

import os
from pathlib import Path
from typing import Annotated

import typer

from lmexposure.cli.console import say, warn

__all__ = ["remove"]


def remove(
    corpus: Annotated[
        list[str], typer.Argument(help="What insertion wrote: a file, several, or a pattern.")
    ],
    manifest: Annotated[Path, typer.Argument(help="The manifest.json of the insertion.")],
    out: Annotated[Path, typer.Option(help="A file; for several files a new directory.")],
) -> None:
    """Take the canaries out again, and check that the corpus is what it was before."""
    from lmexposure._files import is_standard_output
    from lmexposure.canaries import Manifest, remove_from_files
    from lmexposure.cli.gate_options import of_a_run
    from lmexposure.errors import SettingsError

    if out.exists() and manifest.exists() and out.samefile(manifest):
        raise SettingsError(f"--out {out} is the manifest itself; write to another file")
    if not out.is_dir() and of_a_run(Path(os.path.realpath(out)), manifest.parent):
        raise SettingsError(
            f"--out {out} is a file of the run, or has the name of one; write to another file"
        )
    removal = remove_from_files(corpus, Manifest.read(manifest), out)
    where = removal.files[0] if len(removal.files) == 1 else out
    aside = is_standard_output(out)
    say(f"corpus    {where}  ({removal.documents:,} documents taken out)", aside=aside)
    if removal.checked:
        say("checked   its SHA-256 is that of the corpus before insertion", aside=aside)
    else:
        warn("not checked: the manifest holds no hash of the corpus before insertion")
