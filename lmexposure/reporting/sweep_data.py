"""The data step of a sweep's report: a result and a verdict become all that its report shows."""

from dataclasses import dataclass

from lmexposure._validate import of_type
from lmexposure.core import Fact, Thresholds, Verdict
from lmexposure.gate import check_sweep
from lmexposure.reporting.sweep_facts import sweep_command, sweep_setting_facts, utility_facts
from lmexposure.studies import MeasuredSweep, SweepProvenance, SweepResult, sweep_of


@dataclass(frozen=True, kw_only=True)
class SweepReportData:
    """Everything that a report of a sweep shows; no secret is in it."""

    title: str  # name of the sweep
    verdict: Verdict  # of the gate with the thresholds that were asked for, else its defaults
    provenance: SweepProvenance  # which version collected how many models, and when
    result: SweepResult  # what all models say together
    utility: tuple[Fact, ...]  # how useful the models are
    settings: tuple[Fact, ...]  # all that were chosen
    # what makes such a sweep again, with other secrets and coins; None of a result in memory
    command: str | None
    significance: float  # how often, at most, the gate calls models leaking that memorised nothing

    @property
    def warnings(self) -> tuple[str, ...]:
        """Of the result."""
        return self.result.warnings


def sweep_report_data(
    measured: MeasuredSweep, *, thresholds: Thresholds | None = None
) -> SweepReportData:
    """Everything that a report of a sweep shows."""
    limits = Thresholds() if thresholds is None else thresholds
    of_type("thresholds", limits, Thresholds, "Thresholds(...)")
    sweep = sweep_of(measured)
    result = sweep.result
    return SweepReportData(
        title=sweep.name,
        verdict=check_sweep(sweep, limits),
        provenance=sweep.provenance,
        result=result,
        utility=utility_facts(result),
        settings=sweep_setting_facts(result),
        command=None if sweep.result_path is None else sweep_command(result, sweep.name),
        significance=limits.significance,
    )
