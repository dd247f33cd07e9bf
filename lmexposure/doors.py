"""The doors to every study: open, check, report and compare, whatever its kind."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from lmexposure._style import visible
from lmexposure._validate import of_type
from lmexposure.core import (
    FORMATS,
    Document,
    Study,
    Thresholds,
    Verdict,
    compare_document,
    judged,
    open_study,
    refuse_other_study,
    write_document,
    write_report,
)
from lmexposure.errors import ResultError, SettingsError
from lmexposure.studies import Result

if TYPE_CHECKING:
    from lmexposure.canaries import Manifest

AnyStudy: TypeAlias = "Study | str | Path"


def open(path: str | Path) -> Any:
    """Read a study of any kind: its directory, or its file.

    Args:
        path: what a command wrote with --out, or the record in it, such as result.json.

    Returns:
        the study, with `to_frame()`; `check`, `report` and `compare` take it. A run's is its
        `Result`, whose `files` are its manifest, its run.json and the curve of its training.

    Raises:
        ResultError: there is none, or more than one, or it is damaged or of another version; or
            what lies next to it belongs to another.
        ManifestError: of a run, a manifest that cannot be read, or that it was not made from.
    """
    return study_of(path)


def check(measured: AnyStudy, thresholds: Thresholds | None = None) -> Verdict:
    """Check a study of any kind against what it may show.

    A secret that is found by guessing is a leak whatever else is wrong. Where the controls of a
    format are not at chance, its other leaks are inconclusive. Any leak left makes the verdict a
    leak; else anything inconclusive makes it inconclusive; a pass needs at least one check that
    looks for a leak, of a run one of every class of canaries, and none that failed.

    Args:
        measured: a study in memory, what `open` gave, or the path of its directory or record.
        thresholds: what the model may show; None: the defaults.

    Returns:
        the verdict, from which every output is made.

    Raises:
        ResultError, ManifestError: no measurement, or one that cannot be read; see `open`.
        SettingsError: thresholds that are no `Thresholds`, or one that belongs to something else.
    """
    return judged(study_of(measured), thresholds)


def report(
    measured: AnyStudy,
    out: str | Path,
    *,
    manifest: "Manifest | str | Path | None" = None,
    thresholds: Thresholds | None = None,
    show_secrets: bool = False,
) -> Path:
    """Write the report of a study of any kind, one that is in memory too.

    Args:
        measured: a study in memory, what `open` gave, or the path of its directory or record.
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
    of_type("show_secrets", show_secrets, bool, "True or False")
    out, study = Path(out), study_of(measured)
    study = study if manifest is None else with_manifest(study, manifest)
    asked: dict[str, Any] = {"thresholds": thresholds, "show_secrets": show_secrets}
    suffix = out.suffix.removeprefix(".")
    if out.is_dir() or not suffix:
        return report_study(study, out, **asked)[0]
    if suffix not in FORMATS:
        raise SettingsError(
            f"{out} must end in {', '.join('.' + name for name in FORMATS)}, or be a directory"
        )
    return report_study(study, out.parent, formats=[suffix], stem=out.stem, **asked)[0]


def with_manifest(study: Study, manifest: "Manifest | str | Path") -> Study:
    """A run with its manifest from elsewhere; another kind of study, which has none, is refused."""
    if not isinstance(study, Result):
        raise SettingsError(f"manifest is of a run, and this is {study.WHAT}; leave it out")
    return study.with_manifest(manifest)


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
        SettingsError: fewer than two, or kinds or runs that have no number in common.
        ResultError, ManifestError, FileError: as for `report`.
    """
    if not isinstance(out, str | Path) or not str(out):
        raise SettingsError(f"out={out!r} is no path; give a directory")
    return write_document(compared(measured), Path(out), stem="compare", formats=formats)


def compared(measured: "Sequence[AnyStudy]") -> Document:
    """As `compare`, without files."""
    if isinstance(measured, str | Path | Study) or not isinstance(measured, Iterable):
        raise SettingsError(
            f"measured is of type {type(measured).__name__}; give two or more studies in a list"
        )
    studies = [(each, study_of(each)) for each in measured]
    return compare_document(
        [(_name(each, study, place), study) for place, (each, study) in enumerate(studies, 1)]
    )


def study_of(measured: object) -> Study:
    """The study, however it is given."""
    if isinstance(measured, Study):
        return measured
    given = "a study, such as a Result, or the path of its directory or record"
    of_type("measured", measured, (str, Path), given, error=ResultError)
    return open_study(cast("str | Path", measured))


def _name(measured: object, study: Study, place: int) -> str:
    """What a study is called beside others."""
    if isinstance(measured, str | Path) and not Path(measured).is_dir():
        return visible(Path(measured))
    return f"study {place}" if study.home is None else visible(study.home.resolve().name)
