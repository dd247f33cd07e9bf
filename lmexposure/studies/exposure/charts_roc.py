"""The ROC on logarithmic axes, where few false alarms count, with the part no data resolves."""

from collections.abc import Sequence

from lmexposure._style import short
from lmexposure.core.charts import Chart, RocLine, Styles, class_styles, roc_lines_chart
from lmexposure.studies.exposure.roc import RocData


def roc_chart(
    curves: Sequence[RocData], *, number_of: int = 1, styles: Styles | None = None
) -> Chart | None:
    """An ordinary curve and its hull a class."""
    drawn = [
        curve for curve in curves if curve.positives > 0 and curve.negatives > 0 and curve.fpr.size
    ]
    if not drawn:
        return None
    classes = styles or class_styles(curve.repetitions for curve in drawn)
    lines = [
        RocLine(
            name=curve.name,
            fpr=curve.fpr,
            tpr=curve.tpr,
            edge=1 / curve.negatives,
            positives=curve.positives,
            area=(curve.area, curve.area_low, curve.area_high),
            color=classes[curve.repetitions]["color"],
            hull=(curve.hull_fpr, curve.hull_tpr),
        )
        for curve in drawn
    ]
    edge = short(min(line.edge for line in lines))
    return roc_lines_chart(
        lines,
        name="roc" if number_of == 1 else f"roc-{number_of}",
        kind="roc",
        title="Canaries distinguished from texts never inserted (ROC)",
        caption=(
            "The higher a curve at the left end, the more canaries are recognised while few other "
            "texts are taken for canaries; the dotted line is guessing."
        ),
        description=(
            "True-positive against false-positive rate on logarithmic axes, the ordinary curve and "
            "its concave hull. Area under the curve, 0.5 = guessing: {}. False-positive rates "
            f"below {edge} cannot be resolved."
        ),
    )
