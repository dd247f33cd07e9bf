"""A sweep: many models on one corpus, each with canaries of its own, and what they say together."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from lmexposure._quantiles import unseen_share
from lmexposure._record import JsonValue
from lmexposure._settings import Setting, own_values, settings_of
from lmexposure._style import (
    Value,
    count,
    interval,
    listed,
    nats,
    number,
    percent,
    probability,
    sentence,
    short,
    signed,
    visible,
    whole,
)
from lmexposure.canaries import UNIFORM
from lmexposure.core import (
    Check,
    CheckKind,
    Column,
    Document,
    Fact,
    Number,
    Outcome,
    Place,
    Section,
    Study,
    Table,
    Thresholds,
    Verdict,
    telling_name,
)
from lmexposure.errors import ResultError, SettingsError
from lmexposure.studies.setting_words import RARE, flag_words, named_facts, path_word, run_settings
from lmexposure.studies.settings import RunSettings
from lmexposure.studies.sweep_checks import SWEEP_CHECKS, sweep_checks
from lmexposure.studies.sweep_record import SweepNumbers, SweepPlan, SweepScore
from lmexposure.studies.sweep_settings import SweepSettings
from lmexposure.studies.sweep_tables import (
    WORST_NOTES,
    average_section,
    bounds_notes,
    bounds_table,
    changes_section,
    epsilon_line,
    group_name,
    kinds_section,
    primary_rows,
    texts_section,
    texts_table,
    worst_in_short,
    worst_table,
)
from lmexposure.studies.training_settings import TrainingSettings

if TYPE_CHECKING:
    from lmexposure.core.charts import Chart


_MOST_REASONS = 2
# Canaries in a table, and texts of a group; the most comes last, as JSON has it.
_MOST_TEXTS: Mapping[Place, int] = {"md": 20, "html": 1000}
_MOST_CHANGES: Mapping[Place, int] = {"terminal": 3, "md": 20, "html": 200}
_WORST = (
    "Every model had its own canaries, and its own ordinary documents, by coins. An average over "
    "all of them says what a typical text risks; a recipe may leak one text whole while the "
    "average looks harmless [1]. So the worst text is judged by itself, and its p-value is "
    "corrected for the choice from all."
)
_MEANING = (
    "Where a text gives itself away, whoever can query a model can tell whether that text, a "
    "person's record for one, was in its training. p says how often chance alone gives such a text."
)
_CANARIES = (
    "Each canary is compared with itself alone: its raw score in the models that had it against "
    "the models that had not. The most leaking come first."
)
_BOUNDS = (
    "Each is a lower bound on the epsilon of the recipe, for one document; higher = less private. "
    "A bound far below its ceiling shows that the attack found little; a low ceiling shows that it "
    "could not have found more."
)
_GLOSSARY = {
    "sweep": "Many models trained alike on the same documents, each with canaries of its own by "
    "coins.",
    "canary": "A format filled with a secret drawn at random, put into the training text of some "
    "of the models on purpose.",
    "ordinary documents": "Documents of the corpus that were in some of the models by a coin, as "
    "canaries were.",
    "case": "One text under one model: the text was in its training, or it was not.",
    "TPR, FPR": "The true-positive rate is the share of cases that were in and are found; the "
    "false-positive rate is the share of the others that are taken for such.",
    "TPR at no false positive": "Of a single text: the share of the models with it in which it "
    "scores higher than in every model without it.",
    "separated": "Every model with the text scores it higher than every model without it: whoever "
    "can query a model knows whether the text was in.",
    "counterfactual memorisation": "Mean score of a text in the models that had it, minus that in "
    "the models that had not [5].",
    "influence": "The same difference of another text's score, which no model learned [6].",
    "LiRA": "How much better a score fits the models that had the text than those that had not, as "
    "bell curves; the model that is judged is left out [2].",
    "RMIA": "The share of texts that no model saw of which the text gained more than they did, "
    "compared with other models [3].",
    "epsilon, delta": "The strength of a differential-privacy guarantee, epsilon in nats. A lower "
    "bound says how much the training gave away at least [4].",
    "max attainable": "The ceiling of a bound: what it would have been had every guess been right.",
}
_SOURCES = {
    "Aerni, Zhang, Tramèr 2024, Evaluations of "
    "Machine Learning Privacy Defenses are Misleading": "https://arxiv.org/abs/2404.17399",
    "Carlini, Chien, Nasr, Song, Terzis, Tramèr 2022, Membership Inference Attacks From First "
    "Principles": "https://arxiv.org/abs/2112.03570",
    "Zarifzadeh, Liu, Shokri 2024, "
    "Low-Cost High-Power Membership Inference Attacks": "https://arxiv.org/abs/2312.03262",
    "Steinke, Nasr, Jagielski 2023, "
    "Privacy Auditing with One (1) Training Run": "https://arxiv.org/abs/2305.08846",
    "Zhang, Ippolito, Lee, Jagielski, Tramèr, Carlini 2023, Counterfactual Memorization in Neural "
    "Language Models": "https://arxiv.org/abs/2112.12938",
    "Feldman, Zhang 2020, What Neural Networks Memorize and Why: Discovering the Long Tail via "
    "Influence Estimation": "https://arxiv.org/abs/2008.03703",
}


class SweepResult(SweepNumbers):
    """What many models say together; it holds no secret."""

    KIND: ClassVar[str] = "sweep"
    WHAT: ClassVar[str] = "a sweep"
    AGAIN: ClassVar[str] = "collect the sweep again"
    LIMITS: ClassVar[frozenset[str]] = frozenset(
        {"max_worst_tpr", "max_epsilon", "significance", "min_canaries"}
    )
    CHECKS: ClassVar[Mapping[str, CheckKind]] = SWEEP_CHECKS

    @property
    def hashes(self) -> dict[str, str]:
        """Of what it was made from."""
        return {
            "scores_sha256": self.matrices_sha256,
            "plan_sha256": self.plan_sha256,
            "manifest_sha256": self.manifest_sha256,
        }

    @property
    def beside_it(self) -> dict[str, str]:
        """The plan, and the manifest of its canaries."""
        return {"plan.json": self.plan_sha256, "manifest.json": self.manifest_sha256}

    @property
    def model_name(self) -> str:
        """How many of what."""
        return f"{count(self.models, 'model')} of {telling_name(self.settings.run.model)}"

    def of_data(self) -> Mapping[str, str]:
        """The corpus before insertion, and what was in models by coins."""
        texts = [count(self.canaries, "canary", "canaries")]
        texts += [count(self.population, "ordinary document")] if self.population else []
        corpus = count(self.documents, "document")
        return {"corpus": corpus, "data": f"{listed(texts)}, each in some models by a coin"}

    def __repr__(self) -> str:
        return f"<Sweep of {self.finding}>"

    __str__ = __repr__

    @property
    def finding(self) -> str:
        """How many models of what, the worst canary, and the bound to quote."""
        parts = [count(self.canaries, "canary", "canaries")]
        parts += [count(self.population, "ordinary document")] if self.population else []
        said = f"{count(self.models, 'model')} of {listed(parts)}"
        if self.worst is not None:
            said += f"; worst {visible(self.worst.id)}, p {probability(self.worst.p)}"
        if self.epsilon.primary is not None:
            said += f"; epsilon at least {nats(self.epsilon.primary.bound.value)}"
        return said

    def document(self) -> Document:
        """The worst texts, each canary, what single texts change, averages, bounds, utility."""
        return Document(
            title="Sweep" if self.home is None else visible(self.home.resolve().name),
            kind=f"Leakage report of a sweep, {count(self.models, 'model')}",
            question="Does this training recipe leak?",
            finding=self.finding,
            sections=list(self._sections()),
            main=texts_table(self),
            numbers=worst_in_short(self),
            meaning=_MEANING,
            warnings=self.notes,
            sources=tuple(_SOURCES.items()),
            glossary=tuple(_GLOSSARY.items()),
            origin=self.provenance.line,
        )

    def _sections(self) -> Iterator[Section]:
        worst = {"canary": self.worst, "document": self.worst_of_population}
        yield Section(
            id="worst",
            title="The average, and the worst text that it hides",
            text=_WORST,
            caption="The worst text of each group, by its own coins over all models",
            table=worst_table(self),
            chart=self._drawn("beside"),
            notes=WORST_NOTES,
            parts=[
                Section(
                    id=f"worst-{noun}",
                    title=f"The worst {noun}, model by model",
                    chart=self._drawn(f"worst {noun}"),
                    on=frozenset({"html"}),
                )
                for noun, text in worst.items()
                if text is not None
            ],
        )
        if self.texts:
            for place, most in _MOST_TEXTS.items():
                yield Section(
                    id="canaries",
                    title="Each canary by itself",
                    text=_CANARIES,
                    chart=self._drawn("canaries") if place == "html" else None,
                    parts=[texts_section(self.texts, most)],
                    folded=True,
                    on=frozenset({place}),
                )
        found = self.counterfactual
        if found is not None and found.groups:
            for place, most in _MOST_CHANGES.items():
                chart = self._drawn("changes") if place == "html" else None
                yield changes_section(found, most, place, chart)
        yield average_section(self, self._drawn("roc"))
        if self.power is not None:
            yield kinds_section(self.power, self._drawn("kinds"))
        yield Section(
            id="privacy",
            title="Privacy",
            said=(epsilon_line(self),),
            text=_BOUNDS if self.epsilon.bounds else "",
            caption="Lower bounds on the epsilon of the training recipe, in nats; higher = less "
            "private",
            table=bounds_table(self),
            chart=self._drawn("bounds"),
            notes=tuple(bounds_notes(self)),
            folded=True,
        )
        yield Section(
            id="utility",
            title="Utility",
            text="A model that learned nothing leaks nothing: what a sweep says is of models as "
            "useful as these.",
            table=Table(_utility_facts(self), _FACTS),
            folded=True,
            on=frozenset({"md", "html"}),
        )
        facts = [
            *sweep_setting_facts(self),
            Fact(name="plan, SHA-256", value=self.plan_sha256, meaning="with the coins"),
            Fact(name="manifest, SHA-256", value=self.manifest_sha256),
            Fact(name="scores, SHA-256", value=self.matrices_sha256, meaning="matrices.npz"),
            *(Fact(name=f"model {lost.number} failed", value=lost.reason) for lost in self.failed),
        ]
        again, code = "", ""
        if self.home is not None:
            seeded = _has_seed(self.home)
            code = sweep_command(self, self.home.resolve().name, seeded=seeded)
            own, where = "secrets and coins", ""
            if seeded:
                own, where = "coins", "; SEED is in plan.json"
            again = (
                f"This command makes such a sweep again, with {own} of its own, so that numbers "
                f"differ by chance. CORPUS is the corpus before insertion{where}."
            )
        every = Section(
            id="all-settings",
            title=f"All settings and hashes ({len(facts)})",
            table=Table(facts, _FACTS),
            folded=True,
            on=frozenset({"html"}),
        )
        yield Section(
            id="settings",
            title="Settings, and how to do it again",
            said=[again] if again else [],
            code=code,
            parts=[every],
            folded=True,
            on=frozenset({"md", "html"}),
        )

    def _drawn(self, name: str) -> "Callable[[], Chart | None]":
        """A chart by its name, drawn when it is wanted."""

        def draw() -> "Chart | None":
            import lmexposure.core.charts  # noqa: F401 - quiets matplotlib, and so comes first
            from lmexposure.studies.sweep_charts import DRAWN

            return DRAWN[name](self)

        return draw

    def checks(self, limits: Thresholds) -> Iterator[Check | str]:
        """See `sweep_checks`."""
        return sweep_checks(self, limits)

    def numbers(self) -> Iterator[Number]:
        """Bound, rates and areas with models as units, the worst texts, how useful the models."""
        primary = self.epsilon.primary
        bound = None if primary is None else primary.bound.value
        high = partial(Number, worse="high")
        yield high(name="lower bound on epsilon", value=bound, unit="nats")
        for row in primary_rows(self):
            for name, value, low, end in _rates(row):
                yield high(name=name, value=value, low=low, high=end)
        for noun, text in (("canary", self.worst), ("document", self.worst_of_population)):
            tpr, p = (None, None) if text is None else (text.tpr, text.p)
            yield high(name=f"TPR of the worst {noun}", value=tpr)
            yield Number(name=f"p of the worst {noun}", value=p, worse="low", subtracted=False)
        yield Number(name="validation loss", value=self.utility.mean, unit="bits a token")

    def asked(self) -> Mapping[str, JsonValue]:
        """Settings of the sweep and of its models, without a seed."""
        return {fact.name: fact.value for fact in sweep_setting_facts(self)}

    def beside(self, studies: "Sequence[tuple[str, Study]]") -> Iterator[Section]:
        """Differences of rates and areas with intervals of one level, models as units."""
        sweeps = [(name, sweep) for name, sweep in studies if isinstance(sweep, SweepResult)]
        levels = {sweep.settings.level for _, sweep in sweeps}
        if len(levels) > 1:
            raise SettingsError(
                f"their intervals are at {listed([percent(level) for level in sorted(levels)])}; "
                "collect sweeps of one level"
            )
        (base, first), *others = sweeps
        strange = [visible(n) for n, s in others if s.manifest_sha256 != first.manifest_sha256]
        apart = (
            f"{listed(strange)}: other canaries or another corpus than {base}, so that a "
            "difference may be of the texts and not of the recipe, and has no interval; sweep both "
            "with one --seed on one corpus"
        )
        if rows := list(_less(sweeps)):
            yield Section(
                id="differences",
                title=f"Less the rates of {base}, with models as units",
                table=Table(rows, _DIFFERENCES),
                notes=(
                    f"intervals at {percent(first.settings.level)}, each row by itself and not "
                    "corrected for their number, from the intervals of both as if the sweeps were "
                    "independent: where they share coins it is wider than it need be",
                    *[apart] * bool(strange),
                ),
            )

    def told_beside(self, studies: "Sequence[tuple[str, Study]]") -> str:
        """The one difference that is not picked: of the area of all canaries."""
        sweeps = [(name, sweep) for name, sweep in studies if isinstance(sweep, SweepResult)]
        told = [
            f"{visible(name)} {signed(value, 3)} ({ends or 'no interval'})"
            for name, rate, value, ends in _less(sweeps)
            if rate == _AREA
        ]
        return f"{_AREA}, beside {visible(sweeps[0][0])}: {', '.join(told)}" if told else ""

    def steps(self, verdict: Verdict) -> Iterator[str]:
        """What to do with the recipe."""
        outcome = verdict.outcome
        checks = [check for check in verdict.checks if check.outcome is outcome]
        if outcome is Outcome.LEAK:
            yield (
                "Do not release a model of this recipe: whoever can query it can tell whether such "
                "a text was in its training."
            )
            if "worst_document" in {check.key for check in checks}:
                yield (
                    "Take the documents that give themselves away out of the corpus, and those "
                    "like them."
                )
            yield (
                "Train for fewer epochs, with differential privacy, or without repeats; an average "
                "over all texts may look harmless where the worst canary does not."
            )
            yield "Then sweep again, and put both side by side (lmexposure compare)."
        elif outcome is Outcome.INCONCLUSIVE:
            yield (
                "Do not take this for a pass: this sweep can neither show a leak nor rule one out."
            )
            remedies = dict.fromkeys(self.CHECKS[check.key].remedy for check in checks)
            yield from list(remedies)[:_MOST_REASONS]
        else:
            yield (
                "No leak found is no proof that there is none: it holds for this recipe, and for "
                "secrets and documents like those that had coins."
            )
            yield "Sweep again whenever the recipe changes: model, epochs, data or defence."
            if set(self.settings.run.kinds) == {UNIFORM}:
                yield (
                    "These canaries are of the kind uniform; other kinds may show more: sweep with "
                    "a new token beside them (--kind uniform --kind new_token)."
                )

    def sure(self, verdict: Verdict, limits: Thresholds) -> Iterator[str]:
        """How often the gate calls clean recipes leaking, and what a pass leaves open."""
        bound = any(check.key == "max_epsilon" for check in verdict.checks)
        apart = "; the bound on epsilon has its own" if bound else ""
        yield (
            f"False alarms: at most {percent(limits.significance)} of sweeps whose models "
            f"memorised nothing are called leaking{apart}."
        )
        if self.canaries and verdict.outcome is not Outcome.LEAK:
            yield sentence(
                f"missed leaks: where none was found, up to {percent(unseen_share(self.canaries))} "
                "of such secrets may still leak (95 % confidence)"
            )


_FACTS = (
    Column(head="what", value="name", words=True),
    Column(head="value", value="value", words=True),
    Column(head="meaning", value="meaning", words=True),
)


def _rates(row: SweepScore) -> Iterator[tuple[str, float | None, float | None, float | None]]:
    """Each rate and the area, by name, with the ends of its interval."""
    group = group_name(row.group)
    for rate in row.rates:
        yield f"TPR at FPR {short(rate.fpr)}, {group}", rate.value, rate.low, rate.high
    yield f"AUC, {group}", row.area, row.area_low, row.area_high


_AREA = "AUC, all canaries"
_Difference = tuple[str, str, float, str | None]  # sweep, rate, value, and its interval if any


def _known(sweep: SweepResult) -> dict[str, tuple[float, float, float]]:
    """The rates that have an interval: value, low, high."""
    return {
        name: (value, min(low, value), max(high, value))
        for row in primary_rows(sweep)
        for name, value, low, high in _rates(row)
        if value is not None and low is not None and high is not None
    }


def _less(sweeps: Sequence[tuple[str, SweepResult]]) -> Iterator[_Difference]:
    """Each rate of each sweep less that of the first; no interval where the canaries are others."""
    from lmexposure.statistics import rate_difference

    (_, first), *others = sweeps
    of_first = _known(first)
    for name, sweep in others:
        known, same = _known(sweep), sweep.manifest_sha256 == first.manifest_sha256
        for rate in (rate for rate in of_first if rate in known):
            less = rate_difference(known[rate], of_first[rate])
            yield name, rate, less.value, interval(less.low, less.high, 3) if same else None


_DIFFERENCES = (
    Column(head="sweep", value=itemgetter(0), words=True),
    Column(head="rate", value=itemgetter(1), words=True),
    Column(
        head="difference",
        value=itemgetter(2),
        shown=lambda value: signed(value, 3),
        name="value",
        worse="high",
    ),
    Column(head="interval", value=itemgetter(3), name="ends"),
)


# Of the settings of a run: what a sweep decides itself.
_NOT_OF_SWEEPS = ("inclusion_probability", "controls", "seed")
_RARE = (*RARE, "revision")


def _utility_facts(result: SweepNumbers) -> list[Fact]:
    """How useful the models are, and what they took."""
    utility = result.utility
    spread = "" if utility.sd is None else f" ± {number(utility.sd, 3)}"
    diverged = "they diverged; listed under all settings" if result.failed else ""
    rows = (
        (
            "validation loss",
            f"{number(utility.mean, 3)}{spread} bits per token",
            "mean and standard deviation over the models; lower = more useful",
        ),
        ("before training", f"{number(utility.initial, 3)} bits per token", ""),
        ("models that learned", f"{utility.learned:,} of {result.models:,}", ""),
        ("models without scores", whole(len(result.failed)), diverged),
        ("tokens a model", whole(round(utility.tokens)), "trained on"),
        ("time a model", f"{number(utility.seconds, 1)} s", ""),
        (
            "documents",
            whole(result.documents),
            f"{result.population:,} of them with coins, {result.validation:,} for validation alone",
        ),
        ("canaries", whole(result.canaries), "each in a model by a coin"),
    )
    return [Fact(name=name, value=value, meaning=meaning) for name, value, meaning in rows]


def sweep_setting_facts(result: SweepNumbers) -> tuple[Fact, ...]:
    """What was asked for."""
    return (
        *named_facts(own_values(result.settings), settings_of(SweepSettings)),
        *named_facts(_of_each_run(result), settings_of(RunSettings)),
        *named_facts(result.settings.run.training, settings_of(TrainingSettings), "training."),
    )


def _of_each_run(result: SweepNumbers) -> dict[str, Value]:
    """Settings of all its models."""
    return {
        name: value
        for name, value in run_settings(result.settings.run).items()
        if name not in _NOT_OF_SWEEPS and (name not in _RARE or value is not None)
    }


def _has_seed(home: Path | None) -> bool:
    """Whether a seed was chosen: the plan alone has it, since secrets follow from it."""
    try:
        return home is not None and SweepPlan.read(home).settings.run.seed is not None
    except ResultError:  # there is none, or it cannot be read
        return False


def sweep_command(result: SweepNumbers, name: str, *, seeded: bool = False) -> str:
    """The command line, quoted for a POSIX shell; corpus and seed are left to the reader."""
    usual = SweepSettings()
    words = [
        "lmexposure sweep CORPUS",
        *_flags(settings_of(SweepSettings), own_values(result.settings), usual),
    ]
    words += _flags(settings_of(RunSettings), _of_each_run(result), usual.run)
    training = dict(result.settings.run.training)
    # Each kind of model has its own defaults: what was given is said, whatever it is.
    words += _flags(settings_of(TrainingSettings), training, None)
    words += _flags(settings_of(RunSettings), {"seed": "SEED"} if seeded else {}, None)
    return " ".join([*words, "--out", path_word(f"{name}-again")])


def _flags(declared: dict[str, Setting], given: dict[str, Value], usual: object) -> Iterator[str]:
    for name, setting in declared.items():
        value = given.get(name)
        default = getattr(usual, "per_class" if name == "canaries" else name, None)
        if value is not None and value != default:
            yield from flag_words("sweep", setting, value)
