"""The whole comparison of defences: settings searched, models trained and attacked.

A search ends at the settings by which a method's validation loss comes to the target. One model of
each method is measured with repeated canaries. What is done is on the disk; the same call again
goes on at what is missing.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from lmexposure._files import canonical_json, only_writer, sha256_bytes
from lmexposure._forecast import Forecast, Pace, Phase
from lmexposure._style import count, in_words
from lmexposure._style import number as digits
from lmexposure._validate import of_type
from lmexposure._written import remove
from lmexposure.audit import Progress, Speaker, Watcher, run, silent, training_settings
from lmexposure.canaries import Files
from lmexposure.defences.catalogue import Defence, Reference
from lmexposure.defences.comparison import Compared, Comparison, Measured, prepare_comparison
from lmexposure.errors import NumericalError, ResultError
from lmexposure.studies import (
    DP_SGD,
    Defences,
    DefenceSearch,
    DefencesSettings,
    DefenceTry,
    Result,
    SweepResult,
    TrainingResult,
)
from lmexposure.sweeps import (
    Cost,
    SweepDirectory,
    check_workers,
    collect,
    models_seconds,
    prepare,
    timed_training,
    train_alone,
    train_models,
    workers_for,
)

_EDGE = 0.1  # of an interval, that the next strength keeps away from its ends
_WEAKEST = (
    "even its weakest setting costs more utility than the target allows; give a higher target, or "
    "more epochs"
)
_STRONGEST = "even its strongest setting is more useful than the target; give a target nearer to 1"


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A strength, and the validation loss that it gave."""

    strength: float  # in [0, 1]
    ratio: float  # of the loss to that without a defence; infinite where the training diverged


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search came to."""

    # that is chosen: the trained one whose loss is at the target; without one, where the line
    # between the nearest on both sides meets it; without these, the nearest
    strength: float
    ratio: float  # of the nearest that was trained
    tried: tuple[Tried, ...]  # all of them, in order
    why: str | None  # it is not within the tolerance; None where it is
    useless: bool  # whether every strength costs more than the target allows


def search(
    ratio_of: Callable[[float], float], *, target: float, tolerance: float, tries: int
) -> Found:
    """Find the strength at which a loss that rises with it is at the target."""
    tried: list[Tried] = []
    low = high = None  # the nearest below the target, and above
    strength, weights = 0.5, (1.0, 1.0)
    while True:
        last = Tried(strength=strength, ratio=ratio_of(strength))
        tried.append(last)
        if abs(last.ratio / target - 1) <= tolerance:
            return _found(tried, last.strength, target, None)
        # The end that stays counts less each time, so that a bent curve is not crept along.
        if last.ratio < target:
            low, weights = last, (1.0, weights[1] / 2 if low and high else 1.0)
        else:
            high, weights = last, (weights[0] / 2 if low and high else 1.0, 1.0)
        if low is None and strength == 0.0:
            return _found(tried, 0.0, target, _WEAKEST)
        if high is None and strength == 1.0:
            return _found(tried, 1.0, target, _STRONGEST)
        strength = _next(low, high, target, weights)
        if len(tried) == tries:
            why = f"no setting was at the target within {tries} trainings; this one is in between"
            return _found(tried, strength, target, why)


def _next(
    low: Tried | None, high: Tried | None, target: float, weights: tuple[float, float]
) -> float:
    if low is None:
        return 0.0
    if high is None:
        return 1.0
    width = high.strength - low.strength
    share = 0.5
    if high.ratio < float("inf"):
        below, above = (target - low.ratio) * weights[0], (high.ratio - target) * weights[1]
        share = below / (below + above)
    return low.strength + width * min(max(share, _EDGE), 1 - _EDGE)


def _found(tried: list[Tried], strength: float, target: float, why: str | None) -> Found:
    nearest = min(tried, key=lambda trained: abs(trained.ratio / target - 1))
    return Found(
        strength=strength, ratio=nearest.ratio, tried=tuple(tried), why=why, useless=why == _WEAKEST
    )


Say = Callable[[str], None]
_TIMED = 20  # steps of each method that are timed
_TRIES = 3.5  # trainings that a search takes, on average
_PHASES = ("models", "analysis", "training", "measuring")  # of a method, behind its search
_MEASURED = 20.0  # seconds that the exposure of the one model takes, next to its training


def trained_and_attacked(
    comparison: Comparison,
    *,
    workers: int | None = None,
    address: str | None = None,
    progress: Progress = silent,
) -> Compared:
    """Search the settings of each method, train its models, and attack them."""
    tell: Say = progress.say if isinstance(progress, Speaker) else lambda line: None
    ahead = _Ahead.by_trials(comparison, workers=workers, address=address)
    expected = ahead.forecast
    if isinstance(progress, Watcher):
        ahead.tell(progress)
        progress = ahead
    measured: list[Measured] = []
    failed: dict[str, str] = {}
    for found in _searches(comparison, progress, tell):
        if found.training is None:
            failed[found.defence.name] = str(found.search.why)
            ahead.leave_out(found.defence.name)
            continue
        own = found.defence, found.training
        try:
            results = _trained(comparison, *own, workers, address, progress)
        except ResultError as failure:
            if not measured or not _all_diverged(comparison, found.defence):
                raise
            failed[found.defence.name] = str(failure)
            continue
        measured.append(
            Measured(
                defence=found.defence, search=found.search, training=found.training, results=results
            )
        )
    return Compared(
        comparison=comparison, measured=measured, failed=failed, forecast_seconds=expected.seconds
    )


@dataclass(kw_only=True)
class _Ahead:
    """What a comparison still takes: by trials, then by the trainings that were made."""

    comparison: Comparison
    costs: dict[str, Cost]  # of a model of each method whose models are not trained
    places: int  # for models side by side
    clock: Callable[[], float] = time.monotonic
    measured: float = _MEASURED  # as `_MEASURED` says, then of the last one
    watcher: Watcher | None = None
    searched: str = ""  # the method whose settings are searched now
    took: list[float] = field(default_factory=list)  # seconds of its trainings that ended
    begun: float = 0.0  # when the training under way was
    # of that training, and how far it is
    steps: tuple[Pace, int] = field(default_factory=lambda: (Pace(), 0))
    known: set[str] = field(default_factory=set)  # methods that were trained
    factor: float = 1.0  # what models take over what trainings say of them
    # whose models are trained now, from the first on, and since when
    swept: tuple[str, float] | None = None

    @classmethod
    def by_trials(
        cls, comparison: Comparison, *, workers: int | None, address: str | None
    ) -> "_Ahead":
        """Time some steps of each method."""
        guess, models = _guess(comparison), comparison.settings.sweep.models
        places = workers_for(comparison.searched, models, workers=workers, address=address) or 1
        costs = {}
        for defence in comparison.defences:
            if (comparison.sweep_of(defence) / SweepResult.NAME).exists():
                continue
            by_steps = defence.knob is not None and defence.knob.share_of == "steps"
            training = _training(comparison, defence, 0.0 if by_steps else 0.5, guess, 0)
            out = comparison.out / "search" / defence.name / "timed"
            try:
                costs[defence.name] = timed_training(
                    comparison.searched, out=out, training=training, steps=_TIMED
                )
            finally:
                remove(out)
        return cls(comparison=comparison, costs=costs, places=min(places, models))

    @property
    def forecast(self) -> Forecast:
        """Of all that is left."""
        if not self.costs:
            return Forecast(what="the models of all methods are trained", phases=())
        told = ", ".join(f"{name} {in_words(self._training(name))}" for name in self.costs)
        settings = self.comparison.settings
        beside = f", {self.places} side by side" * (self.places > 1)
        return Forecast(
            what=f"{count(len(self.costs), 'method')} of {count(settings.sweep.models, 'model')} "
            f"each{beside}, after a search of at most {settings.tries} trainings",
            phases=tuple(
                Phase(what=what, kind="statistics", work=seconds, pace=1.0)
                for what, seconds in self._phases().items()
            ),
            note=f"; a training takes: {told}",
        )

    def tell(self, watcher: Watcher) -> None:
        """Announce all, and keep the watcher up to date."""
        self.watcher, ahead = watcher, self.forecast
        watcher.plan(f"{ahead.what}{ahead.note}", ahead.phases, keeps=False)

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        """Take how far a phase is."""
        assert self.watcher is not None, "it watches once there is somebody to tell"
        before, _, name = what.partition(": ")
        if self.searched and (before, name) != ("search", self.searched):
            self._learn()
        if self.swept is not None and (before, name) != (self.swept[0], "models"):
            self.swept = None
        if before == "search":
            self._see(what, name, done, total)
        elif name == "models" and done == 0 and self.swept is None:
            self.swept = before, self.clock()
        self.watcher(what, done, total, note)

    def expect(self, what: str, seconds: float) -> None:
        """Take how long a phase takes, where those who do it know better."""
        assert self.watcher is not None
        self.watcher.expect(what, seconds)

    def leave_out(self, name: str) -> None:
        """No model of a method will be trained."""
        self.costs.pop(name, None)
        for what in _PHASES if self.watcher is not None else ():
            self.expect(f"{name}: {what}", 0.0)

    def _training(self, name: str) -> float:
        return self.costs[name].seconds / self.costs[name].with_scores

    def _tries(self, name: str) -> float:
        """Trainings that the search of a method takes."""
        known = {defence.name: defence.knob for defence in self.comparison.defences}
        most = self.comparison.settings.tries
        return 1.0 if known[name] is None else min(_TRIES, most)

    def _phases(self) -> dict[str, float]:
        """Seconds of each, in order."""
        models = self.comparison.settings.sweep.models
        found = {f"search: {name}": self._tries(name) * self._training(name) for name in self.costs}
        for name, cost in self.costs.items():
            trained = models_seconds(models, self.places, cost.seconds * self.factor)
            repeated = [self._training(name), self.measured] * self.comparison.measures_exposure
            seconds = [trained, cost.analysis, *repeated]
            found |= {f"{name}: {what}": s for what, s in zip(_PHASES, seconds, strict=False)}
        return found

    def _see(self, what: str, name: str, done: int, total: int) -> None:
        """Take how far a training of a search is."""
        now = self.clock()
        pace, last = self.steps
        if name != self.searched or done < last:
            if name == self.searched:
                self.took.append(now - self.begun)
            self.searched, self.begun, pace = name, now, Pace()
        self.steps = pace, done
        left, spent = pace.left(done, total, now), now - self.begun
        each = fmean(self.took) if self.took else self._training(name)
        this = max(0.0, each - spent) if left is None else left
        more = max(0.0, self._tries(name) - len(self.took) - 1)
        self.expect(what, this + more * max(each, spent + this))

    def _learn(self) -> None:
        """A search ended: what its trainings took, its other models take, and others in measure."""
        name, took = self.searched, [*self.took, self.clock() - self.begun]
        self.searched, self.took = "", []
        if name not in self.costs:
            return
        factor = fmean(took) / max(1e-9, self._training(name))
        self.known.add(name)
        for each, cost in self.costs.items():
            if each == name or each not in self.known:
                self.costs[each] = replace(cost, seconds=cost.seconds * factor)
        for what, seconds in self._phases().items():
            self.expect(what, seconds)

    def see_models(self, name: str, left: float) -> None:
        """Take what the models of a method still take: those of others will take as long."""
        if self.swept is None or name not in self.costs:
            return
        models = self.comparison.settings.sweep.models
        expected = models_seconds(models, self.places, self.costs[name].seconds)
        self.factor = (self.clock() - self.swept[1] + left) / expected
        names = list(self.costs)
        for other in names[names.index(name) + 1 :]:
            self.expect(f"{other}: models", self._phases()[f"{other}: models"])

    def cost(self, name: str) -> Cost | None:
        """Of a model of a method, as was seen."""
        cost = self.costs.get(name)
        if cost is None:
            return None
        seconds, share = cost.seconds * self.factor, cost.with_scores * self.factor
        return replace(cost, seconds=seconds, with_scores=share)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A watcher of the models of one method, or of its run with repeated canaries."""

    ahead: _Ahead
    name: str  # of the method
    steps: Pace = field(default_factory=Pace)

    def __call__(self, what: str, done: int, total: int, note: str = "") -> None:
        """Take how far it is; all of a measurement is one phase."""
        if what == "training":
            left = self.steps.left(done, total, self.ahead.clock())
            if left is not None:
                self.expect(what, left)
        elif what not in ("models", "collecting", "analysis"):
            what, note = "measuring", what
        self.ahead(f"{self.name}: {what}", done, total, note)

    def expect(self, what: str, seconds: float) -> None:
        """Take how long a phase takes."""
        if what == "models":
            self.ahead.see_models(self.name, seconds)
        self.ahead.expect(f"{self.name}: {what}", seconds)

    def plan(self, title: str, phases: Sequence[Phase], *, keeps: bool) -> None:
        """Take what a measurement takes; those of other methods will take as long."""
        if phases[0].what == "models":  # which were announced with the whole
            return
        self.ahead.measured = math.fsum(phase.expected for phase in phases)
        for name in self.ahead.costs:
            self.ahead.expect(f"{name}: measuring", self.ahead.measured)

    def end_asked(self) -> bool:
        """Nothing of a comparison ends early."""
        return False


def _all_diverged(comparison: Comparison, defence: Defence) -> bool:
    """Whether no model of a method has scores, though each was tried."""
    directory = SweepDirectory.open(comparison.sweep_of(defence))
    return all(directory.failed(number) is not None for number in range(directory.plan.models))


def _guess(comparison: Comparison) -> Reference:
    """What the undefended model may come to, before it is trained."""
    chosen = training_settings(comparison.searched.settings)
    return Reference(bits=2.0, steps=max(1, 10 * chosen.epochs))


def _searches(comparison: Comparison, progress: Progress, tell: Say) -> list["_Chosen"]:
    """What the search of each method came to, the undefended training first."""
    undefended = _Searching(comparison, comparison.defences[0], _guess(comparison), progress)
    reference = undefended.reference()
    found = [undefended.chosen_as_it_is()]
    tell(f"{found[0].defence.name}: {digits(reference.bits, 3)} bits a token")
    for defence in comparison.defences[1:]:
        found.append(_Searching(comparison, defence, reference, progress).chosen())
        tell(found[-1].sentence)
    return found


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """What a search came to."""

    defence: Defence  # the method
    search: DefenceSearch  # for the table
    training: dict[str, Any] | None  # the settings; None: the method is left out
    cost: float  # of the loss, as a share of that without a defence

    @property
    def sentence(self) -> str:
        """For a person, before the models are trained."""
        found = self.search
        said = (
            f"{self.defence.name}: {found.knob}={found.value:g}, validation loss {self.cost:+.1%} "
            f"({count(len(found.tries), 'training')})"
        )
        if self.training is None:
            return f"{said}; left out: {found.why}"
        return said if found.why is None else f"{said}; not at the target: {found.why}"


class _Searching:
    """The search of one method's settings."""

    def __init__(
        self, comparison: Comparison, defence: Defence, reference: Reference, progress: Progress
    ) -> None:
        self._comparison, self._defence = comparison, defence
        self._reference, self._progress = reference, progress
        self._tries: list[DefenceTry] = []
        self._known: dict[tuple[float, int], float] = {}
        self._alternative = 0

    def reference(self) -> Reference:
        """The undefended training."""
        try:
            result = self._result({})
        except NumericalError as failure:
            raise ResultError(
                f"the training without a defence diverged ({failure}); give a lower learning rate"
            ) from failure
        self._keep(None, result, 1.0)
        return Reference(bits=result.validation_bits, steps=result.best_step)

    def chosen_as_it_is(self) -> _Chosen:
        """Of the undefended training, when it is made: nothing is searched."""
        search_of = DefenceSearch(
            knob=None, value=None, tries=tuple(self._tries), reached=True, why=None
        )
        return _Chosen(defence=self._defence, search=search_of, training={}, cost=0.0)

    def chosen(self) -> _Chosen:
        """Of a method with a setting to be searched."""
        defence, settings = self._defence, self._comparison.settings
        assert defence.knob is not None, "only the undefended training has none"
        target = 1.0 if defence.at_undefended else settings.target
        others = range(len(defence.alternatives))
        if others:
            self._alternative = min(others, key=lambda other: self._ratio_of(0.5, other))
        found = search(
            lambda strength: self._ratio_of(strength, self._alternative),
            target=target,
            # What one model shows is not what many do: half of the tolerance is left for that.
            tolerance=settings.tolerance / 2,
            tries=settings.tries - max(0, len(others) - 1),
        )
        reached = abs(found.ratio / target - 1) <= settings.tolerance
        record = DefenceSearch(
            knob=defence.knob.setting,
            value=defence.knob.value(found.strength, self._reference),
            tries=tuple(self._tries),
            reached=reached,
            why=None if reached else found.why,
        )
        training = None if found.useless else self._settings(found.strength, self._alternative)
        return _Chosen(defence=defence, search=record, training=training, cost=found.ratio - 1)

    def _ratio_of(self, strength: float, alternative: int) -> float:
        """The loss as a multiple of the undefended one; infinite where the training diverges."""
        key = strength, alternative
        if key not in self._known:
            self._known[key] = self._tried(strength, alternative)
        return self._known[key]

    def _tried(self, strength: float, alternative: int) -> float:
        assert self._defence.knob is not None
        try:
            result = self._result(self._settings(strength, alternative))
        except NumericalError:
            return math.inf
        ratio = result.validation_bits / self._reference.bits
        self._keep(self._defence.knob.value(strength, self._reference), result, ratio)
        return ratio

    def _settings(self, strength: float, alternative: int) -> dict[str, Any]:
        return _training(self._comparison, self._defence, strength, self._reference, alternative)

    def _result(self, training: dict[str, Any]) -> TrainingResult:
        """Trained, or found where it was."""
        comparison, name = self._comparison, f"search: {self._defence.name}"

        def watch(what: str, done: int, total: int, note: str = "") -> None:
            self._progress(name, done, total, note)

        tried = sha256_bytes(canonical_json(dict(training)))[:16]
        out = comparison.out / "search" / self._defence.name / tried
        return train_alone(comparison.searched, 0, out=out, training=training, progress=watch)

    def _keep(self, value: float | None, result: TrainingResult, ratio: float) -> None:
        self._tries.append(
            DefenceTry(
                value=value, bits=result.validation_bits, ratio=ratio, seconds=result.seconds
            )
        )


def _training(
    comparison: Comparison,
    defence: Defence,
    strength: float,
    reference: Reference,
    alternative: int,
) -> dict[str, Any]:
    """What a method's training has beyond what all have."""
    settings: dict[str, Any] = dict(defence.training)
    if settings.get("method") == DP_SGD:
        settings["delta"] = comparison.settings.delta
    if defence.knob is not None:
        settings[defence.knob.setting] = defence.knob.value(strength, reference)
    if defence.alternatives:
        tuned = defence.alternatives[alternative]
        base = training_settings(comparison.searched.settings).learning_rate
        settings["learning_rate"] = float(f"{tuned['learning_rate'] * base:.4g}")
        documents = len(comparison.searched.corpus.documents)
        settings["expected_batch"] = max(1, round(tuned["batch"] * documents))
    return settings


def _trained(
    comparison: Comparison,
    defence: Defence,
    training: Mapping[str, Any],
    workers: int | None,
    address: str | None,
    progress: Progress,
) -> tuple[SweepResult, Result | None]:
    """The sweep of a method, and the run with repeated canaries, where that did not diverge."""

    def named(what: str, done: int, total: int, note: str = "") -> None:
        progress(f"{defence.name}: {what}", done, total, note)

    watch: Progress = named
    cost = None
    if isinstance(progress, _Ahead):
        watch, cost = _Part(ahead=progress, name=defence.name), progress.cost(defence.name)
    files, out = list[Path | str](comparison.files), comparison.sweep_of(defence)
    with only_writer(out):
        prepare(files, out=out, settings=comparison.sweep_settings(training))
        train_models(out, workers=workers, address=address, progress=watch, cost=cost)
        swept = collect(out, progress=watch)
    if not comparison.measures_exposure:
        return swept, None
    try:
        result = run(
            files,
            out=comparison.out / "repeated" / defence.name,
            settings=comparison.repeated_settings(training),
            progress=watch,
        )
    except NumericalError:  # one model of many: what the others show stays
        return swept, None
    return swept, result


def compare_defences(
    corpus: Files,
    *,
    out: str | Path,
    settings: DefencesSettings | None = None,
    workers: int | None = None,
    address: str | None = None,
    progress: Progress = silent,
) -> Defences:
    """Compare defences at one utility, each under the attacks that fit it."""
    settings = DefencesSettings() if settings is None else settings
    of_type("settings", settings, DefencesSettings, "DefencesSettings(...)")
    check_workers(workers, address)
    with only_writer(out):
        compared = trained_and_attacked(
            prepare_comparison(corpus, out=out, settings=settings),
            workers=workers,
            address=address,
            progress=progress,
        )
        record = _record(compared)
        record.save(out)
    return record


def _record(compared: Compared) -> Defences:
    comparison, first = compared.comparison, compared.first
    asked = comparison.settings.resolved()
    return Defences.now(
        inputs_sha256=comparison.sha256,
        settings=replace(asked, sweep=asked.sweep.without_seed()),
        documents=first.documents,
        characters=sum(map(len, comparison.searched.corpus.texts)),
        corpus_sha256=compared.corpus_sha256,
        canaries=first.canaries,
        rows=compared.rows(),
        failed=dict(compared.failed),
        forecast_seconds=compared.forecast_seconds,
        warnings=compared.warnings(),
    )
