"""Chart of a sweep's kinds of canaries: how much each shows at equal cost."""

from lmexposure._style import number, percent, short
from lmexposure.core.charts import Chart, Mark, clipped, dots_chart
from lmexposure.studies.sweep_kinds import by_strength, power_rows_in_words, shares_of
from lmexposure.studies.sweep_result import SweepNumbers

_MOST_SHARES = 4  # that have a marker of their own


def power_chart(result: SweepNumbers) -> Chart | None:
    """The TPR of each class with its interval, the strongest first, and that of fewer canaries."""
    power = result.power
    rows = [] if power is None else [r for r in by_strength(power) if r.rate.value is not None]
    if power is None or not rows:
        return None
    fewer = shares_of(power)[1 : 1 + _MOST_SHARES]
    found = {(row.group, row.share): row.rate for row in power.rows}
    drawn = []
    for row in rows:
        marks = [Mark(value=row.rate.value, low=row.rate.low, high=row.rate.high)]
        others = (found.get((row.group, share)) for share in fewer)
        marks += [Mark(value=None if rate is None else rate.value) for rate in others]
        drawn.append((f"{clipped(row.group, 40)}: {number(row.rate.value, 3)}", marks))
    return dots_chart(
        name="sweep-power",
        title=f"What each kind of canary shows: TPR at FPR {short(power.fpr)}",
        caption=(
            "Each class had as many canaries, in the same models. The farther right, the more of "
            "what the training gives away is seen; hollow marks are models with fewer canaries."
        ),
        description=power_rows_in_words(rows, power.fpr),
        rows=drawn,
        series=["all canaries", *(f"{percent(share)} of them" for share in fewer)],
        axis="True-positive rate, higher = shows more",
        chance=power.fpr,
    )
