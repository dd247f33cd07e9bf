"""How cost grows: steps of an exact rank with exposure, references a second with their number."""

import csv
import math
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from log_plot import write_plot
from scoring_draws import Drawn
from scoring_models import Bench

from lmexposure.cli.console import print_table, say
from lmexposure.models import encode_in_context
from lmexposure.scoring import ProvenRank, score_encoded
from lmexposure.scoring.prefix_tree import SortedTexts

__all__ = ["Counted", "references_against_number", "steps_against_exposure"]

NUMBERS = (1_000, 10_000, 100_000, 1_000_000)


@dataclass(frozen=True)
class Counted:
    """One canary under one checkpoint, counted in a walk of its own in each round."""

    checkpoint: str
    id: str
    size: int
    rank: ProvenRank
    steps: int
    expected_steps: float
    place: int | None  # by best-first search; None: not among the guesses
    seconds: list[float] = field(default_factory=list)

    @property
    def exposure(self) -> float:
        return math.log2(self.size) - math.log2(self.rank.high)

    @property
    def time(self) -> float:
        return statistics.median(self.seconds)


def steps_against_exposure(counted: Sequence[Counted], drawn: Sequence[Drawn], out: Path) -> None:
    """Steps against exposure: a table, a CSV file and a plot."""
    points = sorted((one.exposure, one.steps, one.expected_steps, one.time) for one in counted)
    far = sorted(
        (float(value), steps)
        for estimates in drawn
        for value, steps in zip(
            np.median(estimates.value, axis=0), estimates.expected_steps, strict=True
        )
    )
    rows = []
    for low in range(30):
        band = [p for p in points if low <= p[0] < low + 1]
        beyond = [steps for value, steps in far if low <= value < low + 1]
        if band or beyond:
            rows.append([f"{low} to {low + 1}", *cost_cells(band, beyond)])
    say("\ncost of an exact rank in 10^9 by exposure in bits (medians)")
    header = ["exposure", "counted", "steps", "seconds", "drawn", "expected steps"]
    print_table(header, rows, right=range(1, 6))
    write_csv(
        out / "steps_by_exposure.csv",
        ["exposure_bits", "steps", "expected_steps", "seconds"],
        points,
    )
    series = {
        "expected from draws": far,
        "counted": [(exposure, float(steps)) for exposure, steps, _, _ in points],
    }
    picture = out / "steps_by_exposure.svg"
    write_plot(picture, series, x="exposure, bits", y="model steps of an exact rank")
    say(f"plot: {picture}")


def cost_cells(
    band: Sequence[tuple[float, int, float, float]], beyond: Sequence[float]
) -> list[str]:
    cells = ["0", "", ""]
    if band:
        steps, seconds = ([p[k] for p in band] for k in (1, 3))
        cells = [
            f"{len(band)}",
            f"{statistics.median(steps):,.0f}",
            f"{statistics.median(seconds):.3f}",
        ]
    return [*cells, f"{len(beyond)}", f"{statistics.median(beyond):,.0f}" if beyond else ""]


def references_against_number(bench: Bench, out: Path) -> None:
    """References a second of the LSTM, from text to bits, as there are more of them."""
    points = [references(bench, number) for number in NUMBERS]
    say("\nreferences a second against their number, LSTM, 10^9")
    rows = [
        [
            f"{number:,}",
            f"{nodes / number:.2f}",
            f"{encoding:.2f}",
            f"{scoring:.2f}",
            f"{rate:,.0f}",
        ]
        for number, nodes, encoding, scoring, rate in points
    ]
    header = ["references", "nodes each", "encoding, s", "scoring, s", "references/s"]
    print_table(header, rows, right=range(5))
    names = ["references", "nodes", "encoding_seconds", "scoring_seconds", "references_a_second"]
    write_csv(out / "references_by_number.csv", names, points)
    series = {"LSTM": [(number, rate) for number, *_, rate in points]}
    picture = out / "references_by_number.svg"
    write_plot(picture, series, x="references", y="references a second", log_x=True)
    say(f"plot: {picture}")


def references(bench: Bench, number: int) -> tuple[int, int, float, float, float]:
    """Their number, the nodes of their tree, seconds of encoding and scoring, references/s."""
    form, context = bench.space.format, bench.separator
    texts = [form.text(index) for index in form.sample(number, seed=0)]
    begun = time.perf_counter()
    encoded = encode_in_context(bench.loaded.tokenizer, texts, context=context)
    encoding = time.perf_counter() - begun
    begun = time.perf_counter()
    score_encoded(bench.loaded.model, encoded)
    scoring = time.perf_counter() - begun
    nodes = int(SortedTexts(encoded).fed.sum())
    return number, nodes, encoding, scoring, number / (encoding + scoring)


def write_csv(path: Path, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """The numbers behind a plot."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(rows)
