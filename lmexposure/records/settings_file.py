"""A TOML file of settings: every key and value is checked by itself, and old names are read."""

from collections.abc import Collection, Mapping
from pathlib import Path

from lmexposure._settings import refuse_unknown, settings_of, with_new_names
from lmexposure.errors import SettingsError
from lmexposure.records.settings import (
    KNOWN,
    NAMES_BY_TABLE,
    RENAMED,
    MeasureSettings,
    RunSettings,
    check_training,
)


def read_settings_file(
    path: Path, *, elsewhere: Mapping[str, Collection[str]] | None = None
) -> dict[str, object]:
    """The settings of a TOML file, ready for `RunSettings.override`.

    A table [check] is the gate's, and left out. Names of old are read as those of today, with a
    note on standard error.

    Args:
        path: of the file.
        elsewhere: place -> names that belong there, for whoever wrote them without a table.

    Example:
        model = "gpt2-tiny"
        repetitions = [1, 16]
        [training]
        epochs = 5

    Raises:
        SettingsError: the file is missing or is not TOML; a name that no setting has, or a value
            that one cannot have: with the file, the name and the nearest one, or the range.
    """
    from lmexposure._files import read_toml  # no help waits for it

    values = {name: value for name, value in read_toml(path).items() if name != "check"}
    try:
        values = with_new_names(values, RENAMED)
        refuse_unknown(values, KNOWN, elsewhere={**NAMES_BY_TABLE, **(elsewhere or {})})
        _check_file(values)
    except SettingsError as failure:
        raise SettingsError(f"{path}: {failure}") from None
    return values


def _check_file(values: Mapping[str, object]) -> None:
    """Each value by itself; what goes with what is known with the flags."""
    for name, value in values.items():
        if name == "training":
            if not isinstance(value, Mapping):
                raise SettingsError(f"training={value!r} must be a table of settings by name")
            _check_table(value)
        else:
            taken = tuple(value) if isinstance(value, list) else value
            (settings_of(RunSettings) | settings_of(MeasureSettings))[name].check(taken)


def _check_table(training: Mapping[str, object]) -> None:
    try:
        check_training(training)
    except SettingsError as failure:
        raise SettingsError(f"[training] {failure}") from None
