"""The data step: a run on the disk becomes all that a report shows, as plain data."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lmexposure._validate import of_type
from lmexposure.canaries import (
    Manifest,
)
from lmexposure.errors import ManifestError, SettingsError
from lmexposure.gate import Thresholds, check
from lmexposure.records import FormatResult, RunFiles, Scores
from lmexposure.reporting.command import command_of, where_of
from lmexposure.reporting.data import FormatData, ReportData, RocData
from lmexposure.reporting.facts import model_facts, setting_facts
from lmexposure.reporting.roc import roc_data
from lmexposure.reporting.rows import canary_rows, class_rows


def report_data(
    run: RunFiles,
    *,
    thresholds: Thresholds | None = None,
    show_secrets: bool = False,
    manifest: Manifest | None = None,
) -> ReportData:
    """Everything that a report of a run shows.

    Args:
        run: what `open_run` gave.
        thresholds: of the verdict; None: the gate's defaults.
        show_secrets: put each canary's secret, and chosen seeds, into the data.
        manifest: where it does not lie beside the result.

    Raises:
        SettingsError: secrets are asked for, and no manifest holds them.
        ManifestError: a manifest that the result was not made from.
        ResultError: scores that do not agree with the result.
    """
    run = replace(run, manifest=_manifest(run, manifest, show_secrets))
    limits = Thresholds() if thresholds is None else thresholds
    of_type("thresholds", limits, Thresholds, "Thresholds(...)")
    return _data(run, run.scores(), limits, show_secrets)


def _manifest(run: RunFiles, given: Manifest | None, show_secrets: bool) -> Manifest | None:
    if given is not None and given.sha256 != run.result.manifest_sha256:
        raise ManifestError(
            f"the manifest given has sha256 {given.sha256[:16]}, but {run.place} was made "
            f"from {run.result.manifest_sha256[:16]}; give the manifest that was measured"
        )
    manifest = given or run.manifest
    if show_secrets and manifest is None:
        raise SettingsError(
            f"no manifest beside {run.place}, and only a manifest holds the secrets; give "
            "the manifest too, or leave the secrets out"
        )
    return manifest


def _data(
    run: RunFiles, scores: Scores | None, thresholds: Thresholds, show_secrets: bool
) -> ReportData:
    result, in_memory = run.result, run.result_path is None
    return ReportData(
        title=run.name,
        verdict=check(result, thresholds),
        provenance=run.provenance,
        model=model_facts(run),
        formats=tuple(_format(run, form, scores, show_secrets) for form in result.formats),
        privacy=result.privacy,
        roc=_roc(run, scores),
        training=run.curve,
        settings=setting_facts(run, show_seeds=show_secrets),
        command=None if in_memory else command_of(run, show_seeds=show_secrets),
        where="" if in_memory else where_of(run),
        warnings=(*result.warnings, *run.notes),
        significance=thresholds.significance,
        quick=result.settings.quick,
        redacted=not show_secrets,
    )


def _format(
    run: RunFiles, form: FormatResult, scores: Scores | None, show_secrets: bool
) -> FormatData:
    name, manifest = form.name, run.manifest
    return FormatData(
        name=name,
        pattern=None if manifest is None else manifest.formats[name].template,
        bits=form.bits,
        space_size=str(form.space_size),
        references=form.references,
        exhaustive=form.exhaustive,
        classes=class_rows(run.result, form),
        canaries=canary_rows(run.result, name, manifest if show_secrets else None),
        reference_bits=np.empty(0) if scores is None else _reference_bits(scores, name),
        fit=form.skew_normal,
        quantiles=tuple(form.reference_bits_quantiles),
    )


def _reference_bits(scores: Scores, name: str) -> NDArray[np.float64]:
    """Of all fills that canaries were compared with: candidates held out are among them."""
    never = (scores.roles == "reference") | (scores.roles == "held_out")
    bits: NDArray[np.float64] = scores.log_perplexity_bits[never & (scores.formats == name)]
    return bits


def _roc(run: RunFiles, scores: Scores | None) -> tuple[RocData, ...]:
    if scores is None:
        return ()
    privacy = run.result.privacy
    pooled = privacy is not None and privacy.inclusion_probability is not None
    return roc_data(scores, pooled=pooled, level=run.result.settings.level)
