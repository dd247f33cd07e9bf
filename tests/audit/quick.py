"""Settings with which a measurement takes a second or two."""

from lmexposure.audit import MeasureSettings

__all__ = ["ALL_FILLS", "QUICK"]

QUICK = MeasureSettings(
    references=400,
    revealed=1,
    budget_steps=20_000,
    draws=1_000,
    guesses=50,
    bootstraps=39,
    permutations=999,
)
# For spaces so small that every fill is a reference.
ALL_FILLS = MeasureSettings(bootstraps=39, permutations=999)
