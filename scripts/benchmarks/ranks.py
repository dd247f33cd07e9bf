"""Exact ranks of an LSTM's canaries, and ranks from draws: how long they take, how narrow they are.

The share of the peak is 2 x parameters x steps / time / the best float32 products of the same
rounds; parameters are those that multiply: the LSTM's and the output layer's weights.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
from harness import Claims, Namespace, all_cores, ratio
from numpy.typing import NDArray
from references import product_rate

from lmexposure._files import sha256_file
from lmexposure.audit import MeasureSettings, RunSettings, run
from lmexposure.canaries import Canary, Manifest
from lmexposure.models import LoadedModel, load_model
from lmexposure.scoring import (
    Budget,
    Draws,
    ProvenRank,
    RankSearch,
    Steps,
    TokenSpace,
    draw_fills,
    likeliest_fills,
    next_token_steps,
    token_space,
    walked_bits,
)
from lmexposure.statistics import ImportanceExposure, importance_exposure

ARGUMENTS = {"corpus": Path, "rounds": 5, "device": "cpu", "out": "runs/benchmark_scoring"}
BILLION, CARD, ALNUM = "random_number", "card_number", "alnum20"
SNAPSHOTS = (1, 2, 3, 4, 6)
DRAWS = 12_000
LIVE_STATES = 1 << 15
LEAST_EXPOSURE = 13.0  # bits from which on a rank is to be counted
LONG_WALK = 50_000  # steps; shorter walks are no measure of speed
GUESSES = 100  # a canary among so many likeliest fills is extracted
GIVE_UP = Budget(seconds=120)
ASKED, MOST_HALF_WIDTH = (5, 29), 0.3  # bits: exposures of drawn ranks, and their intervals


# The model


def trained(corpus: Path, out: Path) -> Path:
    """The run directory of the LSTM (2 x 200 units); one that is finished is used again."""
    place = out / "run"
    if _finished(corpus, place):
        return place
    out.mkdir(parents=True, exist_ok=True)
    own = out / f"{ALNUM}.toml"
    own.write_text(f'name = "{ALNUM}"\ntemplate = "The access code is {{alnum:20}}"\n')
    settings = RunSettings(
        formats=(BILLION, CARD, str(own)),
        canaries=6,
        repetitions=(1, 2, 4, 16, 64),
        controls=16,
        seed=0,
        training={"snapshot_epochs": SNAPSHOTS},
        # What the run measures by itself is not looked at here.
        measure=MeasureSettings(
            references=100, estimate="sampled", extraction=False, bootstraps=39
        ),
    )
    run(corpus, out=place, settings=settings)
    return place


def _finished(corpus: Path, place: Path) -> bool:
    """Whether a run on this very corpus stands there; its settings of measuring do not matter."""
    if not (place / "result.json").exists():
        return False
    return Manifest.read(place / "manifest.json").corpus.sha256 == sha256_file(corpus)


def benches(run_directory: Path, name: str, device: str, *, early: bool = False) -> list["Bench"]:
    """One format on the final model, and on the earlier ones where they are asked for."""
    manifest = Manifest.read(run_directory / "manifest.json")
    places = {f"epoch {n}": run_directory / "snapshots" / f"epoch-{n}" for n in SNAPSHOTS}
    chosen = {**(places if early else {}), "final": run_directory / "model"}
    return [
        Bench.of(checkpoint, load_model(place, device=device), manifest, name)
        for checkpoint, place in chosen.items()
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class Bench:
    """One format under one checkpoint: its space, its canaries and controls, and the search.

    `bits` and `walked`, shape (n,): cost of each secret behind the shared tokens, in float64 and
    as a walk adds it up; lower = more memorised.
    """

    checkpoint: str
    loaded: LoadedModel
    separator: str | None
    space: TokenSpace
    steps: Steps
    search: RankSearch
    canaries: tuple[Canary, ...]
    bits: NDArray[np.float64]
    walked: NDArray[np.float64]

    @classmethod
    def of(cls, checkpoint: str, loaded: LoadedModel, manifest: Manifest, name: str) -> "Bench":
        space = token_space(loaded.tokenizer, manifest.formats[name], context=manifest.separator)
        canaries = tuple(one for one in manifest.entries if one.format == name)
        paths = [space.path(one.index) for one in canaries]
        steps = next_token_steps(loaded.model, [*space.beginning, *paths[0]])
        aside = manifest.set_aside.get(name, ())
        assert not aside, f"the corpus holds {len(aside)} fills of {name}; take another corpus"
        search = RankSearch(
            space,
            steps,
            loaded.model,
            excluded=[one.index for one in canaries if one.role == "canary"],
            live_states=LIVE_STATES,
        )
        return cls(
            checkpoint=checkpoint,
            loaded=loaded,
            separator=manifest.separator,
            space=space,
            steps=steps,
            search=search,
            canaries=canaries,
            bits=search.bits([one.index for one in canaries]),
            walked=walked_bits(space, steps, paths),
        )

    @property
    def inserted(self) -> NDArray[np.bool_]:
        """Which of them stood in the corpus, shape (n,)."""
        return np.array([one.role == "canary" for one in self.canaries])

    def draws(self, seed: int) -> Draws:
        """Fills drawn under this model."""
        return draw_fills(self.space, self.steps, draws=DRAWS, seed=seed)

    def importance(self, draws: Draws) -> ImportanceExposure:
        """The exposure of each of them, estimated from draws."""
        return importance_exposure(
            self.walked,
            draws.weighted([self.space.path(one.index) for one in self.canaries]),
            space_size=self.space.size,
            inserted=self.inserted,
        )


# Drawn ranks


def half_widths(bench: Bench, rounds: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of each secret, the median exposure and half-width over the draws of some seeds."""
    found = [bench.importance(bench.draws(seed)) for seed in range(rounds)]
    value, low, high = (
        np.array([getattr(each, name) for each in found]) for name in ("value", "low", "high")
    )
    return np.median(value, axis=0), np.median((high - low) / 2, axis=0)


def draws(given: Namespace) -> Claims:
    """Intervals of importance sampling."""
    stages = benches(trained(given.corpus, Path(given.out)), BILLION, given.device, early=True)
    exposures, widths = np.concatenate(
        [half_widths(bench, given.rounds) for bench in stages], axis=1
    )
    asked = (exposures >= ASKED[0]) & (exposures <= ASKED[1])
    worst = widths[asked].max()
    yield (
        worst <= MOST_HALF_WIDTH,
        f"{DRAWS:,} draws, {asked.sum()} secrets: half-width at most {worst:.2f} bits, "
        f"asked {MOST_HALF_WIDTH}",
    )


# Exact ranks


@dataclass
class Counted:
    """A canary under a checkpoint: its rank, and seconds and steps of the walks to it."""

    rank: ProvenRank
    place: int | None  # by best-first search; None: not among the guesses
    steps: int
    seconds: list[float] = field(default_factory=list)


def exact(given: Namespace) -> Claims:
    """Ranks in 10^9 of every canary that may have the least exposure, in rounds."""
    all_cores()
    stages = benches(trained(given.corpus, Path(given.out)), BILLION, given.device, early=True)
    wanted = [
        (bench, canary.index, place)
        for bench in stages
        for canary, place, inserted, high in zip(
            bench.canaries,
            best_first(bench),
            bench.inserted,
            bench.importance(bench.draws(0)).high,
            strict=True,
        )
        if inserted and high >= LEAST_EXPOSURE
    ]
    counted: dict[int, Counted] = {}
    peaks, speeds = [], []
    for _ in range(given.rounds):
        peaks.append(product_rate(stages[0].loaded.model.device))
        for number, (bench, index, place) in enumerate(wanted):
            rank, steps, seconds = walk(bench, index)
            counted.setdefault(number, Counted(rank, place, steps)).seconds.append(seconds)
        long = [each for each in counted.values() if each.steps >= LONG_WALK]
        seconds = sum(each.seconds[-1] for each in long)
        speeds.append(sum(each.steps for each in long) / seconds if long else math.nan)
    size = stages[0].space.size
    far = [c for c in counted.values() if math.log2(size / c.rank.high) >= LEAST_EXPOSURE]
    yield from claims_of(far)
    flop = flop_a_step(stages[0])
    share = ratio([flop * speed for speed in speeds], peaks)
    yield (
        share >= 0.5,
        f"walks: {share:.2f} of the float32 peak at {flop / 1e6:.2f} Mflop a step, at least 0.5",
    )


def claims_of(counted: Sequence[Counted]) -> Claims:
    n, proven = len(counted), sum(each.rank.exact for each in counted)
    yield proven == n, f"{proven} of {n} ranks counted exactly, all"
    longest = max((median(each.seconds) for each in counted), default=math.inf)
    yield longest <= 12, f"exact ranks: {longest:.2f} s each, at most 12"
    extracted = [each for each in counted if each.place is not None]
    longest = max((median(each.seconds) for each in extracted), default=0.0)
    yield longest <= 1, f"of {len(extracted)} extracted: {longest:.3f} s, at most 1"
    agree = sum(each.place == each.rank.place_high for each in extracted)
    yield agree == len(extracted), f"{agree} places as best-first search found them, all"


def walk(bench: Bench, index: int) -> tuple[ProvenRank, int, float]:
    """One canary's rank by a walk of its own, its steps and seconds."""
    before, begun = bench.search.spent, time.perf_counter()
    (rank,) = bench.search.ranks([index], budget=GIVE_UP)
    return rank, bench.search.spent - before, time.perf_counter() - begun


def flop_a_step(bench: Bench) -> float:
    """2 x the weights that multiply."""
    model = bench.loaded.model
    weights = [*model.lstm.parameters(), *model.lm_head.parameters()]
    return float(2 * sum(w.numel() for w in weights if w.ndim == 2))


def best_first(bench: Bench) -> list[int | None]:
    """Each canary's proven place among the likeliest fills of all of R."""
    found = likeliest_fills(
        bench.space,
        bench.steps,
        bench.search.rescorer,
        guesses=GUESSES,
        margin=bench.search.margin.bits,
        budget=GIVE_UP,
        live_states=LIVE_STATES,
    )
    return [found.place(canary.index) for canary in bench.canaries]


def huge(given: Namespace) -> Claims:
    """Exact ranks of the canaries inserted most often, in spaces too large to enumerate."""
    all_cores()
    place = trained(given.corpus, Path(given.out))
    for name in (CARD, ALNUM):
        (bench,) = benches(place, name, given.device)
        often = max(canary.repetitions for canary in bench.canaries)
        walks = [
            [walk(bench, canary.index) for _ in range(given.rounds)]
            for canary in bench.canaries
            if canary.repetitions == often
        ]
        slowest = max(median(seconds for *_, seconds in rounds) for rounds in walks)
        live, size = bench.search.most_live, math.log2(bench.space.size)
        yield (
            all(rank.exact for (rank, *_), *_ in walks) and slowest < 10 and live <= LIVE_STATES,
            f"{name}, {size:.1f} bits: exact, {slowest:.2f} s each, below 10; {live:,} live "
            f"states, at most {LIVE_STATES:,}",
        )


PARTS = {"exact": exact, "draws": draws, "huge": huge}
