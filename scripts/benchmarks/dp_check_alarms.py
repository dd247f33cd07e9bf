"""What the check of DP-SGD trainings calls wrong: right trainings, real loops, planted faults.

A claim is a line "reached" or "MISSED"; the exit code is how many were missed.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from models.dp_faults import FAULTS
from models.dp_loops import LOOPS, loop_of
from models.dp_trainings import ARCHITECTURES, Training, loss_of_documents, training_of
from opacus import PrivacyEngine
from scipy import stats
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lmexposure.cli.console import print_table, say
from lmexposure.models import dp_check

_FAULTS_FOUND = 34  # of 38
_SURE = 0.95  # that a check which keeps its level is within what is allowed
_TIMED = 5  # checks of each kind
_OPTIMIZERS = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)


def main() -> int:
    arguments = parse()
    if arguments.part == "seconds":  # of one version, for `speed`
        print(json.dumps(seconds()))
        return 0
    parts = PARTS if arguments.part == "all" else {arguments.part: PARTS[arguments.part]}
    return sum(not part(arguments) for part in parts.values())


def linear(arguments: argparse.Namespace) -> bool:
    """Right trainings of a small linear model: as many alarms as the level allows."""
    count = arguments.trainings or 3000
    allowed = int(stats.binom.ppf(_SURE, count, arguments.level))
    made = (linear_training(seed) for seed in range(arguments.first, arguments.first + count))
    return _alarms("trainings of a linear model", made, allowed, arguments)


def architectures(arguments: argparse.Namespace) -> bool:
    """Right trainings of four architectures."""
    count = arguments.trainings or 200
    allowed = int(stats.binom.ppf(_SURE, count, arguments.level))
    each = -(-count // len(ARCHITECTURES))
    made = (
        (f"{architecture}, seed {seed}", of_an_architecture(architecture, seed), {})
        for architecture in ARCHITECTURES
        for seed in range(arguments.first, arguments.first + each)
    )
    return _alarms("trainings of four architectures", made, allowed, arguments)


def loops(arguments: argparse.Namespace) -> bool:
    """Loops as people write them, under way for some steps and then checked: none is to alarm."""
    count, kinds = arguments.trainings or 100, list(LOOPS)
    made = (
        (f"{kinds[seed % len(kinds)]}, seed {seed}", *loop_of(kinds[seed % len(kinds)], seed))
        for seed in range(arguments.first, arguments.first + count)
    )
    return _alarms("real loops", made, 0, arguments)


def faults(arguments: argparse.Namespace) -> bool:
    """The planted ones, by what the check says of them."""
    rows, found = [], 0
    for name, fault in FAULTS.items():
        training, more = fault.plant()
        more = {"loss": loss_of_documents, "accountant": training.engine, **more}
        check = dp_check(*training.given(), level=arguments.level, **more)
        found += bool(check.failed)
        said = ", ".join(finding.name for finding in check.failed)
        rows.append([name, said or "not found" + (", not a pass" if check.not_seen else "")])
    print_table(["planted", "wrong in"], rows)
    missed = [name for name, said in rows if said.startswith("not found")]
    say(f"not found: {'; '.join(missed) or 'none'}")
    return _claim(found >= _FAULTS_FOUND, f"{found} of {len(FAULTS)} faults found, 34 asked for")


def speed(arguments: argparse.Namespace) -> bool:
    """The processor time of a check, next to that of another version; nothing is claimed of it."""
    now = seconds()
    before = _seconds_of(arguments.before) if arguments.before else {}
    rows = [
        [
            kind,
            f"{taken:.2f} s",
            f"{before[kind]:.2f} s" if before else "",
            f"{taken / before[kind]:.2f}" if before else "",
        ]
        for kind, taken in now.items()
    ]
    print_table(["a check of", "now", "before", "now / before"], rows)
    if before:
        ratio = sum(now.values()) / sum(before.values())
        say(f"a check takes {ratio:.2f} times as long as before")
    return True


PARTS: dict[str, Callable[[argparse.Namespace], bool]] = {
    "linear": linear,
    "architectures": architectures,
    "loops": loops,
    "faults": faults,
    "speed": speed,
}


def linear_training(seed: int) -> tuple[str, Training, dict[str, Any]]:
    """A regression that differs from those of other seeds in size and most settings."""
    draw = random.Random(f"linear {seed}")
    torch.manual_seed(seed)
    count, width = draw.choice([30, 96, 240]), draw.choice([3, 10, 40])
    bare = nn.Linear(width, draw.choice([1, 4]), bias=draw.random() < 0.7)
    data = TensorDataset(torch.randn(count, width), torch.randn(count, bare.out_features))
    optimizer = draw.choice(_OPTIMIZERS)(bare.parameters(), lr=draw.choice([0.5, 0.1, 1e-3]))
    with warnings.catch_warnings(action="ignore"):
        engine = PrivacyEngine(accountant="rdp")
        made = engine.make_private(
            module=bare,
            optimizer=optimizer,
            data_loader=DataLoader(data, batch_size=max(1, count // draw.choice([2, 8, 30]))),
            noise_multiplier=draw.choice([0.3, 0.7, 1.0, 3.0]),
            max_grad_norm=draw.choice([0.01, 0.3, 1.0, 10.0]),
        )
    return f"seed {seed}", Training(*made, engine, bare), {"loss": _squares}


def _squares(model: Any, batch: Any) -> torch.Tensor:
    inputs, wanted = batch
    return (model(inputs) - wanted).square().sum(1)  # type: ignore[no-any-return]


def of_an_architecture(architecture: str, seed: int) -> Training:
    """One that differs from those of other seeds in most settings."""
    draw = random.Random(f"{architecture} {seed}")
    return training_of(
        architecture,
        seed,
        optimizer=draw.choice(_OPTIMIZERS),
        lr=draw.choice([0.1, 1e-2, 1e-4]),
        noise_multiplier=draw.choice([0.4, 0.7, 1.0, 2.5]),
        max_grad_norm=draw.choice([0.01, 0.1, 1.0, 5.0]),
    )


def _alarms(
    what: str,
    made: Iterator[tuple[str, Training, dict[str, Any]]],
    allowed: int,
    arguments: argparse.Namespace,
) -> bool:
    """Whether no more than `allowed` are called wrong or not seen; each that is, is shown."""
    alarms, checked, taken = 0, 0, 0.0
    for name, training, more in made:
        began = time.process_time()
        more = {"loss": loss_of_documents, "level": arguments.level, **more}
        check = dp_check(*training.given(), **more)
        taken += time.process_time() - began
        checked += 1
        if not check.passed:
            alarms += 1
            say(f"{name}: {[(f.name, f.message) for f in (*check.failed, *check.not_seen)]}")
    said = f"{alarms} of {checked} right {what} raised an alarm at level {arguments.level:g}"
    return _claim(alarms <= allowed, f"{said}, {allowed} allowed; {taken / checked:.2f} s each")


def _claim(reached: bool, said: str) -> bool:
    say(f"{'reached' if reached else 'MISSED'}: {said}")
    return reached


def seconds() -> dict[str, float]:
    """Processor time of the check of a training, the mean of some, by its kind."""
    kinds: dict[str, Callable[[int], tuple[str, Training, dict[str, Any]]]] = {
        "linear": linear_training,
        **{a: _named(a) for a in ARCHITECTURES},
    }
    found = {}
    for kind, make in kinds.items():
        taken = 0.0
        for seed in range(_TIMED + 1):
            _, training, more = make(seed)
            began = time.process_time()
            dp_check(*training.given(), **{"loss": loss_of_documents, **more})
            taken += time.process_time() - began if seed else 0.0  # the first warms up
        found[kind] = taken / _TIMED
    return found


def _named(architecture: str) -> Callable[[int], tuple[str, Training, dict[str, Any]]]:
    return lambda seed: ("", of_an_architecture(architecture, seed), {})


def _seconds_of(version: Path) -> dict[str, float]:
    """By the same trainings and the package of another checkout."""
    paths = os.pathsep.join([str(version.resolve()), str(Path(__file__).parents[2] / "tests")])
    done = subprocess.run(
        [sys.executable, __file__, "seconds"],
        env={**os.environ, "PYTHONPATH": paths},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=[*PARTS, "all", "seconds"])
    parser.add_argument("--trainings", type=int, help="how many; by default as many as are claimed")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--level", type=float, default=0.001, help="of all tests of a check")
    parser.add_argument("--before", type=Path, help="a checkout of another version, for speed")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
