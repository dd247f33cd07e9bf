"""What a person may choose of a defence: settings of a training that is to give less away."""

import dataclasses
from dataclasses import dataclass

from lmexposure._settings import choice, setting, whole
from lmexposure._validate import fraction, positive
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


def _share(name: str, value: float) -> None:
    """The rule of a share that may be 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise SettingsError(f"{name}={value!r} must be at least 0 and below 1")


@dataclass(frozen=True, kw_only=True)
class DefenceSettings:
    """Of a training, what is to make it give less away; each but the first two is of one method."""

    deduplicate: str = setting(
        "none",
        "train on the first alone of documents that are alike: none, exact or near",
        panel=TRAINING,
        rule=choice("none", "exact", "near"),
    )
    dropout: float = setting(0.0, "share of units dropped in training", panel=TRAINING, rule=_share)
    goldfish_k: int = setting(
        4,
        "of goldfish, one token in k carries no loss",
        panel=TRAINING,
        rule=whole(2, 10**6),
    )
    goldfish_width: int = setting(
        13,
        "of goldfish, the tokens that decide it, the token itself among them",
        panel=TRAINING,
        rule=whole(1, 1_000),
    )
    relax_level: float | None = setting(
        None,
        "of relaxloss, nats a token that the loss is held at",
        panel=TRAINING,
        rule=positive,
        usual="none, it has to be given",
    )
    relax_upper: float = setting(
        1.0,
        "of relaxloss, the largest probability of a target that is flattened, at most 1",
        panel=TRAINING,
        rule=positive,
    )
    hamp_entropy: float = setting(
        0.5,
        "of hamp, entropy of the soft labels as a share of the largest",
        panel=TRAINING,
        rule=fraction,
    )
    hamp_weight: float = setting(
        0.005,
        "of hamp, weight of the entropy of what is predicted",
        panel=TRAINING,
        rule=positive,
    )
    selena_parts: int = setting(
        5, "of selena, models that teach", panel=TRAINING, rule=whole(2, 100)
    )
    selena_absent: int = setting(
        2,
        "of selena, how many of these never saw a row",
        panel=TRAINING,
        rule=whole(1, 99),
    )
    synthetic_share: float = setting(
        1.0,
        "of distillation, tokens that are sampled for each of the corpus",
        panel=TRAINING,
        rule=positive,
    )

    def _check_defence(self, method: str) -> None:
        """Refuse what does not go together."""
        _refuse_settings_of_others(self, method)
        if method == RELAXLOSS and self.relax_level is None:
            raise SettingsError(
                "method='relaxloss' holds the loss at a level, and relax_level is not given; give "
                "nats a token, in a file the table [training], such as .9 times the validation "
                "loss of a plain training"
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
