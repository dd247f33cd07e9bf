"""The callback benchmark: seconds of a Trainer run of a small GPT-2, with exposure and without.

Three processes train the same, step by step in turn: one with the callback, two without, and they
change roles from round to round. The two tell what a difference of nothing looks like. What the
scorings take is said, and that little else is added is a claim: a line "reached" or "MISSED" at the
end, and the exit code counts the missed.
"""

import argparse
import json
import logging
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from corpora import sentences
from numpy.typing import NDArray
from scipy.stats import t as student
from transformers import GPT2LMHeadModel, PrinterCallback, Trainer, TrainerCallback
from transformers import TrainingArguments as Arguments
from turns import Turns, alternate, workers

from lmexposure.canaries import Plan, load_format
from lmexposure.cli.console import say
from lmexposure.integrations import ExposureCallback, insert
from lmexposure.models import byte_level_tokenizer, pack, tiny_gpt2_config

_MOST = 0.05  # of the training's time, beside the scorings
_LEVEL = 0.95
_BLOCK, _BATCH, _HELD_OUT = 128, 16, 32


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training to do."""

    followed: bool
    steps: int
    evaluations: int


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One training: seconds by the wall clock, and rows of exposure.jsonl where it was followed."""

    wall: float
    looks: list[dict[str, Any]]

    @property
    def scoring(self) -> float:
        """Seconds in which canaries and references were scored."""
        return sum(float(look["seconds"]) for look in self.looks)


class TakeTurns(TrainerCallback):  # type: ignore[misc]
    """After each step the others have theirs."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._turns.next()


def main() -> int:
    arguments = parse()
    _, tokenizer, manifest = corpus()
    say(
        f"GPT-2 of {GPT2LMHeadModel(tiny_gpt2_config(tokenizer)).num_parameters():,} parameters, "
        f"{arguments.steps} steps of {_BATCH} x {_BLOCK} tokens, {arguments.evaluations} "
        f"evaluations, {len(manifest.entries)} canaries and controls, "
        f"{torch.get_num_threads()} threads; three processes in turn, one of them followed"
    )
    settings = {"steps": arguments.steps, "evaluations": arguments.evaluations}
    rounds = []
    with workers(3, serve) as connections:
        for number in range(arguments.rounds):
            jobs = [Job(followed=role(number, i) == 0, **settings) for i in range(3)]
            rounds.append(alternate(connections, jobs))
            show(number, rounds[-1])
    return sum(not told(claim) for claim in claims(rounds))


def role(number: int, process: int) -> int:
    """0: followed; 1 and 2: not. In three rounds each process has each role once."""
    return (process - number) % 3


def serve(connection: Connection) -> None:
    """In a process of its own: trainings, as they are asked for."""
    transformers.utils.logging.set_verbosity_error()
    logging.getLogger("lmexposure").setLevel(logging.ERROR)  # the looks are shown below
    warnings.simplefilter("ignore")
    blocks, tokenizer, manifest = corpus()
    turns = Turns(connection)

    def once(job: Job, turns: Any) -> Cost:
        callback = ExposureCallback(manifest, preflight="off")
        return training(blocks, tokenizer, callback if job.followed else None, turns, job)

    # The first training of a process pays for what later ones find ready.
    once(Job(followed=True, steps=8, evaluations=4), Alone())
    connection.send("ready")
    try:
        while True:
            connection.send(once(connection.recv(), turns))
    except EOFError:
        return


class Alone:
    """Nobody else wants a turn."""

    clock = staticmethod(time.perf_counter)

    def next(self) -> None:
        """Goes on at once."""


def corpus() -> tuple[list[dict[str, Any]], Any, Any]:
    """Blocks to train on with canaries in them, their tokenizer, and the manifest."""
    formats = [load_format("random_number"), load_format("pin")]
    plan = Plan(formats=formats, canaries=8, repetitions=[1, 4, 16], controls=16, seed=3)
    clean = [line for line in sentences(20_000) if line]
    texts, manifest = insert(clean, plan)
    tokenizer = byte_level_tokenizer(clean, vocab_size=2048)
    tokenizer.pad_token = tokenizer.eos_token
    canaries = {c.text for c in manifest.canaries if c.role == "canary"}
    packed = pack(tokenizer, texts, separator=None, block_size=_BLOCK, atomic=canaries)
    ids = torch.from_numpy(packed.ids).long()
    return [{"input_ids": row, "labels": row} for row in ids], tokenizer, manifest


def training(
    blocks: list[dict[str, Any]],
    tokenizer: Any,
    callback: ExposureCallback | None,
    turns: Any,
    job: Job,
) -> Cost:
    """One training from scratch, evaluated every so many steps."""
    with tempfile.TemporaryDirectory() as out:
        settings = Arguments(
            out,
            max_steps=job.steps,
            per_device_train_batch_size=_BATCH,
            learning_rate=1e-3,
            eval_strategy="steps",
            eval_steps=max(1, job.steps // job.evaluations),
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        torch.manual_seed(0)
        trainer = Trainer(
            model=GPT2LMHeadModel(tiny_gpt2_config(tokenizer)),
            args=settings,
            train_dataset=blocks[_HELD_OUT:],
            eval_dataset=blocks[:_HELD_OUT],
            processing_class=tokenizer,
            callbacks=[] if callback is None else [callback],
        )
        trainer.pop_callback(PrinterCallback)
        trainer.add_callback(TakeTurns(turns))
        began = turns.clock()
        trainer.train()
        wall = turns.clock() - began
        path = Path(out) / "exposure.jsonl"
        looks = [json.loads(line) for line in path.read_text().splitlines()] if callback else []
    return Cost(wall=wall, looks=looks)


def show(number: int, costs: list[Cost]) -> None:
    followed, *plain = sorted(costs, key=lambda cost: not cost.looks)
    looks = ", ".join(
        f"step {look['step']}: {look['texts']} texts in {look['seconds']:.2f} s"
        for look in followed.looks
    )
    say(
        f"round {number}: with {followed.wall:.2f} s, without {plain[0].wall:.2f} s and "
        f"{plain[1].wall:.2f} s; {looks}"
    )


def claims(rounds: list[list[Cost]]) -> list[tuple[str, bool]]:
    """A claim holds where the whole interval does, and the interval is narrower than the claim."""
    seconds = np.array([[cost.wall for cost in costs] for costs in rounds])
    scoring = np.array([[cost.scoring for cost in costs] for costs in rounds])
    say(f"time that the scorings add to training: {shown(contrasts(seconds)[0])}")
    added, null = contrasts(seconds - scoring)
    held = added[2] <= _MOST and added[2] - added[1] <= _MOST
    what = f"time added beside the scorings: {shown(added)} <= {_MOST:.0%}"
    return [(f"{what} (one without: {shown(null)})", held)]


def shown(share: tuple[float, float, float]) -> str:
    return f"{share[0]:.1%} ({_LEVEL:.0%} interval {share[1]:.1%} to {share[2]:.1%})"


def contrasts(seconds: NDArray[np.float64]) -> list[tuple[float, float, float]]:
    """What following adds to a training, and what nothing adds: shares and their intervals.

    Where a process has its memory makes it faster or slower by some hundredths for good, and the
    machine has its days: both are taken out, as in a Latin square.

    Args:
        seconds: of each training, shape (rounds, processes).

    Returns:
        with against without, and one of the two without against the other.
    """
    rounds, processes = seconds.shape
    rows = []
    for number, process in np.ndindex(rounds, processes):
        part = role(number, process)
        roles = [part == 0, (part == 1) - 0.5 * (part != 0)]
        rows.append([*np.eye(rounds)[number], *np.eye(processes)[process, 1:], *map(float, roles)])
    design, logs = np.array(rows), np.log(seconds).ravel()
    found = np.linalg.lstsq(design, logs)[0]
    freedom = logs.size - design.shape[1]
    spread = np.sum((logs - design @ found) ** 2) / freedom
    errors = np.sqrt(spread * np.diag(np.linalg.inv(design.T @ design)))[-2:]
    half = student.ppf((1 + _LEVEL) / 2, freedom) * errors
    ends = zip(found[-2:], found[-2:] - half, found[-2:] + half, strict=True)
    return [tuple(float(np.expm1(end)) for end in one) for one in ends]


def told(claim: tuple[str, bool]) -> bool:
    say(f"{'reached' if claim[1] else 'MISSED '}  {claim[0]}")
    return claim[1]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--evaluations", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.rounds < 3:
        parser.error("--rounds must be at least 3: each process has each role once in three rounds")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
