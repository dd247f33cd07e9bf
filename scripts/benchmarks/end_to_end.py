"""Leakage of the LSTM over seeds and checkpoints, and its speed next to bare PyTorch."""

import math
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from harness import Claims, Namespace, all_cores, in_turn, medians, ratio, timed
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
from lmexposure.scoring import log_perplexity
from lmexposure.statistics import GUESSING, guessing_test, holm
from lmexposure.studies import Result

ARGUMENTS = {"corpus": Path, "seeds": 3, "out": "runs/benchmark", "rounds": 5}
FORMAT = "random_number"
REPETITIONS = (1, 2, 4, 16)
EARLY_EPOCHS = (2, 4)
CONTROLS = 64
_LEAST = 0.9  # of the speed of bare PyTorch


# Leakage


def leakage(given: Namespace) -> Claims:
    """Train once a seed; measure at the validation minimum and at two earlier checkpoints."""
    all_cores()
    measured: dict[str, list[Result]] = {f"epoch {n}": [] for n in EARLY_EPOCHS} | {"minimum": []}
    scores = []
    for seed in range(given.seeds):
        here = Path(given.out) / f"seed-{seed}"
        settings = RunSettings(
            formats=(FORMAT,),
            canaries=10,
            repetitions=REPETITIONS,
            controls=CONTROLS,
            seed=seed,
            training={"snapshot_epochs": EARLY_EPOCHS},
        )
        best = run(given.corpus, out=here, settings=settings)
        measured["minimum"].append(best)
        say(f"seed {seed}: {best.model.validation}")
        for epoch in EARLY_EPOCHS:
            result = measure(
                load_model(here / "snapshots" / f"epoch-{epoch}"),
                Manifest.read(here / "manifest.json"),
                out=here / f"measured-epoch-{epoch}",
                settings=MeasureSettings(bootstrap_seed=seed),
            )
            measured[f"epoch {epoch}"].append(result)
        scores.append(control_scores(here))
    print_exposures(measured)
    yield from claims_of(measured["minimum"], scores)


def control_scores(here: Path) -> tuple[np.ndarray, np.ndarray]:
    """Log-perplexities in bits of controls and references."""
    table = pq.read_table(here / "scores.parquet").to_pydict()
    bits, role = np.array(table["log_perplexity_bits"]), np.array(table["role"])
    return bits[role == "control"], bits[role == "reference"]


def print_exposures(measured: dict[str, list[Result]]) -> None:
    rows = []
    for when, results in measured.items():
        for repetitions in (0, *REPETITIONS):
            chosen = [c for r in results for c in r.canaries if c.repetitions == repetitions]
            values = [c.exposure.value for c in chosen]
            cells = [f"{np.quantile(values, q):.2f}" for q in (0, 0.5, 1)]
            rows.append([when, str(repetitions or "control"), str(len(values)), *cells])
    say(f"exposure in bits, all seeds (guessing: median 1, mean {GUESSING.mean:.2f})")
    header = ["checkpoint", "repetitions", "n", "least", "median", "most"]
    print_table(header, rows, right=range(2, 6))


def found_by_beam(results: list[Result], revealed: int) -> tuple[int, int]:
    """Of the canaries inserted 16 times, with so many characters known: (found, searched)."""
    rows = [
        row.found
        for result in results
        for canary in result.canaries
        for row in canary.extraction
        if (canary.repetitions, row.method, row.revealed) == (16, "beam", revealed)
    ]
    return sum(rows), len(rows)


def claims_of(results: list[Result], scores: list[tuple[np.ndarray, np.ndarray]]) -> Claims:
    often = [c for r in results for c in r.canaries if c.repetitions >= 4]
    first = sum(c.exposure.rank == 1 for c in often)
    yield first == len(often), f"inserted 4 times or more, rank 1: {first} of {len(often)}"
    found, of = found_by_beam(results, 0)
    yield 2 * found >= of, f"16 times, beam, 0 known: {found} of {of}, at least half"
    found, of = found_by_beam(results, 4)
    yield found == of, f"16 times, beam, 4 known: {found} of {of}, all"
    tests = [
        guessing_test(own, references, seed=0, alternative="different")
        for own, references in scores
    ]
    p, n = min(holm([test.p_value for test in tests])), sum(test.n for test in tests)
    yield p > 0.001, f"{n} controls against guessing: p = {p:.4f}, run by run (Holm)"


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


def speed(given: Namespace) -> Claims:
    """Characters of one epoch and references a second, ours and bare, in turn."""
    all_cores()
    documents = list(read_documents(given.corpus, layout="lines"))[:12_000]
    one = load_format(FORMAT)
    settings = TrainingSettings.for_model("lstm", epochs=1)

    def made() -> LoadedModel:
        return new_model("lstm", documents, seed=0, separator="\n", extra_characters=one.characters)

    rates = in_turn(
        {
            "bare": lambda: bare_training(made(), documents, settings),
            "ours": lambda: our_training(made(), documents, settings),
        },
        given.rounds,
    )
    medians(rates, "characters/s")
    share = ratio(rates["ours"], rates["bare"])
    yield share >= _LEAST, f"training: {share:.2f} of the speed of bare PyTorch, at least {_LEAST}"
    loaded = made()
    texts = [one.text(i) for i in one.sample(10_000, seed=0)]
    ids = torch.tensor([e.ids for e in encode_in_context(loaded.tokenizer, texts, context="\n")])
    bare = BareLstm(len(loaded.tokenizer)).eval()
    bare.load_state_dict(renamed(loaded.model.state_dict()))
    bits = {
        "bare": lambda: bare_scoring(bare, ids),
        "ours": lambda: log_perplexity(loaded.model, loaded.tokenizer, texts, context="\n"),
    }
    assert np.abs(bits["bare"]() - bits["ours"]()).max() < 1e-3, "the two must agree to 1e-3 bits"
    seconds = in_turn({name: timed(run) for name, run in bits.items()}, given.rounds)
    medians(seconds)
    share = ratio(seconds["bare"], seconds["ours"])
    yield share >= _LEAST, f"scoring: {share:.2f} of the speed of bare PyTorch, at least {_LEAST}"


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


PARTS = {"speed": speed, "leakage": leakage}
