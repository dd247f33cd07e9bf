"""Settings with which a measurement takes a second or two, and a run a few."""

from dataclasses import replace

from lmexposure.audit import MeasureSettings, RunSettings

__all__ = ["ALL_FILLS", "QUICK", "RUN", "SAMPLED"]

QUICK = MeasureSettings(
    references=400,
    revealed=1,
    budget_steps=20_000,
    draws=1_000,
    guesses=50,
    bootstraps=39,
    permutations=999,
)
# Ranks among a few references, and nothing else.
SAMPLED = replace(QUICK, references=60, estimate="sampled", extraction=False, permutations=99)
# For spaces so small that every fill is a reference.
ALL_FILLS = MeasureSettings(draws=1_000, bootstraps=39, permutations=999)
RUN = RunSettings(
    formats=("pin",),
    canaries=3,
    repetitions=(1, 30),
    controls=8,
    seed=0,
    layers=1,
    units=32,
    training={"epochs": 3, "learning_rate": 0.01},
    measure=replace(QUICK, references=500),
)
