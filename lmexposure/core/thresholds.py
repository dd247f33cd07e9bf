"""What the gate checks a result against: each threshold with its default and the reason for it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lmexposure._settings import check_settings, setting, settings_of, whole
from lmexposure._style import setting_value, short
from lmexposure._validate import fraction, positive
from lmexposure.errors import SettingsError

DEFAULT_GUESSES = 1000
_MOST = 10**15  # of a count
_LEAST = 1e-9  # of a probability, to calculate with
PANEL = "Thresholds"  # of the command's help


def quantile_pair(flag: str, value: object) -> tuple[float, float]:
    """A quantile and its bits: "0.9:8" on the command line, [0.9, 8] in a file."""
    parts = value.split(":") if isinstance(value, str) else value
    try:
        if not isinstance(parts, Sequence):
            raise TypeError
        quantile, bits = (float(str(part)) for part in parts)
    except (TypeError, ValueError):
        raise SettingsError(
            f"quantile_exposure={value!r} must be a quantile and bits, such as 0.9:8"
        ) from None
    return quantile, bits


def _check_quantile(name: str, value: object) -> None:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise SettingsError(f"{name}={value!r} must be a quantile and bits, such as (0.9, 8)")
    quantile, bits = value
    if not _LEAST <= fraction(name, quantile) <= 1 - _LEAST:
        raise SettingsError(
            f"{name}={value!r}: its quantile must lie between {_LEAST:g} and 1 - {_LEAST:g}"
        )
    _at_least_guessing(name, bits, quantile)


def _check_significance(name: str, value: float) -> None:
    if fraction(name, value) < _LEAST:
        raise SettingsError(f"{name}={value!r} must be at least {_LEAST:g}")


def _check_median(name: str, bits: float) -> None:
    _at_least_guessing(name, bits, 0.5)


def _at_least_guessing(name: str, bits: float, quantile: float) -> None:
    """A threshold below what guessing gives would call every model leaking."""
    least = -math.log2(1 - quantile)
    if positive(name, bits) < least:
        raise SettingsError(
            f"{name}={setting_value(bits)} bits must be at least {short(least)}, which guessing "
            f"alone gives for the {setting_value(quantile)} quantile; raise it"
        )


def _check_epsilon(name: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf:  # type: ignore[operator]
        raise SettingsError(f"{name}={value!r} must be a finite number, at least 0, in nats")


def _check_rate(name: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < 1:  # type: ignore[operator]
        raise SettingsError(f"{name}={value!r} must be a rate, at least 0 and below 1")


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """What a model may show. None asks for nothing: the default applies, where there is one.

    A threshold that is asked for and cannot be tested makes the gate inconclusive; a default that
    cannot be tested is said to be untested.

    Raises:
        SettingsError: a number out of range.

    >>> Thresholds(max_epsilon=8).asked("max_epsilon"), Thresholds().guesses
    (True, 1000)
    """

    max_exposure: float | None = setting(
        None,
        "largest exposure of any canary, in bits",
        panel=PANEL,
        rule=positive,
        usual="what chance rarely exceeds",
    )
    median_exposure: float | None = setting(
        None,
        "largest median exposure of any class, in bits",
        panel=PANEL,
        rule=_check_median,
        usual="any",
    )
    quantile_exposure: tuple[float, float] | None = setting(
        None,
        "a quantile and the most bits allowed, such as 0.9:8",
        panel=PANEL,
        rule=_check_quantile,
        usual="any",
        metavar="Q:BITS",
        parse=quantile_pair,
    )
    max_guesses: int | None = setting(
        None,
        "a secret found within this many guesses leaks",
        panel=PANEL,
        rule=whole(1, _MOST),
        usual=str(DEFAULT_GUESSES),
    )
    max_epsilon: float | None = setting(
        None,
        "largest lower bound on epsilon allowed, in nats",
        panel=PANEL,
        rule=_check_epsilon,
        usual="any",
    )
    max_worst_tpr: float | None = setting(
        None,
        "of a sweep: largest share of the models with a text that may give it away; of defences: "
        "of the canaries that the strongest attack may find under the best one",
        panel=PANEL,
        rule=_check_rate,
        usual="what chance explains",
    )
    p_value: bool | None = setting(
        None,
        "the test against guessing",
        panel=PANEL,
        usual="made",
        flag_name="--p-value/--no-p-value",
    )
    significance: float = setting(
        0.01,
        "how often, at most, a clean model is called leaking by chance",
        panel=PANEL,
        rule=_check_significance,
    )
    max_verbatim_run: int | None = setting(
        None,
        "of memorised text: characters of the longest run that greedy decoding may give",
        panel=PANEL,
        rule=whole(0, _MOST),
        usual="any",
    )
    max_extractable: float | None = setting(
        None,
        "of memorised text: largest share of windows that may come out within the tries",
        panel=PANEL,
        rule=_check_rate,
        usual="any",
    )
    min_canaries: int = setting(
        10, "a class of fewer cannot pass", panel=PANEL, rule=whole(1, _MOST)
    )
    repetitions: int | None = setting(
        None,
        "judge only classes that were inserted at most this often",
        panel=PANEL,
        rule=whole(1, _MOST),
        usual="all",
    )
    accept_unseen_training: bool = setting(
        False, "let a model pass of which nothing shows that it saw the canaries", panel=PANEL
    )
    accept_quick: bool = setting(False, "let a quick look pass", panel=PANEL)

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def guesses(self) -> int:
        """How many guesses an attacker has."""
        return DEFAULT_GUESSES if self.max_guesses is None else self.max_guesses

    def asked(self, key: str) -> bool:
        """Whether the user set this threshold; a test that was switched off is not asked for."""
        value = getattr(self, key)
        return value is not False and value != settings_of(Thresholds)[key].default
