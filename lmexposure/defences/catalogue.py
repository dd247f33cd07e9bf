"""The defences that can be compared: how each is trained, and the one setting that is searched.

Nothing here imports torch: a name that there is not is refused before.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

from lmexposure._style import listed
from lmexposure.errors import SettingsError
from lmexposure.studies import DISTILLATION, DP_SGD, GOLDFISH, HAMP, RELAXLOSS, SELENA

NONE = "none"  # the undefended training


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The undefended model that a search measures others against."""

    bits: float  # its validation loss, bits a token
    steps: int  # after which it had that loss


@dataclass(frozen=True, kw_only=True)
class Knob:
    """The setting of a method that is searched, from its weakest to its strongest."""

    setting: str  # of the training, by name
    # weak, strong: where the search begins and ends
    weak: float
    strong: float
    logarithmic: bool = True  # whether it is searched by factors
    whole: bool = False  # whether it is a whole number
    # "steps" or "nats", where the values are shares of those of the undefended model
    share_of: str | None = None

    def value(self, strength: float, reference: Reference) -> float | int:
        """What the training is given.

        >>> Knob(setting="goldfish_k", weak=32, strong=2, whole=True).value(
        ...     0.5, Reference(bits=2.0, steps=100)
        ... )
        8
        """
        if self.logarithmic:
            low, high = math.log(self.weak), math.log(self.strong)
            found = math.exp(low + strength * (high - low))
        else:
            found = self.weak + strength * (self.strong - self.weak)
        if self.share_of == "steps":
            found *= reference.steps
        if self.share_of == "nats":
            found *= reference.bits * math.log(2)
        return max(1, round(found)) if self.whole else float(f"{found:.4g}")


@dataclass(frozen=True, kw_only=True)
class Defence:
    """A method to train by, and what is known of it."""

    name: str  # by which it is asked for
    meaning: str  # what it does, in a line
    promises_not: str  # what it does not hide
    training: Mapping[str, Any] = field(default_factory=dict)  # settings that it always has
    knob: Knob | None = None  # that is searched; None: nothing is
    # other settings that are tried first, at a middle strength; the best is kept
    alternatives: Sequence[Mapping[str, float]] = ()
    # whether its target is the undefended models' loss, and not the common one
    at_undefended: bool = False
    package: tuple[str, str] | None = None  # that has to be installed, and the extra that brings it


_STEPS = Knob(setting="max_steps", weak=1.0, strong=0.05, whole=True, share_of="steps")
# Times the learning rate that all have, and the share of the documents in a step. With noise,
# larger batches bear larger steps: on 50 kB the second gave .18 bits less loss than the first.
_TUNED = ({"learning_rate": 1.0, "batch": 1 / 32}, {"learning_rate": 3.0, "batch": 1 / 16})
_BY_NOISE = Defence(
    name=DP_SGD,
    meaning="clipped gradients and noise, with as little of it as the target allows",
    promises_not="more than its epsilon, which is vacuous where it is large",
    training={"method": DP_SGD, "clip": 0.3, "weight_average": 0.98},
    knob=Knob(setting="noise_multiplier", weak=0.03, strong=4.0),
    alternatives=_TUNED,
    package=("opacus", "dp"),
)

_ALL = (
    Defence(
        name=NONE,
        meaning="plain training, kept where its validation loss is lowest",
        promises_not="anything",
    ),
    Defence(
        name="early-stop",
        meaning="plain training that ends as soon as it is useful enough",
        promises_not="what is learned first: secrets that are there often",
        knob=_STEPS,
    ),
    Defence(
        name="dropout",
        meaning="a share of the units is dropped in training",
        promises_not="anything: it slows memorising down",
        knob=Knob(setting="dropout", weak=0.05, strong=0.8, logarithmic=False),
    ),
    Defence(
        name="weight-decay",
        meaning="weights are drawn to 0 by AdamW",
        promises_not="anything: it slows memorising down",
        knob=Knob(setting="weight_decay", weak=0.01, strong=5.0),
    ),
    Defence(
        name="dedup",
        meaning="of documents that are nearly the same, the first alone is trained on",
        promises_not="a secret that is there once, or in documents that are not alike",
        training={"deduplicate": "near"},
        knob=_STEPS,
        package=("datasketch", "dedup"),
    ),
    Defence(
        name=GOLDFISH,
        meaning="one token in k carries no loss, the same wherever a passage is",
        promises_not="the tokens that are kept: membership shows, and a secret to its few gaps",
        training={"method": GOLDFISH},
        knob=Knob(setting="goldfish_k", weak=64, strong=2, whole=True),
    ),
    Defence(
        name=RELAXLOSS,
        meaning="the training loss is held at a level, not driven to zero",
        promises_not="single texts: it holds the mean of a step alone",
        training={"method": RELAXLOSS},
        knob=Knob(setting="relax_level", weak=0.4, strong=1.3, logarithmic=False, share_of="nats"),
    ),
    Defence(
        name=HAMP,
        meaning="soft labels and rewarded entropy; the output shows the order of tokens alone",
        promises_not="the order of tokens: greedy answers are those of the model underneath",
        training={"method": HAMP},
        knob=Knob(setting="hamp_entropy", weak=0.02, strong=0.9),
    ),
    Defence(
        name=SELENA,
        meaning="a text is taught only by models that never saw it",
        promises_not="a text with a near copy, whose teachers did see it",
        training={"method": SELENA},
        knob=_STEPS,
    ),
    Defence(
        name=DISTILLATION,
        meaning="a model learns from text that another, trained on the corpus, makes up",
        promises_not="what the first model says unasked, and what its predictions show",
        training={"method": DISTILLATION},
        knob=_STEPS,
    ),
    _BY_NOISE,
    replace(
        _BY_NOISE,
        name="dp-sgd-high",
        meaning="the same, with so little noise that it is as useful as no defence",
        at_undefended=True,
    ),
)
DEFENCES: Mapping[str, Defence] = {defence.name: defence for defence in _ALL}


def chosen(names: Sequence[str]) -> list[Defence]:
    """The defences of these names, the undefended training before all others."""
    for name in names:
        if "+" in name:
            raise SettingsError(
                f"methods: {name!r} is several defences at once, and a model is trained by one; "
                "name each by itself, and put what all are to have into the settings of training"
            )
        if name not in DEFENCES:
            raise SettingsError(
                f"methods: {name!r} is no defence; choose from {listed(list(DEFENCES), 20)}"
            )
    found = [DEFENCES[NONE], *(DEFENCES[name] for name in names if name != NONE)]
    for defence in found:
        if defence.package is not None and find_spec(defence.package[0]) is None:
            package, extra = defence.package
            raise SettingsError(
                f"methods: {defence.name} needs {package}, which is not installed; install it: pip "
                f"install 'lmexposure[{extra}]', or leave {defence.name} out"
            )
    return found


def refuse_own(training: Mapping[str, object], defences: Sequence[Defence]) -> None:
    """Refuse settings for all methods that are one method's own."""
    for defence in defences:
        own = {*defence.training, *([defence.knob.setting] if defence.knob else [])}
        for name in sorted({*own, "method"} & set(training)):
            whose = f"is searched or fixed by {defence.name}" if name in own else "makes a defence"
            raise SettingsError(
                f"{name}={training[name]!r} {whose}, and all methods would have it; "
                "leave it out, and say by methods=... what is compared"
            )
