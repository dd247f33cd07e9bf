"""Steps of the search on a transformer: whole caches forked, or each token's keys held once.

Processor time, one thread. The weights are random: speed does not depend on what they hold.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from harness import Claims, Namespace, in_turn, ratio
from tokenizers import ByteLevelBPETokenizer
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from lmexposure.canaries import load_format
from lmexposure.cli.console import print_table
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

ARGUMENTS = {"corpus": Path, "rounds": 5}
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


def steps(given: Namespace) -> Claims:
    """Both kinds in turn, for each model, format and search."""
    tokenizer = tokenizer_of(given.corpus)
    rows, small = [], []
    for shape in SHAPES:
        model = random_model(shape)
        for name in FORMATS:
            space = token_space(tokenizer, load_format(name), context=None)
            for search, seconds in searches(model, space, shape, given.rounds).items():
                gain = ratio(seconds["forked"], seconds["paths"])
                cells = [f"{1e6 * median(seconds[kind]):,.0f}" for kind in KINDS]
                rows.append([shape, name, search, *cells, f"{gain:.2f}"])
                small += [gain] if shape == "2.6 million" else []
    print_table(
        ["model", "format", "search", "forked, us", "paths, us", "gain"], rows, right=range(3, 6)
    )
    gain = median(small)
    yield (
        gain >= LEAST_GAIN,
        f"steps on paths: {gain:.2f} times as fast on a small model, at least {LEAST_GAIN}",
    )


def searches(
    model: Any, space: TokenSpace, shape: str, rounds: int
) -> dict[str, dict[str, list[float]]]:
    """Seconds a step of best-first search and of draws, by the kind of steps."""
    probe = [*space.beginning, *space.path(0)]
    assert type(next_token_steps(model, probe)) is PathSteps
    made = {kind: make(model, probe) for kind, make in KINDS.items()}
    rescorer, budget = Rescorer(model, space), Budget(steps=STEPS[shape])

    def best_first(on: Steps) -> None:
        likeliest_fills(space, on, rescorer, guesses=GUESSES, margin=1e-3, budget=budget)

    def draws(on: Steps) -> None:
        draw_fills(space, on, draws=DRAWS[shape], seed=0)

    return {
        name: in_turn({kind: partial(each, work, on) for kind, on in made.items()}, rounds)
        for name, work in {"best-first": best_first, "draws": draws}.items()
    }


def each(work: Callable[[Steps], None], on: Steps) -> float:
    """Seconds of processor time a step."""
    before, begun = on.evaluated, time.process_time()
    work(on)
    return (time.process_time() - begun) / (on.evaluated - before)


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


PARTS = {"steps": steps}
