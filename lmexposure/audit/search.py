"""What a search over all of R says of one format: exact ranks, drawn ranks, an attacker's guesses.

Draws come first: they estimate every rank, and how many model steps it would take to count it. What
the budget can count is then counted in one walk over the fills. At the end of the file are the beam
searches for each canary, with nothing and with a part of its secret given.
"""

import math
import time
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from lmexposure._record import Record, Rows
from lmexposure.audit.directory import keep_part, read_part
from lmexposure.audit.format_scores import FormatScores
from lmexposure.audit.workload import (
    WITHOUT_SEARCH,
    KeptSearches,
    Task,
    end_asked,
    given_characters,
)
from lmexposure.canaries import Canary
from lmexposure.errors import MarginError, ModelError
from lmexposure.scoring import (
    Budget,
    Draws,
    Extractor,
    Likeliest,
    RankSearch,
    RecomputedSteps,
    SecretSearch,
    TokenSpace,
    beam_width,
    draw_fills,
    likeliest_fills,
    return_memory,
    token_space,
    walked_bits,
)
from lmexposure.statistics import (
    Estimate,
    UniformDraws,
    exact_exposure,
    importance_exposure,
)
from lmexposure.studies import EstimateName, Extraction, Search

_NOTHING = Likeliest(indices=(), bits=np.empty(0), proven=0, steps=0)
# A walk whose expected cost is above this share of the budget is left to the draws.
_SPARE = 0.6
_SURE = 1.25  # times its expected cost is kept for a walk that must be finished
_LIKELY = 0.9  # and a search whose expected cost is above this share is for fewer guesses
_ALIKE_BITS = 0.05  # far above rounding in float32; references that are further off go uncounted
_GROWTH = 4  # canaries share a walk where the dearest costs at most this times the cheapest


Estimates = dict[EstimateName, Estimate]  # of one canary, by method


class FormatSearch(Record):
    """What was found of one format's canaries and controls, in the manifest's order."""

    estimates: Rows[Estimates]  # of each of them: "exact" or "bounded", and "importance"
    # cost of each behind the tokens that all fills share, float64; empty where the fills could not
    # be followed as tokens
    secret_bits: Rows[float] = ()
    # for each what best-first search found; empty where there was none
    guesses: Rows[Extraction] = ()
    # how the fills were followed and what it cost; None where they were not
    record: Search | None = None
    interrupted: bool = False  # a person ended it, or the extraction, early
    warnings: Rows[str] = ()  # what a reader must know of them
    # what a reader must know of the model, whatever the format; by subject
    notes: dict[str, str] = Field(default_factory=dict)

    def is_of(self, canaries: int) -> bool:
        """Whether these are the whole findings of this number of canaries and controls."""
        sizes = {len(self.secret_bits), len(self.guesses)}
        return len(self.estimates) == canaries and sizes <= {0, canaries} and not self.interrupted


def search_format(task: Task, scores: FormatScores) -> FormatSearch:
    """Search the whole space of one format, unless the method asked for needs no search."""
    none: tuple[Estimates, ...] = tuple({} for _ in scores.canaries)
    if task.settings.estimate in WITHOUT_SEARCH:
        return FormatSearch(estimates=none)
    kept = task.kept(f"{scores.format.name}.search.json")
    before = read_part(kept, FormatSearch)
    if before is not None and before.is_of(len(scores.canaries)):
        return before
    try:
        space = token_space(
            task.lm.tokenizer, scores.format, context=scores.context, vocabulary=task.vocabulary
        )
        search = _Search(task, scores, space)
    except ModelError as failure:
        if task.settings.estimate in ("exact", "importance"):
            raise
        why = f"ranks are those among references: {failure}"
        return FormatSearch(estimates=none, warnings=(why,))
    found = search.run()
    del search
    return_memory()  # a copy of the model in float64 went with it
    if not found.interrupted:
        keep_part(kept, found)
    return found


class _Search:
    """One search under way."""

    def __init__(self, task: Task, scores: FormatScores, space: TokenSpace) -> None:
        self._settings, self._space, self._scores = task.settings, space, scores
        self._watcher, self._end_asked = task.progress, partial(end_asked, task.progress)
        longest, window = len(space.beginning) + space.longest, task.lm.window
        if window is not None and longest > window:  # many give wrong numbers, and say no word
            raise ModelError(
                f"secrets of format {space.format.name!r} have up to {longest} tokens with their "
                f"context, but the model's context window holds {window}; use a shorter format or "
                "another model"
            )
        self._indices = [canary.index for canary in scores.canaries]
        self._paths = [space.path(index) for index in self._indices]
        self._aside = list(task.manifest.set_aside.get(scores.format.name, ()))
        planted = [canary.index for canary in scores.canaries if canary.role == "canary"]
        self._steps = task.lm.steps([*space.beginning, *self._paths[0]])
        self._ranks = RankSearch(
            space,
            self._steps,
            task.lm,
            excluded=[*planted, *self._aside],
            live_states=self._settings.live_states,
            seed=self._settings.bootstrap_seed,
        )
        self._most = self._settings.steps_for(task.lm.size)
        self._budget = Budget(
            steps=self._most, seconds=self._settings.budget_seconds, ended=self._end_asked
        )
        self._warnings: list[str] = []
        self._missed: dict[int, MarginError] = {}  # by canary, why its rank was not counted
        self._draws: Draws | None = None
        self._likeliest: Likeliest | None = None
        self._interrupted = False
        self._hurried = False  # the clock left less than the steps of the budget

    def run(self) -> FormatSearch:
        rows: list[Estimates] = [{} for _ in self._indices]
        method = self._settings.estimate
        if self._scores.exhaustive and method in ("auto", "exact"):
            self._walk(rows, list(range(len(rows))), self._space.size)
        elif method in ("auto", "exact", "importance"):  # the others need no search
            self._estimate(rows)
        guesses = self._guess() if self._settings.extraction and not self._interrupted else ()
        missed = [why for i, why in self._missed.items() if not {"exact", "bounded"} & set(rows[i])]
        if missed:
            self._warnings.append(f"{len(missed)} ranks could not be counted: {missed[0]}")
        draws, likeliest = self._draws, self._likeliest
        record = Search(
            tokens=self._space.proof,
            shared_tokens=len(self._space.beginning),
            margin=self._ranks.margin if self._ranks.is_measured else None,
            budget_steps=self._most,
            draws=None if draws is None else self._settings.draws,
            draw_steps=None if draws is None else draws.steps,
            walk_steps=self._ranks.spent,
            most_live=self._ranks.most_live,
            guesses_proven=None if likeliest is None else likeliest.proven,
            guess_steps=None if likeliest is None else likeliest.steps,
        )
        known, notes = map(self._ranks.rescorer.known, self._paths), {}
        if isinstance(self._steps, RecomputedSteps):
            notes["steps"] = self._steps.slower
        if failure := self._ranks.rescorer.failure:
            notes["float64"] = (
                "secrets that are nearly as likely were told apart by the model as it is, not by a "
                f"copy in float64, so that ranks are exact up to an empirical margin ({failure})"
            )
        counted = any("exact" in row for row in rows)
        if self._hurried and not counted and not (likeliest is not None and likeliest.proven):
            notes["seconds"] = (
                f"budget_seconds={self._budget.seconds:g} was too short for the searches to count "
                "a rank or to find a likeliest secret: exposures are what references, draws and "
                "bounds say of them; give more seconds, or leave it out"
            )
        return FormatSearch(
            estimates=tuple(rows),
            secret_bits=tuple(
                max(0.0, walked) if exact is None else exact
                for exact, walked in zip(known, self._walked.tolist(), strict=True)
            ),
            guesses=guesses,
            record=record,
            interrupted=self._interrupted,
            warnings=tuple(self._warnings),
            notes=notes,
        )

    def _estimate(self, rows: list[Estimates]) -> None:
        """Ranks drawn, and counted where the budget suffices."""
        method, begun = self._settings.estimate, time.monotonic()
        try:
            self._watch_draws(0, self._settings.draws)
            draws = draw_fills(
                self._space,
                self._steps,
                draws=self._settings.draws,
                seed=self._settings.bootstrap_seed,
                progress=self._watch_draws,
            )
        except _EndedError:
            self._stop("drawing of secrets", "ranks are those among references")
            if method == "exact":  # a single step still proves a bound
                self._walk(rows, list(range(len(rows))), 1)
            return
        self._draws = draws
        if method != "importance":
            self._count(rows, draws, time.monotonic() - begun)
        self._weigh(rows, draws)

    def _progress(self, what: str, done: int, total: int) -> None:
        self._watcher(f"{self._scores.format.name}: {what}", done, total)

    @cached_property
    def _walked(self) -> NDArray[np.float64]:
        """Costs of canaries and controls behind the shared tokens, as draws have them."""
        return walked_bits(self._space, self._steps, self._paths)

    def _watch_draws(self, done: int, total: int) -> None:
        self._progress("drawing secrets", done, total)
        # Whoever asked for ranks from draws by name has no other, and gets these.
        if self._settings.estimate != "importance" and done < total and self._end_asked():
            raise _EndedError

    def _count(self, rows: list[Estimates], draws: Draws, seconds: float) -> None:
        """Ranks that the budget can count; bounds of all others where that is asked for."""
        limits = self._walked + self._ranks.expected_margin
        expected = [draws.expected_steps(limit) for limit in limits.tolist()]
        most: float = self._most
        if self._budget.seconds is not None:
            most = min(most, self._budget.seconds * draws.steps / max(seconds, 1e-9))
            self._hurried = most < self._most
        order = sorted(range(len(expected)), key=lambda i: expected[i])
        affordable = [i for i in order if expected[i] <= _SPARE * most]
        groups = _groups(affordable, expected)
        if len(groups) > 1:
            # One walk counts for all; should it cost more than expected, the cheaper ones have
            # enough left for walks of their own.
            apart = _SURE * sum(expected[group[-1]] for group in groups[:-1])
            self._walk(rows, affordable, expected[affordable[-1]], spare=math.ceil(apart))
        for group in groups:
            left = [i for i in group if "exact" not in rows[i]]
            if not self._interrupted and expected[group[-1]] <= self._most - self._ranks.spent:
                self._walk(rows, left, expected[group[-1]])
        if self._settings.estimate == "exact":
            rest = [i for i in order if not {"exact", "bounded"} & set(rows[i])]
            self._walk(rows, rest, most)

    def _walk(
        self, rows: list[Estimates], chosen: list[int], expected: float, spare: int = 0
    ) -> None:
        """Count in one walk, within the budget less what is to be spared; keep the best rows."""
        if not chosen:
            return
        before = self._ranks.spent
        # After Ctrl-C a single step still proves a bound for those that were not reached.
        left = 1 if self._interrupted else max(1, self._most - before - spare)
        total = max(1, int(min(expected, 1e18)))
        try:
            proven = self._ranks.ranks(
                [self._indices[i] for i in chosen],
                budget=replace(self._budget, steps=left),
                watch=lambda spent: self._progress("counting ranks", min(spent, total), total),
            )
        except MarginError as failure:
            if self._settings.estimate == "exact":
                raise
            self._missed |= dict.fromkeys(chosen, failure)
            return
        self._progress("counting ranks", total, total)
        if self._ranks.interrupted:
            self._stop("exact search", "ranks that were not counted are estimated")
        exposure = exact_exposure(
            [rank.low for rank in proven],
            [rank.high for rank in proven],
            space_size=self._space.size,
            place_low=[rank.place_low for rank in proven],
            place_high=[rank.place_high for rank in proven],
            empirical=[rank.margin.empirical for rank in proven],
            steps=self._ranks.spent - before,
        )
        ended = self._budget.seconds is not None and self._ranks.spent - before < left
        self._hurried |= ended and not self._interrupted and bool(exposure.capped.any())
        for place, i in enumerate(chosen):
            row = exposure.canary(place)
            if not row.capped:
                rows[i].pop("bounded", None)
                rows[i]["exact"] = row
            elif not {"exact", "bounded"} & set(rows[i]):
                rows[i]["bounded"] = row

    def _stop(self, what: str, coarser: str) -> None:
        self._interrupted = True
        warning = (
            f"Ctrl-C ended the {what}; what it had proven until then is kept, {coarser}, and the "
            "same command searches again"
        )
        if warning not in self._warnings:  # a walk of a single step ends like the one before
            self._warnings.append(warning)

    def _weigh(self, rows: list[Estimates], draws: Draws) -> None:
        """Ranks estimated from the draws and the references."""
        inserted = np.array([canary.role == "canary" for canary in self._scores.canaries])
        aside = [self._space.path(index) for index in self._aside]
        outside = walked_bits(self._space, self._steps, aside) if aside else np.empty(0)
        exposure = importance_exposure(
            self._walked,
            draws.weighted([*self._paths, *aside]),
            space_size=self._space.size,
            references=self._references(),
            inserted=inserted,
            excluded_bits=outside,
            level=self._settings.level,
        )
        for i, row in enumerate(rows):
            row["importance"] = replace(exposure.canary(i), steps=draws.steps)

    def _references(self) -> UniformDraws | None:
        """The references, where their costs are those of the draws up to what all fills share."""
        own, others = np.split(self._scores.secret_bits, [len(self._indices)])
        gaps = own - self._walked
        shared = float(np.median(gaps))
        if not others.size or np.abs(gaps - shared).max() > _ALIKE_BITS:
            return None
        return UniformDraws(
            bits=np.maximum(others - shared, 0.0),
            canary_bits=np.maximum(own - shared, 0.0),
            population=self._scores.population,
        )

    def _guess(self) -> tuple[Extraction, ...]:
        """What an attacker finds by trying the likeliest fills of all of R in order."""
        asked = min(self._settings.guesses, self._space.size)
        count = self._provable(asked)
        self._likeliest = found = self._search(count) if count else _NOTHING
        places = [found.place(index) for index in self._indices]
        return tuple(
            Extraction(
                method="best_first",
                revealed=0,
                width=asked,
                found=place is not None,
                place=place,
                steps=found.steps,
                proven=found.proven,
                fills_left=self._space.size,
                by_chance=found.proven / self._space.size,
            )
            for place in places
        )

    def _search(self, count: int) -> Likeliest:
        """The likeliest fills, as many as can be proven."""
        self._progress("best-first search", 0, self._most)
        found = likeliest_fills(
            self._space,
            self._steps,
            self._ranks.rescorer,
            guesses=count,
            margin=self._ranks.margin.bits,
            budget=self._budget,
            live_states=self._settings.live_states,
            wanted=self._indices,
            watch=lambda spent: self._progress("best-first search", spent, self._most),
        )
        self._progress("best-first search", self._most, self._most)
        if found.interrupted:
            self._stop("best-first search", "fewer of the likeliest secrets are known")
        return found

    def _provable(self, asked: int) -> int:
        """How many of the likeliest fills the budget can prove: all, fewer, or none."""
        steps = self._budget.steps
        if self._draws is None or steps is None:  # R is small, and was listed
            return asked
        margin = 4 * self._ranks.expected_margin
        if self._draws.likeliest_within(_LIKELY * steps, margin) >= asked:
            return asked
        return min(asked, self._draws.likeliest_within(_SPARE * steps, margin))


class _EndedError(Exception):
    """A person ended the search while fills were drawn; incomplete draws prove nothing."""


def _groups(order: list[int], expected: list[float]) -> list[list[int]]:
    """Canaries, cheapest first, in groups whose costs differ by no more than a factor."""
    groups: list[list[int]] = []
    for i in order:
        if groups and expected[i] <= _GROWTH * expected[groups[-1][0]]:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


# By canary id: greedy and beam, for each number of revealed characters.
Extractions = dict[str, list[Extraction]]


def extract_format(
    task: Task, extractor: Extractor, canaries: tuple[Canary, ...]
) -> tuple[Extractions, int]:
    """Search for every canary of a format with 0 to `revealed` characters given."""
    form, settings = extractor.format, task.settings
    width = settings.beam_width or beam_width(sum(canary.role == "canary" for canary in canaries))
    searches = []
    for canary in canaries:
        searches += [
            SecretSearch(index=canary.index, revealed=known, width=w)
            for known in given_characters(form, canary, settings)
            for w in (1, width)
        ]
    # Those that share a search adjoin.
    searches.sort(key=lambda search: (search.revealed, search.width))
    kept = task.kept(f"{form.name}.beams.json")
    before = read_part(kept, KeptSearches)
    rows = [] if before is None else list(before.done)

    def watch(done: int) -> None:
        task.progress(f"extracting {form.name}", done, len(searches))

    watch(len(rows))
    blind = sum(search.revealed == 0 for search in searches)
    for found in chain(
        extractor.find_all(searches[:blind], done=len(rows), watch=watch),
        extractor.find_all(
            searches[blind:], done=len(rows) - blind, watch=lambda done: watch(blind + done)
        ),
    ):
        rows += found
        keep_part(kept, KeptSearches(done=tuple(rows)))
        watch(len(rows))
        if len(rows) >= blind and end_asked(task.progress):
            break
    by_index: dict[int, list[Extraction]] = {}
    for search, done in zip(searches, rows, strict=False):  # without those that were left out
        by_index.setdefault(search.index, []).append(done)
    left_out = {search.index for search in searches[len(rows) :]}
    return {canary.id: by_index[canary.index] for canary in canaries}, len(left_out)
