"""The end-to-end benchmark: leakage of the LSTM over seeds and checkpoints, speed beside PyTorch.

Every claim stands as a line "reached" or "MISSED" at the end, and the exit code counts the missed.
"""

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from lmexposure.audit import MeasureSettings, RunSettings, measure, run
from lmexposure.canaries import Manifest, load_format, read_documents
from lmexposure.cli.console import print_table, say
from lmexposure.models import (
    LoadedModel,
    Progress,
    TrainingSettings,
    encode_in_context,
    load_model,
    new_model,
    pack,
    train,
)
from lmexposure.records import Result
from lmexposure.scoring import log_perplexity
from lmexposure.statistics import GUESSING, guessing_test

FORMAT = "random_number"
REPETITIONS = (1, 2, 4, 16)
EARLY_EPOCHS = (2, 4)
CONTROLS = 64
ROUNDS = 5


def main() -> int:
    arguments = parse()
    claims: list[tuple[str, bool]] = []
    say(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {os.cpu_count()} cores")
    if arguments.only != "leakage":
        claims += speed(arguments.corpus)
    if arguments.only != "speed":
        claims += leakage(arguments.corpus, arguments.out, range(arguments.seeds))
    for claim, holds in claims:
        say(f"{'reached' if holds else 'MISSED '}  {claim}")
    return sum(not holds for _, holds in claims)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path, help="a UTF-8 text file, a document a line")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark"))
    parser.add_argument("--only", choices=["speed", "leakage"])
    return parser.parse_args()


# Leakage


def leakage(corpus: Path, out: Path, seeds: Sequence[int]) -> list[tuple[str, bool]]:
    """Train once a seed; measure at the validation minimum and at two earlier checkpoints."""
    measured: dict[str, list[Result]] = {}
    scores: list[tuple[np.ndarray, np.ndarray]] = []
    for seed in seeds:
        say(f"seed {seed}")
        here = out / f"seed-{seed}"
        settings = RunSettings(
            formats=(FORMAT,),
            canaries=10,
            repetitions=REPETITIONS,
            controls=CONTROLS,
            seed=seed,
            training={"snapshot_epochs": EARLY_EPOCHS},
        )
        begun = time.perf_counter()
        best = run(corpus, out=here, settings=settings)
        measured.setdefault("minimum", []).append(best)
        say(f"  run: {time.perf_counter() - begun:.0f} s, {best.model.validation}")
        for epoch in EARLY_EPOCHS:
            result = measure(
                load_model(here / "snapshots" / f"epoch-{epoch}"),
                Manifest.read(here / "manifest.json"),
                out=here / f"measured-epoch-{epoch}",
                settings=MeasureSettings(bootstrap_seed=seed),
            )
            measured.setdefault(f"epoch {epoch}", []).append(result)
        scores.append(control_scores(here))
    print_exposures(measured)
    print_extraction(measured["minimum"])
    return claims_of(measured["minimum"], scores)


def control_scores(here: Path) -> tuple[np.ndarray, np.ndarray]:
    """Log-perplexities in bits of controls and references, from scores.parquet."""
    import pyarrow.parquet as pq

    table = pq.read_table(here / "scores.parquet").to_pydict()
    bits, role = np.array(table["log_perplexity_bits"]), np.array(table["role"])
    return bits[role == "control"], bits[role == "reference"]


def print_exposures(measured: dict[str, list[Result]]) -> None:
    rows = []
    for when in [f"epoch {epoch}" for epoch in EARLY_EPOCHS] + ["minimum"]:
        for repetitions in (0, *REPETITIONS):
            chosen = [c for r in measured[when] for c in r.canaries if c.repetitions == repetitions]
            values = [c.exposure.value for c in chosen]
            certified = [c.estimates["certificate"].value for c in chosen]
            skewed = [c.estimates["skew_normal"].value for c in chosen]
            rows.append(
                [
                    when,
                    str(repetitions or "control"),
                    str(len(values)),
                    *(f"{np.quantile(values, q):.2f}" for q in (0, 0.25, 0.5, 0.75, 1)),
                    f"{sum(c.exposure.capped for c in chosen)}",
                    f"{np.median(certified):.2f}",
                    f"{np.median([math.inf if s is None else s for s in skewed]):.2f}",
                ]
            )
    header = ["checkpoint", "repetitions", "n", "least", "25 %", "median", "75 %", "most"]
    say(f"\nexposure in bits, all seeds (guessing: median 1, mean {GUESSING.mean:.2f})")
    print_table([*header, "rank 1", "certified", "skew-normal"], rows, right=range(2, 11))


def print_extraction(results: list[Result]) -> None:
    rows = []
    for repetitions in REPETITIONS:
        for method in ("greedy", "beam"):
            found = found_by(results, repetitions, method)
            cells = [f"{hits}/{of}" for _, (hits, of) in sorted(found.items())]
            rows.append([str(repetitions), method, *cells])
    say("\nextracted at the minimum, all seeds, with so many characters known")
    print_table(["repetitions", "search", "0", "1", "2", "3", "4"], rows, right=range(2, 7))


def found_by(results: list[Result], repetitions: int, method: str) -> dict[int, tuple[int, int]]:
    """Revealed characters -> (found, searched for)."""
    counts: dict[int, tuple[int, int]] = {}
    for result in results:
        for canary in result.canaries:
            if canary.repetitions != repetitions:
                continue
            for row in canary.extraction:
                if row.method == method:
                    hits, of = counts.get(row.revealed, (0, 0))
                    counts[row.revealed] = (hits + row.found, of + 1)
    return counts


def claims_of(
    results: list[Result], scores: list[tuple[np.ndarray, np.ndarray]]
) -> list[tuple[str, bool]]:
    often = [c for r in results for c in r.canaries if c.repetitions >= 4]
    first = sum(c.exposure.rank == 1 for c in often)
    beam = found_by(results, 16, "beam")
    seeds = range(len(scores))
    test = guessing_test(
        np.concatenate([controls for controls, _ in scores]),
        np.concatenate([references for _, references in scores]),
        seed=0,
        alternative="different",
        canary_groups=np.repeat(seeds, [controls.size for controls, _ in scores]),
        reference_groups=np.repeat(seeds, [references.size for _, references in scores]),
    )
    return [
        (f"inserted 4 times or more, rank 1: {first} of {len(often)}", first == len(often)),
        (f"16 times, beam, 0 known: {beam[0]}, at least half", 2 * beam[0][0] >= beam[0][1]),
        (f"16 times, beam, 4 known: {beam[4]}, all", beam[4][0] == beam[4][1]),
        (
            f"{test.n} controls against guessing: p = {test.p_value:.4f}, mean exposure "
            f"{test.statistic:.3f}",
            test.p_value > 0.001,
        ),
    ]


# Speed


class BareLstm(nn.Module):
    """The same network in plain PyTorch, for comparison."""

    def __init__(self, vocabulary: int, units: int = 200, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, units)
        self.lstm = nn.LSTM(units, units, num_layers=layers, batch_first=True)
        self.head = nn.Linear(units, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.lstm(self.embed(ids))[0])
        return logits


def speed(corpus: Path) -> list[tuple[str, bool]]:
    documents = list(read_documents(corpus, layout="lines"))[:12_000]
    digits = load_format(FORMAT).characters
    made = lambda: new_model(  # noqa: E731
        "lstm", documents, seed=0, separator="\n", extra_characters=digits
    )
    return [training_claim(made, documents), scoring_claim(made())]


def training_claim(made: Callable[[], LoadedModel], documents: list[str]) -> tuple[str, bool]:
    """Characters a second of one epoch, ours and bare, in turns."""
    settings = TrainingSettings.for_model("lstm", epochs=1)
    ours, bare = [], []
    for turn in range(ROUNDS):
        bare.append(bare_training(made(), documents, settings))
        ours.append(our_training(made(), documents, settings))
        say(f"training, turn {turn + 1}: bare {bare[-1]:,.0f}, ours {ours[-1]:,.0f} characters/s")
    return verdict("training throughput", ours, bare)


def our_training(loaded: LoadedModel, documents: list[str], settings: TrainingSettings) -> float:
    """From the first step to the last, evaluations not counted."""
    marks: list[tuple[float, int]] = []

    def mark(state: Progress) -> None:
        marks.append((time.perf_counter(), state.tokens))

    with TemporaryDirectory() as out:
        train(
            loaded,
            documents,
            settings=settings,
            separator="\n",
            canaries={},
            out=Path(out),
            progress=mark,
        )
    return (marks[-1][1] - marks[0][1]) / (marks[-1][0] - marks[0][0])


def bare_training(loaded: LoadedModel, documents: list[str], settings: TrainingSettings) -> float:
    """What one would write by hand: shuffled blocks, AdamW, clipping."""
    packed = pack(loaded.tokenizer, documents, separator="\n", block_size=settings.block_size)
    blocks = torch.from_numpy(packed.ids).long()
    blocks = blocks[: len(blocks) * 95 // 100]  # ours holds out 5 %
    model = BareLstm(len(loaded.tokenizer))
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate)
    begun, tokens = 0.0, 0
    for step, rows in enumerate(torch.randperm(len(blocks)).split(settings.batch_size)):
        batch = blocks[rows]
        logits = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings.gradient_clip)
        optimizer.step()
        optimizer.zero_grad()
        if step == 0:
            begun = time.perf_counter()
        else:
            tokens += batch[:, 1:].numel()
    return tokens / (time.perf_counter() - begun)


def scoring_claim(loaded: LoadedModel) -> tuple[str, bool]:
    """References a second, ours from text to bits, bare from tokens to bits, in turns."""
    one = load_format(FORMAT)
    texts = [one.text(i) for i in one.sample(10_000, seed=0)]
    ids = torch.tensor([e.ids for e in encode_in_context(loaded.tokenizer, texts, context="\n")])
    bare_model = BareLstm(len(loaded.tokenizer)).eval()
    bare_model.load_state_dict(renamed(loaded.model.state_dict()))
    ours, bare = [], []
    for turn in range(ROUNDS):
        begun = time.perf_counter()
        expected = bare_scoring(bare_model, ids)
        bare.append(len(texts) / (time.perf_counter() - begun))
        begun = time.perf_counter()
        found = log_perplexity(loaded.model, loaded.tokenizer, texts, context="\n")
        ours.append(len(texts) / (time.perf_counter() - begun))
        say(f"scoring, turn {turn + 1}: bare {bare[-1]:,.0f}, ours {ours[-1]:,.0f} references/s")
        assert np.abs(found - expected).max() < 1e-3, "the two must agree to 1e-3 bits"
    return verdict("scoring rate", ours, bare)


@torch.inference_mode()
def bare_scoring(model: nn.Module, ids: torch.Tensor) -> np.ndarray:
    """One pass over ready-made tokens in batches of 512."""
    totals = []
    for batch in ids.split(512):
        log_p = torch.log_softmax(model(batch[:, :-1]), dim=-1)
        chosen = log_p.gather(-1, batch[:, 1:, None]).squeeze(-1)
        totals.append(-chosen.double().sum(1) / math.log(2))
    found: np.ndarray = torch.cat(totals).numpy()
    return found


def renamed(weights: dict[str, Any]) -> dict[str, Any]:
    names = {"embed_tokens": "embed", "lm_head": "head"}
    return {
        ".".join([names.get(k.split(".")[0], k.split(".")[0]), *k.split(".")[1:]]): v
        for k, v in weights.items()
    }


def verdict(what: str, ours: list[float], bare: list[float]) -> tuple[str, bool]:
    """The median of the ratios within turns: the machine may drift between them."""
    ratio = statistics.median(a / b for a, b in zip(ours, bare, strict=True))
    return f"{what}: {ratio:.2f} of bare PyTorch, at least 0.9", ratio >= 0.9


if __name__ == "__main__":
    sys.exit(main())
