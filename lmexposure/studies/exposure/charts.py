"""The charts of a run, which share the colours of its classes."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from lmexposure._style import slug
from lmexposure.core.charts import Chart, Styles, class_styles
from lmexposure.studies.exposure.charts_calibrated import calibrated_chart
from lmexposure.studies.exposure.charts_controls import controls_chart
from lmexposure.studies.exposure.charts_epsilon import epsilon_chart
from lmexposure.studies.exposure.charts_exposure import exposure_chart
from lmexposure.studies.exposure.charts_extraction import extraction_chart
from lmexposure.studies.exposure.charts_references import reference_chart
from lmexposure.studies.exposure.charts_roc import roc_chart
from lmexposure.studies.exposure.charts_training import training_chart
from lmexposure.studies.exposure.charts_trajectory import trajectory_chart
from lmexposure.studies.exposure.files import RunFiles
from lmexposure.studies.exposure.roc import RocData, roc_data
from lmexposure.studies.exposure.rows import CURVES, FormatData, reference_bits


class RunCharts:
    """Each by its name; None where there is nothing to show."""

    def __init__(self, run: RunFiles, formats: Sequence[FormatData]) -> None:
        self._run, self._formats = run, formats
        self._styles: Styles = class_styles(self._repetitions())

    def _repetitions(self) -> Iterator[int]:
        """Of every class that a chart may show."""
        for form in self._formats:
            yield from (row.repetitions for row in form.classes)
            yield from (canary.repetitions for canary in form.canaries)
        privacy = self._run.result.privacy
        if privacy is not None:
            yield from (part.repetitions for part in privacy.classes)
        yield from (row.repetitions for row in self._run.result.trajectory)

    def exposure(self, form: FormatData) -> Chart | None:
        """Every canary, class by class."""
        return self._apart(exposure_chart(form, self._styles))

    def calibrated(self, form: FormatData) -> Chart | None:
        """The same beside the base."""
        return self._apart(calibrated_chart(form, self._styles))

    def references(self, form: FormatData) -> Chart | None:
        """What canaries were compared with."""
        bits = reference_bits(self._run.result, form.name)
        return self._apart(reference_chart(form, bits, self._styles))

    def extraction(self, form: FormatData) -> Chart | None:
        """What an attacker finds."""
        return self._apart(extraction_chart(form, self._styles))

    def controls(self, form: FormatData) -> Chart | None:
        """What was never inserted, against chance."""
        return self._apart(controls_chart(form))

    def epsilon(self) -> Chart | None:
        """Bounds on epsilon."""
        return epsilon_chart(self._run.result.privacy, self._styles)

    def inside(self) -> Chart | None:
        """Scores of canaries in the gradients."""
        return None if self._run.white_box is None else self._run.white_box.chart()

    def roc(self, place: int) -> Chart | None:
        """The curves of the classes, a few in a chart."""
        curves = self._curves[place * CURVES : (place + 1) * CURVES]
        return roc_chart(curves, number_of=place + 1, styles=self._styles)

    @cached_property
    def _curves(self) -> tuple[RocData, ...]:
        result, privacy = self._run.result, self._run.result.privacy
        if result.scores is None:
            return ()
        pooled = privacy is not None and privacy.inclusion_probability is not None
        return roc_data(result.scores, pooled=pooled, level=result.settings.level)

    def training(self) -> Chart | None:
        """How the model learned."""
        return training_chart(self._run.curve, self._styles)

    def trajectory(self) -> Chart | None:
        """How exposure grew from checkpoint to checkpoint."""
        return trajectory_chart(self._run.result.trajectory, self._styles)

    def _apart(self, chart: Chart | None) -> Chart | None:
        """Two names of formats may differ in signs only, which no file name keeps."""
        if chart is None:
            return None
        names = [form.name for form in self._formats]
        before = Counter(map(slug, names[: names.index(chart.subject)]))[slug(chart.subject)]
        return replace(chart, name=f"{chart.name}-{before + 1}") if before else chart
