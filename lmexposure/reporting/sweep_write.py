"""The files of a sweep's report: rendered first, then written, each whole or not at all."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lmexposure._files import sha256_file
from lmexposure.core import FORMATS, Thresholds, check_formats, drawn_files, known_by, write_files
from lmexposure.errors import SettingsError
from lmexposure.reporting.exports import sweep_csv, sweep_report_json
from lmexposure.reporting.sweep_data import SweepReportData, sweep_report_data
from lmexposure.reporting.sweep_markdown import sweep_markdown
from lmexposure.reporting.write import rendered_files
from lmexposure.studies import MeasuredSweep, SweepFiles, SweepResult, refuse_other_study, sweep_of


def _page(data: SweepReportData) -> str:
    from lmexposure.reporting.sweep_page import render_sweep  # brings matplotlib

    return render_sweep(data)


_RENDERS: Mapping[str, Callable[[SweepReportData], str]] = {
    "html": _page,
    "md": sweep_markdown,
    "csv": sweep_csv,
    "json": sweep_report_json,
}


def write_sweep_report(
    measured: MeasuredSweep,
    *,
    out: str | Path | None = None,
    thresholds: Thresholds | None = None,
    formats: Sequence[str] = ("html", "md"),
    charts: bool = False,
) -> list[Path]:
    """Write the report of a sweep: report.html, report.md, report.csv, report.json."""
    check_formats(formats)
    sweep = sweep_of(measured)
    where = _directory(sweep, out)
    data = sweep_report_data(sweep, thresholds=thresholds)
    files = rendered_files("report", formats, _RENDERS, data)
    if charts:
        from lmexposure.reporting.charts import sweep_charts

        files |= drawn_files(sweep_charts(sweep.result))
    if out is not None:
        _refuse_another(sweep, where)
    return write_files(where, files, of=_of(sweep, where))


def sweep_report_file(
    measured: MeasuredSweep, out: Path, *, thresholds: Thresholds | None = None
) -> Path:
    """Write the report of a sweep into a file, or into a directory; as `report` does."""
    suffix = out.suffix.removeprefix(".")
    if out.is_dir() or not suffix:
        return write_sweep_report(measured, out=out, thresholds=thresholds)[0]
    if suffix not in FORMATS:
        raise SettingsError(
            f"{out} must end in {', '.join('.' + name for name in FORMATS)}, or be a directory"
        )
    sweep = sweep_of(measured)
    _refuse_another(sweep, out.parent)
    data = sweep_report_data(sweep, thresholds=thresholds)
    files = {out.name: _RENDERS[suffix](data).encode()}
    return write_files(out.parent, files, of=_of(sweep, out.parent))[0]


def _of(sweep: SweepFiles, where: Path) -> list[str]:
    return known_by(where, sweep.result_path, sweep.result.matrices_sha256)


def _directory(sweep: SweepFiles, out: str | Path | None) -> Path:
    if out is not None:
        return Path(out)
    if sweep.result_path is None:
        raise SettingsError("the result is in memory; say with out where its report goes")
    return sweep.result_path.parent


def _refuse_another(sweep: SweepFiles, out: Path) -> None:
    """A report next to a result is read as that result's."""
    refuse_other_study(out, (SweepResult.NAME, "result.json", "training.json"), "report")
    other = out / SweepResult.NAME
    another = other.is_file() and not _is_this(other, sweep)
    if another or (out / "result.json").is_file():
        raise SettingsError(
            f"{out} holds the result of another {'sweep' if another else 'measurement'}, and its "
            f"report would be replaced by that of {sweep.name}; choose another directory"
        )


def _is_this(path: Path, sweep: SweepFiles) -> bool:
    if sweep.result_path is not None:
        return sha256_file(path) == sha256_file(sweep.result_path)
    return SweepResult.read(path) == sweep.result
