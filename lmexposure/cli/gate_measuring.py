"""`lmexposure check --model M --manifest F`: the measurement before the check."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lmexposure.cli.gate_options import MEASURING, CheckFlags
from lmexposure.cli.long_work import long_work

if TYPE_CHECKING:
    from lmexposure.audit import RunSettings
    from lmexposure.gate import Thresholds
    from lmexposure.records import Provenance, Result


def measure_for_gate(flags: CheckFlags, thresholds: "Thresholds") -> "tuple[Result, Provenance]":
    """Measure a model as `lmexposure measure` does; at least as many guesses as are allowed.

    Args:
        flags: of the command; without --out nothing stays on the disk.
        thresholds: how many guesses an attacker has.
    """
    from lmexposure.audit import load_for_measuring
    from lmexposure.audit import measure as measure_model
    from lmexposure.canaries import Manifest
    from lmexposure.records import open_run

    chosen = _settings(flags, thresholds)
    assert flags.model is not None
    assert flags.manifest is not None
    inserted = Manifest.read(flags.manifest)  # a bad one is found before a model is loaded
    with tempfile.TemporaryDirectory() as passing, long_work() as progress:
        out = flags.out or Path(passing)
        measure_model(
            load_for_measuring(flags.model, chosen),
            inserted,
            out=out,
            settings=replace(chosen.measure, seed=chosen.public_seed),
            progress=progress,
        )
        measured = open_run(out)
    return measured.result, measured.provenance


def _settings(flags: CheckFlags, thresholds: "Thresholds") -> "RunSettings":
    """Defaults, then the settings file, then flags."""
    from lmexposure.audit import RunSettings, read_settings_file

    said = {} if flags.settings is None else read_settings_file(flags.settings)
    chosen = RunSettings().override({**said, **flags.given(MEASURING)})
    guesses = max(chosen.measure.guesses, thresholds.guesses)
    return replace(chosen, measure=replace(chosen.measure, guesses=guesses))
