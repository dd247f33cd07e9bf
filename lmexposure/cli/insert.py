"""`lmexposure insert`: a corpus with canaries, and the manifest to score them by."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmexposure.cli import options
from lmexposure.cli.console import print_pairs, say

if TYPE_CHECKING:
    from lmexposure.canaries import Manifest

__all__ = ["insert"]


def insert(
    corpus: options.Corpus,
    out: Annotated[Path, typer.Option(help="Directory for the new corpus and manifest.json.")],
    formats: options.Formats = None,
    canaries: options.Canaries = None,
    coins: options.Coins = None,
    candidates: options.Candidates = None,
    repetitions: options.Repetitions = None,
    controls: options.Controls = None,
    seed: options.Seed = None,
    layout: options.Layout = None,
    text_field: options.TextField = None,
    existing: options.Existing = None,
    settings: options.SettingsFile = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
) -> None:
    """Insert canaries into a corpus; write OUT/corpus/NAME and OUT/manifest.json."""
    chosen = options.merged(locals(), apart=("corpus", "out", "dry_run"))
    from lmexposure.audit import insert_corpus, preview

    if dry_run:
        would = preview(corpus, settings=chosen)
        print_pairs(
            [
                ("documents", f"{would.documents:,}"),
                ("would insert", f"{would.insertions:,} documents, {would.bytes_added:,} bytes"),
                ("share of the corpus", f"{would.share_of_bytes:.2%} of its bytes"),
                ("canaries, controls", f"{would.canaries:,}, {would.controls:,}"),
                *(
                    [("excluded by coins", f"{would.excluded:,} candidates")]
                    if chosen.coins != "fixed"
                    else []
                ),
                *(
                    (f"set aside, {name}", f"{n:,} fills that the corpus holds already")
                    for name, n in would.set_aside.items()
                    if n
                ),
                *(
                    (f"fills left, {name}", f"{n:,} for references")
                    for name, n in would.references.items()
                ),
            ]
        )
        return
    inserted, manifest = insert_corpus(corpus, out=out, settings=chosen)
    count = sum(one.inserted for one in manifest.canaries)
    say(f"corpus    {inserted}  ({count:,} documents inserted)")
    if chosen.coins != "fixed":
        say(f"coins     {_tossed(manifest)}")
    for name, indices in manifest.set_aside.items():
        say(f"set aside {len(indices):,} fills of {name} that the corpus held already")
    say(f"manifest  {out / 'manifest.json'}  (holds the secrets; keep it apart from the corpus)")


def _tossed(manifest: "Manifest") -> str:
    """How the coins fell; a training on nothing inserted should surprise nobody."""
    roles = [one.role for one in manifest.canaries if one.role != "control"]
    fell = f"{roles.count('canary'):,} of {len(roles):,} candidates inserted"
    return fell if "canary" in roles else f"{fell}: nothing to find in a model trained on this"
