"""The files that people open: rendered first, then written, each whole or not at all."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lmexposure._files import atomic_write, canonical_json, read_bytes, sha256_bytes
from lmexposure._style import visible
from lmexposure._validate import one_of
from lmexposure._written import check
from lmexposure._written import study as written_study
from lmexposure.core.check import Thresholds
from lmexposure.core.render import RENDERERS
from lmexposure.core.study import Study
from lmexposure.errors import FileError, ResultError, SettingsError

if TYPE_CHECKING:
    from lmexposure.core.charts import Chart
    from lmexposure.core.document import Document

FORMATS = tuple(RENDERERS)


def write_report(
    study: Study,
    out: str | Path,
    *,
    formats: Sequence[str] = ("html", "md"),
    charts: bool = False,
    stem: str = "report",
    thresholds: Thresholds | None = None,
    show_secrets: bool = False,
) -> list[Path]:
    """What a study tells, in a directory: report.html, report.md, report.csv, report.json."""
    out = Path(out)
    own = out / study.NAME
    if own.is_file() and not _is_this(own, study):
        raise SettingsError(
            f"{visible(out)} holds another study ({study.NAME}), whose report would be replaced; "
            "choose another directory"
        )
    of = known_by(out, own if own.is_file() else None, study.inputs_sha256)
    document = study.told(thresholds, show_secrets=show_secrets)
    return write_document(document, out, stem=stem, formats=formats, charts=charts, of=of)


def _is_this(own: Path, study: Study) -> bool:
    """Whether a file holds this very study, as far as it can be read."""
    try:
        return study.same_as(type(study).parse(read_bytes(own), own))
    except (OSError, ResultError):
        return False


def write_document(
    document: "Document",
    out: Path,
    *,
    stem: str,
    formats: Sequence[str],
    charts: bool = False,
    of: Collection[str] = (),
) -> list[Path]:
    """Write a document in several formats, and its charts if they are asked for."""
    check_formats(formats)
    files = {f"{stem}.{name}": RENDERERS[name](document).encode() for name in formats}
    files |= drawn_files(document.drawings()) if charts else {}
    of = of or known_by(out, None, *document.inputs)
    return write_files(out, files, mode=0o600 if document.private else 0o644, of=of)


def check_formats(formats: Sequence[str]) -> None:
    """Refuse no format, and one that there is not."""
    if not formats:
        raise SettingsError(f"no format given; choose of {', '.join(FORMATS)}")
    for name in formats:
        one_of("format", name, FORMATS)


def drawn_files(charts: "Iterable[Chart]") -> dict[str, bytes]:
    """Each chart as SVG, PNG and PDF, by the name of its file."""
    files: dict[str, bytes] = {}
    for chart in charts:
        files[f"charts/{chart.name}.svg"] = chart.svg("plain").encode()
        files[f"charts/{chart.name}.png"] = chart.png()
        files[f"charts/{chart.name}.pdf"] = chart.pdf()
    return files


def known_by(where: Path, record: Path | None, *inputs: str) -> list[str]:
    """By what a report's study is known: the place of its record, and what it is made of."""
    made = f"inputs {sha256_bytes(canonical_json(inputs))}"
    if record is None:
        return [made]
    place = os.path.relpath(os.path.realpath(record), os.path.realpath(where))
    return [made, f"record {Path(place).as_posix()}"]


def write_files(
    where: Path, files: Mapping[str, bytes], *, of: Collection[str], mode: int = 0o644
) -> list[Path]:
    """Write files of a report by their names, each whole or not at all."""
    try:
        with written_study(where):
            for name in files:
                check(where / name, of=of)
            for name, content in files.items():
                hashed = sha256_bytes(content)
                with atomic_write(where / name, mode=mode, sha256=hashed, of=of) as stream:
                    stream.write(content)
    except FileError as failure:
        advice = "" if "another directory" in str(failure) else "; choose another directory"
        raise FileError(failure.errno, f"{failure}{advice}") from failure
    return [where / name for name in files]
