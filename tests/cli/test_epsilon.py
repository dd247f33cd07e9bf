"""`lmexposure epsilon` is `lmexposure.epsilon`; what it prints is in the golden run."""

import json
from pathlib import Path

import numpy as np
import pytest
from cli.conftest import Call

from lmexposure._record import plain


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """600 scores of another tool; fair coins, and a third of those in memorised."""
    rng = np.random.default_rng(5)
    coins = rng.random(600) < 0.5
    scores = rng.normal(size=600) + 4 * (coins & (rng.random(600) < 0.3))
    lines = [f"{s},{int(c)}" for s, c in zip(scores, coins, strict=True)]
    path = tmp_path / "scores.csv"
    path.write_text("\n".join(["score,included", *lines]) + "\n")
    return path


@pytest.mark.slow
def test_the_command_says_what_the_library_says(call: Call, file: Path) -> None:
    import lmexposure as lx

    coins = ("--inclusion-probability", 0.5, "--delta", 1e-5, "--claimed-epsilon", 3)
    seen = call("epsilon", file, *coins, "--json")
    columns = np.loadtxt(file, delimiter=",", skiprows=1)
    found = lx.epsilon(
        columns[:, 0], columns[:, 1], inclusion_probability=0.5, deltas=(1e-5,), claim=3
    )
    assert json.loads(seen.out) == plain(found)


def test_coins_that_were_never_tossed_decide_no_claim(call: Call, file: Path) -> None:
    claim = ("--delta", 0, "--claimed-epsilon", 1)
    seen = call("epsilon", file, "--inclusion-probability", 0.01, *claim)
    assert seen.code == 3
    assert "no bound: 325 of 600 candidates went in, which an inclusion probability" in seen.out
    assert "not decided: no class of canaries has a bound" in seen.out
