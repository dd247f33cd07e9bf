"""Every error that this package raises on purpose.

* LmexposureError
  + InputError (also a ValueError): something given from outside cannot be used
    - FormatError: a canary format
    - PlanError: how many canaries, where, how often
    - CorpusError: the text that canaries go into
    - ManifestError: the record of what was inserted
    - ModelError: a model directory, a hub name, a tokenizer
    - SettingsError: an argument, or a line of a settings file
    - ResultError: a result file or a run directory
      . BusyError: a directory in which another process is at work
  + NumericalError (also an ArithmeticError): a model or an estimate gave no usable number
    - MarginError: a search's arithmetic was off by more than the margin that it was given
  + FileError (also an OSError): the disk refused

A message names the value, what was allowed, and the next step; arguments as Python does
(epochs=0), which the command line says by their flags (--epochs 0).
"""

__all__ = [
    "BusyError",
    "CorpusError",
    "FileError",
    "FormatError",
    "InputError",
    "LmexposureError",
    "ManifestError",
    "MarginError",
    "ModelError",
    "NumericalError",
    "PlanError",
    "ResultError",
    "SettingsError",
]


class LmexposureError(Exception):
    """Base of all errors raised on purpose; the command line turns it into exit code 3."""


class InputError(LmexposureError, ValueError):
    """Something given from outside cannot be used as it is."""


class FormatError(InputError):
    """A canary format: its template, its lists, or a text that is no fill of it."""


class PlanError(InputError):
    """A plan that its format or its corpus cannot hold."""


class CorpusError(InputError):
    """A corpus that is missing, empty, not UTF-8 text, or already holds fills of the format."""


class ManifestError(InputError):
    """A manifest that is unreadable, was edited, or follows another schema."""


class ModelError(InputError):
    """A model or tokenizer that cannot be loaded, trained, or asked for this text."""


class SettingsError(InputError):
    """An argument, or a line of a settings file."""


class ResultError(InputError):
    """A result file or a run directory."""


class BusyError(ResultError):
    """A directory in which another process is at work."""


class NumericalError(LmexposureError, ArithmeticError):
    """A model or an estimate gave no usable number."""


class MarginError(NumericalError):
    """A search's arithmetic was off by more than the margin that it was given."""


class FileError(LmexposureError, OSError):
    """The disk refused: full, read-only, or not permitted."""

    def __str__(self) -> str:
        return str(self.args[-1]) if self.args else ""
