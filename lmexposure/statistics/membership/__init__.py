"""Telling canaries that were inserted from those that were not: curves, areas, scores."""

from lmexposure.statistics.membership.auc import AreaUnderCurve, area_under_curve
from lmexposure.statistics.membership.hull import RocHull, concave_hull
from lmexposure.statistics.membership.lira import LiraScores, lira, lira_matrix, lira_offline
from lmexposure.statistics.membership.metrics import membership_metrics
from lmexposure.statistics.membership.population import (
    CanariesAndPopulation,
    canaries_and_population,
)
from lmexposure.statistics.membership.rmia import rmia
from lmexposure.statistics.membership.roc import RocCurve, roc_curve
from lmexposure.statistics.membership.scores import (
    min_k,
    min_k_plus_plus,
    negative_log_perplexity,
    reference_difference,
    zlib_ratio,
)
from lmexposure.statistics.membership.tpr_at_fpr import TprAtFpr, tpr_at_fpr

__all__ = [
    "AreaUnderCurve",
    "CanariesAndPopulation",
    "LiraScores",
    "RocCurve",
    "RocHull",
    "TprAtFpr",
    "area_under_curve",
    "canaries_and_population",
    "concave_hull",
    "lira",
    "lira_matrix",
    "lira_offline",
    "membership_metrics",
    "min_k",
    "min_k_plus_plus",
    "negative_log_perplexity",
    "reference_difference",
    "rmia",
    "roc_curve",
    "tpr_at_fpr",
    "zlib_ratio",
]
