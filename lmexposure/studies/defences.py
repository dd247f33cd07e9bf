"""defences: defences side by side at one utility, each under the attacks that fit it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import model_validator

from lmexposure._record import (
    Count,
    JsonValue,
    Nats,
    NotNegative,
    Number,
    Positive,
    Rate,
    Record,
    Rows,
    Sha256,
    Share,
)
from lmexposure._settings import recorded_values
from lmexposure._style import (
    count,
    in_words,
    interval,
    listed,
    number,
    percent,
    probability,
    short,
    short_hash,
    visible,
    whole,
)
from lmexposure.core import (
    LIMIT,
    Check,
    CheckKind,
    Column,
    Dated,
    Document,
    Outcome,
    Section,
    Table,
    Thresholds,
    Verdict,
    interval_column,
    interval_outcome,
    met_outcome,
)
from lmexposure.core import Number as MainNumber
from lmexposure.studies.sweep_settings import SCORES, DefencesSettings

if TYPE_CHECKING:
    from lmexposure.core.charts import Chart


class DefenceTry(Record):
    """One training of the search for a method's settings."""

    value: Number | None  # of the setting that is searched; None where a method has none
    bits: NotNegative  # validation loss, bits a token
    ratio: NotNegative  # of it to that without a defence, on the same documents
    seconds: NotNegative  # that it took


class DefenceSearch(Record):
    """How a method's settings were found, on seeds and canaries that the table does not have."""

    knob: str | None  # the setting that was searched; None where a method has none
    value: Number | None  # that was chosen
    tries: Rows[DefenceTry]  # in the order in which they were trained
    reached: bool  # whether one of them is within the tolerance of the target
    why: str | None  # it was not; None where it was


class DefenceAttack(Record):
    """What the strongest of all attacks that were made finds."""

    kind: str  # of the canaries, such as "random_number/x1"
    # score, attack: see `SweepSettings`; "kept_tokens" reads the tokens of a secret that carried
    # loss
    score: str
    attack: str
    among: Positive  # how many pairs of kind and attack it was chosen from
    # true-positive rate at the FPR of the comparison; None where it is not resolved
    tpr: Share | None
    # low, high: its interval; None where there is none. All intervals of all attacks and methods
    # hold together. Of the strongest attack of a method it is that of the largest true rate.
    low: Share | None
    high: Share | None


class DefenceExposure(Record):
    """Canaries that are in one model several times."""

    repetitions: Positive  # of each
    canaries: Positive  # how many
    # median, low, high: exposure in bits, higher = leaks more, with its interval
    median: Number | None
    low: Number | None
    high: Number | None
    found: Count  # secrets that a search without any of their characters finds
    # the search: "best_first" within 10 guesses, "beam" or "greedy"; None: none was made
    by: Literal["best_first", "beam", "greedy"] | None


class DefenceRow(Record):
    """One method."""

    name: str  # by which it is asked for
    meaning: str  # what it does
    promises_not: str  # what it does not hide
    search: DefenceSearch  # how its settings were found
    # settings of the training beyond those that all have
    training: dict[str, str | float | int | bool | None]
    target: NotNegative  # multiple of the undefended models' validation loss that it is to have
    models: Positive  # that have scores
    # bits, sd: validation loss of these, mean and spread, bits a token
    bits: NotNegative
    sd: NotNegative | None
    # of `bits` to that without a defence, in models with the same seeds and coins
    ratio: NotNegative
    ranked: bool  # whether that is at the target
    why: str | None  # it is not; None where it is
    population: Share | None  # TPR of ordinary documents, by LiRA; None where there are none
    # population_low, population_high: its interval
    population_low: Share | None
    population_high: Share | None
    strongest: DefenceAttack | None  # of all attacks on canaries; None where none has a number
    attacks: Rows[DefenceAttack]  # all of them
    # how often chance alone puts the ranked defence with the lowest TPR so far below this method,
    # model by model on the same canaries, paid for all attacks and defences; None of that defence
    # itself, and where nothing is compared
    above_p: Share | None
    worst: str | None  # id of the canary that gives itself away most
    worst_p: Share | None  # how often chance gives one such among all canaries
    exposure: DefenceExposure | None  # of repeated canaries; None where it was not measured
    # largest that a model of the sweep claims, in nats; None: nothing is promised
    epsilon: Nats | None
    delta: Rate | None  # next to it
    seconds: NotNegative  # of a model, training and scores

    @model_validator(mode="after")
    def _told(self) -> Self:
        if self.ranked == (self.why is not None):
            raise ValueError(f"{self.name} is ranked, or it is said why not")
        return self


_UNDEFENDED = "none"
_NAME = 40  # characters of a method in the chart
_SCORES = {**SCORES, "kept_tokens": "secret tokens with loss"}
_BESIDE_LIMIT = {
    Outcome.LEAK: "all of it above",
    Outcome.PASS: "none of it above",
    Outcome.INCONCLUSIVE: "on both sides of",
}
_SEARCHES = {"best_first": "in 10 guesses", "beam": "by beam search", "greedy": "greedily"}


class Defences(Dated):
    """Several defences at one utility."""

    KIND: ClassVar[str] = "defences"
    WHAT: ClassVar[str] = "a comparison of defences"
    PRIVATE: ClassVar[bool] = True
    LIMITS: ClassVar[frozenset[str]] = frozenset({"max_worst_tpr"})
    AGAIN: ClassVar[str] = "compare again with the same settings"
    CHECKS: ClassVar[Mapping[str, CheckKind]] = {
        "max_worst_tpr": replace(
            LIMIT,
            help="How many of the canaries the strongest attack finds in models of the defence "
            "that shows least, at the false-positive rate of the comparison; a leak where each "
            "defence shows more.",
            remedy="Train more models (--models), so that the interval is narrower, or compare "
            "stronger defences (--methods).",
            after_leak="Do not rely on these defences: each of them gives away more than the limit "
            "allows.",
        ),
        "ranked": CheckKind(
            help="Whether a defence is as useful as was asked, and an attack has a number: of "
            "others nothing is known.",
            remedy="Give another target (--target), more tries (--set tries=N) or more models "
            "(--models).",
            precondition=True,
        ),
    }

    settings: DefencesSettings  # what was asked for, but for a seed
    # documents, characters: of the corpus that was read
    documents: Positive
    characters: Positive
    corpus_sha256: Sha256  # of that
    canaries: Count  # of each sweep
    rows: Rows[DefenceRow]  # of the methods, as they were asked for, "none" first
    failed: dict[str, str]  # methods that have no models, and why
    forecast_seconds: NotNegative | None  # what was expected before the first training
    warnings: Rows[str]  # what is not as it should be

    @property
    def hashes(self) -> dict[str, str]:
        """Of what it was made from."""
        return {"corpus_sha256": self.corpus_sha256, **super().hashes}

    @property
    def ranked(self) -> list[DefenceRow]:
        """The methods at their targets: the undefended training, then who shows least first."""
        rows = [row for row in self.rows if row.ranked and row.name != _UNDEFENDED]
        first = [row for row in self.rows if row.name == _UNDEFENDED]
        return [*first, *sorted(rows, key=lambda row: _tpr(row.strongest))]

    @property
    def _apart(self) -> list[DefenceRow]:
        return [row for row in self.rows if not row.ranked]

    @property
    def finding(self) -> str:
        """What the comparison says, in a line: a winner only where it is told from all others."""
        undefended, *others = self.ranked
        if not others:
            return "no defence is at the target: nothing is ranked"
        best, head = others[0], f"TPR at FPR {percent(self.settings.fpr)}"
        if best.strongest is None or undefended.strongest is None:
            return "no attack has a number at this FPR: nothing is ranked"
        beside = f"without a defence {number(_tpr(undefended.strongest), 3)}"
        if (
            len(alike := alike_to(best, [*others, undefended], level=self.settings.sweep.level))
            == 1
        ):
            return (
                f"{visible(best.name)} gives away least of the canaries: {head} "
                f"{number(_tpr(best.strongest), 3)}, {beside}; it differs from every other method, "
                "and from no defence, by more than chance"
            )
        *names, last = [visible(row.name) for row in alike]
        shown = " and ".join(number(_tpr(row.strongest), 3) for row in (alike[0], alike[-1]))
        if undefended in alike:
            return (
                f"{', '.join(names)} and {last} cannot be told apart, so no defence is shown to "
                f"give away less ({head} {number(_tpr(best.strongest), 3)}, {beside})"
            )
        return (
            f"{', '.join(names)} and {last} cannot be told apart, so none of them is shown to give "
            f"away least ({head} between {shown}, {beside})"
        )

    def of_data(self) -> Mapping[str, str]:
        """How large the corpus is, and what was in models by coins."""
        size = f"{count(self.documents, 'document')}, {whole(self.characters)} characters"
        canaries = count(self.canaries, "canary", "canaries")
        return {"corpus": size, "data": f"{canaries}, each in some models by a coin"}

    def sure(self, verdict: Verdict, limits: Thresholds) -> Iterator[str]:
        """At which level the intervals hold, and how many models they are of."""
        least = min((row.models for row in self.rows), default=0)
        yield (
            "The intervals of all methods and attacks hold together with "
            f"{percent(self.settings.sweep.level)} confidence, from {least:,} models a method."
        )
        yield (
            "Missed leaks: a stronger attack than those tried may find more; a difference within "
            "the intervals may be chance."
        )

    def numbers(self) -> Iterator[MainNumber]:
        """What the strongest attack finds of each method."""
        for row in self.rows:
            name, best = f"TPR of {visible(row.name)}", row.strongest
            tpr, low, high = (None,) * 3 if best is None else (best.tpr, best.low, best.high)
            yield MainNumber(name=name, value=tpr, low=low, high=high, worse="high")

    def asked(self) -> Mapping[str, JsonValue]:
        """What decided the comparison."""
        read = {name: getattr(self, name) for name in ("documents", "characters", "canaries")}
        methods = ", ".join(row.name for row in self.rows)
        return {**recorded_values(self.settings), **read, "methods": methods}

    def checks(self, limits: Thresholds) -> Iterator[Check | str]:
        """What the defence that shows least still shows, against the rate that is allowed."""
        _, *others = self.ranked
        best = others[0] if others and others[0].strongest is not None else None
        at_target = met_outcome(best is not None)
        yield Check.of("ranked", "a defence at the target", at_target, self.finding)
        if limits.max_worst_tpr is None:
            yield "what the best defence may show: no threshold was given (--max-worst-tpr)"
        elif best is not None and best.strongest is not None:
            yield self._shown(best.name, best.strongest, limits.max_worst_tpr)

    def _shown(self, name: str, attack: DefenceAttack, most: float) -> Check:
        low, high = attack.low, attack.high
        outcome = interval_outcome(low, high, most)
        # The least number is no proof that another defence, known less closely, does not show less.
        others = [visible(o.name) for o in self.ranked[1:] if _low(o.strongest) <= most]
        also = (
            f"; {listed(others, 3)} may be below it" if outcome is Outcome.LEAK and others else ""
        )
        why = (
            f"the strongest attack finds {number(attack.tpr, 3)} of the canaries of "
            f"{visible(name)} at FPR {percent(self.settings.fpr)}, with the interval "
            f"{interval(low, high, 3)}, {_BESIDE_LIMIT[outcome]} the {short(most)} allowed{also}"
        )
        outcome = Outcome.INCONCLUSIVE if also else outcome
        name = "TPR of the defence that shows least"
        return Check.of("max_worst_tpr", name, outcome, why, attack.tpr, most)

    def document(self) -> Document:
        """The table of methods at the target, those that are not, and how settings were found."""
        return Document(
            title="Defences at one utility",
            kind=f"Comparison of defences, {len(self.rows)} methods",
            question="What does each defence show, and at what cost?",
            finding=self.finding,
            sections=list(self._sections()),
            main=Table(self.rows, _FLAT),
            numbers=Table(self.ranked, _in_short(self.settings.fpr)),
            meaning=_MEANING,
            warnings=self.notes,
            sources=tuple(_SOURCES.items()),
            origin=f"{whole(self.canaries)} canaries, {whole(self.documents)} documents of "
            f"{whole(self.characters)} characters ({short_hash(self.corpus_sha256)}); lmexposure "
            f"{self.lmexposure}, {self.measured}",
            private=True,
        )

    def _sections(self) -> Iterator[Section]:
        table, rows = _table(self.settings.fpr), [*self.ranked, *self._apart]
        yield Section(
            id="methods",
            title="Defences at one utility",
            text=_HOW,
            table=Table(self.ranked, table),
            chart=self._chart,
            notes=self._notes(),
        )
        if self._apart:
            yield Section(
                id="apart",
                title="Not at the target, and so not ranked",
                table=Table(self._apart, table),
                notes=tuple(f"{visible(row.name)}: {row.why}" for row in self._apart),
            )
        if self.failed:
            failed = Table(list(self.failed.items()), _FAILED)
            yield Section(id="failed", title="Left out: no models were trained", table=failed)
        undefended = next((row.seconds for row in rows if row.name == _UNDEFENDED), 0.0)
        repeated = [row.exposure.repetitions for row in self.rows if row.exposure is not None]
        beside = [
            "exposure of repeated: median in bits of canaries that one more model has "
            f"{times} times; found: without any of their characters"
            for times in repeated[:1]
        ]
        if any(row.epsilon is not None for row in self.rows):
            beside.append(_CLAIMED)
        yield Section(
            id="cost",
            title="Strongest attack, repeated canaries, cost",
            table=Table(rows, _beside(undefended)),
            notes=beside,
            folded=True,
        )
        every = [(row.name, attack) for row in self.rows for attack in row.attacks]
        yield Section(
            id="attacks",
            title="All attacks on canaries",
            table=Table(every, _attacks(self.settings.fpr)),
            notes=(_ANSWERS,),
            folded=True,
        )
        yield Section(
            id="search",
            title="How the settings were found",
            table=Table(self.rows, _SEARCHED),
            notes=(_TRAININGS,),
            folded=True,
        )
        yield Section(
            id="promises",
            title="What each does, and what it does not hide",
            table=Table(self.rows, _PROMISED),
        )

    def _notes(self) -> list[str]:
        among = max((a.among for row in self.rows for a in row.attacks), default=1)
        asked, level = self.settings, self.settings.sweep.level
        return [
            "validation loss in bits a token, lower = more useful; × none: as a multiple of the "
            f"models without a defence; ranked are methods within {percent(asked.tolerance)} of "
            "their target",
            f"canaries: the strongest of {count(among, 'attack')} on all their kinds, each by "
            f"LiRA; the intervals of all methods hold together at {percent(level)}, with models as "
            "units",
            "p, more than the lowest: how often chance alone puts the defence with the lowest TPR "
            "so far below this method, model by model on the same canaries, corrected for all "
            "attacks and defences; the two are told apart where it is at most "
            f"{short(1 - level)}, or their intervals do not overlap; no other order is a finding",
            f"documents: ordinary ones, by LiRA on log-perplexity, at {percent(level)}: the "
            "average that hides what the canaries show",
        ]

    def _chart(self) -> "Chart | None":
        """The TPR of ordinary documents and of canaries, method by method."""
        from lmexposure.core.charts import Mark, clipped, dots_chart

        rows = [*self.ranked, *self._apart]
        known = [(row, row.strongest) for row in rows if row.strongest is not None]
        if not known:
            return None
        fpr = percent(self.settings.fpr)
        told = [
            f"{visible(row.name)} {number(best.tpr, 3)} ({interval(best.low, best.high, 3)}), "
            f"documents {number(row.population, 3)}"
            for row, best in known
        ]

        def drawn(row: DefenceRow) -> tuple[str, list[Mark]]:
            best, name, own = row.strongest, clipped(row.name, _NAME), Mark(value=None)
            if best is not None:
                own = Mark(value=best.tpr, low=best.low, high=best.high, crossed=not row.ranked)
                name += "" if best.tpr is None else f": {number(best.tpr, 3)}"
            low, high = row.population_low, row.population_high
            return name, [own, Mark(value=row.population, low=low, high=high)]

        return dots_chart(
            name="defences",
            title=f"What each defence still shows: TPR at FPR {fpr}",
            caption="Hollow marks are ordinary documents, the average that most evaluations stop "
            "at; full marks are canaries under the strongest attack. The farther right, the more "
            "is seen; crosses are methods that are not at the target.",
            description=f"TPR of canaries at FPR {fpr}: {'; '.join(told)}.",
            rows=[drawn(row) for row in rows],
            series=("canaries, strongest attack", "ordinary documents"),
            axis="True-positive rate, higher = shows more",
            chance=self.settings.fpr,
        )


def alike_to(best: DefenceRow, rows: Sequence[DefenceRow], *, level: float) -> list[DefenceRow]:
    """The method with the lowest rate, and those that are not told from it.

    A method is told from it where their intervals do not overlap, or where chance alone seldom puts
    the lowest so far below it (`DefenceRow.above_p`). At most a share of 1 - level of comparisons
    leaves out the method W that truly shows least, or names one of several that do. For that an
    interval of the lowest must end too low, or one of W begin too high; each does with half of what
    is paid for it, which with three attacks or more makes (1 - level) / 2 in all. Or the p of a
    pair must be small that is truly in the other order, or equal; of N defences that may come out
    lowest each has one such pair, paid for N times and with the other half.
    """
    end = 1.0 if best.strongest is None or best.strongest.high is None else best.strongest.high
    return [
        row
        for row in rows
        if row is best
        or not (_low(row.strongest) > end or (row.above_p is not None and row.above_p <= 1 - level))
    ]


def _tpr(attack: DefenceAttack | None) -> float:
    return 1.0 if attack is None or attack.tpr is None else attack.tpr


def _low(attack: DefenceAttack | None) -> float:
    return 0.0 if attack is None or attack.low is None else attack.low


def _score(attack: DefenceAttack) -> str:
    return _SCORES.get(attack.score, attack.score)


def _found(row: DefenceRow) -> str | None:
    exposure = row.exposure
    if exposure is None or exposure.by is None:
        return None
    return f"{exposure.found} of {exposure.canaries} {_SEARCHES[exposure.by]}"


def _attack_name(row: DefenceRow) -> str | None:
    best = row.strongest
    return None if best is None else f"{visible(best.kind)}, {_score(best)}"


def _settings(row: DefenceRow) -> str | None:
    own = (f"{n}={v}" for n, v in row.training.items() if n != row.search.knob)
    return visible(", ".join(own)) or None


def _tries(row: DefenceRow) -> str:
    return "; ".join(f"{short(t.value)}: {number(t.ratio, 3)}" for t in row.search.tries)


_METHOD = Column(head="method", value="name", shown=visible, words=True, name="method")


def _table(fpr: float) -> Sequence[Column]:
    """Utility and what is seen, of each method."""
    rate = Column(head=f"TPR at FPR {percent(fpr)}", value="", shown=3, worse="high")
    return (
        _METHOD,
        Column(head="validation loss", value="bits", shown=3, unit="bits a token"),
        Column(head="× none", value="ratio", shown=3),
        replace(rate, head=f"{rate.head}, documents", value="population"),
        interval_column(low="population_low", high="population_high", name="population_interval"),
        replace(rate, head=f"{rate.head}, canaries", value="strongest.tpr", name="canary_tpr"),
        interval_column("strongest", name="canary_interval"),
        Column(head="p, more than the lowest", value="above_p", shown=probability),
        Column(head="p, worst canary", value="worst_p", shown=probability, worse="low"),
    )


def _in_short(fpr: float) -> Sequence[Column]:
    """The same, as a terminal has room for it."""
    method, _, ratio, documents, ends, canaries, canary_ends, *_ = _table(fpr)
    documents = replace(documents, head="TPR, documents")
    return method, ratio, documents, ends, replace(canaries, head="TPR, canaries"), canary_ends


def _beside(undefended: float) -> Sequence[Column]:
    """By which attack, what repeated canaries show, what is promised, and what it costs."""

    def times(row: DefenceRow) -> float | None:
        return row.seconds / undefended if undefended else None

    attack = "strongest attack on canaries"
    bits = Column(head="exposure of repeated", value="exposure.median", name="exposure_bits")
    return (
        _METHOD,
        Column(head=attack, value=_attack_name, words=True, name="strongest"),
        Column(head="found", value=_found, words=True),
        replace(bits, shown=1, unit="bits", worse="high"),
        Column(head="epsilon claimed", value="epsilon", shown=1, unit="nats"),
        Column(head="seconds a model", value="seconds", shown=1, unit="seconds"),
        Column(head="× none", value=times, shown=1, name="seconds_ratio"),
    )


def _attacks(fpr: float) -> Sequence[Column]:
    """Every attack on every kind, so that the choice of the strongest can be judged."""
    rate = f"TPR at FPR {percent(fpr)}"
    return (
        Column(head="method", value=lambda pair: visible(pair[0]), words=True),
        Column(head="canaries", value=lambda pair: visible(pair[1].kind), words=True),
        Column(head="reads", value=lambda pair: _score(pair[1]), words=True),
        Column(head=rate, value=lambda pair: pair[1].tpr, shown=3, name="tpr", worse="high"),
        Column(
            head="interval",
            value=lambda pair: (pair[1].low, pair[1].high),
            shown=lambda ends: interval(ends[0], ends[1], 3),
        ),
    )


_FAILED = (
    Column(head="method", value=lambda pair: visible(pair[0]), words=True),
    Column(head="why", value=lambda pair: visible(pair[1]), words=True),
)
_SEARCHED = (
    _METHOD,
    Column(head="searched", value=lambda row: row.search.knob, words=True),
    Column(head="settings", value=_settings, words=True),
    Column(head="chosen", value=lambda row: row.search.value, shown=short),
    Column(head="target", value="target", shown=3),
    Column(head="trainings", value=_tries),
    Column(head="time", value=lambda row: in_words(sum(t.seconds for t in row.search.tries))),
)
_PROMISED = (
    _METHOD,
    Column(head="does", value="meaning", shown=visible, words=True),
    Column(head="does not hide", value="promises_not", shown=visible, words=True),
)


_EVERY = (
    Column(value=lambda row: visible(row.name), name="method", words=True),
    Column(value="ranked"),
    Column(value="bits", name="validation_bits", unit="bits a token"),
    Column(value="sd", name="validation_sd"),
    *(Column(value=name) for name in ("ratio", "target", "models")),
    Column(value="population", name="population_tpr", worse="high"),
    *(Column(value=name) for name in ("population_low", "population_high")),
    Column(
        value=lambda row: None if row.strongest is None else visible(row.strongest.kind),
        name="canary_kind",
    ),
    Column(value="strongest.score", name="canary_score"),
    Column(value="strongest.tpr", name="canary_tpr", worse="high"),
    *(Column(value=f"strongest.{end}", name=f"canary_{end}") for end in ("low", "high")),
    Column(value="above_p"),
    Column(
        value=lambda row: None if row.worst is None else visible(row.worst), name="worst_canary"
    ),
    Column(value="worst_p", worse="low"),
    Column(value="exposure.median", name="exposure_bits", unit="bits", worse="high"),
    Column(value="exposure.found", name="found"),
    Column(value="epsilon", unit="nats"),
    Column(value="delta"),
    Column(value="seconds", unit="seconds"),
)
_FLAT = [replace(column, head=column.key) for column in _EVERY]
_HOW = (
    "All methods were trained on the same documents, with the same canaries, coins and seeds, and "
    "with settings by which they are about as useful. What is shown of a method is what the "
    "strongest attack on it finds, and not the average document: averages hide what a defence "
    "leaves open. [1]"
)
_ANSWERS = (
    "each defence is also attacked where it does not protect: by the model's first choices if it "
    "hides confidences, by near copies if it protects each text by itself, by the tokens that "
    "carried loss if its mask is known"
)
_CLAIMED = (
    "epsilon claimed: at the delta of the training; where it is large it promises nothing, and the "
    "method is a defence by experience alone, as the others are"
)
_TRAININGS = (
    "on other canaries, coins and seeds than the table has; trainings: value and loss as a "
    "multiple of that without a defence"
)
_MEANING = (
    "The true-positive rate (TPR) is the share of texts of the training that the strongest attack "
    "names as such, while it wrongly names the share FPR of other texts. Higher = shows more."
)
_SOURCES = {
    "Aerni, Zhang, Tramèr 2024, Evaluations of "
    "Machine Learning Privacy Defenses are Misleading": "https://arxiv.org/abs/2404.17399"
}
