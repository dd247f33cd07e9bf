"""The membership metrics that every report shows, together."""

from typing import Any

from numpy.typing import ArrayLike

from lmexposure.statistics.membership.auc import area_under_curve
from lmexposure.statistics.membership.tpr_at_fpr import tpr_at_fpr

_RATES = (0.1, 0.01, 0.001)


def membership_metrics(
    in_scores: ArrayLike, out_scores: ArrayLike, *, level: float = 0.95
) -> dict[str, Any]:
    """Area under the curve, and the true-positive rates at false-positive rates of 10, 1, 0.1 %.

    Args:
        in_scores: of those that were in, shape (m,); higher = more likely in.
        out_scores: of those that were not, shape (n,).
        level: coverage of each interval.

    Returns:
        plain values: "area_under_curve" as `area_under_curve` gives it, "tpr_at_fpr" a list as
        `tpr_at_fpr` gives them.

    Raises:
        InputError: an empty sample, or a score that is not finite.
        SettingsError: `level` out of range.
    """
    rates = [tpr_at_fpr(in_scores, out_scores, fpr=rate, level=level) for rate in _RATES]
    return {
        "area_under_curve": area_under_curve(in_scores, out_scores, level=level).to_dict(),
        "tpr_at_fpr": [one.to_dict() for one in rates],
    }
