"""The scoring benchmark: references a second, exact ranks, drawn ranks, and what they cost.

Every claim stands as a line "reached" or "MISSED" at the end, and the exit code counts the missed.
"""

import argparse
import os
import sys
from pathlib import Path

import scoring_ranks
import scoring_references
import scoring_steps
import torch

from lmexposure.cli.console import say

PARTS = {
    "references": scoring_references.main,
    "ranks": scoring_ranks.main,
    "steps": scoring_steps.main,
}


def main() -> int:
    arguments = parse()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        say("skipped: there is no GPU here")
        return 0
    claims: list[tuple[str, bool]] = []
    say(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {os.cpu_count()} cores")
    for name, part in PARTS.items():
        if arguments.only in (None, name):
            claims += part(arguments)
    for claim, holds in claims:
        say(f"{'reached' if holds else 'MISSED '}  {claim}")
    return sum(not holds for _, holds in claims)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path, help="a UTF-8 text file, a document a line")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark_scoring"))
    parser.add_argument("--only", choices=list(PARTS))
    scoring_references.add_arguments(parser)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
