"""Inserting as a step of a run: the corpus and its manifest in their places, once."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lmexposure._integrity import say_rebuilt
from lmexposure._locks import only_writer
from lmexposure._style import percent
from lmexposure.canaries import (
    Manifest,
    Plan,
    Preview,
    Shape,
    corpus_sha256,
    fresh_seed,
    guess_layout,
    insert_into_file,
    load_format,
    preview_insertion,
    shape_named,
)
from lmexposure.errors import CorpusError, ResultError
from lmexposure.records import RunSettings

# Beyond, canaries are a part of what the model learns, and it is no longer the model of the corpus.
_FEWEST = 10  # of a class: the gate takes no fewer for a pass
_MOST_OF_TOKENS, _MOST_OF_DOCUMENTS = 0.01, 0.05


def plan_of(settings: RunSettings) -> Plan:
    """The plan that the settings ask for; its secrets and coins are fresh unless they have a seed.

    Raises:
        FormatError: a format that cannot be found or read.
        PlanError: more secrets than a format has, explicit references counted in.
    """
    plan = Plan(
        formats=tuple(load_format(name) for name in settings.formats),
        canaries=settings.per_class,
        repetitions=settings.repetitions,
        controls=settings.controls,
        seed=fresh_seed() if settings.seed is None else settings.seed,
        inclusion_probability=settings.inclusion_probability,
        inclusion_seed=fresh_seed() if _fresh_coins(settings) else settings.inclusion_seed,
    )
    plan.check_space(references=settings.measure.references or 1)
    return plan


def _fresh_coins(settings: RunSettings) -> bool:
    return settings.inclusion_probability is not None and settings.inclusion_seed is None


def _drawn_before(plan: Plan, manifest: Manifest, settings: RunSettings) -> Plan:
    """The plan with the seeds that were drawn for its directory once, where it has none."""
    seeds: dict[str, Any] = {}
    if settings.seed is None:
        seeds["seed"] = manifest.plan.seed
    if _fresh_coins(settings) and manifest.plan.inclusion_seed is not None:
        seeds["inclusion_seed"] = manifest.plan.inclusion_seed
    return replace(plan, **seeds)


def preview(
    corpus: Sequence[str | Path], *, settings: RunSettings, shape: Shape | None = None
) -> Preview:
    """What an insertion would do; nothing is written, and no fresh coin is tossed.

    Args:
        corpus: its files.
        settings: what to insert.
        shape: what a document is; None: as the settings or the first file's suffix say.

    Raises:
        CorpusError, FormatError, PlanError: as for `insert_corpus`.
    """
    plan, fresh = plan_of(settings), _fresh_coins(settings)
    would = preview_insertion(
        corpus,
        replace(plan, inclusion_probability=None, inclusion_seed=None) if fresh else plan,
        shape=shape or _shape(corpus[0], settings),
        existing=settings.existing,
    )
    probability = settings.inclusion_probability
    return would if probability is None or not fresh else _on_average(would, probability)


def _on_average(everyone: Preview, probability: float) -> Preview:
    """What coins give on average, from what inserting every candidate would."""
    canaries = round(probability * everyone.canaries)
    return replace(
        everyone,
        insertions=round(probability * everyone.insertions),
        bytes_added=round(probability * everyone.bytes_added),
        canaries=canaries,
        held_out=everyone.canaries - canaries,
        expected=True,
    )


def share_warning(
    settings: RunSettings, *, of_documents: float, of_bytes: float | None
) -> str | None:
    """That the canaries are too large a part of the corpus, and what to change; None: they are not.

    Args:
        settings: what was inserted, or will be.
        of_documents: inserted documents / all documents after insertion.
        of_bytes: inserted bytes / all bytes after insertion, which stands for the share of tokens:
            no tokenizer is known here; None where no size is known.
    """
    said, above = [], 1.0
    if of_bytes is not None and of_bytes > _MOST_OF_TOKENS:
        said.append(
            f"{percent(of_bytes)} of the corpus' bytes (about their share of its tokens, which "
            f"should be at most {percent(_MOST_OF_TOKENS)})"
        )
        above = max(above, of_bytes / _MOST_OF_TOKENS)
    if of_documents > _MOST_OF_DOCUMENTS:
        said.append(
            f"{percent(of_documents)} of its documents (at most {percent(_MOST_OF_DOCUMENTS)})"
        )
        above = max(above, of_documents / _MOST_OF_DOCUMENTS)
    if not said:
        return None
    return (
        f"the canaries are {' and '.join(said)}: a model trained on it learns them more than a "
        f"model of your corpus would; {_fewer(settings, above)}, or take more text"
    )


def _fewer(settings: RunSettings, above: float) -> str:
    """What brings the share down by this factor."""
    enough = int(settings.per_class / above)
    copies = f"lower repetitions (now {','.join(map(str, settings.repetitions))})"
    if enough >= _FEWEST:
        return f"plan {enough} canaries (now {settings.per_class}), or {copies}"
    fewer = "" if settings.per_class <= _FEWEST else f" and canaries (now {settings.per_class})"
    return f"{copies}{fewer}"


def insert_corpus(
    corpus: str | Path, *, out: str | Path, settings: RunSettings
) -> tuple[Path, Manifest]:
    """Insert a plan's canaries into a copy of a corpus; skipped when it is done already.

    What was drawn for `out` once is not drawn again: its manifest has the seeds of secrets and
    coins, where the settings have none.

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
        ResultError: `out` holds the manifest of another plan or corpus, or another process is at
            work there.
        FileError: the disk refused.
    """
    with only_writer(out):
        return _insert(Path(corpus), Path(out), settings)


def _insert(source: Path, out: Path, settings: RunSettings) -> tuple[Path, Manifest]:
    inserted, record = out / "corpus" / source.name, out / "manifest.json"
    plan, before = plan_of(settings), None
    if record.exists():
        before = Manifest.read(record)
        plan = _drawn_before(plan, before, settings)
        _check_same(out, before, plan, source, settings)
        if _whole(inserted, before, settings):
            return inserted, before
    manifest = insert_into_file(
        source,
        plan,
        inserted,
        layout=settings.layout or guess_layout(source),
        text_field=settings.text_field,
        existing=settings.existing,
    )
    if manifest == before:  # it may be of an older version, and keeps the name it had there
        return inserted, before
    manifest.write(record)
    return inserted, manifest


def _whole(inserted: Path, manifest: Manifest, settings: RunSettings) -> bool:
    """Whether the corpus is what insertion wrote; a damaged one is named, and inserted again."""
    if not inserted.exists():
        return False
    try:
        whole = _hash(inserted, settings) == manifest.corpus.sha256_inserted
    except CorpusError:  # packed files and Parquet cannot be read at all
        whole = False
    if not whole:
        say_rebuilt(inserted)
    return whole


def _hash(path: Path, settings: RunSettings) -> str:
    """As insertion hashes a corpus: what it says, however it is packed."""
    return corpus_sha256(path, _shape(path, settings))


def _shape(path: str | Path, settings: RunSettings) -> Shape:
    return shape_named(settings.layout or guess_layout(path), text_field=settings.text_field)


def _check_same(
    out: Path, manifest: Manifest, plan: Plan, source: Path, settings: RunSettings
) -> None:
    """Refuse to overwrite what another plan, another corpus or another reading of it left."""
    layout = settings.layout or guess_layout(source)
    field = settings.text_field if layout in ("jsonl", "parquet") else None
    same = {
        "plan": manifest.plan == plan,
        "layout": manifest.layout == layout,
        "text field": manifest.corpus.text_field == field,
        "choice about existing fills": not manifest.set_aside or settings.existing == "set_aside",
        "corpus": not source.exists() or _hash(source, settings) == manifest.corpus.sha256,
    }
    for what, unchanged in same.items():
        if not unchanged:
            raise ResultError(f"{out} holds a manifest of another {what}; choose another directory")
