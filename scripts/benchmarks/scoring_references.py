"""References a second: through their tree, one by one, in batches, and by lm-evaluation-harness.

All sides take turns in one process, so that what else the machine does hits them alike. The share
of the peak is 2 x parameters x nodes fed / time / the best float32 product of the same rounds.
Beside it stands the share of what such products keep up for a second: a machine's best moment is no
measure of its seconds. With --processor-time and one thread (OMP_NUM_THREADS=1) the seconds are the
processor's, so that other programs beside it take nothing from them.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import log
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from scoring_texts import CONTEXT, FORMAT, TOKENIZERS, encoded_references, gpt2_small, tokenizer_of

from lmexposure.cli.console import print_table, say
from lmexposure.models import Encoded
from lmexposure.scoring import score_encoded
from lmexposure.scoring.prefix_tree import SortedTexts

__all__ = ["add_arguments", "main"]

Claims = list[tuple[str, bool]]
PRODUCTS = ((2048, 768, 3072), (4096, 768, 3072), (4096, 3072, 768), (2048, 768, 4096))
FEWEST = 4  # products of each shape
CLOCK = SimpleNamespace(seconds=time.perf_counter)
ALONE, BATCHED = 32, 128  # references a round for the slow sides
FLOAT = "tree, float32"
ONE, SIXTY_FOUR, HARNESS = "(a) one by one", "(b) batches of 64, all logits", "(c) lm-eval 0.4.13"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that this part of the benchmark reads."""
    parser.add_argument("--references", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokenizers", nargs="*", choices=list(TOKENIZERS), default=[*TOKENIZERS])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--processor-time", action="store_true", help="for a busy machine")


def main(arguments: argparse.Namespace) -> Claims:
    """Print the tables; say what was reached."""
    if arguments.device == "cuda" and not torch.cuda.is_available():
        say("no GPU here: the CUDA table is skipped")
        return []
    if arguments.processor_time:
        CLOCK.seconds = time.process_time
    model = gpt2_small().to(arguments.device)
    claims: Claims = []
    for kind in arguments.tokenizers:
        measured = compare(model, kind, arguments)
        print_measured(measured, kind)
        if kind == "uneven":
            claims += claims_of(measured, arguments.device)
    if arguments.device == "cpu":
        claims.append(processes_claim(arguments.rounds))
    return claims


# One tokenizer, all sides


@dataclass
class Measured:
    """Of one tokenizer: per side texts a second in each round; peaks in flop a second."""

    parameters: int
    nodes: int
    references: int
    rates: dict[str, list[float]] = field(default_factory=dict)
    peaks: list["Products"] = field(default_factory=list)

    def rate(self, side: str) -> float:
        return statistics.median(self.rates[side])

    def ratio(self, side: str, other: str) -> float:
        """Round by round, since both sides of a round met the same machine."""
        if other not in self.rates:
            return float("nan")
        pairs = zip(self.rates[side], self.rates[other], strict=True)
        return statistics.median(a / b for a, b in pairs)

    def nodes_a_second(self, side: str) -> float:
        return self.rate(side) * self.nodes / self.references

    def share(self, side: str, of: str = "best") -> float:
        """Of the peak."""
        work = 2 * self.parameters * self.nodes / self.references
        pairs = zip(self.rates[side], self.peaks, strict=True)
        return statistics.median(work * rate / getattr(peak, of) for rate, peak in pairs)


def compare(model: Any, kind: str, arguments: argparse.Namespace) -> Measured:
    """Let all sides take turns."""
    tokenizer = tokenizer_of(kind)
    encoded = encoded_references(tokenizer, arguments.references)
    measured = Measured(
        parameters=sum(p.numel() for p in model.parameters()),
        nodes=int(SortedTexts(encoded).fed.sum()),
        references=len(encoded),
    )
    sides = sides_of(model, tokenizer, encoded)
    check(model, encoded, sides)
    for turn in range(arguments.rounds):
        peak = product_rates(model.device)
        for side, (texts, run) in sides.items():
            seconds = timed(run, model.device)
            measured.rates.setdefault(side, []).append(texts / seconds)
        # The better of before and after: a busy machine must not make the peak small.
        measured.peaks.append(peak.better(product_rates(model.device)))
        last = ", ".join(f"{name} {rates[-1]:.1f}" for name, rates in measured.rates.items())
        say(f"{kind}, round {turn + 1}, references a second: {last}")
    return measured


def sides_of(
    model: Any, tokenizer: Any, encoded: Sequence[Encoded]
) -> dict[str, tuple[int, Callable[[], Any]]]:
    """Per side how many references it scores a round, and the call that does so."""
    some, more = encoded[:ALONE], encoded[:BATCHED]
    sides: dict[str, tuple[int, Callable[[], Any]]] = {
        ONE: (len(some), lambda: [one_by_one(model, e) for e in some]),
        SIXTY_FOUR: (len(more), lambda: batched(model, more)),
    }
    harness = harness_of(model, tokenizer)
    if harness is not None:
        sides[HARNESS] = (len(more), lambda: harness(len(more)))
    sides[FLOAT] = (len(encoded), lambda: score_encoded(model, encoded))
    return sides


def check(
    model: Any, encoded: Sequence[Encoded], sides: dict[str, tuple[int, Callable[[], Any]]]
) -> None:
    """All sides mean the same number."""
    ours = score_encoded(model, encoded[:BATCHED])
    expected = ours.totals
    np.testing.assert_allclose(sides[ONE][1](), expected[:ALONE], atol=1e-3)
    np.testing.assert_allclose(sides[SIXTY_FOUR][1](), expected, atol=1e-3)
    if HARNESS in sides:
        known = encoded[0].scored_from + len(shared_words(encoded))
        np.testing.assert_allclose(sides[HARNESS][1](), ours.bits_from(known), atol=1e-2)


def shared_words(encoded: Sequence[Encoded]) -> list[int]:
    """The tokens of "The random number is" alone."""
    return SortedTexts(encoded).prefix[encoded[0].scored_from :][:4]


@torch.inference_mode()
def one_by_one(model: Any, one: Encoded) -> float:
    ids = torch.tensor([one.ids], device=model.device)
    logp = torch.log_softmax(model(ids).logits[0, :-1].float(), dim=-1)
    picked = logp.gather(-1, ids[0, 1:, None])[one.scored_from - 1 :]
    return -float(picked.double().sum()) / log(2)


@torch.inference_mode()
def batched(model: Any, encoded: Sequence[Encoded]) -> list[float]:
    found = []
    for first in range(0, len(encoded), 64):
        rows = [one.ids for one in encoded[first : first + 64]]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows], device=model.device)
        logp = torch.log_softmax(model(ids).logits[:, :-1].float(), dim=-1)
        picked = logp.gather(-1, ids[:, 1:, None]).squeeze(-1).double().cpu().numpy()
        for row, one in zip(picked, encoded[first : first + 64], strict=True):
            found.append(-row[one.scored_from - 1 : len(one.ids) - 1].sum() / log(2))
    return found


def harness_of(model: Any, tokenizer: Any) -> Callable[[int], list[float]] | None:
    """lm-evaluation-harness on the same model; None where it is not installed."""
    try:
        from lm_eval.api.instance import Instance
        from lm_eval.models.huggingface import HFLM
    except ImportError:
        say("lm-eval is not here: pip install -r scripts/benchmarks/requirements-scoring.txt")
        return None
    judge = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=64)
    before = CONTEXT + FORMAT.prefix.rstrip()

    def run(references: int) -> list[float]:
        texts = [FORMAT.text(index) for index in FORMAT.sample(references, seed=0)]
        asked = [
            Instance("loglikelihood", {}, (before, (CONTEXT + text)[len(before) :]), i)
            for i, text in enumerate(texts)
        ]
        return [-nats / log(2) for nats, _ in judge.loglikelihood(asked, disable_tqdm=True)]

    return run


@dataclass(frozen=True)
class Products:
    """Matrix products, flop a second: the best single one, and what is kept up for a second."""

    best: float
    sustained: float

    def better(self, other: "Products") -> "Products":
        return Products(max(self.best, other.best), max(self.sustained, other.sustained))


def product_rates(device: torch.device, seconds: float = 1.0) -> Products:
    """Several shapes of matrix products in turn."""
    pairs = [
        (2 * M * K * N, torch.randn(M, K, device=device), torch.randn(N, K, device=device))
        for M, K, N in PRODUCTS
    ]
    took: list[list[float]] = [[] for _ in pairs]
    # A few of each, whatever one takes: the first is not counted.
    while sum(map(sum, took)) < seconds or len(took[0]) < FEWEST:
        for (_, a, b), own in zip(pairs, took, strict=True):
            own.append(timed(lambda a=a, b=b: torch.nn.functional.linear(a, b), device))
    rates = [
        (f / min(own[1:]), f * len(own[1:]) / sum(own[1:]))
        for (f, *_), own in zip(pairs, took, strict=True)
    ]
    return Products(*(max(column) for column in zip(*rates, strict=True)))


def timed(run: Callable[[], Any], device: torch.device) -> float:
    begun = CLOCK.seconds()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    seconds: float = CLOCK.seconds() - begun
    return seconds


# What is said of it


def print_measured(measured: Measured, kind: str) -> None:
    say(
        f"\n{kind}: {measured.references:,} references, {measured.nodes:,} nodes; peak "
        f"{median_of(measured.peaks, 'best'):,.0f} Gflop/s, "
        f"{median_of(measured.peaks, 'sustained'):,.0f} over a second"
    )
    rows = []
    for side in measured.rates:
        ours = side == FLOAT
        rows.append(
            [
                side,
                f"{measured.rate(side):.1f}",
                f"{measured.ratio(side, ONE):.2f}",
                f"{measured.ratio(side, HARNESS):.2f}",
                f"{measured.nodes_a_second(side):.0f}" if ours else "",
                f"{measured.share(side):.2f}" if ours else "",
                f"{measured.share(side, 'sustained'):.2f}" if ours else "",
            ]
        )
    header = ["side", "references/s", "x (a)", "x (c)", "nodes/s", "of the peak", "sustained"]
    print_table(header, rows, right=range(1, 7))


def median_of(peaks: list[Products], name: str) -> float:
    """In Gflop a second."""
    return statistics.median(getattr(peak, name) for peak in peaks) / 1e9


def claims_of(measured: Measured, device: str) -> Claims:
    found = measured.share(FLOAT, "sustained")
    claims: Claims = [(f"{FLOAT}: {found:.2f} of the sustained peak, at least 0.75", found >= 0.75)]
    if device == "cpu":
        for other, least in ((ONE, 11.0), (HARNESS, 2.8)):
            ratio = measured.ratio(FLOAT, other)
            claims.append((f"{FLOAT}: {ratio:.1f} x {other}, at least {least}", ratio >= least))
    return claims


# Two processes


def processes_claim(rounds: int) -> tuple[str, bool]:
    """What a second process gains, beside what it gains a bare matrix product."""
    gains, bare = [], []
    for turn in range(rounds):
        one, two = run_processes(1), run_processes(2)
        gains.append(two["references"] / one["references"])
        bare.append(two["product"] / one["product"])
        say(f"processes, round {turn + 1}: gain {gains[-1]:.2f}, bare {bare[-1]:.2f}")
    ratio = statistics.median(gains) / statistics.median(bare)
    return f"two processes gain {ratio:.2f} of what they gain a bare product, at least 0.9", (
        ratio >= 0.9
    )


def run_processes(number: int) -> dict[str, float]:
    """Rates of so many processes together, one thread each."""
    program = Path(__file__).with_name("scoring_processes.py")
    options = ["--standalone", f"--nproc_per_node={number}"]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *options, str(program)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    said: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    assert said["processes"] == number
    return said


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    for claim, holds in main(parser.parse_args()):
        say(f"{'reached' if holds else 'MISSED '}  {claim}")
