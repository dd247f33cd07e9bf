"""Inserting as a step of a run: the corpus and its manifest in their places, once."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO

from lmexposure._style import percent
from lmexposure.canaries import (
    Files,
    Manifest,
    Plan,
    Preview,
    Reading,
    copies_of,
    corpus_files,
    fresh_seed,
    insert_copies,
    insert_through,
    is_stream,
    layout_for,
    listed_files,
    load_format,
    preview_insertion,
)
from lmexposure.errors import CorpusError
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


def preview(corpus: Files, *, settings: RunSettings) -> Preview:
    """What an insertion would do; nothing is written, and no fresh coin is tossed.

    Args:
        corpus: a file, several, or patterns.
        settings: what to insert.

    Raises:
        CorpusError, FormatError, PlanError: as for `insert_corpus`.
    """
    plan, fresh = plan_of(settings), _fresh_coins(settings)
    files = corpus_files(listed_files(corpus))
    would = preview_insertion(
        files,
        replace(plan, inclusion_probability=None, inclusion_seed=None) if fresh else plan,
        layout=layout_for(files, settings.layout, settings.text_field),
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
        of_bytes: inserted bytes / all bytes after insertion, taken for the share of tokens:
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
    corpus: Files | IO[bytes],
    *,
    out: str | Path,
    settings: RunSettings,
    target: IO[bytes] | None = None,
    documents: int | None = None,
    verify: bool = True,
) -> tuple[Path, Manifest]:
    """Insert a plan's canaries into copies of a corpus; skipped when it is done already.

    What was drawn for `out` once is not drawn again: its manifest has the seeds of secrets and
    coins, where the settings have none.

    Args:
        corpus: files, as for `canaries.insert_files`; or a stream of text, open for reading bytes.
        out: as for `canaries.insert_files`; of a stream it gets the manifest alone.
        settings: what to insert.
        target: of a stream, where to write; after an error, what it got must be thrown away.
        documents: how many there must be; None: as many as there are. Of a stream whose number is
            said no copy is kept meanwhile.
        verify: look for fills that are there already, hash, and check what was written.

    Returns:
        path of the copy, or of the directory with all of them, or of a stream `out`; the manifest.

    Raises:
        as `canaries.insert_files`.
    """
    out, planned = Path(out), partial(_planned, settings)
    reading = Reading(
        layout=settings.layout,
        text_field=settings.text_field,
        existing=settings.existing,
        total=documents,
        verify=verify,
    )
    if is_stream(corpus):
        if target is None:
            raise CorpusError("standard output must be open: the corpus goes there")
        return out, insert_through(corpus, target, out, planned, reading)
    files = listed_files(corpus)
    manifest = insert_copies(files, out, planned, reading)
    copies = copies_of(files, out)
    return copies[0] if len(copies) == 1 else out / "corpus", manifest


def _planned(settings: RunSettings, before: Manifest | None) -> Plan:
    """The plan, with the seeds that were drawn for its directory once, where it has none."""
    plan = plan_of(settings)
    if before is None:
        return plan
    seeds = {"seed": settings.seed, "inclusion_seed": settings.inclusion_seed}
    given = [name for name, seed in seeds.items() if seed is not None]
    return plan.seeded_like(before.plan, given=given)
