"""Time and memory of all that a sweep says, from the scores of many models and texts.

Scores are made, none is trained: bell curves of texts that lie apart. Everything that is computed
from matrices is timed: each score under each attack, intervals whose units are models, each text by
itself, and the bounds on epsilon. At 64 models and 10,000 texts it must take less than 60 s of
processor time and 2 GB; above that the exit status is 1.
"""

import argparse
import resource
import sys
import time

from made_matrices import made_matrices, made_models, made_plan

from lmexposure.records import SCORES
from lmexposure.sweeps import analyse

MOST_SECONDS, MOST_MEGABYTES = 60, 2_000


def main() -> int:
    """Print seconds and megabytes; return 1 above what is promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=64)
    parser.add_argument("--canaries", type=int, default=10_000)
    parser.add_argument("--population", type=int, default=0)
    chosen = parser.parse_args()
    plan = made_plan(chosen.models, chosen.canaries, chosen.population, kinds=("pin/x1", "key/x1"))
    matrices = made_matrices(plan, shift=1.0, names=SCORES)
    models = made_models(matrices)
    begun = time.process_time()
    result = analyse(matrices, plan, documents=100_000, models=models)
    seconds = time.process_time() - begun
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{chosen.models} models, {chosen.canaries:,} canaries, {chosen.population:,} documents: "
        f"{len(result.scores)} rows of {len(matrices.scores)} scores in {seconds:.1f} s of "
        f"processor time, at most {megabytes:,.0f} MB"
    )
    return int(seconds > MOST_SECONDS or megabytes > MOST_MEGABYTES)


if __name__ == "__main__":
    sys.exit(main())
