"""Chart of what single texts of a sweep change: memorised against how hard they are without it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import FigureBase

from lmexposure._style import number, short, signed, visible
from lmexposure.core.charts import (
    MUTED,
    SERIES,
    Chart,
    Style,
    clipped,
    joined,
    key,
    plain_axes,
)
from lmexposure.studies.sweep_changes import GROUPS, certain
from lmexposure.studies.sweep_counterfactual import CounterfactualText, SweepCounterfactual
from lmexposure.studies.sweep_result import SweepNumbers

_MOST = 500  # texts of a group, the most memorised ones
_LOOKS: dict[str, Style] = {
    "population": {"color": SERIES[0], "marker": "o", "linestyle": "none", "markersize": 5},
    "canaries": {"color": SERIES[1], "marker": "s", "linestyle": "none", "markersize": 5},
}
_NAMES = {"population": "ordinary documents", "canaries": "canaries"}


@dataclass(frozen=True, kw_only=True)
class _Cloud:
    """The texts of a group."""

    group: str  # by name
    known: tuple[CounterfactualText, ...]  # with a number, the most memorised first
    certain: frozenset[str]  # ids of those that chance does not explain

    @property
    def shown(self) -> Sequence[CounterfactualText]:
        """Those that are drawn."""
        return self.known[:_MOST]


def counterfactual_chart(result: SweepNumbers) -> Chart | None:
    """Counterfactual memorisation of each text against its bits in the models without it.

    Source: figure 2 of Zhang et al. 2023, Counterfactual memorization in neural language models.
    """
    found = result.counterfactual
    clouds = [] if found is None else _clouds(found)
    if found is None or not clouds:
        return None
    level = short(found.significance)
    return Chart(
        name="sweep-counterfactual",
        kind="counterfactual",
        subject="",
        title="Memorised, against how hard a text is without it",
        caption=(
            "Each mark is a text. The higher, the more the models that had it gained on it; to the "
            "right are texts that the others find hard. Filled marks are texts that chance does "
            "not explain, all texts of their group taken together."
        ),
        description=_in_words(clouds, level),
        draw=lambda figure: _draw(figure, clouds),
        legend=lambda: [key(_NAMES[cloud.group], **_hollow(cloud.group)) for cloud in clouds],
        height=3.8,
    )


def _clouds(found: SweepCounterfactual) -> list[_Cloud]:
    clouds = []
    for name in GROUPS:
        group = found.group(name)
        known = () if group is None else tuple(t for t in group.texts if t.memorised is not None)
        if group is not None and known:
            sure = frozenset(text.id for text in certain(found, group))
            clouds.append(_Cloud(group=name, known=known, certain=sure))
    return clouds


def _in_words(clouds: Sequence[_Cloud], level: str) -> str:
    parts = []
    for cloud in clouds:
        first = cloud.known[0]
        values = [text.memorised.difference for text in cloud.known if text.memorised is not None]
        parts.append(
            f"{_NAMES[cloud.group]}: largest {signed(values[0], 3)} "
            f"({clipped(visible(first.id), 30)}), median {signed(float(np.median(values)), 3)}, "
            f"{len(cloud.certain):,} of {len(cloud.known):,} with p at most {level}"
        )
    more = sum(len(cloud.known) - len(cloud.shown) for cloud in clouds)
    said = f" The {number(more, 0)} least memorised are not drawn." if more else ""
    return f"Counterfactual memorisation, bits a token, higher = more: {joined(parts)}.{said}"


def _hollow(group: str) -> Style:
    return {**_LOOKS[group], "markerfacecolor": "none"}


def _draw(figure: FigureBase, clouds: Sequence[_Cloud]) -> None:
    axes = figure.subplots()
    plain_axes(axes, grid="both")
    axes.axhline(0.0, color=MUTED, linewidth=1)
    for cloud in clouds:
        for sure in (False, True):
            means = [
                text.memorised
                for text in cloud.shown
                if text.memorised is not None and (text.id in cloud.certain) == sure
            ]
            look = _LOOKS[cloud.group] if sure else _hollow(cloud.group)
            axes.plot(
                [-mean.mean_out for mean in means],
                [mean.difference for mean in means],
                **look,
            )
    axes.set_xlabel("Bits a token in the models without the text")
    axes.set_ylabel("Memorised, bits a token")
