"""What the commands that measure say at their end: the result, the verdict, and the report."""

from pathlib import Path
from typing import TYPE_CHECKING

from lmexposure.cli.console import print_sections, say, speaks, warn

if TYPE_CHECKING:
    from lmexposure.records import Result


def print_result(result: "Result") -> None:
    """All of a result as tables, then its warnings. A result holds no secrets.

    Args:
        result: what was measured.
    """
    from lmexposure.reporting import (
        result_sections,
    )

    print_sections(result_sections(result))
    for line in result.warnings:
        warn(line)


def write_and_say(run_directory: Path) -> None:
    """Write report.html and report.md into a run directory, and say the verdict.

    Of several processes the first does it.

    Args:
        run_directory: as `lmexposure run` or `lmexposure measure` left it.

    Raises:
        LmexposureError: the report cannot be made or written; the result stands all the same.
    """
    if not speaks():
        return
    from lmexposure.gate import check
    from lmexposure.records import open_run
    from lmexposure.reporting import write_report

    run = open_run(run_directory)
    written = write_report(run)
    say(f"\n{check(run.result).sentence}")
    say(run.provenance.line)
    for path in written:
        say(f"report  {path}")
