"""How a model is trained, with or without a defence; and how many clients train one, attacked."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from lmexposure._settings import (
    SEED,
    Settings,
    at_least_0,
    build,
    choice,
    part,
    refuse_unknown,
    setting,
    settings_of,
    whole,
)
from lmexposure._validate import (
    LARGEST_NUMBER,
    MOST_THREADS,
    fraction,
    integer,
    one_of,
    positive,
    text,
)
from lmexposure.errors import SettingsError

TRAINING = "Training"  # the panel of a command's help

PLAIN: str = "plain"
DP_SGD: str = "dp-sgd"
GOLDFISH: str = "goldfish"
RELAXLOSS: str = "relaxloss"
HAMP: str = "hamp"
SELENA: str = "selena"
DISTILLATION: str = "distillation"

# Settings that one method alone has.
OF_METHOD: dict[str, tuple[str, ...]] = {
    PLAIN: (),
    DP_SGD: (
        *("epsilon", "delta", "noise_multiplier", "clip"),
        *("expected_batch", "unit_field", "noise_seed", "document_norms", "weight_average"),
        "gradient_canaries",
    ),
    GOLDFISH: ("goldfish_k", "goldfish_width"),
    RELAXLOSS: ("relax_level", "relax_upper"),
    HAMP: ("hamp_entropy", "hamp_weight"),
    SELENA: ("selena_parts", "selena_absent"),
    DISTILLATION: ("synthetic_share",),
}
METHODS = tuple(OF_METHOD)
# Those that train other models first, of which the last one learns.
TAUGHT = (SELENA, DISTILLATION)
# To methods that there were before; where they are as usual, nothing is decided by them.
_ADDED = ("deduplicate", "dropout", "weight_average", "max_steps", "gradient_canaries")


@dataclass(frozen=True, kw_only=True)
class DefenceSettings(Settings):
    """Of a training, what is to make it give less away; each but the first two is of one method."""

    PANEL: ClassVar[str] = TRAINING

    deduplicate: str = setting(
        "none",
        "train on the first alone of documents that are alike: none, exact or near",
        rule=choice("none", "exact", "near"),
    )
    dropout: float = setting(
        0.0,
        "share of units dropped in training",
        rule=at_least_0("at least 0 and below 1", below=1),
    )
    goldfish_k: int = setting(
        4, "of goldfish, one token in k carries no loss", rule=whole(2, 10**6)
    )
    goldfish_width: int = setting(
        13,
        "of goldfish, the tokens that decide it, the token itself among them",
        rule=whole(1, 1_000),
    )
    relax_level: float | None = setting(
        None,
        "of relaxloss, nats a token that the loss is held at",
        rule=positive,
        usual="none, it has to be given",
    )
    relax_upper: float = setting(
        1.0,
        "of relaxloss, the largest probability of a target that is flattened, at most 1",
        rule=positive,
    )
    hamp_entropy: float = setting(
        0.5, "of hamp, entropy of the soft labels as a share of the largest", rule=fraction
    )
    hamp_weight: float = setting(
        0.005, "of hamp, weight of the entropy of what is predicted", rule=positive
    )
    selena_parts: int = setting(5, "of selena, models that teach", rule=whole(2, 100))
    selena_absent: int = setting(
        2, "of selena, how many of these never saw a row", rule=whole(1, 99)
    )
    synthetic_share: float = setting(
        1.0, "of distillation, tokens that are sampled for each of the corpus", rule=positive
    )

    def _check_defence(self, method: str) -> None:
        """Refuse what does not go together."""
        _refuse_settings_of_others(self, method)
        if method == RELAXLOSS and self.relax_level is None:
            raise SettingsError(
                "method='relaxloss' holds the loss at a level, and relax_level is not given; give "
                "nats a token (relax_level=...), such as .9 times the validation loss of a plain "
                "training"
            )
        if self.relax_upper > 1:
            raise SettingsError(
                f"relax_upper={self.relax_upper!r} is a probability; give at most 1"
            )
        if self.selena_absent >= self.selena_parts:
            raise SettingsError(
                f"selena_absent={self.selena_absent} must be below "
                f"selena_parts={self.selena_parts}: some model has to see each row"
            )
        if method == DP_SGD and self.deduplicate != "none":
            raise SettingsError(
                f"deduplicate={self.deduplicate!r} does not go with method={DP_SGD!r}: a document "
                "more or less would decide about others, and move more than the promise allows "
                "for; deduplicate the corpus beforehand, or leave it out"
            )


def undecided(settings: DefenceSettings, method: str) -> set[str]:
    """Settings that decide nothing of a training by this method, or that leave it as it was."""
    names = {name for other, own in OF_METHOD.items() if other != method for name in own}
    names |= {"method"} if method == PLAIN else set()
    # As before there were any: the hash of a training without them is then the same.
    usual = {declared.name: declared.default for declared in dataclasses.fields(settings)}
    return names | {name for name in _ADDED if getattr(settings, name) == usual[name]}


def _refuse_settings_of_others(settings: DefenceSettings, method: str) -> None:
    """Refuse what only another method has: who says it means to train by that one."""
    owners = {name: owner for owner, own in OF_METHOD.items() for name in own}
    for declared in dataclasses.fields(settings):
        name, value = declared.name, getattr(settings, declared.name)
        owner = owners.get(name, method)
        if owner == method or value == declared.default:
            continue
        if owner == DP_SGD:
            shown = "..." if name == "noise_seed" else repr(value)
            raise SettingsError(
                f"{name}={shown} is of differential privacy, and the training would promise none; "
                f"add method={DP_SGD!r}, or leave it out"
            )
        raise SettingsError(
            f"{name}={value!r} is of method={owner!r}, and the training is by {method!r}; change "
            "the method, or leave it out"
        )


_ONLY_SPEED = ("accumulation", "checkpoint_seconds", "threads")

_DEFAULTS: dict[str, dict[str, object]] = {
    "lstm": {},
    "gpt2-tiny": {
        "learning_rate": 1e-3,
        "batch_size": 16,
        "weight_decay": 0.01,
        "warmup_steps": 100,
    },
    "pretrained": {
        "learning_rate": 5e-5,
        "epochs": 3,
        "patience": 3,
        "batch_size": 8,
        "block_size": 256,
        "schedule": "linear",
    },
}

_LORA = {"learning_rate": 2e-4}  # adapters bear, and need, longer steps than whole models

_LONGEST_BLOCK = 10**7  # tokens; past every context window, and within memory
_COUNT = whole(1)


def _usual(name: str, default: object) -> str:
    """A default in words, and those of the kinds of models that have another."""
    kinds = {"gpt2-tiny": "gpt2-tiny", "pretrained": "fine-tuning"}
    others = [f"{shown} {_DEFAULTS[k][name]}" for k, shown in kinds.items() if name in _DEFAULTS[k]]
    return "; ".join([str(default), *others])


def _epochs(name: str, values: object) -> None:
    if not isinstance(values, tuple | list):
        raise SettingsError(f"{name}={values!r} must be a list of epochs, such as [1, 5]")


def _finite(name: str, value: float) -> None:
    if positive(name, value) > LARGEST_NUMBER:
        raise SettingsError(f"{name}={value!r} must be at most {LARGEST_NUMBER:g}")


def _targets(name: str, values: object) -> None:
    """The rule of layers' names; flags and files give a list, as of epochs."""
    if not isinstance(values, tuple | list) or not values:
        raise SettingsError(f"{name}={values!r} must be a list with at least one name of a layer")
    for value in values:
        text(name, value)


def _refuse_settings_of_adapters(given: Mapping[str, object]) -> None:
    """Refuse what only adapters have: who says it does not mean to train all weights."""
    for name, value in given.items():
        if name.startswith("lora_"):
            raise SettingsError(
                f"{name}={value!r} is of adapters, and all weights would be trained; add "
                "lora=True, or leave it out"
            )


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(DefenceSettings):
    """Settings of a training, those of defences first; the defaults are those of a new LSTM."""

    seed: int = setting(
        0, "seed of the order of blocks, of dropout and of the validation documents", rule=whole(0)
    )
    epochs: int = setting(
        20,
        "passes over the corpus at most; training stops earlier where the loss no longer falls",
        usual=_usual("epochs", 20),
        rule=_COUNT,
    )
    patience: int = setting(
        3, "evaluations without a lower loss before training stops", rule=_COUNT
    )
    evaluate_every: int | None = setting(
        None, "optimizer steps between evaluations", rule=_COUNT, usual="once an epoch"
    )
    batch_size: int = setting(
        32, "blocks in a training step", usual=_usual("batch_size", 32), rule=_COUNT
    )
    block_size: int = setting(
        128,
        "tokens in a training block",
        usual=f"{_usual('block_size', 128)}; of chats 1024, one to a block",
        rule=whole(2, _LONGEST_BLOCK),
    )
    learning_rate: float = setting(
        5e-3,
        "the highest learning rate",
        usual=f"{_usual('learning_rate', 5e-3)}; with lora {_LORA['learning_rate']}",
        rule=positive,
    )
    schedule: str = setting(
        "constant",
        "schedule of the learning rate: constant, or linear down to 0",
        usual=_usual("schedule", "constant"),
        rule=choice("constant", "linear"),
    )
    warmup_steps: int = setting(
        0, "steps in which the learning rate grows", usual=_usual("warmup_steps", 0), rule=whole(0)
    )
    weight_decay: float = setting(
        0.0,
        "weight decay of AdamW",
        usual=_usual("weight_decay", 0.0),
        rule=at_least_0("finite and at least 0"),
    )
    gradient_clip: float = setting(1.0, "largest norm of a step's gradient", rule=positive)
    precision: str = setting(
        "float32", "precision of training: float32 or bf16", rule=choice("float32", "bf16")
    )
    validation_fraction: float = setting(
        0.05, "share of the corpus's characters held out for validation", rule=fraction
    )
    validation_characters: int = setting(
        500_000, "characters held out for validation, at most", rule=_COUNT
    )
    snapshot_epochs: tuple[int, ...] = setting(
        (), "epochs after which a copy of the model is kept", rule=_epochs
    )
    max_steps: int | None = setting(
        None, "optimizer steps after which training ends", rule=_COUNT, usual="those of all epochs"
    )
    max_seconds: float | None = setting(None, "seconds after which training ends", rule=positive)
    lora: bool = setting(False, "train low-rank adapters (LoRA, by peft) next to frozen weights")
    lora_rank: int = setting(16, "rank of the adapters", rule=whole(1, 10_000))
    lora_alpha: float | None = setting(
        None,
        "scale of the adapters: alpha / rank multiplies what they add",
        rule=positive,
        usual="twice the rank",
    )
    lora_targets: tuple[str, ...] = setting(
        ("all-linear",),
        "layers that get an adapter, by the ends of their names",
        rule=_targets,
        usual="all-linear, every linear layer but the output",
    )
    method: str = setting(
        "plain",
        "how the model is trained: plain; dp-sgd, with differential privacy; or as another "
        f"defence: {', '.join(METHODS[2:])}",
        rule=choice(*METHODS),
    )
    epsilon: float | None = setting(
        None,
        "of dp-sgd, the epsilon to be promised, in nats",
        rule=_finite,
        usual="as the noise multiplier gives it",
    )
    delta: float = setting(
        1e-5, "of dp-sgd, the delta next to it, at most 1 / documents", rule=fraction
    )
    noise_multiplier: float | None = setting(
        None,
        "of dp-sgd, the noise over the largest gradient, in the place of epsilon",
        rule=_finite,
        usual="as epsilon needs it",
    )
    clip: float = setting(1.0, "of dp-sgd, the largest norm of a document's gradient", rule=_finite)
    expected_batch: int | None = setting(
        None,
        "of dp-sgd, documents in a step on average",
        rule=_COUNT,
        usual="the sixteenth part of all",
    )
    unit_field: str | None = setting(
        None,
        "of dp-sgd, a field of records, such as of users: all documents of a value are promised "
        "for together",
        rule=text,
        usual="each document by itself",
    )
    noise_seed: int | None = setting(
        None,
        "of dp-sgd, decides noise and batches; whoever knows it can take the noise away",
        rule=SEED,
        usual="fresh from the operating system, and kept nowhere",
        secret=True,
    )
    document_norms: bool = setting(
        False, "of dp-sgd, measure each document's gradient once an epoch, for dp-report"
    )
    gradient_canaries: int | None = setting(
        None,
        "of dp-sgd, canaries in the gradients, for an audit from inside, step by step too",
        rule=whole(1, 1_000_000),
        usual="no such audit",
    )
    weight_average: float | None = setting(
        None,
        "of dp-sgd, keep a running average of the weights: the share of it that a step leaves",
        rule=fraction,
        usual="the weights themselves",
    )
    accumulation: int = setting(
        1, "parts that a step is computed in, to save memory; changes no result", rule=_COUNT
    )
    checkpoint_seconds: float = setting(60.0, "seconds between checkpoints", rule=positive)
    threads: int | None = setting(None, "of the CPU", rule=whole(1, MOST_THREADS))

    def __post_init__(self) -> None:
        super().__post_init__()
        for epoch in self.snapshot_epochs:
            integer("snapshot_epochs", epoch, low=1, high=self.epochs)
        if not self.lora:
            pairs = ((part, getattr(self, part.name)) for part in dataclasses.fields(self))
            changed = {part.name: value for part, value in pairs if value != part.default}
            _refuse_settings_of_adapters(changed)
        self._check_defence(self.method)
        if self.method == DP_SGD:
            self._check_dp()
        if self.method == RELAXLOSS and self.accumulation != 1:
            raise SettingsError(
                f"accumulation={self.accumulation} does not go with method={RELAXLOSS!r}, which "
                "reads the mean loss of a whole step; leave it out"
            )
        if self.method in TAUGHT and self.lora:
            raise SettingsError(
                f"lora=True does not go with method={self.method!r}, which trains several models; "
                "train all weights"
            )

    @classmethod
    def for_model(cls, kind: str, **changes: object) -> "TrainingSettings":
        """Defaults for a kind of model, with changes.

        >>> TrainingSettings.for_model("pretrained", epochs=1).learning_rate
        5e-05
        """
        one_of("kind", kind, tuple(_DEFAULTS))
        refuse_unknown(changes, settings_of(TrainingSettings), what="setting of the training")
        adapters = _LORA if changes.get("lora") else {}
        if not adapters:
            _refuse_settings_of_adapters(changes)
        return build(cls, _DEFAULTS[kind] | adapters | changes)

    def to_dict(self) -> dict[str, object]:
        """All settings as JSON values."""
        lists = {
            "snapshot_epochs": list(self.snapshot_epochs),
            "lora_targets": list(self.lora_targets),
        }
        return dataclasses.asdict(self) | lists

    def decisive(self) -> dict[str, object]:
        """Those settings that change the result, as JSON values."""
        values = {name: value for name, value in self.to_dict().items() if name not in _ONLY_SPEED}
        without = undecided(self, self.method)
        return {
            name: value
            for name, value in values.items()
            if (self.lora or not name.startswith("lora")) and name not in without
        }

    @property
    def is_private(self) -> bool:
        """Whether the training makes a promise of differential privacy."""
        return self.method == DP_SGD

    def _check_dp(self) -> None:
        """One of epsilon and noise, and nothing that the promise could not be made with."""
        if (self.epsilon is None) == (self.noise_multiplier is None):
            both = self.epsilon is not None
            raise SettingsError(
                f"method={DP_SGD!r} takes epsilon=... or noise_multiplier=..., and "
                f"{'both are' if both else 'neither is'} given; give one of the two"
            )
        if self.precision != "float32":
            raise SettingsError(
                f"precision={self.precision!r} does not go with method={DP_SGD!r}: rounding would "
                "move clipped gradients past their norm; leave precision out"
            )
        if self.accumulation != 1:
            raise SettingsError(
                f"accumulation={self.accumulation} does not go with method={DP_SGD!r}, whose "
                "batch_size is already what goes through the model together; lower that instead"
            )

    def learning_rate_at(self, step: int, total_steps: int) -> float:
        """Learning rate of optimizer step `step`, the first being 0, of `total_steps`."""
        warm = min(1.0, (step + 1) / (self.warmup_steps + 1))
        left = 1.0 - step / total_steps if self.schedule == "linear" else 1.0
        return self.learning_rate * warm * left


FEDERATED, CANIFE = "Federated training", "Canaries in its rounds"  # panels of a command's help
_MOST = 1_000_000
_FEW = whole(1, _MOST)


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

    rounds: int = setting(10, "rounds of the training", rule=_FEW)
    client_rate: float = setting(0.1, "probability of a client to be in a round", rule=_rate)
    local_epochs: int = setting(1, "passes of a client over its rows", rule=_FEW)
    local_batch: int | None = setting(
        None, "rows in a step of a client", rule=_FEW, usual="all of them"
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

    every: int = setting(1, "rounds from an attacked round to the next", rule=_FEW)
    mock_rounds: int = setting(100, "mock rounds of an attack, with a coin each", rule=_FEW)
    design_clients: int = setting(
        20,
        "clients put aside to design canaries, and as many to play mock rounds",
        rule=whole(2, _MOST),
    )
    length: int = setting(25, "tokens of a row and of the canary", rule=whole(2, _MOST))
    iterations: int = setting(2_500, "iterations of a canary's design", rule=_FEW)
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
