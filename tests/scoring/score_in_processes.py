"""Called in each of several processes: what it got for the same texts, and how it failed."""

import json
import random
from pathlib import Path

import numpy as np
import torch
import torch.distributed
from scoring.families import family

from lmexposure.core import Encoded
from lmexposure.errors import NumericalError
from lmexposure.scoring import score_encoded

BROKEN = 59  # a token that only the last texts hold


def texts() -> list[Encoded]:
    rng = random.Random(6)
    rows = [[1, 5, 9, *rng.choices(range(2, 9), k=rng.randrange(2, 7))] for _ in range(200)]
    return [Encoded(ids=row, scored_from=1) for row in rows]


def main(out: Path) -> None:
    torch.distributed.init_process_group("gloo")
    model, encoded, seen = family("gpt2"), texts(), [0]
    scores = score_encoded(model, encoded, progress=lambda done, _: seen.append(done))
    with torch.no_grad():
        model.transformer.wte.weight[BROKEN] = float("nan")
        model.lm_head.weight = torch.nn.Parameter(torch.ones_like(model.lm_head.weight))
    try:
        score_encoded(model, [*encoded, Encoded(ids=[1, 5, 9, BROKEN, 2, 2], scored_from=1)])
        failure = ""
    except NumericalError as error:
        failure = str(error)
    said = {
        "processes": torch.distributed.get_world_size(),
        "scored": seen[-1],
        "totals": [bits.hex() for bits in np.asarray(scores.totals).tolist()],
        "failure": failure,
    }
    (out / f"process-{torch.distributed.get_rank()}.json").write_text(json.dumps(said))
    torch.distributed.destroy_process_group()
