"""The doors to every study: open, check, report and compare, whatever its kind."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from lmexposure._text import visible
from lmexposure.core import (
    FORMATS,
    Document,
    Study,
    Thresholds,
    Verdict,
    compare_document,
    judged,
    kind_at,
    open_study,
    write_document,
    write_report,
)
from lmexposure.errors import SettingsError
from lmexposure.studies import refuse_other_study

if TYPE_CHECKING:
    from lmexposure.canaries import Manifest
    from lmexposure.studies import Measured

    AnyStudy: TypeAlias = "Study | Measured"


def open(path: str | Path) -> Any:
    """Read a study of any kind: its directory, or its file.

    Args:
        path: what a command wrote with --out, or the record in it, such as canife.json.

    Returns:
        the study, with `to_frame()`; `check`, `report` and `compare` take it.

    Raises:
        ResultError: there is none, or more than one, or it is damaged or of another version.
    """
    study = study_of(path)
    if study is not None:
        return study
    from lmexposure.studies import open_run

    return open_run(path)


def check(measured: "AnyStudy", thresholds: Thresholds | None = None) -> Verdict:
    """Check a study of any kind against what it may show.

    A secret that is found by guessing is a leak whatever else is wrong. Where the controls of a
    format are not at chance, its other leaks are inconclusive. Any leak left makes the verdict a
    leak; else anything inconclusive makes it inconclusive; a pass needs at least one check that
    looks for a leak, of a run one of every class of canaries, and none that failed.

    Args:
        measured: a result or a study in memory, what `open` gave, or the path of its directory or
            of its record.
        thresholds: what the model may show; None: the defaults.

    Returns:
        the verdict, from which every output is made.

    Raises:
        ResultError, ManifestError: no measurement, or one that cannot be read; see `open`.
        SettingsError: thresholds that are no `Thresholds`, or one that belongs to something else.
    """
    study = study_of(measured)
    if study is not None:
        return judged(study, thresholds)
    from lmexposure.gate import check as check_run

    return check_run(cast("Measured", measured), thresholds)


def report(
    measured: "AnyStudy",
    out: str | Path,
    *,
    manifest: "Manifest | str | Path | None" = None,
    thresholds: Thresholds | None = None,
    show_secrets: bool = False,
) -> Path:
    """Write the report of a study of any kind, one that is in memory too.

    Args:
        measured: a result or a study in memory, what `open` gave, or the path of its directory or
            of its record.
        out: a file, whose suffix says what it becomes: .html, .md, .csv or .json; or a directory
            for report.html and report.md.
        manifest: of a run: its manifest or the path of that, where it does not lie next to it.
        thresholds: of the verdict; None: the gate's defaults.
        show_secrets: show each canary's secret, which takes the manifest, or the texts that came
            out; the files are then readable by their owner only.

    Returns:
        the file, or report.html in the directory.

    Raises:
        SettingsError: no path, or another suffix; or `out` is, or lies next to, something that is
            no report of this study; or secrets or thresholds that it has no place for.
        ManifestError, ResultError, FileError: as for `check`; a file that is in the way.
    """
    if not isinstance(out, str | Path) or not str(out):
        raise SettingsError(f"out={out!r} is no path; give a file such as report.html")
    out, study = Path(out), study_of(measured)
    if study is None:
        from lmexposure.reporting import report as report_run

        return report_run(
            cast("Measured", measured),
            out,
            manifest=manifest,
            thresholds=thresholds,
            show_secrets=show_secrets,
        )
    if manifest is not None:
        raise SettingsError(f"manifest is of a run, and this is {study.WHAT}; leave it out")
    asked: dict[str, Any] = {"thresholds": thresholds, "show_secrets": show_secrets}
    suffix = out.suffix.removeprefix(".")
    if out.is_dir() or not suffix:
        return report_study(study, out, **asked)[0]
    if suffix not in FORMATS:
        raise SettingsError(
            f"{out} must end in {', '.join('.' + name for name in FORMATS)}, or be a directory"
        )
    return report_study(study, out.parent, formats=[suffix], stem=out.stem, **asked)[0]


def report_study(study: Study, out: Path, **asked: Any) -> list[Path]:
    """As `write_report`; refuses the directory of a study of another kind."""
    refuse_other_study(out, (study.NAME, "training.json"), "report")
    return write_report(study, out, **asked)


def compare(
    measured: "Sequence[AnyStudy]", out: str | Path, *, formats: Sequence[str] = ("html", "md")
) -> list[Path]:
    """Set two or more studies of one kind side by side.

    Args:
        measured: studies in memory, what `open` gave, or paths; the first is the base.
        out: a directory for compare.html, compare.md, compare.csv, compare.json.
        formats: which of them.

    Returns:
        the files.

    Raises:
        SettingsError: fewer than two, or kinds that have no number in common.
        ResultError, ManifestError, FileError: as for `report`.
    """
    if not any(study_of(each) for each in measured):
        from lmexposure.reporting import write_compare
        from lmexposure.studies import run_of

        runs = [run_of(cast("Measured", each)) for each in measured]
        return write_compare(runs, out=out, formats=formats)
    return write_document(compared(measured), Path(out), stem="compare", formats=formats)


def compared(measured: "Sequence[AnyStudy]") -> Document:
    """As `compare`, of studies alone, and without files."""
    studies = [(_name(each, place), study_of(each)) for place, each in enumerate(measured, 1)]
    known = [(name, study) for name, study in studies if study is not None]
    if len(known) < len(studies):
        raise SettingsError(
            f"{known[0][1].WHAT} has no number in common with a run; compare studies of one kind"
        )
    return compare_document(known)


def study_of(measured: object) -> Study | None:
    """The study, however it is given; None: it is of a kind that has its own doors."""
    if isinstance(measured, Study):
        return measured
    if isinstance(measured, str | Path) and (Path(measured) / "result.json").exists():
        return None  # a run, whatever else is next to it
    kind = kind_at(measured)
    return None if kind is None else open_study(cast("str | Path", measured))


def _name(measured: object, place: int) -> str:
    """What a study is called beside others."""
    if not isinstance(measured, str | Path):
        return f"study {place}"
    path = Path(measured)
    return visible(path.resolve().name if path.is_dir() else path)
