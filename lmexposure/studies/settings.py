"""What a person may choose, each declared once: of what is inserted, trained and looked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from lmexposure._quantiles import fewest_refits
from lmexposure._settings import (
    SEED,
    Settings,
    build,
    choice,
    own_values,
    part,
    refuse_unknown,
    setting,
    settings_of,
    several,
    whole,
    whole_numbers,
    words,
)
from lmexposure._style import Value
from lmexposure._validate import (
    LARGEST_NUMBER,
    LARGEST_SEED,
    MOST_THREADS,
    coverage,
    day,
    delta_of_dp,
    fraction,
    integer,
    of_type,
    positive,
    text,
)
from lmexposure.canaries import ADAPTERS, FORMS, KINDS, UNIFORM, layouts_listed
from lmexposure.core import Thresholds
from lmexposure.errors import SettingsError
from lmexposure.studies.training_settings import TRAINING, TrainingSettings

# The panels of a command's help.
HIDDEN, MEASURING = "What is hidden", "Measuring"
PRIVACY, MACHINE = "Privacy", "Machine"

_BUDGET_OPERATIONS = 3e12  # half a minute of a small CPU
_FEWEST_STEPS, _MOST_STEPS = 10_000, 2_000_000

# What an effort has instead of the defaults.
_FIRST_LOOK = {"revealed": 0, "draws": 1_600, "bootstraps": 39}
EFFORTS: Mapping[str, dict[str, int]] = {
    "quick": _FIRST_LOOK,
    "normal": {},
    "thorough": {"draws": 48_000, "guesses": 10_000},
}
# Of references and of the search's budget, times those of a normal one.
_TIMES = {"quick": 0.1, "normal": 1.0, "thorough": 10.0}

_CANARIES = Thresholds.min_canaries  # per class, where no number is given
# Where no repetitions are given: the first that are few enough for the corpus, else the last.
REPETITIONS = (1, 4, 16), (1, 8), (1, 4), (1,)
_COINS = 500  # candidates of an audit

_MOST = 10**8  # of anything that is held in memory

_WITHOUT_SEARCH = (
    "to leave the exact search out, choose estimate='importance' or estimate='sampled'"
)
_THREADS = "threads of the CPU; what is resumed keeps its own"
_USUAL_THREADS = "1 for a small model, else all"

# How a message names them.
MEASURE_SETTINGS = "MeasureSettings(...), such as MeasureSettings(references=1000)"

ESTIMATES = ("auto", "exact", "importance", "sampled", "skew_normal", "certificate")


def _nats(name: str, value: object) -> None:
    """The rule of a claim; its other conditions are those of `Claim`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SettingsError(f"{name}={value!r} must be a number of nats, at least 0")
    if value > LARGEST_NUMBER:
        raise SettingsError(
            f"{name}={value!r} must be at most {LARGEST_NUMBER:g} nats: a larger one claims "
            "nothing; leave it out"
        )


def _left_context(name: str, value: object) -> None:
    """The rule of a left context; an empty text is no way to say that there is none."""
    if not isinstance(value, str) or not value:
        raise SettingsError(f"{name}={value!r} must be bos, eos, none, or a text")


@dataclass(frozen=True, kw_only=True)
class MeasureSettings(Settings):
    """What is measured, and how closely."""

    PANEL: ClassVar[str] = MEASURING

    references: int | None = setting(
        None,
        "secrets to compare with, never inserted, per format",
        rule=whole(20, _MOST),
        usual="10,000, or all there are",
    )
    revealed: int = setting(4, "characters given to the searches, at most", rule=whole(0, _MOST))
    beam_width: int | None = setting(
        None,
        "beginnings that a beam search keeps",
        rule=whole(2, _MOST),
        usual="100, or twice the canaries if that is more",
    )
    extraction: bool = setting(True, "whether the secrets are searched for")
    estimate: str = setting(
        "auto",
        "the estimate of exposure that is shown: auto, exact, importance, sampled, certificate, or "
        "skew_normal, an extrapolation next to what was counted",
        rule=choice(*ESTIMATES),
    )
    draws: int = setting(12_000, "secrets drawn for importance sampling", rule=whole(10, _MOST))
    guesses: int = setting(
        1_000, "likeliest secrets that best-first search finds", rule=whole(1, _MOST)
    )
    budget_steps: int | None = setting(
        None,
        "model steps for the exact search of a format",
        rule=whole(1, LARGEST_SEED),
        remedy=_WITHOUT_SEARCH,
        usual="by the size of the model",
    )
    budget_seconds: float | None = setting(
        None,
        "seconds after which each search ends; another machine may then show other methods",
        rule=positive,
        remedy=_WITHOUT_SEARCH,
        usual="no limit",
    )
    live_states: int | None = setting(
        None,
        "model states that a search holds at once",
        rule=whole(1, _MOST),
        usual="as memory allows",
    )
    level: float = setting(0.95, "coverage of the intervals", rule=coverage)
    bootstraps: int = setting(
        199,
        "refits behind goodness and interval of the skew-normal curve, where it is asked for",
        rule=whole(39, _MOST),
    )
    permutations: int = setting(9_999, "shuffles behind a p-value", rule=whole(99, _MOST))
    significance: float = setting(
        0.05, "how often, at most, a bound on epsilon may be wrong", panel=PRIVACY, rule=fraction
    )
    delta: float | None = setting(
        None,
        "the delta that epsilon is bounded at",
        panel=PRIVACY,
        rule=delta_of_dp,
        usual="0, and 1 / documents",
    )
    claimed_epsilon: float | None = setting(
        None,
        "the epsilon that is claimed, in nats, to be compared with the bound; needs a delta",
        panel=PRIVACY,
        rule=_nats,
        usual="no claim",
    )
    effort: str = setting(
        "normal",
        "how closely is looked: quick, a first look at a tenth of the work that passes no gate; "
        "normal; or thorough, ten times the references and the search",
        rule=choice(*EFFORTS),
    )
    bootstrap_seed: int = setting(
        0, "seed of bootstraps, draws and permutations; no secret follows from it", rule=SEED
    )
    left_context: str | None = setting(
        None,
        "what was left of each canary in the rows of another trainer: bos, eos, none, or a text",
        rule=_left_context,
        usual="as the manifest or the rows say",
    )
    scoring_batch: int | None = setting(
        None,
        "texts in a forward pass",
        panel=MACHINE,
        rule=whole(1),
        usual="found by trial",
        recorded=False,
    )
    threads: int | None = setting(
        None, _THREADS, panel=MACHINE, rule=whole(1, MOST_THREADS), usual=_USUAL_THREADS
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        fewest = fewest_refits(self.level)  # the ends of an interval are two of them
        if self.estimate == "skew_normal" and self.bootstraps < fewest:
            raise SettingsError(
                f"bootstraps={self.bootstraps} must be at least {fewest} for intervals of "
                f"level={self.level:g}; give as many, or a lower level"
            )
        if self.claimed_epsilon is not None:
            from lmexposure.statistics import Claim  # brings scipy: only for a claim

            Claim(epsilon=self.claimed_epsilon, delta=self.delta)

    @staticmethod
    def completed(values: Mapping[str, object]) -> Mapping[str, object]:
        """With the numbers of the effort that is asked for."""
        return {**EFFORTS.get(str(values.get("effort")), {}), **values}

    @property
    def quick(self) -> bool:
        """Whether it is a first look."""
        return self.effort == "quick"

    @property
    def quicker(self) -> "MeasureSettings":
        """The same as a first look."""
        return build(type(self), {**vars(self), "effort": "quick", **_FIRST_LOOK})

    def references_for(self, usual: int) -> int:
        """References per format, where the format has as many; `usual` where none is asked for."""
        return self.references or int(usual * _TIMES[self.effort])

    @property
    def coarser(self) -> str | None:
        """What a first look leaves open, in one sentence; None where it is none."""
        if not self.quick:
            return None
        from lmexposure.canaries import DEFAULT_REFERENCES  # brings the formats

        fewer = [
            *_fewer("references", self.references_for(DEFAULT_REFERENCES), DEFAULT_REFERENCES),
            *_fewer("draws", self.draws, MeasureSettings.draws),
            *(["a tenth of the search"] if self.budget_steps is None else []),
            *_fewer("characters given to extraction", self.revealed, MeasureSettings.revealed),
            *(
                _fewer("bootstraps", self.bootstraps, MeasureSettings.bootstraps)
                if self.estimate == "skew_normal"
                else []
            ),
        ]
        return f"a quick look, with {', '.join(fewer)}" if fewer else None

    def deltas(self, documents: int) -> tuple[float, ...]:
        """The deltas at which epsilon is bounded, the primary's first, by documents of a corpus."""
        return (0.0, 1 / max(2, documents)) if self.delta is None else (self.delta,)

    def steps_for(self, parameters: int) -> int:
        """Model steps that a search may take: as asked, or by the model's number of parameters."""
        by_size = int(_BUDGET_OPERATIONS // (2 * max(1, parameters)))
        whole = min(max(by_size, _FEWEST_STEPS), _MOST_STEPS)
        return self.budget_steps or int(whole * _TIMES[self.effort])

    def decisive(self) -> dict[str, object]:
        """The settings that decide the numbers, for the hash of a result's inputs."""
        return {name: value for name, value in own_values(self).items() if name != "threads"}


def _listed(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def _share(name: str, value: float) -> None:
    if not 0 < positive(name, value) <= 1:
        raise SettingsError(f"{name}={value!r} must be above 0 and at most 1")


def _kind(name: str, value: object) -> None:
    """A kind of canary; whoever looks for another one may have its texts."""
    if value not in list(KINDS):
        raise SettingsError(
            f"{name}={value!r} must be one of {', '.join(KINDS)}; for texts of your own, give "
            "their file (texts=...)"
        )


def _fewer(what: str, number: int, usual: int) -> list[str]:
    return [f"{number:,} {what} instead of {usual:,}"] if number < usual else []


def _to_train(name: str, value: str) -> None:
    """The rule of a model to train; what is in a settings file has one of these types."""
    wanted = "lstm, gpt2-tiny, a directory or a hub name: a training needs gradients of weights"
    of_type(name, value, (str, int, float, list), wanted)
    text(name, value)


@dataclass(frozen=True, kw_only=True)
class RunSettings(Settings):
    """The whole pipeline: what is inserted, what is trained, what is measured."""

    PANEL: ClassVar[str] = HIDDEN

    model: str = setting(
        "lstm",
        "the model: lstm, gpt2-tiny, or a path or hub name to fine-tune",
        panel=TRAINING,
        rule=_to_train,
    )
    formats: tuple[str, ...] = setting(
        ("random_number",),
        "a shipped format of secrets, or a .toml file; may be repeated",
        rule=words,
        flag_name="--format",
        metavar="NAME",
    )
    kinds: tuple[str, ...] = setting(
        (UNIFORM,),
        f"a kind of canary; may be repeated: {', '.join(KINDS)}; all but uniform are judged by "
        "coins alone",
        rule=several(_kind),
        flag_name="--kind",
        metavar="KIND",
    )
    texts: str | None = setting(
        None,
        "a file of texts, one a line, as canaries of the kind texts, beside the other kinds",
        rule=text,
        metavar="FILE",
        usual="none",
    )
    partner: str = setting(
        "coin",
        "of the kind near_duplicate, the copy: with a coin of its own, or always in",
        rule=choice("coin", "always"),
    )
    canaries: int | None = setting(
        None,
        "secrets per format and class of repetitions; with an inclusion probability, candidates",
        rule=whole(1),
        usual=str(_CANARIES),
    )
    inclusion_probability: float | None = setting(
        None,
        "probability of each candidate to be inserted: 0.5 for an audit in one run, a small one "
        "for few canaries among many references",
        rule=fraction,
        usual="a fixed number is inserted",
    )
    inclusion_seed: int | None = setting(
        None,
        "decides which candidates are inserted",
        rule=SEED,
        usual="fresh from the operating system, kept in the manifest",
        secret=True,
    )
    repetitions: tuple[int, ...] | None = setting(
        None,
        "how often the secrets of each class are inserted",
        rule=several(whole(1)),
        metavar="N,N,...",
        parse=whole_numbers,
        usual=f"{_listed(REPETITIONS[0])}, and fewer for a small corpus",
    )
    audit: bool = setting(
        False,
        f"audit epsilon in one run: {_COINS} candidates, each inserted once with probability 0.5, "
        "unless other numbers are given",
        recorded=False,  # what it stands for is
    )
    controls: int = setting(32, "secrets per format that are never inserted", rule=whole(0))
    witness: bool = setting(
        True,
        "insert a few secrets that are never judged, by which it is seen later that a model read "
        "this corpus",
        flag_name="--witness/--no-witness",
    )
    max_share: float = setting(
        0.5,
        "largest part of a corpus' bytes that the commands insert canaries as; with more, a model "
        "reads more of them than of your text, and 1 allows all",
        rule=_share,
        recorded=False,
    )
    seed: int | None = setting(
        None,
        "decides secrets, positions and training, but not who is included; whoever has it can draw "
        "the secrets, and a small one can be guessed",
        rule=SEED,
        usual="secrets and positions fresh from the operating system, kept in the manifest; the "
        "training's is 0",
    )
    layout: str | None = setting(
        None,
        f"what a document is: {layouts_listed(hints=True)}",
        rule=choice(*ADAPTERS),
        usual="by the file's suffix, else lines",
    )
    text_field: str = setting("text", "the JSONL field that holds the text", rule=text)
    prompt_field: str | None = setting(
        None,
        "of records that are a prompt and its answer, the field with the prompt",
        rule=text,
        usual="prompt, or as the form has it",
    )
    completion_field: str | None = setting(
        None,
        "of these, the field with the answer",
        rule=text,
        usual="completion, or as the form has it",
    )
    form: str | None = setting(
        None,
        f"what a record is: {', '.join(FORMS[:-1])} or {FORMS[-1]}",
        rule=choice(*FORMS),
        flag_name="--record-form",
        usual="recognised by the fields of the first records",
    )
    turn: str | None = setting(
        None,
        "of chats, the turn that a canary is: user or assistant",
        rule=choice("user", "assistant"),
        usual="assistant",
    )
    loss: str | None = setting(
        None,
        "of chats, the tokens that carry loss in the training: all, assistant or completion",
        rule=choice("all", "assistant", "completion"),
        usual="assistant in messages and conversations, completion in the others; all where the "
        "canary is the user's turn",
    )
    rendering: str | None = setting(
        None,
        "how a record of strings becomes a row: chat, by the chat template, or text",
        rule=choice("chat", "text"),
        usual="text for strings, chat for messages",
    )
    other_turn: str | None = setting(
        None,
        "of chats, the text of the other turn of an inserted record",
        rule=text,
        usual="a neutral one",
    )
    system: str | None = setting(
        None,
        "of chats, the system prompt of inserted records",
        rule=text,
        usual="that of the first records, where all have the same",
    )
    chat_template: str | None = setting(
        None,
        "a file with the chat template of the training",
        rule=text,
        usual="the tokenizer's own",
    )
    chat_date: str | None = setting(
        None,
        "the day of the training's rows, as YYYY-MM-DD, where the chat template writes the date",
        rule=day,
        usual="the day on which they are made",
    )
    existing: Literal["refuse", "set_aside"] = setting(
        "refuse",
        "secrets already in the corpus: refuse, or set_aside (not drawn, not counted)",
        rule=choice("refuse", "set_aside"),
    )
    layers: int = setting(2, "layers of the LSTM", panel=TRAINING, rule=whole(1, 1000))
    units: int = setting(200, "units of the LSTM", panel=TRAINING, rule=whole(1, 100_000))
    measure: MeasureSettings = field(
        default=MeasureSettings(),
        metadata=part(MeasureSettings, without=("threads",), recorded=False),
    )
    """What is measured."""
    training: Mapping[str, Value] = field(
        default_factory=dict,
        metadata=part(TrainingSettings, without=("seed", "threads", "delta"), as_given=True),
    )
    """Those that differ from the model's own defaults, by name."""
    device: str = setting(
        "auto", "where the model is: cpu, cuda, cuda:1 or mps", panel=MACHINE, rule=text
    )
    dtype: str = setting(
        "float32",
        "precision of measuring: float32, bfloat16 or float16",
        panel=MACHINE,
        rule=choice("float32", "bfloat16", "float16"),
    )
    load_in: str | None = setting(
        None,
        "weights of the model while it is measured: 8bit or 4bit, by torchao or bitsandbytes",
        panel=MACHINE,
        rule=choice("8bit", "4bit"),
        usual="as they were saved",
    )
    builder: str | None = setting(
        None,
        "of a checkpoint file of your own, the function that makes a model of what it holds, "
        "module:function; it returns lmexposure.language_model(...)",
        panel=MACHINE,
        rule=text,
        metavar="MODULE:FUNCTION",
        usual="a directory or a GGUF file is loaded by transformers",
        recorded=False,  # a note of the result says it, with the hash of its file
    )
    device_map: str | None = setting(
        None,
        "auto spreads the measured model over all devices and the memory of the CPU",
        panel=MACHINE,
        rule=choice("auto"),
        usual="all of it on the device",
    )
    threads: int | None = setting(
        None,
        _THREADS,
        panel=MACHINE,
        rule=whole(1, MOST_THREADS),
        usual=_USUAL_THREADS,
        recorded=False,
    )
    offline: bool = setting(False, "never ask a model hub", panel=MACHINE)
    revision: str | None = setting(
        None, "branch, tag or commit of a hub model", panel=MACHINE, rule=text, usual="the newest"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.audit:
            usual = {"canaries": _COINS, "inclusion_probability": 0.5, "repetitions": (1,)}
            for name, value in usual.items():
                if getattr(self, name) is None:
                    object.__setattr__(self, name, value)
        self._check_inclusion()
        self._check_kinds()
        if not isinstance(self.training, Mapping):
            raise SettingsError(f"training={self.training!r} must be a table of settings by name")
        training = {n: tuple(v) if isinstance(v, list) else v for n, v in self.training.items()}
        check_training(training)
        object.__setattr__(self, "training", training)

    @property
    def per_class(self) -> int:
        """Canaries to draw per format and class of repetitions, or candidates."""
        return self.canaries or _CANARIES

    @property
    def classes(self) -> tuple[int, ...]:
        """How often the secrets of each class are inserted, as given or as usual."""
        return self.repetitions or REPETITIONS[0]

    @property
    def public_seed(self) -> int:
        """Of initial weights and of the training, unless `training` has its own; 0 by default.

        It never follows from a plan's fresh seed: what a training writes is for others to read.
        """
        return 0 if self.seed is None else self.seed

    def _check_inclusion(self) -> None:
        """Candidates are counted, and have a seed, only where a probability decides on each."""
        if self.inclusion_probability is None and self.inclusion_seed is not None:
            raise SettingsError(
                "inclusion_seed=... needs inclusion_probability=..., such as 0.5; leave it out"
            )
        if self.inclusion_probability is not None and self.canaries is None:
            raise SettingsError(
                f"inclusion_probability={self.inclusion_probability} needs canaries=...: how many "
                "candidates there are per format and class of repetitions; an audit in one run "
                "takes hundreds"
            )

    def _check_kinds(self) -> None:
        """Each kind is named once, and has what it needs; what a kind needs asks for it."""
        if len(set(self.kinds)) < len(self.kinds):
            raise SettingsError(f"kinds={list(self.kinds)!r} names one twice; name each once")
        needing = {name: kind.needs for name, kind in KINDS.items() if kind.needs}
        asked = {name for name, needed in needing.items() if getattr(self, needed) is not None}
        for name in self.kinds:
            if name in needing and name not in asked:
                raise SettingsError(
                    f"kind={name!r} needs the setting {needing[name]}; give it "
                    f"({needing[name]}=...), or leave the kind out"
                )
        more = (name for name in KINDS if name in asked)
        object.__setattr__(self, "kinds", tuple(dict.fromkeys((*self.kinds, *more))))

    @property
    def uniform_formats(self) -> tuple[str, ...]:
        """The formats of uniform fills; none where no kind is."""
        return self.formats if UNIFORM in self.kinds else ()

    def resolved(self) -> "RunSettings":
        """The same, with the numbers of canaries: what a run's record says of them."""
        return replace(self, canaries=self.per_class, repetitions=self.classes)


# What a training decides of how records become rows, and a manifest may not know.
SETTINGS_OF_ROWS = ("loss", "rendering", "chat_template", "chat_date")


def check_training(values: Mapping[str, object]) -> None:
    """Hold settings of a training against their rules, whatever model it will be of."""
    known = settings_of(TrainingSettings)
    refuse_unknown(values, known, what="setting of the training")
    for name, value in values.items():
        known[name].check(value)


VERBATIM = "Memorised text"  # the panel of a command's help
METRICS = ("levenshtein", "hamming")
# What has to be the same of looks that are set side by side.
RULE = (
    *("prefix_tokens", "suffix_tokens", "stride", "temperature", "top_k", "top_p", "tries"),
    *("chance", "distance", "metric"),
)
# Settings of runs that it takes over: what the documents are, and how models are loaded.
OF_RUNS = (
    "layout",
    "text_field",
    "device",
    "dtype",
    "load_in",
    "device_map",
    "offline",
    "revision",
    "builder",
)


def _tokens_kept(name: str, value: int | None) -> None:
    """The rule of top-k."""
    if value is not None:
        integer(name, value, low=1)


def _top_k(flag: str, text: str) -> int | None:
    """As a flag has it: a number, or all."""
    if text.strip() == "all":
        return None
    try:
        return int(text)
    except ValueError:
        raise SettingsError(f"{flag}={text!r} must be a whole number from 1, or all") from None


def _temperature(name: str, value: float) -> None:
    if value == 0:
        raise SettingsError(
            "temperature=0 is greedy decoding, which is measured in any case; give the temperature "
            "of sampling, such as 1"
        )
    positive(name, value)


def _numbers(name: str, value: object) -> None:
    """The rule of numbers of documents."""
    if value is None:
        return
    if not isinstance(value, tuple) or not value:
        raise SettingsError(f"{name}={value!r} must be numbers of documents, from 1")
    for number in value:
        integer(name, number, low=1)


@dataclass(frozen=True, kw_only=True)
class VerbatimSettings(Settings):
    """Which windows of a corpus are looked at, and how they are asked for."""

    PANEL: ClassVar[str] = VERBATIM

    prefix_tokens: int = setting(50, "tokens of a prompt, taken from the document", rule=whole(1))
    suffix_tokens: int = setting(50, "tokens that are to follow", rule=whole(1))
    stride: int | None = setting(
        None,
        "tokens between two passages of a document",
        rule=whole(1),
        usual="as many as the suffix has",
    )
    windows: int = setting(
        2_000,
        "most passages to ask for, a random sample where there are more; with held-out documents "
        "twice as many of both together",
        rule=whole(1),
    )
    documents: tuple[int, ...] | None = setting(
        None,
        "numbers of the documents to look at, from 1",
        rule=_numbers,
        metavar="N,N,...",
        parse=whole_numbers,
        usual="all",
    )
    temperature: float = setting(1.0, "temperature of sampling", rule=_temperature)
    top_k: int | None = setting(
        40,
        "how many of the likeliest tokens can be sampled, or all",
        rule=_tokens_kept,
        metavar="N|all",
        parse=_top_k,
    )
    top_p: float = setting(
        1.0,
        "only the likeliest tokens that together have this probability can be sampled",
        rule=_share,
    )
    tries: int = setting(
        1_000,
        "a suffix counts as extractable where this many tries give it with chance 0.5",
        rule=whole(1, 10**15),
    )
    chance: float = setting(0.5, "the chance with which these tries give it", rule=fraction)
    near_windows: int = setting(
        20, "passages whose chance within some edits is bounded, the likeliest first", rule=whole(0)
    )
    distance: int = setting(5, "how many edits, in tokens", rule=whole(0, 1_000))
    metric: str = setting(
        "levenshtein",
        "how edits are counted: levenshtein, or hamming, place by place",
        rule=choice(*METRICS),
    )
    beam: int = setting(20, "beginnings that a beam keeps", rule=whole(1))
    draws: int = setting(200, "samples for what the beam left open", rule=whole(0))
    samples: int = setting(
        100, "texts that are sampled freely and looked up in the corpus", rule=whole(0)
    )
    sample_tokens: int = setting(200, "tokens of each sampled text", rule=whole(1))
    least_match: int = setting(50, "characters of the shortest match that is told", rule=whole(8))
    level: float = setting(0.95, "coverage of intervals", rule=coverage)
    seed: int = setting(0, "seed of what is drawn", rule=SEED)
    random_split: bool = setting(
        False, "the held-out documents were split off at random, before the training"
    )
    false_share: float = setting(
        0.01,
        "of the documents that are called memorised, the share that may be false, on average",
        rule=fraction,
    )
    run: RunSettings = field(
        default=RunSettings(), metadata=part(RunSettings, names=OF_RUNS, recorded=False)
    )
    """Layout, text field, and how models are loaded."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.near_windows and self.distance >= self.suffix_tokens:
            raise SettingsError(
                f"distance={self.distance} edits make any text of suffix_tokens="
                f"{self.suffix_tokens}; give fewer edits, or longer suffixes"
            )

    def resolved(self) -> "VerbatimSettings":
        """The same, with the tokens between two windows: what the record of a look says of them."""
        return replace(self, stride=self.stride or self.suffix_tokens)


IDENTIFIERS = "Identifiers"  # the panel of a command's help
_LOADING = ("device", "dtype", "offline", "revision", "builder")
_FEWEST_DRAWS = 99  # of fewer, not even the lowest rank is among the lowest 1 %


@dataclass(frozen=True, kw_only=True)
class IdentifierSettings(Settings):
    """How identifiers of a corpus are looked for and compared."""

    PANEL: ClassVar[str] = IDENTIFIERS

    draws: int = setting(
        999, "fresh draws in the place of each identifier", rule=whole(_FEWEST_DRAWS)
    )
    most: int = setting(1000, "identifiers to compare, chosen at random among all", rule=whole(1))
    left: int = setting(
        200, "characters in front of each that a model reads, at most", rule=whole(0)
    )
    seed: int = setting(0, "seed of the choice and of the draws", rule=SEED)
    layout: str | None = setting(
        None,
        f"what a document is: {layouts_listed(hints=True)}",
        rule=choice(*ADAPTERS),
        usual="by the file's suffix, else lines",
    )
    text_field: str = setting("text", "the field of a record that holds the text", rule=text)
    run: RunSettings = field(
        default=RunSettings(), metadata=part(RunSettings, names=_LOADING, recorded=False)
    )
    """How both models are loaded."""
