"""What a person may choose of a comparison of defences."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from lmexposure._settings import Settings, part, setting, whole, words
from lmexposure._validate import fraction, positive
from lmexposure.errors import SettingsError
from lmexposure.studies.sweep_settings import SweepSettings
from lmexposure.studies.training_settings import OF_METHOD

COMPARING = "Defences"  # the panel of a command's help
_MODELS, _FULL = 32, 64
_CHARACTERS = 50_000
_CANARIES, _COPIES = 48, (1, 2)  # two copies are a pair, of which each protects nothing
# What is the same for all methods, or fixed by the comparison.
_FIXED = (
    *("score", "attack", "shares", "keep_weights", "vary", "coins", "base"),
    *("method", "delta", *(name for names in OF_METHOD.values() for name in names)),
)


def _rate(name: str, value: float) -> None:
    if fraction(name, value) not in (0.01, 0.001):
        raise SettingsError(f"{name}={value!r} must be 0.01 or 0.001, which sweeps have rates at")


def _target(name: str, value: float) -> None:
    if not 1 <= positive(name, value) <= 10:
        raise SettingsError(
            f"{name}={value!r} is a multiple of the undefended model's validation loss; give at "
            "least 1 and at most 10, such as 1.05"
        )


def _default_sweep() -> SweepSettings:
    sweep = SweepSettings()
    run = replace(sweep.run, canaries=_CANARIES, repetitions=_COPIES)
    return replace(sweep, models=_MODELS, shares=(1.0,), run=run)


@dataclass(frozen=True, kw_only=True)
class DefencesSettings(Settings):
    """Several defences at one utility, each under the attacks that fit it."""

    PANEL: ClassVar[str] = COMPARING

    methods: tuple[str, ...] = setting(
        ("early-stop", "relaxloss", "hamp", "dp-sgd"),
        "defences to compare; none is always among them",
        rule=words,  # which there are, the catalogue knows
        metavar="NAME,NAME,...",
        parse=lambda name, text: tuple(part.strip() for part in text.split(",")),
        usual="early-stop,relaxloss,hamp,dp-sgd",
    )
    target: float = setting(
        1.05,
        "validation loss that each is to have, as a multiple of that without a defence",
        rule=_target,
    )
    tolerance: float = setting(
        0.01, "how far from it a method may be and still be ranked", rule=fraction
    )
    tries: int = setting(
        5, "trainings that the search for a method's settings may take", rule=whole(1, 100)
    )
    fpr: float = setting(
        0.01, "false-positive rate at which methods are ranked: 0.01 or 0.001", rule=_rate
    )
    delta: float = setting(
        1e-5,
        "of dp-sgd, the delta of the epsilon that is claimed, at most 1 / documents",
        rule=fraction,
    )
    full: bool = setting(
        False,
        f"read the whole corpus, with {_FULL} models of each method where --models is not given",
    )
    characters: int = setting(
        _CHARACTERS,
        "characters of the corpus that are read, whole documents from its beginning",
        rule=whole(1_000),
    )
    repeated: int = setting(
        10,
        "how often canaries are in the one model of each method whose exposure is measured",
        rule=whole(0, 10**6),
    )
    sweep: SweepSettings = field(
        default_factory=_default_sweep, metadata=part(SweepSettings, without=_FIXED)
    )
    """Of each method: models, canaries, training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sweep.shares_used != (1.0,):
            raise SettingsError("shares: a comparison of defences has one share of canaries, 1")
        twice = sorted({name for name in self.methods if self.methods.count(name) > 1})
        if twice:
            raise SettingsError(f"methods names {twice[0]} twice; name each once")

    def resolved(self) -> "DefencesSettings":
        """The same, with the number of canaries: what decides a comparison."""
        return replace(self, sweep=self.sweep.resolved())

    @staticmethod
    def completed(values: Mapping[str, object]) -> Mapping[str, object]:
        """With more models of each method, where the whole corpus is read."""
        return {"models": _FULL, **values} if values.get("full") is True else values
