"""What a person may choose of a federated training, and of the canaries that attack its rounds."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

from lmexposure._settings import SEED, Settings, part, setting, whole
from lmexposure._validate import fraction, positive, text
from lmexposure.errors import SettingsError

FEDERATED, CANIFE = "Federated training", "Canaries in its rounds"  # panels of a command's help
_MOST = 1_000_000
_COUNT = whole(1, _MOST)


def _clip(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise SettingsError(
            f"{name}={value!r} must be a number above 0: a clip that follows the updates is itself "
            "a release about them, which no claim here counts; give a fixed number"
        )
    positive(name, value)


def _rate(name: str, value: float) -> None:
    if not 0 < positive(name, value) <= 1:
        raise SettingsError(
            f"{name}={value!r} must be above 0 and at most 1, the probability of a client to be in "
            "a round"
        )


def _noise(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise SettingsError(
            f"{name}={value!r} must be at least 0, where 0 is a training without privacy"
        )
    if value:
        positive(name, value)


@dataclass(frozen=True, kw_only=True)
class FederatedSettings(Settings):
    """How a federated training goes."""

    PANEL: ClassVar[str] = FEDERATED

    rounds: int = setting(10, "rounds of the training", rule=_COUNT)
    client_rate: float = setting(0.1, "probability of a client to be in a round", rule=_rate)
    local_epochs: int = setting(1, "passes of a client over its rows", rule=_COUNT)
    local_batch: int | None = setting(
        None, "rows in a step of a client", rule=_COUNT, usual="all of them"
    )
    client_learning_rate: float = setting(1.0, "learning rate of a client's steps", rule=positive)
    server_learning_rate: float = setting(
        1.0, "what a round takes off, times the mean update", rule=positive
    )
    clip: float = setting(1.0, "largest norm of a client's update", rule=_clip)
    noise_multiplier: float = setting(1.0, "noise over the clip; 0: no privacy", rule=_noise)
    delta: float = setting(1e-5, "delta of the claim", rule=fraction)
    seed: int = setting(0, "seed of weights, clients, coins and noise", rule=SEED, recorded=False)


@dataclass(frozen=True, kw_only=True)
class CanifeSettings(Settings):
    """How rounds are attacked."""

    PANEL: ClassVar[str] = CANIFE

    every: int = setting(1, "rounds from an attacked round to the next", rule=_COUNT)
    mock_rounds: int = setting(100, "mock rounds of an attack, with a coin each", rule=_COUNT)
    design_clients: int = setting(
        20,
        "clients put aside to design canaries, and as many to play mock rounds",
        rule=whole(2, _MOST),
    )
    length: int = setting(25, "tokens of a row and of the canary", rule=whole(2, _MOST))
    iterations: int = setting(2_500, "iterations of a canary's design", rule=_COUNT)
    design_rate: float = setting(0.1, "learning rate of a canary's design", rule=positive)
    frozen: bool = setting(
        True, "mock rounds of the attacked round's model, or coins in the training's own rounds"
    )
    compared: bool = setting(True, "score a random text beside each canary")
    significance: float = setting(
        0.05, "how often, at most, a bound lies above the truth", rule=fraction
    )
    canary_seed: int = setting(0, "seed of canaries and their coins", rule=SEED, recorded=False)


@dataclass(frozen=True, kw_only=True)
class CanifeStudySettings(Settings):
    """Whose text is trained on, which model, how, and how its rounds are attacked."""

    PANEL: ClassVar[str] = FEDERATED

    user_field: str | None = setting(
        None,
        "the field of a record that says whose it is",
        rule=text,
        metavar="NAME",
        usual="none, and the corpus is cut into parts",
    )
    clients: int = setting(
        100, "parts that a corpus without users is cut into", rule=whole(2, _MOST)
    )
    text_field: str = setting("text", "the field of a record that holds the text", rule=text)
    layers: int = setting(2, "layers of the LSTM", rule=whole(1, 1000))
    units: int = setting(32, "units of each layer", rule=whole(1, 100_000))
    training: FederatedSettings = field(
        default_factory=FederatedSettings, metadata=part(FederatedSettings)
    )
    attacks: CanifeSettings = field(default_factory=CanifeSettings, metadata=part(CanifeSettings))
