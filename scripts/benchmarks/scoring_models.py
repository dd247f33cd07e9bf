"""What the ranks are counted on: an LSTM trained once, its canaries, and several checkpoints."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lmexposure._files import sha256_file
from lmexposure.audit import MeasureSettings, RunSettings, run
from lmexposure.canaries import Canary, Manifest
from lmexposure.models import LoadedModel, load_model
from lmexposure.scoring import (
    Draws,
    RankSearch,
    Steps,
    TokenSpace,
    draw_fills,
    next_token_steps,
    token_space,
    walked_bits,
)
from lmexposure.statistics import ImportanceExposure, importance_exposure

__all__ = ["ALNUM", "BILLION", "CARD", "DRAWS", "LIVE_STATES", "Bench", "benches", "trained"]

BILLION, CARD, ALNUM = "random_number", "card_number", "alnum20"
SNAPSHOTS = (1, 2, 3, 4, 6)
FINAL = "final"
DRAWS = 20_000
LIVE_STATES = 1 << 15


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
        measure=MeasureSettings(references=100, method="sampled", extraction=False, bootstraps=39),
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
    chosen = {**(places if early else {}), FINAL: run_directory / "model"}
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
        drawn = [draws.of(self.space.path(one.index)) for one in self.canaries]
        planted = [which for which, mine in zip(drawn, self.inserted, strict=True) if mine]
        return importance_exposure(
            self.walked,
            draws.weighted(np.any(planted, axis=0)),
            space_size=self.space.size,
            inserted=self.inserted,
            own=[int(draws.fills[which.argmax()]) if which.any() else -1 for which in drawn],
        )
