"""What a person may choose, apart by what it decides: the plan, the model, the measurement."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lmexposure._files import read_toml
from lmexposure._validate import (
    LARGEST_NUMBER,
    MOST_THREADS,
    coverage,
    delta_of_dp,
    flag,
    fraction,
    integer,
    one_of,
    positive,
    text,
)
from lmexposure.canaries import DEFAULT_REFERENCES
from lmexposure.canaries.randomness import LARGEST_SEED
from lmexposure.errors import SettingsError

if TYPE_CHECKING:
    from lmexposure.records import MeasureOptions, RunOptions

_BUDGET_OPERATIONS = 3e12  # half a minute of a small CPU
_FEWEST_STEPS, _MOST_STEPS = 10_000, 2_000_000

# What a first look has instead of the defaults; of references and budget it has a tenth.
_QUICK: dict[str, Any] = {"revealed": 0, "draws": 2_000, "bootstraps": 39}
_TENTH = 10

_CANARIES = 10  # per class, where neither canaries nor candidates are given

_MOST = 10**8  # of anything that is held in memory one by one

METHODS = ("auto", "exact", "importance", "sampled", "skew_normal", "certificate")


@dataclass(frozen=True, kw_only=True)
class MeasureSettings:
    """What is measured, and how closely.

    Attributes:
        references: fills to compare with, per format; None: 10,000, or as many as there are.
            A number that R cannot give is an error.
        revealed: extraction is tried with 0 to this many of the secret's characters given.
        beam_width: candidates a beam keeps; None: 100, and twice the canaries of the format.
        extraction: whether to search for the secrets at all.
        method: which estimate of exposure is shown: "auto" (exact where the budget suffices, else
            importance, else sampled), or one of `METHODS` by name. "skew_normal" must give a curve,
            and shows a rank all the same: an extrapolation stands beside what was counted.
        draws: fills drawn by importance, per format.
        guesses: the likeliest fills that best-first search finds, per format.
        budget_steps: model steps that the exact search of a format may take, and best-first search
            again; None: as many as 3e12 floating-point operations give, 10,000 to 2,000,000. Draws
            come besides: a few steps each.
        budget_seconds: an end in seconds for each walk besides; with one, another machine may show
            other methods.
        live_states: model states that a search may hold at once; where the budget ends a search, it
            changes what was reached until then.
        level: coverage of every interval.
        bootstraps: refits behind the goodness of the skew-normal curve.
        permutations: shuffles behind each p-value against guessing.
        significance: of all bounds on epsilon together.
        delta: beside which epsilon is bounded, in [0, 1); None: 0, and one by the number of
            documents.
        claimed_epsilon: what was claimed of the training, in nats, with `delta`.
        quick: a first look in about a tenth of the time, by `first_look`: references that are not
            asked for are 1,000, a budget that is not a tenth; the result says what is coarser.
        seed: of bootstraps and, with the hashes of manifest and weights, of permutations; it is not
            the plan's, for a result does not tell from which seed its secrets were drawn.
        batch_size: texts a forward pass; changes only speed.
        threads: of the CPU, which decide the last bits of a score; None: one for a small model,
            else what torch has. A measurement that is resumed keeps those that it began with, and
            the result names them.
    """

    references: int | None = None
    revealed: int = 4
    beam_width: int | None = None
    extraction: bool = True
    method: str = "auto"
    draws: int = 20_000
    guesses: int = 1_000
    budget_steps: int | None = None
    budget_seconds: float | None = None
    live_states: int | None = None
    level: float = 0.95
    bootstraps: int = 199
    permutations: int = 9_999
    significance: float = 0.05
    delta: float | None = None
    claimed_epsilon: float | None = None
    quick: bool = False
    seed: int = 0
    batch_size: int | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.references is not None:
            integer("references", self.references, low=20, high=_MOST)
        integer("revealed", self.revealed, low=0, high=_MOST)
        if self.beam_width is not None:
            integer("beam_width", self.beam_width, low=2, high=_MOST)
        flag("extraction", self.extraction)
        one_of("method", self.method, METHODS)
        integer("draws", self.draws, low=10, high=_MOST)
        integer("guesses", self.guesses, low=1, high=_MOST)
        self._check_budget()
        coverage("level", self.level)
        integer("bootstraps", self.bootstraps, low=39, high=_MOST)
        integer("permutations", self.permutations, low=99, high=_MOST)
        fraction("significance", self.significance)
        if self.delta is not None:
            delta_of_dp("delta", self.delta)
        if self.claimed_epsilon is not None:
            from lmexposure.statistics import Claim  # brings scipy: only for a claim

            Claim(epsilon=self.claimed_epsilon, delta=self.delta)
            if self.claimed_epsilon > LARGEST_NUMBER:
                raise SettingsError(
                    f"claimed_epsilon={self.claimed_epsilon!r} must be at most "
                    f"{LARGEST_NUMBER:g} nats: a larger one claims nothing; leave it out"
                )
        flag("quick", self.quick)
        integer("seed", self.seed, low=0, high=LARGEST_SEED)
        for name, most in (("batch_size", None), ("threads", MOST_THREADS)):
            if getattr(self, name) is not None:
                integer(name, getattr(self, name), low=1, high=most)

    @classmethod
    def first_look(cls, **values: Any) -> "MeasureSettings":
        """Settings of a first look, but for these values.

        >>> look = MeasureSettings.first_look(draws=5_000)
        >>> look.draws, look.revealed, look.references_for(10_000)
        (5000, 0, 1000)
        """
        return cls(**{"quick": True, **_QUICK, **values})

    def references_for(self, usual: int) -> int:
        """References per format, if there are so many.

        Args:
            usual: their number where none is asked for.
        """
        return self.references or (usual // _TENTH if self.quick else usual)

    @property
    def coarser(self) -> str | None:
        """What a first look leaves open, in one sentence; None where it is none."""
        if not self.quick:
            return None
        said = [
            *_fewer("references", self.references_for(DEFAULT_REFERENCES), DEFAULT_REFERENCES),
            *_fewer("draws", self.draws, MeasureSettings.draws),
            *(["a tenth of the search"] if self.budget_steps is None else []),
            *_fewer("characters given to extraction", self.revealed, MeasureSettings.revealed),
            *_fewer("bootstraps", self.bootstraps, MeasureSettings.bootstraps),
        ]
        return f"a quick look, with {', '.join(said)}" if said else None

    def deltas(self, documents: int) -> tuple[float, ...]:
        """The deltas beside which epsilon is bounded, the primary bound's first.

        Args:
            documents: of the corpus; a claim's delta should be far below one by their number.
        """
        return (0.0, 1 / max(2, documents)) if self.delta is None else (self.delta,)

    def steps_for(self, parameters: int) -> int:
        """Model steps that a search may take: as asked, or by the size of the model.

        Args:
            parameters: of the model; a step takes about twice as many operations.
        """
        by_size = int(_BUDGET_OPERATIONS // (2 * max(1, parameters)))
        whole = min(max(by_size, _FEWEST_STEPS), _MOST_STEPS)
        return self.budget_steps or (whole // _TENTH if self.quick else whole)

    def _check_budget(self) -> None:
        try:
            if self.budget_seconds is not None:
                positive("budget_seconds", self.budget_seconds)
            if self.budget_steps is not None:
                integer("budget_steps", self.budget_steps, low=1, high=LARGEST_SEED)
        except SettingsError as failure:
            raise SettingsError(
                f"{failure}; to leave the exact search out, choose method='importance' or 'sampled'"
            ) from None
        if self.live_states is not None:
            integer("live_states", self.live_states, low=1, high=_MOST)

    def record(self, *, threads: int | None = None) -> "MeasureOptions":
        """What a result says of them: all but what changes speed alone.

        Args:
            threads: that were computed with; None before it is known.
        """
        from lmexposure.records import MeasureOptions  # brings pydantic

        values = asdict(self)
        del values["batch_size"]
        return MeasureOptions(**{**values, "threads": threads})

    def decisive(self) -> dict[str, Any]:
        """The settings that decide the numbers, for the hash of a result's inputs."""
        values = asdict(self)
        del values["batch_size"], values["threads"]
        if not self.quick:
            del values["quick"]  # as before there was one: the hash is then the same
        return values


def _fewer(what: str, number: int, usual: int) -> list[str]:
    return [f"{number:,} {what} instead of {usual:,}"] if number < usual else []


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The whole path: what is inserted, what is trained, what is measured.

    Attributes:
        model: "lstm", "gpt2-tiny", or a path or hub name to fine-tune.
        formats: names of shipped formats, or paths of format files.
        canaries: canaries per format and class of repetitions; None: 10 where coins are fixed.
        coins: "fixed" inserts a fixed number of canaries; p in (0, 1) tosses a coin for each
            candidate, which becomes a canary with probability p.
        candidates: candidates per format and class of repetitions, where coins are tossed.
        coin_seed: of the coins; None, where there are some, draws a fresh one from the operating
            system when the plan is made. It is kept in the manifest and in no other file.
        repetitions: how often the canaries of each class are inserted.
        controls: canaries per format that are drawn and never inserted.
        seed: decides secrets, positions, initial weights and the order of training; not the coins.
            None draws the plan's own from the operating system when the plan is made, and keeps it
            in the manifest and in no other file; the training then has the seed 0. Whoever
            has a seed that was given, or guesses it, can draw the secrets.
        layout: "lines", "paragraphs" or "jsonl"; None: by the corpus's suffix, else lines.
        text_field: the field of a JSONL record that holds its text.
        existing: what to do with fills that the corpus holds already: "refuse" or "set_aside".
        layers, units: size of the LSTM.
        training: overrides of the model's training defaults, by name.
        measure: what is measured.
        device, dtype: where and in which precision the model is measured.
        threads: of the CPU, in training and measuring; None: one for a small model, else what torch
            has. What is resumed keeps those that it began with.
        offline, revision: how a hub name is looked up.
    """

    model: str = "lstm"
    formats: tuple[str, ...] = ("random_number",)
    canaries: int | None = None
    coins: Literal["fixed"] | float = "fixed"
    candidates: int | None = None
    coin_seed: int | None = field(default=None, repr=False)
    repetitions: tuple[int, ...] = (1, 4, 16)
    controls: int = 32
    seed: int | None = None
    layout: str | None = None
    text_field: str = "text"
    existing: Literal["refuse", "set_aside"] = "refuse"
    layers: int = 2
    units: int = 200
    training: Mapping[str, Any] = field(default_factory=dict)
    measure: MeasureSettings = field(default_factory=MeasureSettings)
    device: str = "auto"
    dtype: str = "float32"
    threads: int | None = None
    offline: bool = False
    revision: str | None = None

    def __post_init__(self) -> None:
        _list("formats", self.formats)
        _list("repetitions", self.repetitions)
        for name in self.formats:
            text("formats", name)
        for count in self.repetitions:
            integer("repetitions", count, low=1)
        self._check_coins()
        integer("controls", self.controls, low=0)
        if self.seed is not None:
            integer("seed", self.seed, low=0, high=LARGEST_SEED)
        if self.threads is not None:
            integer("threads", self.threads, low=1, high=MOST_THREADS)
        integer("layers", self.layers, low=1, high=1000)
        integer("units", self.units, low=1, high=100_000)
        if self.layout is not None:
            one_of("layout", self.layout, ["lines", "paragraphs", "jsonl", "parquet"])
        one_of("existing", self.existing, ["refuse", "set_aside"])
        one_of("dtype", self.dtype, ["float32", "bfloat16", "float16"])
        for name in ("model", "text_field", "device"):
            text(name, getattr(self, name))
        if self.revision is not None:
            text("revision", self.revision)
        flag("offline", self.offline)
        if not isinstance(self.training, Mapping):
            raise SettingsError(f"training={self.training!r} must be a table of settings by name")

    @property
    def per_class(self) -> int:
        """Canaries to draw per format and class of repetitions; with coins, candidates."""
        return self.candidates or self.canaries or _CANARIES

    @property
    def inclusion_probability(self) -> float | None:
        """Of each candidate; None: a fixed number goes in."""
        return None if self.coins == "fixed" else float(self.coins)

    @property
    def public_seed(self) -> int:
        """Of initial weights and of the training, unless `training` has its own; 0 by default.

        It never follows from a plan's fresh seed: what a training writes is for others to read.
        """
        return 0 if self.seed is None else self.seed

    def _check_coins(self) -> None:
        """One number says how many: canaries where they are fixed, candidates where coins are."""
        object.__setattr__(self, "coins", _checked_coins(self.coins))
        if self.coin_seed is not None:
            if self.coins == "fixed":
                raise SettingsError(
                    "a coin_seed needs coins to toss, such as coins=0.5; leave it out"
                )
            integer("coin_seed", self.coin_seed, low=0, high=LARGEST_SEED)
        for name in ("canaries", "candidates"):
            if getattr(self, name) is not None:
                integer(name, getattr(self, name), low=1)
        if self.coins == "fixed" and self.candidates is not None:
            raise SettingsError(
                f"candidates={self.candidates} needs coins, such as coins=0.5; for a fixed number "
                "give canaries"
            )
        if self.coins != "fixed" and self.canaries is not None:
            raise SettingsError(
                f"canaries={self.canaries} is a fixed number, but coins={self.coins} decide how "
                "many there are; give candidates instead"
            )
        if self.coins != "fixed" and self.candidates is None:
            raise SettingsError(
                f"coins={self.coins} needs candidates: how many coins to toss per format and "
                "class of repetitions"
            )

    def to_dict(self) -> dict[str, Any]:
        """All settings, defaults included, as plain values; but never the coin seed."""
        values = asdict(self)
        del values["coin_seed"]
        canaries = self.per_class if self.coins == "fixed" else None
        return values | {"canaries": canaries, "training": dict(self.training)}

    def record(self) -> "RunOptions":
        """What run.json says of them: all but the coin seed, the threads and what is measured."""
        from lmexposure._record import plain  # brings pydantic
        from lmexposure.records import RunOptions

        values = self.to_dict()
        del values["measure"], values["threads"]
        coins = values.pop("coins")
        values["inclusion_probability"] = None if coins == "fixed" else coins
        return RunOptions.model_validate(plain(values))

    def override(self, values: Mapping[str, Any]) -> "RunSettings":
        """A copy with some values replaced; the names of `MeasureSettings` reach into `measure`.

        Raises:
            SettingsError: a name that no setting has; lists the ones there are.
        """
        values = dict(values)
        own = {f.name for f in fields(self)} - {"measure"}
        inner = {f.name for f in fields(MeasureSettings)} - {"seed", "threads"}
        unknown = sorted(set(values) - own - inner)
        if unknown:
            raise SettingsError(
                f"unknown setting {unknown[0]!r}; there are {', '.join(sorted(own | inner))}"
            )
        for name in ("formats", "repetitions"):
            if isinstance(values.get(name), list):
                values[name] = tuple(values[name])
        if isinstance(values.get("training"), Mapping):
            values["training"] = {**self.training, **values["training"]}
        measure = {name: values.pop(name) for name in list(values) if name in inner}
        if measure.get("quick") is True:
            measure = {**_QUICK, **measure}
        return replace(self, measure=replace(self.measure, **measure), **values)


def _checked_coins(value: Literal["fixed"] | float) -> Literal["fixed"] | float:
    if isinstance(value, str):
        if value != "fixed":
            raise SettingsError(f"coins={value!r} must be 'fixed' or a probability such as 0.5")
        return "fixed"
    return fraction("coins", value)


def _list(name: str, values: object) -> None:
    if not isinstance(values, tuple) or not values:
        raise SettingsError(f"{name}={values!r} must be a list with at least one entry")


def read_settings_file(path: Path) -> dict[str, Any]:
    """The settings of a TOML file, ready for `RunSettings.override`.

    A table [check] is the gate's, and left out.

    Example:
        model = "gpt2-tiny"
        repetitions = [1, 16]
        [training]
        epochs = 5

    Raises:
        SettingsError: the file is missing or is not TOML.
    """
    return {name: value for name, value in read_toml(path).items() if name != "check"}
