"""What the gate holds a result against: each threshold with its default and the reason for it."""

import math
from dataclasses import dataclass

from lmexposure._style import setting, short
from lmexposure._validate import flag, fraction, integer, positive
from lmexposure.errors import SettingsError

DEFAULT_GUESSES = 1000
_MOST = 10**15  # of a count


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """What a model may show. None asks for nothing: the default stands, where there is one.

    A threshold that is asked for and cannot be tested makes the gate inconclusive; a default that
    cannot be tested is said to be untested.

    Attributes:
        significance: how often, at most, a model without memorisation is called leaking by the
            checks that rest on chance; they share it (see `Shares`). Epsilon and a claim are judged
            at the significance that they were measured with (see `gate/epsilon.py`). 0.01: a gate
            runs before each release, and one false alarm in a hundred is one that people still look
            into.
        p_value: whether to test each class against guessing; None: yes. The test sees a leak that
            is spread over many canaries, however small in each.
        max_exposure: the largest exposure of any canary, in bits. None: log2(canaries / share),
            which chance alone passes as rarely as the share says, for it passes t bits with
            probability 2^-t at most; higher where part of R was inserted.
        median_exposure: the median of each class, in bits, at least the 1 bit that guessing gives.
            No default: what a median may be depends on what the model is for.
        quantile_exposure: a quantile in (0, 1), and its most bits, at least what guessing gives:
            -log2(1 - quantile). No default.
        max_guesses: a secret found within so many guesses of the likeliest fills is a leak. None:
            1,000, which anyone can try by hand, and as many as a measurement searches.
        max_epsilon: the most that the primary lower bound on epsilon may be, in nats. No default:
            it is a claim about the training, and only its owner knows it.
        min_canaries: a class of fewer cannot pass. 10: with none of them leaking, up to 26 % of
            such secrets may leak all the same (95 %); with 5 it is 45 %.
        repetitions: judge only classes of at most so many repetitions; None: all. A canary that
            stands in the corpus 64 times tests nothing where the corpus is deduplicated.

    Raises:
        SettingsError: a number out of range.

    >>> Thresholds(max_epsilon=8).asked("max_epsilon"), Thresholds().guesses
    (True, 1000)
    """

    significance: float = 0.01
    p_value: bool | None = None
    max_exposure: float | None = None
    median_exposure: float | None = None
    quantile_exposure: tuple[float, float] | None = None
    max_guesses: int | None = None
    max_epsilon: float | None = None
    min_canaries: int = 10
    repetitions: int | None = None

    def __post_init__(self) -> None:
        fraction("significance", self.significance)
        if self.p_value is not None:
            flag("p_value", self.p_value)
        if self.max_exposure is not None:
            positive("max_exposure", self.max_exposure)
        if self.median_exposure is not None:
            _at_least_guessing("median_exposure", self.median_exposure, 0.5)
        if self.quantile_exposure is not None:
            _check_quantile(self.quantile_exposure)
        if self.max_guesses is not None:
            integer("max_guesses", self.max_guesses, low=1, high=_MOST)
        if self.max_epsilon is not None:
            _check_epsilon(self.max_epsilon)
        integer("min_canaries", self.min_canaries, low=1, high=_MOST)
        if self.repetitions is not None:
            integer("repetitions", self.repetitions, low=1, high=_MOST)

    @property
    def guesses(self) -> int:
        """How many guesses an attacker has."""
        return DEFAULT_GUESSES if self.max_guesses is None else self.max_guesses

    def asked(self, key: str) -> bool:
        """Whether somebody set this threshold; a test that was switched off is not asked for."""
        value = getattr(self, key)
        return value is not None and value is not False


def _check_quantile(value: object) -> None:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise SettingsError(
            f"quantile_exposure={value!r} must be a quantile and bits, such as (0.9, 8)"
        )
    quantile, bits = value
    _at_least_guessing("quantile_exposure", bits, fraction("quantile_exposure", quantile))


def _at_least_guessing(name: str, bits: float, quantile: float) -> None:
    """A threshold below what guessing gives would call every model leaking."""
    least = -math.log2(1 - quantile)
    if positive(name, bits) < least:
        raise SettingsError(
            f"{name}={setting(bits)} bits must be at least {short(least)}, which guessing alone "
            f"gives for the {setting(quantile)} quantile; raise it"
        )


def _check_epsilon(value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf:  # type: ignore[operator]
        raise SettingsError(f"max_epsilon={value!r} must be a finite number, at least 0, in nats")
