"""False alarms of the check of DP-SGD trainings: right trainings, over four architectures.

Each training has weights, noise, sampler, noise multiplier, clipping norm and optimizer of its own
and nothing wrong. At most 2 of 200 may raise an alarm; a claim is a line "reached" or "MISSED", and
the exit code is 1 where it is missed. Next to it is what a check takes.
"""

import argparse
import random
import time

import torch
from models.dp_trainings import ARCHITECTURES, loss_of_documents, training_of

from lmexposure.cli.console import print_table, say
from lmexposure.models import DpCheck, dp_check

_ALLOWED = 0.01  # of the trainings


def main() -> int:
    arguments = parse()
    alarms, rows = 0, []
    for architecture in ARCHITECTURES:
        began, found = time.process_time(), []
        for seed in range(arguments.seeds):
            check = checked(architecture, seed, arguments.level)
            found.append(check)
            if not check.passed:
                say(f"{architecture}, seed {seed}: {check.failed}")
        taken = (time.process_time() - began) / arguments.seeds
        wrong = sum(not check.passed for check in found)
        alarms += wrong
        rows.append([architecture, str(len(found)), str(wrong), f"{taken:.2f} s"])
    print_table(["architecture", "trainings", "alarms", "CPU time of one"], rows)
    trainings = arguments.seeds * len(ARCHITECTURES)
    reached = alarms <= _ALLOWED * trainings
    word = "reached" if reached else "MISSED"
    say(f"{word}: {alarms} of {trainings} right trainings raised an alarm, at most 1 % allowed")
    return int(not reached)


def checked(architecture: str, seed: int, level: float) -> DpCheck:
    """The check of a right training that differs from those of other seeds in most settings."""
    draw = random.Random(f"{architecture} {seed}")
    training = training_of(
        architecture,
        seed,
        optimizer=draw.choice([torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW]),
        lr=draw.choice([0.1, 1e-2, 1e-4]),
        noise_multiplier=draw.choice([0.4, 0.7, 1.0, 2.5]),
        max_grad_norm=draw.choice([0.01, 0.1, 1.0, 5.0]),
    )
    return dp_check(
        training.model, training.optimizer, training.loader, loss=loss_of_documents, level=level
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=50, help="trainings of each architecture")
    parser.add_argument("--level", type=float, default=0.001, help="of all tests of a check")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
