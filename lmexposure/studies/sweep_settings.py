"""What a person may choose of a sweep, and of a comparison of defences, which is made of sweeps."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from lmexposure._settings import (
    SEED,
    Settings,
    choice,
    numbers,
    part,
    setting,
    settings_taken,
    whole,
    words,
)
from lmexposure._validate import coverage, fraction, positive, text
from lmexposure.errors import SettingsError
from lmexposure.studies.settings import MeasureSettings, RunSettings
from lmexposure.studies.training_settings import OF_METHOD

SWEEPING = "Sweep"  # the panel of a command's help
# With fewer, no canary is in two others and out of two others for each model that is left out.
_FEWEST_MODELS = 4
_MOST_MODELS = 10_000
MOST_POPULATION, POPULATION_SHARE = 500, 0.1  # what is asked for where nothing is said

SHARES = (1.0, 0.5, 0.25, 0.0)  # of the canaries, where several kinds are compared

# Each by the name that files and reports have; higher = more likely in, see `sweeps.matrices`.
SCORES: Mapping[str, str] = {
    "log_perplexity": "log-perplexity",
    "secret_tokens": "tokens of the secret",
    "calibrated": "beside the base",
    "min_k": "min-k",
    "min_k_plus_plus": "min-k++",
    "zlib": "zlib",
    "label_only": "greedy matches",
}
# What other models make of a score: nothing, how far it lies above "out" (offline), or between "in"
# and "out" (online).
ATTACKS: Mapping[str, str] = {
    "plain": "as it is",
    "lira": "LiRA",
    "lira_offline": "LiRA offline",
    "rmia": "RMIA",
}
# Which scores an attack reads, where it does not read all.
READS: Mapping[str, tuple[str, ...]] = {"rmia": ("log_perplexity",)}


def _shares(name: str, value: object) -> None:
    """The rule of shares: 1, then smaller ones, descending."""
    values = value if isinstance(value, tuple) else ()
    numbered = all(type(share) in (int, float) and 0 <= share <= 1 for share in values)
    if not values or not numbered or values[0] != 1 or list(values) != sorted({*values})[::-1]:
        raise SettingsError(
            f"{name}={value!r} must be 1 and smaller shares, descending, such as 1, 0.5, 0"
        )


def of_sweeps() -> list[str]:
    """The settings of runs that a sweep takes over: what is hidden, and how models are trained."""
    tossed = (
        "inclusion_probability",
        "inclusion_seed",
        "controls",
        "witness",
        "audit",
        "max_share",
    )
    loaded = ("dtype", "load_in", "builder", "device_map")
    measured = {*settings_taken(MeasureSettings), *loaded} - {"delta"}
    return [n for n in settings_taken(RunSettings) if n not in measured and n not in tossed]


def _run_settings() -> RunSettings:
    return RunSettings(canaries=100, repetitions=(1,), controls=0, witness=False)


@dataclass(frozen=True, kw_only=True)
class SweepSettings(Settings):
    """Many models on one corpus, each with canaries of its own by coins."""

    PANEL: ClassVar[str] = SWEEPING

    models: int = setting(
        64,
        "models to train; the report says how many each question takes",
        rule=whole(_FEWEST_MODELS, _MOST_MODELS),
    )
    population: int | None = setting(
        None,
        "ordinary documents that are in each model by a coin as well",
        rule=whole(0, 10**7),
        usual=f"the smaller of {MOST_POPULATION} and a tenth of the documents",
    )
    vary: str = setting(
        "canaries",
        "what differs from model to model: canaries (and ordinary documents), or all documents",
        rule=choice("canaries", "all"),
    )
    coins: str = setting(
        "independent",
        "how a canary's models are chosen: independent coins, or exactly_half of the models, for "
        "which no bound on epsilon holds",
        rule=choice("independent", "exactly_half"),
    )
    score: str = setting(
        "secret_tokens",
        f"the score that decides, fixed before a model is trained: {', '.join(SCORES)}",
        rule=choice(*SCORES),
    )
    attack: str = setting(
        "lira", f"what the other models make of it: {', '.join(ATTACKS)}", rule=choice(*ATTACKS)
    )
    contexts: int = setting(
        3,
        "left contexts in which each canary's greedy tokens are read, for label_only",
        rule=whole(1, 100),
    )
    shares: tuple[float, ...] | None = setting(
        None,
        "shares of the canaries that have models of their own, the first of them 1: it shows "
        "whether canaries disturb each other; 0: none is in, in a quarter of the models",
        rule=_shares,
        metavar="X,X,...",
        parse=numbers,
        usual="1, and with several kinds 1,0.5,0.25,0",
    )
    base: str | None = setting(
        None,
        "a model that never saw the corpus, to calibrate scores by",
        rule=text,
        usual="of a pretrained model, that model itself",
    )
    keep_weights: bool = setting(False, "keep the models, and not their scores alone")
    inclusion_seed: int | None = setting(
        None,
        "decides which canary is in which model",
        rule=SEED,
        usual="fresh from the operating system, the coins are in plan.json",
        secret=True,
    )
    significance: float = setting(
        0.05, "how often, at most, a bound on epsilon may be wrong", rule=fraction
    )
    level: float = setting(0.95, "coverage of the intervals", rule=coverage)
    run: RunSettings = field(
        default_factory=_run_settings, metadata=part(RunSettings, names=of_sweeps())
    )
    """What is inserted and trained, and where; its own coins and controls have no place here."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # Coins show that a model read its share of the canaries: there is nothing to witness.
        controls = 0 if self.run.controls == RunSettings.controls else self.run.controls
        object.__setattr__(self, "run", replace(self.run, witness=False, controls=controls))
        if (
            delta := self.run.measure.delta
        ) is not None:  # nothing is measured at it: it is promised
            training = {"delta": delta, **self.run.training}
            run = replace(self.run, measure=MeasureSettings(), training=training)
            object.__setattr__(self, "run", run)
        read = READS.get(self.attack, SCORES)
        if self.score not in read:
            raise SettingsError(
                f"attack={self.attack!r} does not read score={self.score!r}; choose "
                f"{' or '.join(read)}, or attack='lira'"
            )
        if self.run.inclusion_probability is not None:
            raise SettingsError(
                f"inclusion_probability={self.run.inclusion_probability:g}: a sweep tosses a fair "
                "coin for each canary in each model; leave it out"
            )
        if self.run.controls:
            raise SettingsError(
                f"controls={self.run.controls}: in a sweep each canary is its own control, in the "
                "models without it; set controls=0"
            )

    @staticmethod
    def completed(values: Mapping[str, object]) -> Mapping[str, object]:
        """With the usual numbers of canaries where none is given, and not those of one run."""
        numbers = ("canaries", "repetitions")
        return {n: value for n, value in values.items() if n not in numbers or value is not None}

    @property
    def shares_used(self) -> tuple[float, ...]:
        """As asked, or the usual ones."""
        if self.shares is not None:
            return self.shares
        return SHARES if len(self.run.kinds) > 1 else (1.0,)

    def models_of(self, share: float) -> int:
        """How many models have this share of the canaries, one of `shares_used`."""
        return self.models if share > 0 else max(_FEWEST_MODELS, self.models // 4)

    def population_of(self, documents: int) -> int:
        """How many of the corpus's documents have coins and scores."""
        if self.population is not None:
            return self.population
        return min(MOST_POPULATION, int(POPULATION_SHARE * documents))

    def resolved(self) -> "SweepSettings":
        """The same, with the number of canaries: what a sweep's records say of them."""
        return replace(self, run=self.run.resolved())

    def without_seed(self) -> "SweepSettings":
        """Of a seed that was chosen: whoever has it, and the formats, can draw the secrets."""
        return replace(self, run=replace(self.run, seed=None))


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
    entire: bool = setting(
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
        return {"models": _FULL, **values} if values.get("entire") is True else values
