"""Seconds and bytes of a report of 1,000 canaries and 10^5 references, and seconds of a verdict."""

import tempfile
from pathlib import Path
from statistics import median

from harness import Claims, Namespace, in_turn, medians, spent
from made_results import small_run

from lmexposure.audit import MeasureSettings

ARGUMENTS = {"references": 100_000, "rounds": 3}
_CANARIES, _CONTROLS, _REPETITIONS = 320, 40, (1, 4, 16)
_MOST_SECONDS, _MOST_BYTES, _MOST_CHECK_SECONDS = 5.0, 2_000_000, 1.0
_REPORT = """
import sys
from pathlib import Path
from lmexposure.core.render import as_page
from lmexposure.studies import Result
Path(sys.argv[2]).write_text(as_page(Result.read(sys.argv[1]).told()), encoding="utf-8")
"""
_CHECK = """
import sys
from lmexposure import check
from lmexposure.studies import Result
from pathlib import Path
check(Result.read(Path(sys.argv[1]) / "result.json"))
"""


def report(given: Namespace) -> Claims:
    """Each in a process of its own, as a person starts it: imports are part of the wait."""
    with tempfile.TemporaryDirectory() as home:
        run, page = Path(home, "run"), Path(home, "report.html")
        small_run(
            run,
            canaries=_CANARIES,
            controls=_CONTROLS,
            repetitions=_REPETITIONS,
            references=given.references,
            memorised=((4, 12.0), (16, 40.0)),
            measure=MeasureSettings(bootstraps=39, permutations=999),
        )
        sides = {
            "report": lambda: spent("-c", _REPORT, run, page).wall,
            "verdict": lambda: spent("-c", _CHECK, run).wall,
        }
        seconds = in_turn(sides, given.rounds)
        size = page.stat().st_size
    medians(seconds)
    wall, check = (median(seconds[name]) for name in sides)
    yield wall < _MOST_SECONDS, f"report, start to end: {wall:.2f} s < {_MOST_SECONDS:g} s"
    yield size < _MOST_BYTES, f"report.html: {size / 1e6:.2f} MB < {_MOST_BYTES / 1e6:g} MB"
    yield check < _MOST_CHECK_SECONDS, f"verdict: {check:.2f} s < {_MOST_CHECK_SECONDS:g} s"


PARTS = {"report": report}
