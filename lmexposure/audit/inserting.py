"""Inserting as a step of a run: the corpus and its manifest in their places, once."""

from pathlib import Path

from lmexposure._files import sha256_file
from lmexposure.audit.settings import RunSettings
from lmexposure.canaries import (
    Manifest,
    Plan,
    Preview,
    guess_layout,
    insert_into_file,
    load_format,
    preview_insertion,
)
from lmexposure.errors import ResultError

__all__ = ["insert_corpus", "plan_of", "preview"]


def plan_of(settings: RunSettings) -> Plan:
    """The plan that the settings ask for.

    Raises:
        FormatError: a format that cannot be found or read.
        PlanError: more secrets than a format has, explicit references counted in.
    """
    plan = Plan(
        formats=tuple(load_format(name) for name in settings.formats),
        canaries=settings.per_class,
        repetitions=settings.repetitions,
        controls=settings.controls,
        seed=settings.seed,
        coins=settings.coins,
    )
    plan.check_space(references=settings.measure.references or 1)
    return plan


def preview(corpus: str | Path, *, settings: RunSettings) -> Preview:
    """What `insert_corpus` would do; nothing is written.

    Raises:
        CorpusError, FormatError, PlanError: as for `insert_corpus`.
    """
    return preview_insertion(
        corpus,
        plan_of(settings),
        layout=settings.layout or guess_layout(corpus),
        text_field=settings.text_field,
        existing=settings.existing,
    )


def insert_corpus(
    corpus: str | Path, *, out: str | Path, settings: RunSettings
) -> tuple[Path, Manifest]:
    """Insert a plan's canaries into a copy of a corpus; skipped when it is done already.

    Args:
        corpus: a UTF-8 text file or JSONL.
        out: directory; gets `corpus/NAME` and `manifest.json` (mode 0600).
        settings: what to insert.

    Returns:
        path of the new corpus, and the manifest.

    Raises:
        CorpusError: the corpus cannot be used, or holds fills of a format already.
        FormatError: a format that cannot be found or read.
        PlanError: the plan does not fit the corpus or a format.
        ResultError: `out` holds the manifest of another plan or corpus.
        FileError: the disk refused.
    """
    source, out = Path(corpus), Path(out)
    inserted, record = out / "corpus" / source.name, out / "manifest.json"
    plan = plan_of(settings)
    if record.exists():
        manifest = Manifest.read(record)
        _check_same(out, manifest, plan, source, settings)
        if inserted.exists() and sha256_file(inserted) == manifest.corpus.sha256_inserted:
            return inserted, manifest
    manifest = insert_into_file(
        source,
        plan,
        inserted,
        layout=settings.layout or guess_layout(source),
        text_field=settings.text_field,
        existing=settings.existing,
    )
    manifest.write(record)
    return inserted, manifest


def _check_same(
    out: Path, manifest: Manifest, plan: Plan, source: Path, settings: RunSettings
) -> None:
    """Refuse to overwrite what another plan, another corpus or another reading of it left."""
    layout = settings.layout or guess_layout(source)
    field = settings.text_field if layout == "jsonl" else None
    same = {
        "plan": manifest.plan == plan,
        "layout": manifest.layout == layout,
        "text field": manifest.corpus.text_field == field,
        "choice about existing fills": not manifest.set_aside or settings.existing == "set_aside",
        "corpus": not source.exists() or sha256_file(source) == manifest.corpus.sha256,
    }
    for what, unchanged in same.items():
        if not unchanged:
            raise ResultError(
                f"{out} holds a manifest of another {what}; choose another --out, or remove it"
            )
