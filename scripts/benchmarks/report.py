"""The report benchmark: seconds and bytes of a page of 1,000 canaries and 10^5 references.

Every claim stands as a line "reached" or "MISSED" at the end, and the exit code counts the missed.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from made_results import small_run

from lmexposure.audit import MeasureSettings
from lmexposure.cli.console import say

_REPETITIONS = (1, 4, 16)
_CONTROLS = 40
_MOST_SECONDS, _MOST_BYTES, _MOST_CHECK_SECONDS = 5.0, 2_000_000, 1.0

# Each in a process of its own, as a person starts it: imports are part of the wait.
_REPORT = """
import json, sys, time
start = time.perf_counter()
from pathlib import Path
from lmexposure.reporting.build import report_data
from lmexposure.reporting.page import render_report
from lmexposure.records import open_run
imported = time.perf_counter()
data = report_data(open_run(sys.argv[1]))
built = time.perf_counter()
page = render_report(data)
rendered = time.perf_counter()
Path(sys.argv[2]).write_text(page, encoding="utf-8")
print(json.dumps([imported - start, built - imported, rendered - built]))
"""
_CHECK = """
import sys
from lmexposure.gate import check
from lmexposure.records import Result
from pathlib import Path
check(Result.read(Path(sys.argv[1]) / "result.json"))
"""


def main() -> int:
    arguments = parse()
    start = time.perf_counter()
    run = small_run(
        arguments.out / "run",
        canaries=round((arguments.canaries - _CONTROLS) / len(_REPETITIONS)),
        controls=_CONTROLS,
        repetitions=_REPETITIONS,
        references=arguments.references,
        memorised=((4, 12.0), (16, 40.0)),
        measure=MeasureSettings(bootstraps=39, permutations=999),
    )
    rows = len(json.loads((run / "result.json").read_text())["canaries"])
    say(
        f"{rows:,} canaries and controls, {arguments.references:,} references, made up in "
        f"{time.perf_counter() - start:.1f} s"
    )
    return sum(not told(claim) for claim in measured(run, arguments.rounds))


def measured(run: Path, rounds: int) -> list[tuple[str, bool]]:
    """Medians over rounds, each beside its claim."""
    page = run.parent / "report.html"
    reports = [in_a_process(_REPORT, run, page) for _ in range(rounds)]
    checks = [in_a_process(_CHECK, run)[0] for _ in range(rounds)]
    wall, parts = sorted(reports, key=lambda one: one[0])[rounds // 2]
    imports, build, render = json.loads(parts)
    say(f"report: imports {imports:.2f} s, build {build:.2f} s, render {render:.2f} s")
    check, size = sorted(checks)[rounds // 2], page.stat().st_size
    return [
        (f"report, start to end: {wall:.2f} s < {_MOST_SECONDS:g} s", wall < _MOST_SECONDS),
        (f"report.html: {size / 1e6:.2f} MB < {_MOST_BYTES / 1e6:g} MB", size < _MOST_BYTES),
        (
            f"verdict on result.json, start to end: {check:.2f} s < {_MOST_CHECK_SECONDS:g} s",
            check < _MOST_CHECK_SECONDS,
        ),
    ]


def in_a_process(script: str, *arguments: Path) -> tuple[float, str]:
    """Wall-clock seconds of a fresh Python, and what it printed."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
    )
    return time.perf_counter() - start, done.stdout


def told(claim: tuple[str, bool]) -> bool:
    say(f"{'reached' if claim[1] else 'MISSED '}  {claim[0]}")
    return claim[1]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--canaries", type=int, default=1000)
    parser.add_argument("--references", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark_report"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
