"""Several models over the same documents: what grows with their size."""

from collections.abc import Sequence
from pathlib import Path

from lmexposure._files import PRIVATE
from lmexposure._style import count, number, percent, probability, short, short_hash, whole
from lmexposure._text import printable, visible
from lmexposure.core import bullets, inline, known_by, write_files
from lmexposure.errors import ResultError
from lmexposure.reporting.data import Section
from lmexposure.reporting.markdown import section_table
from lmexposure.studies import VerbatimFiles, VerbatimRecord

_FEWEST = 2


def several_looks(looks: Sequence[VerbatimFiles]) -> list[VerbatimRecord]:
    """Looks that can be put side by side, by the size of their models."""
    if len(looks) < _FEWEST:
        raise ResultError("1 look to compare; give at least two directories of lmexposure verbatim")
    first, *others = looks
    for other in others:
        own, its = first.result, other.result
        if own.corpus_sha256 != its.corpus_sha256:
            raise ResultError(
                f"{other.result_path} is of other documents ({short_hash(its.corpus_sha256)}) than "
                f"{first.result_path} ({short_hash(own.corpus_sha256)}); compare looks at one"
            )
        if own.rule != its.rule:
            raise ResultError(
                f"{other.result_path} asked for its windows otherwise than {first.result_path}; "
                "look again with the same flags"
            )
    return sorted((look.result for look in looks), key=lambda record: record.model.parameters)


def several_section(records: Sequence[VerbatimRecord]) -> Section:
    """The models in a table, the smallest first."""
    tries = records[0].rule.tries
    return Section(
        title="Models over the same documents",
        columns=(
            "model",
            "parameters",
            "greedy windows",
            f"in {short(tries)} tries",
            "longest run",
            "p",
            "bits a character",
        ),
        rows=tuple(_row(record) for record in records),
        notes=(
            "longest run: characters that greedy decoding gives in a row; p: of the test "
            "that documents of the corpus come out longer than held-out ones of a random split",
            "windows are counted in a model's own tokens: those of another tokenizer are longer or "
            "shorter texts",
        ),
    )


def several_finding(records: Sequence[VerbatimRecord]) -> str:
    """Which model gives most back, in a line."""
    worst = max(records, key=lambda record: record.longest_run)
    return (
        f"of {count(len(records), 'model')} {visible(worst.model.name)} gives the longest run: "
        f"{count(worst.longest_run, 'character')}, {whole(worst.model.parameters)} parameters"
    )


def write_several(records: Sequence[VerbatimRecord], out: str | Path) -> list[Path]:
    """Write compare.html and compare.md into a directory, each whole or not at all."""
    from lmexposure.reporting.verbatim_page import render_several

    section = several_section(records)
    text = "\n\n".join(
        [
            "# Memorised text by model",
            f"**{inline(several_finding(records))}.**",
            section_table(section),
            bullets(section.notes),
        ]
    )
    of = known_by(Path(out), None, *(record.inputs_sha256 for record in records))
    files = {
        "compare.html": render_several(records).encode(),
        "compare.md": printable(f"{text}\n").encode(),
    }
    return write_files(Path(out), files, mode=PRIVATE, of=of)


def _row(record: VerbatimRecord) -> tuple[str, ...]:
    corpus = record.corpus
    return (
        visible(record.model.name),
        whole(record.model.parameters),
        percent(corpus.greedy / max(1, corpus.windows)),
        percent(record.extractable.share),
        whole(record.longest_run),
        probability(None if record.runs is None else record.runs.p),
        number(corpus.bits_per_character, 2),
    )
