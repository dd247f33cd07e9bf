"""Charts of a federated training: epsilon over rounds, and scores with and without the canary."""

import numpy as np
from matplotlib.figure import FigureBase

from lmexposure._style import nats, number
from lmexposure.core.charts import SERIES, Chart, Style, key, plain_axes
from lmexposure.records import CanifeRecord, CanifeRound
from lmexposure.reporting.charts.white_box import SCORES, draw_scores

_LINES: dict[str, Style] = {
    "so far, claimed": {"color": SERIES[0], "linestyle": "--", "marker": "s"},
    "so far, seen": {"color": SERIES[0], "linestyle": "-", "marker": "o"},
    "round, claimed": {"color": SERIES[1], "linestyle": "--", "marker": "D"},
    "round, seen": {"color": SERIES[1], "linestyle": "-", "marker": "^"},
}


def epsilon_rounds_chart(record: CanifeRecord) -> Chart:
    """The four quantities of each attacked round."""
    lines = {name: _line(record, name) for name in _LINES}
    there = {name: line for name, line in lines.items() if line}
    return Chart(
        name="canife-epsilon",
        kind="canife",
        subject="",
        title="Epsilon over rounds",
        caption=(
            "Dashed is what the noise promises, and the line below it what canaries have shown at "
            "least. A line above its dashed one refutes the promise."
        ),
        description="; ".join(
            f"{name}: {', '.join(f'round {at} {nats(value)}' for at, value in line)}"
            for name, line in there.items()
        )
        + ".",
        draw=lambda figure: _draw(figure, there),
        legend=lambda: [key(name, **_style(name)) for name in there],
        height=3.2,
    )


def mock_scores_chart(record: CanifeRecord) -> Chart | None:
    """Scores of the healthiest attacked round, with the canary and without."""
    both = [row for row in record.attacked if 0 < sum(row.coins) < len(row.coins)]
    if not both:
        return None
    row = max(both, key=lambda row: row.health)
    scores, coins = np.array(row.scores), np.array(row.coins, dtype=bool)
    return Chart(
        name="canife-scores",
        kind="canife",
        subject="",
        title=f"Scores of round {row.round}",
        caption=(
            "How much of the canary a released sum holds, of mock rounds with it and without, each "
            "the same height together. The less the lines cover each other, the less is hidden."
        ),
        description=(
            f"{coins.sum()} with the canary, mean {number(float(scores[coins].mean()), 2)}; "
            f"{(~coins).sum()} without, mean {number(float(scores[~coins].mean()), 2)}; standard "
            f"deviation {number(row.noise, 2)}."
        ),
        draw=lambda figure: draw_scores(figure, {"Score": (scores, coins)}, "canaries"),
        legend=lambda: [key(name, **style) for name, style in SCORES.items()],
        height=3.0,
    )


def _value(row: CanifeRound, name: str) -> float | None:
    return {
        "so far, claimed": row.claimed_so_far,
        "so far, seen": row.epsilon_so_far,
        "round, claimed": row.claimed_round,
        "round, seen": row.epsilon_round,
    }[name]


def _line(record: CanifeRecord, name: str) -> list[tuple[int, float]]:
    values = ((row.round, _value(row, name)) for row in record.attacked)
    return [(at, value) for at, value in values if value is not None]


def _style(name: str) -> Style:
    return {**_LINES[name], "markersize": 5}


def _draw(figure: FigureBase, lines: dict[str, list[tuple[int, float]]]) -> None:
    axes = figure.subplots()
    plain_axes(axes)
    for name, line in lines.items():
        axes.plot([at for at, _ in line], [value for _, value in line], **_style(name))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("Round")
    axes.set_ylabel("Epsilon (nats)")
