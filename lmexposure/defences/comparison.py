"""A comparison: its directory, corpus and seeds, a search and a sweep of each method, its table.

Each step is found again by what is on the disk, so that the same call goes on where it was ended.
The table has a row a method, from its sweep and its one run.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lmexposure._files import PRIVATE, atomic_write, canonical_json, sha256_bytes, sha256_file
from lmexposure._integrity import check_seal, read_sealed, write_sealed
from lmexposure._record import JsonValue
from lmexposure._settings import recorded_values
from lmexposure._style import visible
from lmexposure._written import remove
from lmexposure.audit import plan_of, training_settings
from lmexposure.canaries import (
    UNIFORM,
    Files,
    fresh_seed,
    guess_layout,
    listed_files,
    open_content,
    packing,
)
from lmexposure.core import REPORTS, Work, claimed
from lmexposure.defences.attacks import (
    adapted_attacks,
    attack_parts,
    shows_less_p,
    strongest,
)
from lmexposure.defences.catalogue import Defence, chosen
from lmexposure.defences.needs import check_models
from lmexposure.errors import CorpusError, ResultError, SettingsError
from lmexposure.statistics import CellRate
from lmexposure.studies import (
    ClassSummary,
    DefenceExposure,
    DefenceRow,
    Defences,
    DefenceSearch,
    DefencesSettings,
    Result,
    RunSettings,
    SweepModel,
    SweepResult,
    SweepSettings,
)
from lmexposure.sweeps import SweepDirectory, prepare, read_matrices

_SEEDS = "seeds.json"
_LEFT = (_SEEDS, "slice", "search")  # by a comparison that was never prepared
_WRITTEN = (*_LEFT, "methods", "repeated", *REPORTS)
_HIDDEN = frozenset({"corpus", "seed", "inclusion_seed"})
_LINES = ("lines", "paragraphs", "jsonl")  # layouts whose files can be cut between lines
_FEWEST_TRIES = 2  # that are left when the alternatives of a method are tried


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A comparison that is prepared."""

    work: Work[Defences]  # its directory, and what was asked but the choice of methods
    settings: DefencesSettings  # as they were asked for
    defences: Sequence[Defence]  # "none" first
    files: Sequence[Path]  # the corpus, or the slice of it
    seeds: Mapping[str, int]  # "secrets" and "coins" of the table, and "search"

    @property
    def sha256(self) -> str:
        """Of all that decides what it comes to."""
        chosen = [dict(self.seeds), [defence.name for defence in self.defences]]
        return sha256_bytes(self.work.sha256.encode() + canonical_json(chosen))

    @property
    def out(self) -> Path:
        """Its directory."""
        return self.work.out

    @cached_property
    def searched(self) -> SweepDirectory:
        """The sweep whose first model every search trains: other canaries, coins and seeds."""
        out = self.out / "search" / "sweep"
        run = self._run(self.seeds["search"], {})
        settings = SweepSettings(models=4, shares=(1.0,), population=0, run=run)
        prepare(list(self.files), out=out, settings=settings)
        return SweepDirectory.open(out)

    def sweep_of(self, defence: Defence) -> Path:
        """Where the models of a method are."""
        return self.out / "methods" / defence.name

    def sweep_settings(self, training: Mapping[str, object]) -> SweepSettings:
        """Of the sweep of a method: the same canaries, coins and seeds for all."""
        given = {"seed": self.seeds["secrets"], "inclusion_seed": self.seeds["coins"]}
        sweep = self.settings.sweep.override(given)
        return replace(sweep, run=_trained(sweep.run, training))

    def repeated_settings(self, training: Mapping[str, object]) -> RunSettings:
        """Of the run with repeated canaries."""
        few = {"repetitions": (self.settings.repeated,), "canaries": None, "effort": "quick"}
        run = self._run(self.seeds["secrets"], training)
        return run.override({**few, "kinds": (UNIFORM,), "texts": None, "partner": "coin"})

    @property
    def measures_exposure(self) -> bool:
        """Whether there are formats whose secrets can be ranked."""
        return bool(self.settings.repeated and self.settings.sweep.run.uniform_formats)

    def _run(self, seed: int, training: Mapping[str, object]) -> RunSettings:
        return replace(_trained(self.settings.sweep.run, training), seed=seed)


def _trained(run: RunSettings, training: Mapping[str, Any]) -> RunSettings:
    """A run whose training has these settings too."""
    return replace(run, training={**run.training, **training})


def prepare_comparison(corpus: Files, *, out: str | Path, settings: DefencesSettings) -> Comparison:
    """Check everything that can be checked before time is spent, and take the slice."""
    defences = chosen(settings.methods)
    training_settings(settings.sweep.run)
    plan_of(settings.sweep.run)
    _check_tries(defences, settings.tries)
    check_models(settings)
    files = [Path(path) for path in listed_files(corpus)]
    asked = _asked(settings, files)
    with claimed(Defences, out, writes=_WRITTEN) as held:
        if not held.begun:
            _clear_left(held.out)
        with held.work(asked, hidden=_HIDDEN) as work:
            comparison = Comparison(
                work=work,
                settings=settings,
                defences=defences,
                files=files if settings.entire else [_slice(files, work.out, settings)],
                seeds=_seeds(work.out, settings),
            )
            _ = comparison.searched  # refuses what no model could be trained on
    return comparison


def _check_tries(defences: Sequence[Defence], tries: int) -> None:
    for defence in defences:
        least = len(defence.alternatives) + _FEWEST_TRIES - 1
        if defence.knob is not None and tries < least:
            raise SettingsError(
                f"tries={tries} are too few for {defence.name}, whose search takes at least "
                f"{least}; give more, or leave it out"
            )


def _asked(settings: DefencesSettings, files: Sequence[Path]) -> dict[str, JsonValue]:
    """What decides a comparison but the choice of methods, and the hashes of its corpus."""
    hashes = []
    for path in files:
        try:
            hashes.append(sha256_file(path))
        except OSError as failure:
            raise CorpusError(
                f"cannot read the corpus {path}: {failure.strerror}; give a text file"
            ) from failure
    decisive = recorded_values(settings.resolved())
    decisive.pop("methods", None)
    return decisive | {"corpus": hashes}


def _clear_left(out: Path) -> None:
    """Remove what a comparison left that was never prepared; refuse what is of none."""
    strange = sorted(p.name for p in out.glob("[!.]*") if p.name not in _LEFT)
    if strange:
        raise ResultError(
            f"{out} holds {strange[0]!r} and not what was asked for, so it is no comparison that "
            "can go on; choose a new directory"
        )
    for name in _LEFT:
        remove(out / name)


def _slice(files: Sequence[Path], out: Path, settings: DefencesSettings) -> Path:
    """The first characters of the corpus, whole documents, in a file of its own."""
    first = files[0]
    layout = settings.sweep.run.layout or guess_layout(first)
    if layout not in _LINES:
        raise CorpusError(
            f"{first} is in the layout {layout}, of which no slice can be taken; give entire=True "
            "for the whole corpus"
        )
    name = first.name.removesuffix(packing(first))
    path = out / "slice" / name
    if not path.exists():
        content = b"".join(_lines(files, settings.characters, layout))
        if not content.strip():
            raise CorpusError(f"{first} has no text; give a corpus with documents")
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path, mode=PRIVATE) as stream:
            stream.write(content)
    return path


def _lines(files: Sequence[Path], characters: int, layout: str) -> list[bytes]:
    """Whole lines of the files in order, or paragraphs, until there are as many characters."""
    lines: list[bytes] = []
    read = 0
    for path in files:
        with open_content(path) as stream:
            for line in stream:
                ends = layout != "paragraphs" or not line.strip()
                if read >= characters and ends:
                    return lines
                lines.append(line if line.endswith(b"\n") else line + b"\n")
                read += len(line.decode("utf-8", errors="replace"))
    return lines


def _seeds(out: Path, settings: DefencesSettings) -> dict[str, int]:
    """Of secrets, coins and search: fresh ones, drawn once, but for a seed that was given."""
    if (out / _SEEDS).exists() and not check_seal(out / _SEEDS):
        raise ResultError(
            f"{visible(out / _SEEDS)} is damaged, and without it no other method is like those "
            "that are there; put it back, or choose a new directory"
        )
    kept = read_sealed(out / _SEEDS)
    if kept is None:
        run = settings.sweep.run
        coins = settings.sweep.inclusion_seed
        seeds = {
            "secrets": fresh_seed() if run.seed is None else run.seed,
            "coins": fresh_seed() if coins is None else coins,
            "search": fresh_seed() if run.seed is None else run.seed + 1,
        }
        write_sealed(out / _SEEDS, canonical_json(seeds), mode=PRIVATE)
        kept = canonical_json(seeds)
    found: dict[str, int] = json.loads(kept)
    return found


_GUESSES = 10  # that an attacker has for a repeated secret


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A method whose models are trained."""

    defence: Defence  # the method
    search: DefenceSearch  # of its settings
    training: Mapping[str, Any]  # these settings
    # of its sweep, and of the run with repeated canaries
    results: tuple[SweepResult, Result | None]


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Everything that a comparison says."""

    comparison: Comparison
    measured: Sequence[Measured]
    failed: Mapping[str, str]  # methods that have no models, and why
    forecast_seconds: float | None  # what was expected before the first training

    @property
    def first(self) -> SweepResult:
        """Of the undefended training."""
        return self.measured[0].results[0]

    @property
    def corpus_sha256(self) -> str:
        """Of the corpus that was read."""
        hashes = [sha256_file(path) for path in self.comparison.files]
        return hashes[0] if len(hashes) == 1 else sha256_bytes(canonical_json(hashes))

    def rows(self) -> tuple[DefenceRow, ...]:
        """A row a method."""
        undefended = self.first.utility.mean
        rows = [_row(self.comparison, method, undefended) for method in self.measured]
        sweeps = {m.defence.name: self.comparison.sweep_of(m.defence) for m in self.measured}
        return told_apart(rows, sweeps, fpr=self.comparison.settings.fpr)

    def warnings(self) -> tuple[str, ...]:
        """Of all sweeps; what several say alike is said once, with their names."""
        names: dict[str, list[str]] = {}
        for method in self.measured:
            for line in method.results[0].warnings:
                names.setdefault(line, []).append(method.defence.name)
        return tuple(f"{', '.join(own)}: {line}" for line, own in names.items())


def _row(comparison: Comparison, method: Measured, undefended: float) -> DefenceRow:
    settings, (swept, repeated) = comparison.settings, method.results
    directory = SweepDirectory.open(comparison.sweep_of(method.defence))
    attacks = adapted_attacks(
        directory,
        read_matrices(directory.out, directory.plan),
        fpr=settings.fpr,
        level=settings.sweep.level,
        methods=len(comparison.defences),
    )
    ordinary = _population(swept, settings.fpr)
    target = 1.0 if method.defence.at_undefended or method.defence.knob is None else settings.target
    ratio = swept.utility.mean / undefended
    why = _why_not(method, ratio, target, settings.tolerance)
    epsilon, delta = _claimed(directory)
    worst = swept.worst
    return DefenceRow(
        name=method.defence.name,
        meaning=method.defence.meaning,
        promises_not=method.defence.promises_not,
        search=method.search,
        training=dict(method.training),
        target=target,
        models=swept.models,
        bits=swept.utility.mean,
        sd=swept.utility.sd,
        ratio=ratio,
        ranked=why is None,
        why=why,
        population=None if ordinary is None else ordinary.value,
        population_low=None if ordinary is None else ordinary.low,
        population_high=None if ordinary is None else ordinary.high,
        strongest=strongest(attacks),
        attacks=tuple(attacks),
        above_p=None,
        worst=None if worst is None else worst.id,
        worst_p=None if worst is None else worst.p,
        exposure=None if repeated is None else _exposure(repeated, settings.repeated),
        epsilon=epsilon,
        delta=delta,
        seconds=swept.utility.seconds,
    )


def told_apart(
    rows: Sequence[DefenceRow], sweeps: Mapping[str, Path], *, fpr: float
) -> tuple[DefenceRow, ...]:
    """The rows, with how surely each ranked one shows more than the defence with the lowest TPR.

    Each p is paid for twice, since half of the level is left to the intervals, and for each defence
    that could have been that one.
    """
    ranked = [row for row in rows if row.ranked and row.strongest is not None]
    defences = [row for row in ranked if row.name != rows[0].name]
    if not defences:
        return tuple(rows)
    best = min(defences, key=_tpr)
    told = []
    for row in rows:
        p = None
        if row in ranked and row is not best:
            p = _paired_p((best, row), sweeps, fpr)
        paid = None if p is None else min(1.0, 2 * len(defences) * p)
        told.append(row.model_copy(update={"above_p": paid}))
    return tuple(told)


def _tpr(row: DefenceRow) -> float:
    return 1.0 if row.strongest is None or row.strongest.tpr is None else row.strongest.tpr


def _paired_p(
    pair: tuple[DefenceRow, DefenceRow], sweeps: Mapping[str, Path], fpr: float
) -> float | None:
    """Whether the first shows less, over the models that both have; None where no attack tells."""
    directories = [SweepDirectory.open(sweeps[row.name]) for row in pair]
    matrices = [read_matrices(directory.out, directory.plan) for directory in directories]
    shared = np.intersect1d(matrices[0].numbers, matrices[1].numbers)
    both = []
    for row, directory, its in zip(pair, directories, matrices, strict=True):
        parts = attack_parts(directory, its.of_models(np.isin(its.numbers, shared)), fpr=fpr)
        known = {(attack.kind, attack.score) for attack in row.attacks if attack.tpr is not None}
        both.append({name: own for name, own in parts.items() if name in known})
    return shows_less_p(both[0], both[1]) if all(both) else None


def _why_not(method: Measured, ratio: float, target: float, tolerance: float) -> str | None:
    """Why a method is not ranked; None where it is at its target."""
    away = ratio / target - 1
    if abs(away) <= tolerance:
        return None
    side = "less useful" if away > 0 else "more useful"
    searched = "" if method.search.why is None else f"; the search: {method.search.why}"
    return f"{side} than the target by {abs(away):.1%} in these models{searched}"


def _population(swept: SweepResult, fpr: float) -> CellRate | None:
    row = next((r for r in swept.scores if r.group == "population" and r.primary), None)
    return None if row is None else next(rate for rate in row.rates if rate.fpr == fpr)


def _claimed(directory: SweepDirectory) -> tuple[float | None, float | None]:
    """The largest epsilon that a model claims, and the delta next to it."""
    models = (directory.done(number) for number in range(directory.plan.models))
    claims = [m.training.claim for m in models if isinstance(m, SweepModel) and m.training.claim]
    largest = max(claims, key=lambda claim: claim.epsilon, default=None)
    return (None, None) if largest is None else (largest.epsilon, largest.delta)


def _exposure(result: Result, repetitions: int) -> DefenceExposure | None:
    """Of the class of repeated canaries; of several formats that which leaks most."""
    rows = [row for row in result.summary if row.repetitions == repetitions]
    if not rows:
        return None
    row = max(rows, key=lambda row: row.median.value)
    found, by = _found(row)
    return DefenceExposure(
        repetitions=repetitions,
        canaries=row.n,
        median=row.median.value if math.isfinite(row.median.value) else None,
        low=row.median.low,
        high=row.median.high,
        found=found,
        by=by,
    )


def _found(row: ClassSummary) -> tuple[int, Literal["best_first", "beam", "greedy"] | None]:
    """Secrets that are found by whichever search finds most, and which that is."""
    guesses = [guess for guess in row.guesses if guess.guesses <= _GUESSES]
    counts: dict[Literal["best_first", "beam", "greedy"], int] = {
        tried.method: tried.found for tried in row.extraction if tried.revealed == 0
    }
    if guesses:
        counts["best_first"] = max(guesses, key=lambda guess: guess.guesses).found
    if not counts:
        return 0, None
    best = max(counts, key=lambda method: counts[method])
    return counts[best], best
