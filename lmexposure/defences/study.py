"""The whole comparison of defences: searched, trained, attacked, and its record."""

from pathlib import Path
from typing import Any

from lmexposure._files import only_writer
from lmexposure._validate import of_type
from lmexposure.audit import Progress, silent
from lmexposure.canaries import Files
from lmexposure.defences.comparison import prepare_comparison
from lmexposure.defences.driver import trained_and_attacked
from lmexposure.defences.table import Compared
from lmexposure.studies import Defences, DefencesSettings
from lmexposure.sweeps import check_workers


def compare_defences(
    corpus: Files,
    *,
    out: str | Path,
    settings: DefencesSettings | None = None,
    workers: int | None = None,
    address: str | None = None,
    progress: Progress = silent,
    say: Any = None,
) -> Defences:
    """Compare defences at one utility, each under the attacks that fit it."""
    settings = DefencesSettings() if settings is None else settings
    of_type("settings", settings, DefencesSettings, "DefencesSettings(...)")
    check_workers(workers, address)
    with only_writer(out):
        compared = trained_and_attacked(
            prepare_comparison(corpus, out=out, settings=settings),
            workers=workers,
            address=address,
            progress=progress,
            say=say,
        )
        record = _record(compared)
        record.save(out)
    return record


def _record(compared: Compared) -> Defences:
    comparison, first = compared.comparison, compared.first
    return Defences.now(
        inputs_sha256=comparison.sha256,
        fpr=comparison.settings.fpr,
        level=comparison.settings.sweep.level,
        tolerance=comparison.settings.tolerance,
        documents=first.documents,
        characters=sum(map(len, comparison.searched.corpus.texts)),
        corpus_sha256=compared.corpus_sha256,
        canaries=first.canaries,
        rows=compared.rows(),
        failed=dict(compared.failed),
        forecast_seconds=compared.forecast_seconds,
        warnings=compared.warnings(),
    )
