"""The files that people open: rendered first, then written, each whole or not at all."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from lmexposure._files import atomic_write, sha256_file
from lmexposure.canaries import Manifest
from lmexposure.core import FORMATS, Thresholds, check_formats, drawn_files, known_by, write_files
from lmexposure.errors import SettingsError
from lmexposure.reporting.build import report_data
from lmexposure.reporting.compare import CompareData, ComparedRun, compare_data
from lmexposure.reporting.data import ReportData
from lmexposure.reporting.exports import compare_csv, compare_json, report_csv, report_json
from lmexposure.reporting.markdown import compare_markdown, report_markdown
from lmexposure.studies import (
    Measured,
    Result,
    RunFiles,
    refuse_other_study,
    run_of,
)

if TYPE_CHECKING:
    from lmexposure.core.charts import Chart


# matplotlib is imported for a page or charts, and huggingface_hub for a card: other outputs do
# without.
def _report_page(data: ReportData) -> str:
    from lmexposure.reporting.page import render_report

    return render_report(data)


def _charts(data: ReportData) -> "Sequence[Chart]":
    from lmexposure.reporting.charts import charts_of

    return charts_of(data)


def _compare_page(data: CompareData) -> str:
    from lmexposure.reporting.page import render_compare

    return render_compare(data)


_Data = TypeVar("_Data", ReportData, CompareData)
_REPORT: Mapping[str, Callable[[ReportData], str]] = {
    "html": _report_page,
    "md": report_markdown,
    "csv": report_csv,
    "json": report_json,
}
_COMPARE: Mapping[str, Callable[[CompareData], str]] = {
    "html": _compare_page,
    "md": compare_markdown,
    "csv": compare_csv,
    "json": compare_json,
}


def write_report(  # noqa: PLR0913  (the options of `report`)
    run: RunFiles,
    *,
    out: str | Path | None = None,
    thresholds: Thresholds | None = None,
    formats: Sequence[str] = ("html", "md"),
    charts: bool = False,
    show_secrets: bool = False,
    manifest: Manifest | None = None,
    model_card: str | Path | None = None,
    card_weights: str | None = None,
) -> list[Path]:
    """Write the report of a run: report.html, report.md, report.csv, report.json."""
    check_formats(formats)
    where = _directory(run, out)
    if out is not None:
        _refuse_another_run(run, where)
    data = report_data(run, thresholds=thresholds, show_secrets=show_secrets, manifest=manifest)
    files = rendered_files("report", formats, _REPORT, data)
    files |= drawn_files(_charts(data)) if charts else {}
    mode, of = 0o600 if show_secrets else 0o644, _of_run(run, where)
    if model_card is None:
        return write_files(where, files, mode=mode, of=of)
    from lmexposure.reporting.model_card import card_with_results

    # All is made before anything is written.
    card = Path(model_card, "README.md")
    content = card_with_results(card, data, card_weights)
    written = write_files(where, files, mode=mode, of=of)
    mode = card.stat().st_mode & 0o777 if card.exists() else 0o644
    with atomic_write(card, mode=mode, replaces=lambda _: True) as stream:  # it was read
        stream.write(content)
    return [*written, card]


def report(
    measured: Measured,
    out: str | Path,
    *,
    manifest: Manifest | str | Path | None = None,
    thresholds: Thresholds | None = None,
    show_secrets: bool = False,
) -> Path:
    """Write the report of a measurement, one that is in memory too.

    Args:
        measured: a result in memory, what `open_run` gave, or the path of a run directory or a
            result.json.
        out: a file, whose suffix says what it becomes: .html, .md, .csv or .json; or a directory
            for report.html and report.md.
        manifest: or its path, where it does not lie next to the result.
        thresholds: of the verdict; None: the gate's defaults.
        show_secrets: show each canary's secret, which takes the manifest; the files are then
            readable by their owner only.

    Returns:
        the file, or report.html in the directory.

    Raises:
        SettingsError: no path, or another suffix; or `out` is, or lies next to, something that is
            no report of this measurement.
        ManifestError, ResultError, FileError: as for `write_report`.
    """
    if not isinstance(out, str | Path) or not str(out):
        raise SettingsError(f"out={out!r} is no path; give a file such as report.html")
    out = Path(out)
    run = run_of(measured)
    if manifest is not None and not isinstance(manifest, Manifest):
        manifest = Manifest.read(manifest)
    suffix = out.suffix.removeprefix(".")
    if out.is_dir() or not suffix:
        return write_report(
            run, out=out, thresholds=thresholds, show_secrets=show_secrets, manifest=manifest
        )[0]
    if suffix not in FORMATS:
        raise SettingsError(
            f"{out} must end in {', '.join('.' + name for name in FORMATS)}, or be a directory"
        )
    _refuse_another_run(run, out.parent)
    data = report_data(run, thresholds=thresholds, show_secrets=show_secrets, manifest=manifest)
    files, of = {out.name: _REPORT[suffix](data).encode()}, _of_run(run, out.parent)
    return write_files(out.parent, files, mode=0o600 if show_secrets else 0o644, of=of)[0]


def _directory(run: RunFiles, out: str | Path | None) -> Path:
    if out is not None:
        return Path(out)
    if run.result_path is None:
        raise SettingsError("the result is in memory; say with out where its report goes")
    return run.result_path.parent


def write_compare(
    runs: Sequence[RunFiles] | CompareData,
    *,
    out: str | Path,
    formats: Sequence[str] = ("html", "md"),
) -> list[Path]:
    """Write several runs side by side: compare.html, compare.md, compare.csv, compare.json."""
    check_formats(formats)
    data = runs if isinstance(runs, CompareData) else compare_data(runs)
    of = known_by(Path(out), None, *map(_inputs, data.runs))
    return write_files(Path(out), rendered_files("compare", formats, _COMPARE, data), of=of)


def _inputs(run: ComparedRun) -> str:
    return f"{run.manifest_sha256} {run.provenance.weights_sha256}"


def rendered_files(
    stem: str,
    formats: Sequence[str],
    renders: Mapping[str, Callable[[_Data], str]],
    data: _Data,
) -> dict[str, bytes]:
    """What each format shows, by the name of its file."""
    return {f"{stem}.{name}": renders[name](data).encode() for name in formats}


def _refuse_another_run(run: RunFiles, out: Path) -> None:
    """A report next to a result is read as that result's; a copy of this one is no other."""
    refuse_other_study(out, (Result.NAME, "run.json", "training.json"), "report")
    result = out / "result.json"
    if result.is_file() and not _is_this(result, run):
        raise SettingsError(
            f"{out} holds the result of another run, and its report would be replaced by that of "
            f"{run.name}; choose another directory"
        )


def _is_this(path: Path, run: RunFiles) -> bool:
    if run.result_path is not None:
        return sha256_file(path) == sha256_file(run.result_path)
    # What `Result.save` wrote names the scores next to it.
    same = {"scores_sha256": run.result.scores_sha256}
    return Result.read(path).model_copy(update=same) == run.result


def _of_run(run: RunFiles, where: Path) -> list[str]:
    return known_by(where, run.result_path, run.result.inputs_sha256)
