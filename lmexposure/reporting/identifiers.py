"""Natural identifiers in words: how they rank among fresh draws, and what may be claimed."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from lmexposure._files import PRIVATE
from lmexposure._style import (
    LABELS,
    interval,
    number,
    percent,
    probability,
    sentence,
    short_hash,
    signed,
    whole,
)
from lmexposure._text import printable
from lmexposure.core import bullets, inline, known_by, write_files
from lmexposure.records import (
    IdentifierClass,
    IdentifierDifference,
    IdentifierRates,
    IdentifierSplit,
    IdentifiersRecord,
)
from lmexposure.reporting.data import Section
from lmexposure.reporting.markdown import section_table

_FPR = 0.01
_TPR = f"TPR at FPR {percent(_FPR)}"
_ALL = "all"
_CLAIMS = {
    "membership": "membership: the model read these identifiers",
    "distribution or membership": "distribution or membership",
    "nothing found": "nothing found",
}
_EXCEPTION = (
    "exceptions to the rules of canaries: identifiers were neither drawn by this package nor put "
    "in by coins, and may be in the corpus more than once; only documents that a random split held "
    "out, or a standard by which identifiers are random, tell membership from what they look like"
)


def identifier_claim(record: IdentifiersRecord) -> str:
    """What was found, in a line."""
    return f"{_CLAIMS[record.claim]}: {record.reason}"


def identifier_sections(record: IdentifiersRecord) -> list[Section]:
    """The identifiers of a corpus, their ranks under each model, and the difference."""
    classes = record.classes[:1] if len(record.classes) == 2 else record.classes
    sections = [_counts(record, classes), _rates("Under the model", [c.model for c in classes])]
    if record.base is not None:
        sections.append(_rates("Under the base", [c.base for c in classes]))
        sections.append(_differences([c.difference for c in classes]))
    names = [row.format or _ALL for row in classes]
    named = [sections[0], *(_named(section, names) for section in sections[1:])]
    return named if record.split is None else [*named, _split(record.split)]


def identifiers_markdown(record: IdentifiersRecord) -> str:
    """A comparison as Markdown, every value escaped."""
    parts = [
        "# Natural identifiers",
        f"**{inline(sentence(identifier_claim(record)))}**",
        bullets(list(_compared(record))),
    ]
    for section in identifier_sections(record):
        parts += [f"## {inline(section.title)}", section_table(section)]
        parts += [bullets(section.notes)] if section.notes else []
    if record.warnings:
        parts += ["## Warnings", bullets(record.warnings)]
    return printable("\n\n".join(parts) + "\n")


def write_identifiers(record: IdentifiersRecord, out: str | Path) -> Path:
    """Write identifiers.md into a directory, whole or not at all."""
    content = identifiers_markdown(record).encode()
    own = Path(out) / record.NAME
    models = [side.weights_sha256 for side in (record.model, record.base) if side is not None]
    of = known_by(Path(out), own if own.is_file() else None, *models)
    (path,) = write_files(Path(out), {"identifiers.md": content}, mode=PRIVATE, of=of)
    return path


def _compared(record: IdentifiersRecord) -> Iterator[str]:
    yield f"model {record.model.path} ({short_hash(record.model.weights_sha256)})"
    if record.base is not None:
        yield f"base {record.base.path} ({short_hash(record.base.weights_sha256)})"
    yield (
        f"{whole(record.draws)} fresh draws in the place of each identifier, behind at most "
        f"{whole(record.left)} characters; seed {record.seed}"
    )


def _counts(record: IdentifiersRecord, classes: Sequence[IdentifierClass]) -> Section:
    return Section(
        title=f"Identifiers in {whole(record.documents)} documents",
        columns=(
            LABELS["format"],
            "found",
            "different",
            "repeated",
            "compared",
            "lowest 1 %",
            "one per document",
        ),
        rows=tuple(
            (
                row.format or _ALL,
                *map(whole, (row.found, row.distinct, row.repeated)),
                *map(whole, (row.compared, row.compared_hits, row.tested)),
            )
            for row in classes
        ),
        notes=(
            "lowest 1 %: of those compared, under the model; identifiers of one document depend on "
            "each other, so all rates below are of one per document",
            _EXCEPTION,
        ),
    )


def _rates(title: str, rows: Sequence[IdentifierRates | None]) -> Section:
    return Section(
        title=title,
        columns=("lowest 1 %", _TPR, LABELS["interval"], "median exposure", LABELS["p_value"]),
        rows=tuple(map(_rate_cells, rows)),
        notes=(
            f"{_TPR}: share among the lowest 1 % of the fresh draws, chance has {percent(_FPR)}; "
            "exposure in bits, chance has 1",
        )
        if title.endswith("model")
        else (),
    )


def _rate_cells(row: IdentifierRates | None) -> tuple[str, ...]:
    if row is None:
        return (whole(None), number(None), interval(None, None), number(None), probability(None))
    return (
        whole(row.hits),
        number(row.tpr, 3),
        interval(row.low, row.high, 3),
        number(row.median_exposure),
        probability(row.p_value),
    )


def _split(split: IdentifierSplit) -> Section:
    return Section(
        title=f"Beside {whole(split.documents)} held-out documents",
        columns=(
            "one per document",
            "in both",
            _TPR,
            LABELS["interval"],
            "pairs with the corpus lower",
            LABELS["p_value"],
        ),
        rows=(
            (
                *map(whole, (split.tested, split.both)),
                number(split.model.tpr, 3),
                interval(split.model.low, split.model.high, 3),
                percent(split.area),
                probability(split.p_value),
            ),
        ),
        words=0,
        notes=(
            "the rates are of the held-out identifiers under the model; of pairs, by bits beside "
            "their own draws, chance has 50 %; "
            "p: rank sum, one-sided, for documents that were held out at random; those in both "
            "were left out of both",
        ),
    )


def _differences(rows: Sequence[IdentifierDifference | None]) -> Section:
    return Section(
        title="Model beside base",
        columns=(f"more {_TPR}", LABELS["interval"], "p (sign test)"),
        rows=tuple(
            (signed(None), interval(None, None), probability(None))
            if row is None
            else (
                signed(row.value, 3),
                interval(row.low, row.high, 3),
                probability(row.p_value),
            )
            for row in rows
        ),
    )


def _named(section: Section, names: Sequence[str]) -> Section:
    """With the format in front of each row."""
    return Section(
        title=section.title,
        columns=(LABELS["format"], *section.columns),
        rows=tuple((name, *row) for name, row in zip(names, section.rows, strict=True)),
        notes=section.notes,
    )
