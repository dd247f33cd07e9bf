"""`lmexposure insert`: a corpus with canaries, and the manifest to score them by."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmexposure.cli import options
from lmexposure.cli.console import print_pairs, say, warn

if TYPE_CHECKING:
    from lmexposure.audit import RunSettings
    from lmexposure.canaries import Manifest, Preview

__all__ = ["insert", "say_attainable"]


def insert(
    corpus: options.Corpus,
    out: Annotated[Path, typer.Option(help="Directory for the new corpus and manifest.json.")],
    formats: options.Formats = None,
    canaries: options.Canaries = None,
    coins: options.Coins = None,
    candidates: options.Candidates = None,
    coin_seed: options.CoinSeed = None,
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
        _print_preview(preview(corpus, settings=chosen), coins=chosen.coins != "fixed")
        say_attainable(chosen)
        return
    say_attainable(chosen)
    inserted, manifest = insert_corpus(corpus, out=out, settings=chosen)
    count = sum(one.inserted for one in manifest.canaries)
    say(f"corpus    {inserted}  ({count:,} documents inserted)")
    if chosen.coins != "fixed":
        say(f"coins     {_tossed(manifest)}")
    for name, indices in manifest.set_aside.items():
        say(f"set aside {len(indices):,} fills of {name} that the corpus held already")
    say(f"manifest  {out / 'manifest.json'}  (holds the secrets; keep it apart from the corpus)")


def say_attainable(settings: "RunSettings") -> None:
    """What an audit with coins could show at best; better known before than after."""
    from lmexposure.audit.power import attainable

    best = attainable(settings)
    if best is not None:
        say(best.sentence)
        if best.warning:
            warn(best.warning)


def _print_preview(would: "Preview", *, coins: bool) -> None:
    about = "about " * would.expected
    insertions = f"{about}{would.insertions:,} documents, {about}{would.bytes_added:,} bytes"
    pairs = [
        ("documents", f"{would.documents:,}"),
        ("would insert", insertions),
        ("share of the corpus", f"{about}{would.share_of_bytes:.2%} of its bytes"),
        ("canaries, controls", f"{about}{would.canaries:,}, {would.controls:,}"),
    ]
    if coins:
        pairs.append(("excluded by coins", f"{about}{would.excluded:,} candidates"))
    pairs += [
        (f"set aside, {name}", f"{n:,} fills that the corpus holds already")
        for name, n in would.set_aside.items()
        if n
    ]
    pairs += [
        (f"fills left, {name}", f"{n:,} for references") for name, n in would.references.items()
    ]
    print_pairs(pairs)


def _tossed(manifest: "Manifest") -> str:
    """How the coins fell; a training on nothing inserted should surprise nobody."""
    roles = [one.role for one in manifest.canaries if one.role != "control"]
    fell = f"{roles.count('canary'):,} of {len(roles):,} candidates inserted"
    return fell if "canary" in roles else f"{fell}: nothing to find in a model trained on this"
