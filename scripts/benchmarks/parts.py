"""Where a measurement's time and memory go, part by part, beside what its forecast said of each.

The memory of a part is the most that the process held during it, all that came before included.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from harness import Claims, Namespace

from lmexposure import load_model, measure
from lmexposure._forecast import Phase
from lmexposure._style import in_words
from lmexposure.cli.console import print_table, say

ARGUMENTS = {"model": Path, "manifest": Path, "base": "", "dtype": "float32", "load_in": ""}
_FACTOR = 1.5  # within which the forecast of the whole is to be
_OWN = Path("/proc/self")


class Parts:
    """A `Watcher` that notes when each part begins, and the most memory that it needs."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.peaks: dict[str, float] = {}  # GiB
        self.ahead: list[Phase] = []
        self._at, self._ended, self._since = "loading", False, time.monotonic()

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        """What was done since the last word is part of what was not finished then, else of this."""
        self._count(what if self._ended else self._at)
        self._at, self._ended = what, done >= total

    def plan(self, title: str, phases: Sequence[Phase], *, keeps: bool) -> None:
        """Take what is said to come."""
        self._count(self._at if self.ahead else "forecast")
        self.ahead = self.ahead or list(phases)
        say(title)

    def expect(self, what: str, seconds: float) -> None:
        """A measurement tells no such."""

    def end_asked(self) -> bool:
        """Never."""
        return False

    def end(self) -> None:
        """All is done."""
        self("privacy, result", 1, 1)

    def _count(self, part: str) -> None:
        now = time.monotonic()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._since
        self.peaks[part] = max(self.peaks.get(part, 0.0), _peak())
        self._since = now


def _peak() -> float:
    """The most memory since the last call, GiB."""
    lines = (_OWN / "status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    (_OWN / "clear_refs").write_text("5")  # from now on anew
    return peak / 2**20


def whole(given: Namespace) -> Claims:
    """With the defaults."""
    yield from measured(given, effort="normal")


def quick(given: Namespace) -> Claims:
    """With --effort quick."""
    yield from measured(given, effort="quick")


def measured(given: Namespace, *, effort: str) -> Claims:
    """One measurement in this process, nothing of it kept."""
    seen = Parts()
    loaded = load_model(given.model, dtype=given.dtype, load_in=given.load_in or None)
    seen("loading", 1, 1)
    base = given.base or None
    result = measure(loaded, given.manifest, base=base, progress=seen, effort=effort)
    seen.end()
    for form in result.formats:
        if (search := form.search) is not None:
            steps = (search.draw_steps, search.walk_steps, search.guess_steps)
            say(f"{form.name}: steps of draws, walks and guesses: {steps}")
    forecast = {phase.what: phase.expected for phase in seen.ahead}
    took = {part: seconds for part, seconds in seen.seconds.items() if part != "loading"}
    rows = [
        (part, _seconds(forecast, part), _seconds(seen.seconds, part), _seconds(seen.peaks, part))
        for part in dict.fromkeys([*seen.seconds, *forecast])
    ]
    print_table(("part", "forecast, s", "took, s", "peak, GiB"), rows, right=(1, 2, 3))
    said, total = sum(forecast.values()), sum(took.values())
    held = total / _FACTOR <= said <= total * _FACTOR
    yield held, f"said {in_words(said)}, took {in_words(total)}; within a factor of {_FACTOR:g}"


def _seconds(of: dict[str, float], part: str) -> str:
    return f"{of[part]:.2f}" if part in of else ""


PARTS = {"whole": whole, "quick": quick}
