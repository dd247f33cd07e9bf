"""Measure how much of its training data a language model gives away.

Import the rooms you need: `lmexposure.canaries` (what is hidden), `lmexposure.models` (what reads
it), `lmexposure.scoring` (how surprised the model is), `lmexposure.statistics` (what the numbers
mean), `lmexposure.audit` (the whole path). This module itself imports nothing heavy.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
