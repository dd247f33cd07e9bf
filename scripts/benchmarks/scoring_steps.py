"""Steps of the search on a transformer: whole caches forked, or each token's keys held once.

Processor time, one thread. Both kinds take turns in one process, so that what else the machine
does hits them alike. The weights are random: speed does not depend on what they hold.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from lmexposure.canaries import load_format
from lmexposure.cli.console import print_table, say
from lmexposure.scoring import (
    Budget,
    CachedSteps,
    PathSteps,
    Rescorer,
    Steps,
    TokenSpace,
    draw_fills,
    likeliest_fills,
    next_token_steps,
    token_space,
)

__all__ = ["main"]

Claims = list[tuple[str, bool]]
VOCABULARY = 4_000
SHAPES: dict[str, dict[str, int]] = {
    "2.6 million": {"n_embd": 192, "n_layer": 4, "n_head": 4},
    "124 million": {"vocab_size": 50_257},
}
FORMATS = ("ssn", "api_key")
GUESSES = 1_000
STEPS = {"2.6 million": 30_000, "124 million": 1_000}
DRAWS = {"2.6 million": 2_000, "124 million": 60}
KINDS = {"forked": CachedSteps, "paths": PathSteps}
LEAST_GAIN = 1.2  # median of the small model; a large one's time is in its products


@dataclass
class Timed:
    """Seconds of processor time a step, by round."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def turn(self, kind: str, steps: Steps, work: Callable[[Steps], Any]) -> None:
        before, begun = steps.evaluated, time.process_time()
        work(steps)
        each = (time.process_time() - begun) / (steps.evaluated - before)
        self.seconds.setdefault(kind, []).append(each)

    def median(self, kind: str) -> float:
        return statistics.median(self.seconds[kind])

    @property
    def gain(self) -> float:
        forked, paths = (self.seconds[kind] for kind in KINDS)
        return statistics.median(f / p for f, p in zip(forked, paths, strict=True))


def main(arguments: argparse.Namespace) -> Claims:
    """Print the table; say what was reached."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rows, gains = measured(tokenizer_of(arguments.corpus), arguments.rounds)
    finally:
        torch.set_num_threads(threads)
    say("\nprocessor time a step of the search, one thread, medians")
    header = ["model", "format", "search", "forked, us", "paths, us", "paths, steps/s", "gain"]
    print_table(header, rows, right=range(3, 7))
    small = statistics.median(gain for shape, gain in gains if shape == "2.6 million")
    claim = f"steps on paths: {small:.2f} times as fast on a small model, at least {LEAST_GAIN}"
    return [(claim, small >= LEAST_GAIN)]


def measured(tokenizer: Any, rounds: int) -> tuple[list[list[str]], list[tuple[str, float]]]:
    """Rows of the table; the gain in each, by shape."""
    rows, gains = [], []
    for shape in SHAPES:
        model = random_model(shape)
        for name in FORMATS:
            space = token_space(tokenizer, load_format(name), context=None)
            for search, timed in searches(model, space, shape, rounds).items():
                both = [timed.median(kind) for kind in KINDS]
                cells = [f"{1e6 * each:,.0f}" for each in both]
                speed = f"{1 / both[-1]:,.0f}"
                rows.append([shape, name, search, *cells, speed, f"{timed.gain:.2f}"])
                gains.append((shape, timed.gain))
    return rows, gains


def searches(model: Any, space: TokenSpace, shape: str, rounds: int) -> dict[str, Timed]:
    """Best-first search and draws on both kinds of steps in turn."""
    probe = [*space.beginning, *space.path(0)]
    assert type(next_token_steps(model, probe)) is PathSteps
    steps = {kind: make(model, probe) for kind, make in KINDS.items()}
    rescorer = Rescorer(model, space)

    def best_first(each: Steps) -> None:
        budget = Budget(steps=STEPS[shape])
        likeliest_fills(space, each, rescorer, guesses=GUESSES, margin=1e-3, budget=budget)

    def draws(each: Steps) -> None:
        draw_fills(space, each, draws=DRAWS[shape], seed=0)

    found: dict[str, Timed] = {}
    for name, work in {"best-first": best_first, "draws": draws}.items():
        found[name] = Timed()
        for _ in range(rounds):
            for kind in KINDS:
                found[name].turn(kind, steps[kind], work)
    return found


def random_model(shape: str) -> Any:
    torch.manual_seed(0)
    ends = {"bos_token_id": 0, "eos_token_id": 0, "initializer_range": 0.1}
    config = GPT2Config(**{"vocab_size": VOCABULARY, **SHAPES[shape], **ends})
    return GPT2LMHeadModel(config).eval()


def tokenizer_of(corpus: Path) -> Any:
    """A byte-level BPE tokenizer of the corpus."""
    trained = ByteLevelBPETokenizer()
    trained.train([str(corpus)], vocab_size=VOCABULARY, special_tokens=["<end>"])
    with tempfile.TemporaryDirectory() as directory:
        file = f"{directory}/tokenizer.json"
        trained.save(file)
        return PreTrainedTokenizerFast(tokenizer_file=file, bos_token="<end>", eos_token="<end>")
