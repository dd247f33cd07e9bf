"""A TOML file of settings: every key and value is checked by itself, and old names are read."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from lmexposure._settings import refuse_unknown, settings_of
from lmexposure.errors import SettingsError
from lmexposure.records.settings import (
    KNOWN,
    NAMES_BY_TABLE,
    MeasureSettings,
    RunSettings,
    check_training,
)

# Names of old that are read for one version more; what a person writes now.
RENAMED = {
    "coins": "inclusion_probability",
    "candidates": "canaries",
    "coin_seed": "inclusion_seed",
}


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
        values = with_new_names(values)
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


def with_new_names(
    values: Mapping[str, object], *, shown: str = "{}", renamed: Mapping[str, str] = RENAMED
) -> dict[str, object]:
    """The values by the names of today; names of old are read for one version, with a note.

    Args:
        values: by name; "coins" = "fixed" said what is said by no probability today.
        shown: how a name is written where it was given.
        renamed: name of old -> name of today.

    Raises:
        SettingsError: an old name and its new one are both given.
    """
    given = {old: new for old, new in renamed.items() if values.get(old) is not None}
    for old, new in given.items():
        if values.get(new) is not None:
            raise SettingsError(
                f"{_spelled(shown, old)} and {_spelled(shown, new)} are the same setting; give "
                f"{_spelled(shown, new)} alone"
            )
    if given and os.environ.get("RANK", "0") == "0":
        said = ", ".join(
            f"{_spelled(shown, old)} is now {_spelled(shown, new)}" for old, new in given.items()
        )
        import logging  # no help waits for it

        logging.getLogger(__name__).warning(
            "note: %s; the old spelling is read for one more version", said
        )
    found = {
        given.get(name, name): value
        for name, value in values.items()
        if name not in renamed or name in given
    }
    if found.get("inclusion_probability") == "fixed":
        del found["inclusion_probability"]
    return found


def _spelled(shown: str, name: str) -> str:
    return shown.format(name.replace("_", "-") if shown.startswith("--") else name)
